{{/* The name of a cluster-wide object: two releases in two namespaces must not share one. */}}
{{- define "groundplane.clusterName" -}}
{{ index . 1 }}-{{ (index . 0).Release.Namespace }}
{{- end }}

{{/* metadata of a cluster-wide object: (list . name component) */}}
{{- define "groundplane.clusterMetadata" -}}
name: {{ include "groundplane.clusterName" . }}
labels:
  {{- include "groundplane.labels" (index . 0) | nindent 2 }}
  app.kubernetes.io/component: {{ index . 2 }}
{{- end }}

{{/* metadata of an object of any namespace: (list . name component namespace). In another one it is named for the release's. */}}
{{- define "groundplane.metadataIn" -}}
{{- $root := index . 0 -}}
name: {{ include "groundplane.nameIn" (list $root (index . 1) (index . 3)) }}
namespace: {{ index . 3 }}
labels:
  {{- include "groundplane.labels" $root | nindent 2 }}
  app.kubernetes.io/component: {{ index . 2 }}
{{- end }}

{{- define "groundplane.nameIn" -}}
{{- if eq (index . 2) (index . 0).Release.Namespace }}{{ index . 1 }}{{ else }}{{ include "groundplane.clusterName" . }}{{ end -}}
{{- end }}

{{/* A binding of a role to a component's ServiceAccount: (list . bindingKind roleKind name component namespace) */}}
{{- define "groundplane.binding" -}}
{{- $root := index . 0 -}}
{{- $name := index . 3 -}}
{{- $component := index . 4 -}}
{{- $namespace := index . 5 -}}
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ index . 1 }}
metadata:
  {{- if $namespace }}
  {{- $name = include "groundplane.nameIn" (list $root $name $namespace) }}
  {{- include "groundplane.metadataIn" (list $root (index . 3) $component $namespace) | nindent 2 }}
  {{- else }}
  {{- $name = include "groundplane.clusterName" (list $root $name) }}
  {{- include "groundplane.clusterMetadata" (list $root (index . 3) $component) | nindent 2 }}
  {{- end }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: {{ index . 2 }}
  name: {{ $name }}
subjects:
  - kind: ServiceAccount
    name: groundplane-{{ $component }}
    namespace: {{ $root.Release.Namespace }}
{{- end }}
