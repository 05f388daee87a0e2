{{/* What is set for all pipelines, under what is set for this one; but where probes ask is the chart's to say. The context is {root, name, own}. */}}
{{- define "millrace.config" -}}
{{- $all := .root.Values -}}
{{- $base := dict "log.format" "json" "reload.watch" $all.watch "source.postgres.handover" $all.handover -}}
{{- $merged := dict -}}{{/* not by merge, for which false is nothing */}}
{{- range list $base $all.config (.own.config | default dict) }}{{ range $path, $value := . }}{{ $_ := set $merged $path $value }}{{ end }}{{ end -}}
{{- if or (index $merged "http.tls_certificate") (index $merged "http.tls_key") -}}
{{ fail (printf "pipeline %s: probes of Kubernetes' ask http on port 9464: leave http.tls_… out" .name) }}
{{- end -}}
{{- $_ := set $merged "http.address" ":9464" }}{{ $_ := set $merged "http.required" true -}}
{{- $merged | toJson | replace "{name}" .name -}}
{{- end -}}

{{/* Of an object or a file: names have no _ and no capitals, and 63 characters at most. */}}
{{- define "millrace.name" -}}
{{- $name := printf "%s-%s" .root.Release.Name (.name | lower | replace "_" "-" | replace "." "-") -}}
{{- if gt (len $name) 63 }}{{ fail (printf "pipeline %s: \"%s\" is longer than 63 characters; give it a shorter name" .name $name) }}{{ end -}}
{{- $name -}}
{{- end -}}

{{/* Options that a running millrace takes up (docs/upgrading.md): a change of them needs no new pod. With a pair those alone that hold at once, for it refuses
     others while one stands by. A test compares both lists with the program's. */}}
{{- define "millrace.atOnce" -}}
pipeline.latency pipeline.status_interval pipeline.shutdown_deadline pipeline.reconnect_max log.level snapshot.added_tables
{{- end -}}
{{- define "millrace.between" -}}
tables excluded_tables tombstones skipped_operations context.headers sink.kafka.oversize sink.kafka.dead_letter_topic publication.where publication.columns publication.alter
{{- end -}}

{{/* Seconds of pipeline.shutdown_deadline, and ten. */}}
{{- define "millrace.grace" -}}
{{- $text := index . "pipeline.shutdown_deadline" | default "30s" | toString -}}
{{- $units := dict "ms" 0 "s" 1 "m" 60 "h" 3600 -}}
{{- regexFind "^[0-9]+" $text | int | mul (index $units (regexFind "[a-z]+$" $text) | default 0) | add 10 -}}
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

{{/* The spec of a pod: of a Deployment, or of a Job that runs a command. The context is {root, own, object, pair, config, secrets, env, labels, args, job}. */}}
{{- define "millrace.pod" -}}
serviceAccountName: {{ $.root.Release.Name | quote }}
automountServiceAccountToken: false
enableServiceLinks: false
{{- if $.job }}
restartPolicy: Never
{{- end }}
# Longer than pipeline.shutdown_deadline, another of which so means new pods.
terminationGracePeriodSeconds: {{ include "millrace.grace" $.config }}
{{- with $.root.Values.image.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . | quote }}
  {{- end }}
{{- end }}
tolerations:
  - {key: node.kubernetes.io/unreachable, operator: Exists, effect: NoExecute, tolerationSeconds: {{ $.root.Values.tolerationSeconds }}}
  - {key: node.kubernetes.io/not-ready, operator: Exists, effect: NoExecute, tolerationSeconds: {{ $.root.Values.tolerationSeconds }}}
{{- if and $.pair (not $.job) }}
affinity:
  podAntiAffinity:
    preferredDuringSchedulingIgnoredDuringExecution:
      - weight: 100
        podAffinityTerm:
          topologyKey: kubernetes.io/hostname
          labelSelector:
            matchLabels:
              {{- $.labels | nindent 14 }}
{{- end }}
securityContext:
  runAsNonRoot: true
  runAsUser: 65532
  runAsGroup: 65532
  fsGroup: 65532
  seccompProfile: {type: RuntimeDefault}
containers:
  - name: millrace
    image: "{{ $.root.Values.image.repository }}:{{ $.root.Values.image.tag | default $.root.Chart.AppVersion }}"
    args: {{ toJson $.args }}
    {{- with $.env }}
    env:
      {{- range $variable, $from := . }}
      - {name: {{ $variable | quote }}, valueFrom: {secretKeyRef: {name: {{ $from.secret | quote }}, key: {{ $from.key | quote }}}}}
      {{- end }}
    {{- end }}
    {{- if not $.job }}
    ports:
      - {name: http, containerPort: 9464}
    # Up means that the process works, also while PostgreSQL or Kafka is away. A pod that stands by is ready.
    startupProbe: {httpGet: {path: /healthz, port: http}, periodSeconds: 1, failureThreshold: 60}
    livenessProbe: {httpGet: {path: /healthz, port: http}, periodSeconds: 10, timeoutSeconds: 3, failureThreshold: 6}
    readinessProbe: {httpGet: {path: /readyz, port: http}, periodSeconds: 5, timeoutSeconds: 3}
    {{- end }}
    resources:
      {{- toYaml ($.resources | default $.own.resources | default $.root.Values.resources) | nindent 6 }}
    securityContext:
      allowPrivilegeEscalation: false
      readOnlyRootFilesystem: true
      capabilities: {drop: [ALL]}
    volumeMounts:
      - {name: config, mountPath: /etc/millrace, readOnly: true}
      - {name: tmp, mountPath: /var/tmp}
      {{- range $number, $_ := $.secrets }}
      - {name: secret-{{ $number }}, mountPath: /run/secrets/{{ . }}, readOnly: true}
      {{- end }}
volumes:
  # As folders, not by subPath: so files follow a change.
  - name: config
    configMap: {name: {{ $.object | quote }}}
  # For millrace verify.
  - name: tmp
    emptyDir: {sizeLimit: 4Gi}
  {{- range $number, $_ := $.secrets }}
  - name: secret-{{ $number }}
    secret: {secretName: {{ . | quote }}, defaultMode: 0440}
  {{- end }}
{{- end -}}
