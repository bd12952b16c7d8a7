{{/*
Rules of NetworkPolicies. An empty list of peers in a policy means everybody, so peers are written only where there are some, and
a rule that lets somebody in is left out where nobody is meant.
*/}}

{{/* Out to name servers. */}}
{{- define "groundplane.egress.dns" -}}
- ports:
    - {protocol: UDP, port: 53}
    - {protocol: TCP, port: 53}
  {{- with .Values.networkPolicy.dns }}
  to:
    {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end }}

{{/* Out to the API server. */}}
{{- define "groundplane.egress.apiServer" -}}
- ports:
    {{- range .Values.networkPolicy.apiServer.ports }}
    - {protocol: TCP, port: {{ . }}}
    {{- end }}
  {{- with .Values.networkPolicy.apiServer.peers }}
  to:
    {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end }}

{{/* Out to the shards of the namespaces that are served. */}}
{{- define "groundplane.egress.shards" -}}
- ports:
    - {protocol: TCP, port: 8081}
  to:
    - podSelector:
        matchLabels:
          {{- include "groundplane.selector" (list . "shard") | nindent 10 }}
      {{- $namespaces := include "groundplane.namespaces" . }}
      {{- if $namespaces }}
      namespaceSelector:
        matchExpressions:
          - key: kubernetes.io/metadata.name
            operator: In
            values: {{ toJson (splitList "," $namespaces) }}
      {{- else }}
      namespaceSelector: {}
      {{- end }}
{{- end }}

{{/* Out to the embedding server: its peers on any port, since a policy counts ports of pods; or anybody on the URL's port. */}}
{{- define "groundplane.egress.embedder" -}}
{{- if eq .Values.embedder.kind "openai" }}
{{- if .Values.networkPolicy.embedder }}
- to:
    {{- toYaml .Values.networkPolicy.embedder | nindent 4 }}
{{- else }}
{{- $url := urlParse (.Values.embedder.url | default "https://from-extra-env") }}
{{- $port := regexFind ":[0-9]+$" $url.host | trimPrefix ":" | default (eq $url.scheme "http" | ternary "80" "443") }}
- ports:
    - {protocol: TCP, port: {{ $port }}}
{{- end }}
{{- end }}
{{- end }}
