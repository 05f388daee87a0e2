{{/* What is set for all pipelines, under what is set for this one. The context is {root, name, own}. */}}
{{- define "millrace.config" -}}
{{- $all := .root.Values -}}
{{- $base := dict "http.address" ":9464" "http.required" true "log.format" "json" "reload.watch" $all.watch "secrets.watch" $all.watch "source.postgres.handover" $all.handover -}}
{{- $merged := dict -}}{{/* not by merge, for which false is nothing */}}
{{- range list $base $all.config (.own.config | default dict) }}{{ range $path, $value := . }}{{ $_ := set $merged $path $value }}{{ end }}{{ end -}}
{{- $merged | toJson | replace "{name}" .name -}}
{{- end -}}

{{/* Of an object or a file: names have no _ and no capitals, and 63 characters at most. */}}
{{- define "millrace.name" -}}
{{- $name := printf "%s-%s" .root.Release.Name (.name | lower | replace "_" "-" | replace "." "-") -}}
{{- if gt (len $name) 63 }}{{ fail (printf "pipeline %s: \"%s\" is longer than 63 characters; give it a shorter name" .name $name) }}{{ end -}}
{{- $name -}}
{{- end -}}

{{/* Options that a running millrace takes up (docs/reload.md): a change of them needs no new pod. With a pair those alone that hold at once, for it refuses
     others while one stands by. A test compares both lists with the program's. */}}
{{- define "millrace.atOnce" -}}
pipeline.latency pipeline.coalesce pipeline.status_interval pipeline.shutdown_deadline pipeline.reconnect_max log.level snapshot.added_tables
{{- end -}}
{{- define "millrace.between" -}}
tables excluded_tables tombstones skipped_operations sink.kafka.oversize sink.kafka.dead_letter_topic publication.where publication.columns publication.alter
{{- end -}}

{{- define "millrace.labels" -}}
app.kubernetes.io/name: millrace
app.kubernetes.io/instance: {{ .root.Release.Name | quote }}
app.kubernetes.io/component: {{ .object | quote }}
{{- end -}}

{{/* Rules of a network policy for {places, port}. */}}
{{- define "millrace.egress" -}}
{{- range .places }}
- to:
    {{- if .namespace }}
    - namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: {{ .namespace | quote }}}}
    {{- else }}
    - ipBlock: {cidr: {{ .cidr | quote }}}
    {{- end }}
  ports:
    - {protocol: TCP, port: {{ .port }}}
{{- else }}
- ports:
    - {protocol: TCP, port: {{ .port }}}
{{- end }}
{{- end -}}
