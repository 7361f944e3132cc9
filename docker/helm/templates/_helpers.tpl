{{- define "spu-assigner.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 40 | trimSuffix "-" }}
{{- end }}

{{/* At most 40 letters: StatefulSets, Deployments and their pods append theirs. */}}
{{- define "spu-assigner.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" }}
{{- else if contains (include "spu-assigner.name" .) .Release.Name }}
{{- .Release.Name | trunc 40 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name (include "spu-assigner.name" .) | trunc 40 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{- define "spu-assigner.selector" -}}
app.kubernetes.io/name: {{ include "spu-assigner.name" . | quote }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end }}

{{- define "spu-assigner.labels" -}}
{{ include "spu-assigner.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- define "spu-assigner.serviceAccountName" -}}
{{- $default := ternary (include "spu-assigner.fullname" .) "default" .Values.serviceAccount.create }}
{{- .Values.serviceAccount.name | default $default }}
{{- end }}

{{- define "spu-assigner.servers" -}}
{{- required "kafka.bootstrapServers is empty; expected host:port, several with commas" .Values.kafka.bootstrapServers }}
{{- end }}

{{/* What of a pod is the same for all parts; given (dict "root" $ "part" .Values.job). */}}
{{- define "spu-assigner.pod" -}}
serviceAccountName: {{ include "spu-assigner.serviceAccountName" .root | quote }}
automountServiceAccountToken: false
enableServiceLinks: false
{{- with .root.Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  fsGroup: 10001
  # Applied to all files at each start it would let the group write to the checkpoint, which the job rejects.
  fsGroupChangePolicy: OnRootMismatch
  seccompProfile:
    type: RuntimeDefault
{{- with .part.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .part.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .part.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "spu-assigner.image" -}}
image: "{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}"
imagePullPolicy: {{ .Values.image.pullPolicy }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities:
    drop: [ALL]
{{- end }}

{{/* `security` with what a part overrides, as YAML. */}}
{{- define "spu-assigner.security" -}}
{{- mustMergeOverwrite (deepCopy .root.Values.security) .part.security | toYaml }}
{{- end }}

{{/* The variables by which a part reaches Kafka. */}}
{{- define "spu-assigner.kafkaEnv" -}}
- name: KAFKA_BOOTSTRAP_SERVERS
  value: {{ include "spu-assigner.servers" .root | quote }}
{{- with .root.Values.kafka.topicPrefix }}
- name: SPU_ASSIGNER_TOPIC_PREFIX
  value: {{ . | quote }}
{{- end }}
{{- include "spu-assigner.securityEnv" (merge (dict "variables" "SPU_ASSIGNER") .) }}
{{- end }}

{{/* The user of a part, in variables that begin alike: for the job's Kafka, or for another. */}}
{{- define "spu-assigner.securityEnv" }}
{{- $security := include "spu-assigner.security" . | fromYaml }}
{{- $tls := $security.tls }}
- name: {{ .variables }}_SECURITY_PROTOCOL
  value: {{ $security.protocol }}
{{- if hasPrefix "SASL_" $security.protocol }}
- name: {{ .variables }}_SASL_MECHANISM
  value: {{ $security.sasl.mechanism }}
- name: {{ .variables }}_SASL_USERNAME
  value: {{ required "security.sasl.username is empty; expected a user, as security.protocol has SASL" $security.sasl.username | quote }}
- name: {{ .variables }}_SASL_PASSWORD
  valueFrom:
    secretKeyRef:
      name: {{ required "security.sasl.secret is empty; expected the Secret with the password of security.sasl.username" $security.sasl.secret | quote }}
      key: {{ $security.sasl.key | quote }}
{{- end }}
{{- if hasSuffix "SSL" $security.protocol }}
{{- if $tls.ca.secret }}
- name: {{ .variables }}_SSL_CA_FILE
  value: /run/spu-assigner/ca.crt
{{- end }}
{{- if $tls.client.secret }}
- name: {{ .variables }}_SSL_CERTIFICATE_FILE
  value: /run/spu-assigner/client.crt
- name: {{ .variables }}_SSL_KEY_FILE
  value: /run/spu-assigner/client.key
{{- end }}
{{- end }}
{{- end }}

{{/* "true" if a part has certificates or a key in files. */}}
{{- define "spu-assigner.hasFiles" -}}
{{- $security := include "spu-assigner.security" . | fromYaml }}
{{- if and (hasSuffix "SSL" $security.protocol) (or $security.tls.ca.secret $security.tls.client.secret) }}true{{ end }}
{{- end }}

{{/* A key must be a file of mode 0600 of the user who reads it; files of a Secret belong to root. */}}
{{- define "spu-assigner.initContainers" -}}
{{- if include "spu-assigner.hasFiles" . }}
initContainers:
  - name: keys
    {{- include "spu-assigner.image" .root | nindent 4 }}
    command: [/bin/sh, -ec, "install -m 0600 /etc/spu-assigner/secrets/* /run/spu-assigner/"]
    resources:
      requests: {cpu: 10m, memory: 16Mi}
      limits: {memory: 64Mi}
    volumeMounts:
      - {name: secrets, mountPath: /etc/spu-assigner/secrets, readOnly: true}
      - {name: keys, mountPath: /run/spu-assigner}
{{- end }}
{{- end }}

{{/* What may be written, and the files of Secrets. */}}
{{- define "spu-assigner.mounts" -}}
- {name: tmp, mountPath: /tmp}
- {name: work, mountPath: /work}
{{- if include "spu-assigner.hasFiles" . }}
- {name: keys, mountPath: /run/spu-assigner, readOnly: true}
{{- end }}
{{- end }}

{{- define "spu-assigner.volumes" -}}
{{- $tls := (include "spu-assigner.security" . | fromYaml).tls }}
- name: tmp
  emptyDir:
    sizeLimit: {{ .root.Values.scratch.tmp }}
- name: work
  emptyDir:
    sizeLimit: {{ .root.Values.scratch.work }}
{{- if include "spu-assigner.hasFiles" . }}
- name: keys
  emptyDir:
    medium: Memory
    sizeLimit: 1Mi
- name: secrets
  projected:
    defaultMode: 0440
    sources:
      {{- if $tls.ca.secret }}
      - secret:
          name: {{ $tls.ca.secret | quote }}
          items: [{key: {{ $tls.ca.key | quote }}, path: ca.crt}]
      {{- end }}
      {{- if $tls.client.secret }}
      - secret:
          name: {{ $tls.client.secret | quote }}
          items:
            - {key: {{ $tls.client.certificate | quote }}, path: client.crt}
            - {key: {{ $tls.client.key | quote }}, path: client.key}
      {{- end }}
{{- end }}
{{- end }}
