{{/*
What the operator may do where TenantCorpora are served. A server-side apply is a patch, and a create where nothing is there yet.
Deleted are pods that were superseded, the Deployment of a corpus that is removed with its data, policies that were switched off.
Everything else goes with its owner.
*/}}
{{- define "groundplane.operator.rules" -}}
- apiGroups: [groundplane.dev]
  resources: [tenantcorpora]
  verbs: [get, list, watch, patch]
- apiGroups: [groundplane.dev]
  resources: [tenantcorpora/status]
  verbs: [patch]
- apiGroups: [""]
  resources: [configmaps, persistentvolumeclaims, serviceaccounts, services]
  verbs: [get, list, watch, create, patch]
- apiGroups: [""]
  resources: [pods]
  verbs: [get, list, watch, delete]
- apiGroups: [apps]
  resources: [deployments]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [batch]
  resources: [jobs]
  verbs: [get, list, watch, create, patch]
- apiGroups: [networking.k8s.io]
  resources: [networkpolicies]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [events.k8s.io]
  resources: [events]
  verbs: [create]
- apiGroups: [""]
  resources: [secrets]
  {{- with .Values.rbac.secretNames }}
  resourceNames: {{ toJson . }}
  {{- end }}
  verbs: [get] # whether a bucket's keys are there; never a list
{{- end }}

{{/* What it may do with its own two Secrets. The name of an object that is created cannot be limited. */}}
{{- define "groundplane.operator.keyRules" -}}
- apiGroups: [""]
  resources: [secrets]
  resourceNames: [groundplane-router-key, groundplane-operator-key]
  verbs: [get, patch]
- apiGroups: [""]
  resources: [secrets]
  verbs: [create]
{{- end }}
