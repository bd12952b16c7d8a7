{{/* Values that the schema takes and that contradict each other. Each line says what to change. */}}
{{- define "groundplane.checks" -}}
{{- $values := .Values -}}
{{- $env := list -}}
{{- range $values.router.extraEnv }}{{ $env = append $env .name }}{{ end -}}
{{- if and (eq $values.watch.scope "cluster") $values.watch.namespaces -}}
{{- fail "watch.namespaces is set, watch.scope is cluster: set watch.scope to namespaces, or leave the list empty" -}}
{{- end -}}
{{- if ne (empty $values.objectStore.url) (empty $values.objectStore.credentialsSecret) -}}
{{- fail "objectStore.url and objectStore.credentialsSecret: one of them is set: expected both, the bucket and its keys, or neither" -}}
{{- end -}}
{{- if and $values.embedder.url (ne $values.embedder.kind "openai") -}}
{{- fail (printf "embedder.url is set, embedder.kind is %s: set embedder.kind to openai, or leave the URL empty" $values.embedder.kind) -}}
{{- end -}}
{{- if and (eq $values.embedder.kind "openai") (not $values.embedder.url) (not (has "EMBEDDING_URL" $env)) -}}
{{- fail "embedder.kind is openai, embedder.url is empty: expected the URL of a server that speaks /v1/embeddings" -}}
{{- end -}}
{{- if and $values.embedder.apiKeySecret.name (ne $values.embedder.kind "openai") -}}
{{- fail (printf "embedder.apiKeySecret.name is set, embedder.kind is %s: a key is for openai alone" $values.embedder.kind) -}}
{{- end -}}
{{- if and $values.grep.directory (not $values.grep.volume) -}}
{{- fail "grep.directory is set, grep.volume is empty: expected the source of a volume" -}}
{{- end -}}
{{- range $label := list "app.kubernetes.io/name" "app.kubernetes.io/component" -}}
{{- if or (hasKey $values.commonLabels $label) (hasKey $values.router.podLabels $label) (hasKey $values.operator.podLabels $label) -}}
{{- fail (printf "label %s is the chart's own: policies of shards know router and operator by it" $label) -}}
{{- end -}}
{{- end -}}
{{- end }}
