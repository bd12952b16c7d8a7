{{/*
Names are fixed: the operator's NetworkPolicies, the router's key and agents' URLs rest on them. One release a namespace.
*/}}

{{/* Labels of every object; the component is the caller's. */}}
{{- define "groundplane.labels" -}}
{{- with .Values.commonLabels }}{{ toYaml . }}
{{ end -}}
app.kubernetes.io/name: groundplane
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{/* Labels by which a component's pods are known: (list . component). They can never change. */}}
{{- define "groundplane.selector" -}}
app.kubernetes.io/name: groundplane
app.kubernetes.io/component: {{ index . 1 }}
{{- end }}

{{/* metadata of an object of the release's namespace: (list . name component) */}}
{{- define "groundplane.metadata" -}}
{{- $root := index . 0 -}}
name: {{ index . 1 }}
namespace: {{ $root.Release.Namespace }}
labels:
  {{- include "groundplane.labels" $root | nindent 2 }}
  app.kubernetes.io/component: {{ index . 2 }}
{{- end }}

{{/* The image of all programs, tag or digest included. */}}
{{- define "groundplane.image" -}}
{{- $image := .Values.image -}}
{{- $registry := .Values.global.imageRegistry | default $image.registry -}}
{{- with $registry }}{{ . }}/{{ end -}}
{{- $image.repository -}}
{{- if $image.digest }}@{{ $image.digest }}{{ else }}:{{ $image.tag | default .Chart.AppVersion }}{{ end -}}
{{- end }}

{{/* Namespaces that are served, separated by commas; "" is all of them. The release's own is always among them. */}}
{{- define "groundplane.namespaces" -}}
{{- if eq .Values.watch.scope "namespaces" -}}
{{- append .Values.watch.namespaces .Release.Namespace | uniq | sortAlpha | join "," -}}
{{- end -}}
{{- end }}

{{/*
A container's `env`: (list variables extraEnv). An empty value is left out: the program's default holds. A variable of extraEnv
goes before ours of the same name.
*/}}
{{- define "groundplane.env" -}}
{{- $extra := index . 1 -}}
{{- $named := list -}}
{{- range $extra }}{{ $named = append $named .name }}{{ end -}}
{{- range $name, $value := index . 0 }}
{{- if and (ne ($value | toString) "") (not (has $name $named)) }}
- name: {{ $name }}
  value: {{ $value | toString | quote }}
{{- end }}
{{- end }}
{{- with $extra }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* A list of NetworkPolicyPeers as the operator reads it: JSON, "" for none. */}}
{{- define "groundplane.peers" -}}
{{- if . }}{{ toJson . }}{{ end -}}
{{- end }}

{{/* A number without an exponent, which Helm writes for large ones. */}}
{{- define "groundplane.number" -}}
{{- if eq (float64 (int64 .)) (float64 .) }}{{ int64 . }}{{ else }}{{ . }}{{ end -}}
{{- end }}

{{/* What the restricted Pod Security Standard asks of a pod. */}}
{{- define "groundplane.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
fsGroupChangePolicy: OnRootMismatch
seccompProfile:
  type: RuntimeDefault
{{- end }}

{{/* The same of a container. */}}
{{- define "groundplane.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end }}

{{/* metadata of the pods of a component: (list . component workload) */}}
{{- define "groundplane.podMetadata" -}}
{{- $root := index . 0 -}}
{{- $component := index . 1 -}}
{{- $workload := index . 2 -}}
{{- $annotations := dict -}}
{{- if $root.Values.metrics.scrapeAnnotations -}}
{{- $annotations = dict "prometheus.io/scrape" "true" "prometheus.io/port" "8080" "prometheus.io/path" "/metrics" -}}
{{- end -}}
{{- with merge (dict) $workload.podAnnotations $annotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
labels:
  {{- $ours := fromYaml (include "groundplane.labels" $root) -}}
  {{- $selector := fromYaml (include "groundplane.selector" (list $root $component)) -}}
  {{- toYaml (merge (dict) $selector (omit $ours "helm.sh/chart" "app.kubernetes.io/version") $workload.podLabels) | nindent 2 }}
{{- end }}

{{/* Fields of a pod that both Deployments have: (list . component workload) */}}
{{- define "groundplane.podFields" -}}
{{- $root := index . 0 -}}
{{- $component := index . 1 -}}
{{- $workload := index . 2 -}}
serviceAccountName: groundplane-{{ $component }}
automountServiceAccountToken: true
enableServiceLinks: false
securityContext:
  {{- include "groundplane.podSecurity" $root | nindent 2 }}
{{- with $root.Values.image.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
{{- with $workload.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $workload.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $workload.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $workload.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- end }}
