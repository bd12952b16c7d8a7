{{/*
Where the keyword tier searches, "" for nowhere. It follows no links below that directory, and the files of a ConfigMap, a Secret
or a projected volume are links into `..data`: so the search begins there.
*/}}
{{- define "groundplane.grepDirectory" -}}
{{- $grep := .Values.grep -}}
{{- if $grep.volume -}}
{{- $path := list "/var/lib/groundplane/grep" -}}
{{- range list "configMap" "secret" "projected" -}}
{{- if hasKey $grep.volume . }}{{ $path = append $path "..data" }}{{ end -}}
{{- end -}}
{{- if $grep.directory }}{{ $path = append $path $grep.directory }}{{ end -}}
{{- join "/" $path -}}
{{- end -}}
{{- end }}
