{{/* What the router may do where TenantCorpora are served: read them, its directory. */}}
{{- define "groundplane.router.rules" -}}
- apiGroups: [groundplane.dev]
  resources: [tenantcorpora]
  verbs: [get, list, watch]
{{- end }}
