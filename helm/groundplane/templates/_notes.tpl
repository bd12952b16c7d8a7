{{/* What is printed after an install or an upgrade: next steps, and what the values make one think of. */}}
{{- define "groundplane.notes" -}}
Groundplane {{ .Chart.AppVersion }} is {{ if .Release.IsInstall }}installed{{ else }}upgraded{{ end }} in namespace {{ .Release.Namespace }}, for {{ if eq .Values.watch.scope "cluster" }}all namespaces{{ else }}{{ include "groundplane.namespaces" . }}{{ end }}.
{{- if .Release.IsInstall }}
The routers wait in ContainerCreating until the operator has made the Secret groundplane-router-key: seconds.
{{- end }}

Next:

  kubectl -n {{ .Release.Namespace }} rollout status deployment/groundplane-router --timeout=2m
{{- if and .Values.test.enabled .Release.IsInstall }}
  helm -n {{ .Release.Namespace }} test {{ .Release.Name }}
{{- else }}
  kubectl get tenantcorpora --all-namespaces
{{- end }}
  kubectl apply -f - <<END
  apiVersion: groundplane.dev/v1alpha1
  kind: TenantCorpus
  metadata: {name: acme, namespace: {{ .Release.Namespace }}}
  spec:
    tenant: acme
    subjects:
      - {namespace: {{ .Release.Namespace }}, serviceAccount: acme-agent, access: [read, write]}
    {{- if not .Values.objectStore.url }}
    storage: {size: 10Gi}
    {{- end }}
  END

A pod of that ServiceAccount, with a projected token of audience groundplane, asks http://groundplane-router.{{ .Release.Namespace }}.svc/v1/ground.
{{- if .Values.objectStore.url }}
Each namespace with corpora needs the Secret {{ .Values.objectStore.credentialsSecret }} (access-key, secret-key).
{{- end }}
{{- if not .Values.objectStore.url }}

WARNING: objectStore.url is empty. A corpus that names no bucket of its own lies on one volume, and is lost with it.
{{- end }}
{{- if eq (int .Values.router.replicas) 1 }}

WARNING: router.replicas is 1. While its pod is replaced nobody gets an answer.
{{- end }}
{{- if eq .Values.embedder.kind "none" }}

WARNING: embedder.kind is none. Documents cannot be indexed, and nothing is searched by meaning.
{{- end }}
{{- if not .Values.networkPolicy.enabled }}

WARNING: networkPolicy.enabled is false. Only tokens keep other pods from router and shards.
{{- end }}
{{- if and .Values.grep.volume (eq .Values.watch.scope "cluster") }}

WARNING: what lies in grep.volume is shown to every caller. Never tenants' data.
{{- end }}
{{- end }}
