{{- define "sandglass.selector" -}}
app.kubernetes.io/name: sandglass
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "sandglass.labels" -}}
{{ include "sandglass.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{- define "sandglass.redis" -}}
{{ if .Values.redis.enabled }}{{ .Release.Name }}-redis{{ else }}{{ .Values.secrets.redis }}{{ end }}
{{- end }}

{{- define "sandglass.check" -}}
{{- if not (has .Values.shape (list "pods" "native" "native-root")) }}
{{- fail (printf "shape must be pods, native or native-root, not %q" .Values.shape) }}
{{- end }}
{{- end }}
