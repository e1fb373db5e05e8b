{{- /* Labels of every object beside those of its manifest. */ -}}
{{- define "mbcas.labels" -}}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{- /* What no schema can say. */ -}}
{{- define "mbcas.check" -}}
{{- if ne .Release.Namespace "mbcas-system" }}
{{- fail (printf "the release is in namespace %q, and MBCAS runs in mbcas-system only, which its policies and roles name: add --namespace mbcas-system" .Release.Namespace) }}
{{- end }}
{{- $namespace := lookup "v1" "Namespace" "" "mbcas-system" }}
{{- $level := dig "metadata" "labels" "pod-security.kubernetes.io/enforce" "" $namespace }}
{{- if not (has $level (list "" "privileged")) }}
{{- fail (printf "namespace mbcas-system enforces the Pod Security level %q, which refuses the agents: they mount /sys/fs/cgroup, read-only; run: kubectl label namespace mbcas-system pod-security.kubernetes.io/enforce=privileged --overwrite" $level) }}
{{- end }}
{{- if and .Values.users.subjects (not .Values.users.role) }}
{{- fail "users.subjects names subjects, and users.role is false, so there is no role to bind them to: set users.role=true" }}
{{- end }}
{{- $metrics := .Values.controller.metrics }}
{{- if and $metrics.certificateSecret (not $metrics.secure) }}
{{- fail "controller.metrics.certificateSecret names a Secret, and metrics are served over plain HTTP: set controller.metrics.secure=true" }}
{{- end }}
{{- if and $metrics.serverName (not $metrics.certificateSecret) }}
{{- fail "controller.metrics.serverName is the name in a certificate, and there is none: set controller.metrics.certificateSecret" }}
{{- end }}
{{- end }}

{{- /* The image of a program; argument: the root, and the name. */ -}}
{{- define "mbcas.image" -}}
{{- $root := index . 0 -}}
image: {{ printf "%s/%s:%s" $root.Values.image.registry (index . 1) (default $root.Chart.AppVersion $root.Values.image.tag) | quote }}
{{- with $root.Values.image.pullPolicy }}
imagePullPolicy: {{ . }}
{{- end }}
{{- end }}

{{- /* Flags of a program as arguments, sorted by name. toJson writes numbers as they are read by the programs. */ -}}
{{- define "mbcas.flags" -}}
{{- range $name, $value := . }}
- {{ printf "--%s=%s" $name (kindIs "string" $value | ternary $value (toJson $value)) | quote }}
{{- end }}
{{- end }}

{{- /* The fields of every pod. */ -}}
{{- define "mbcas.pod" -}}
enableServiceLinks: false
{{- with .Values.image.pullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
securityContext:
  runAsNonRoot: true
  runAsUser: 65532
  runAsGroup: 65532
  seccompProfile:
    type: RuntimeDefault
{{- end }}

{{- /* The fields of every container. */ -}}
{{- define "mbcas.container" -}}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities:
    drop: [ALL]
{{- end }}

{{- /* Probes, with the name of the port. */ -}}
{{- define "mbcas.probes" -}}
startupProbe:
  httpGet:
    path: /healthz
    port: {{ . }}
  periodSeconds: 1
  timeoutSeconds: 5
  failureThreshold: 60
livenessProbe:
  httpGet:
    path: /healthz
    port: {{ . }}
  periodSeconds: 15
  timeoutSeconds: 5
readinessProbe:
  httpGet:
    path: /readyz
    port: {{ . }}
  periodSeconds: 5
  timeoutSeconds: 5
{{- end }}

{{- /* The pod of a Job that restores all pods; argument: the root, and the timeout. It has the account of the
controller, so the policies that fence the controller fence it, too. */ -}}
{{- define "mbcas.restore" -}}
{{- $root := index . 0 -}}
metadata:
  labels:
    app.kubernetes.io/name: mbcas
    app.kubernetes.io/component: restore
spec:
  serviceAccountName: mbcas-controller
  priorityClassName: system-cluster-critical
  restartPolicy: Never
  nodeSelector:
    kubernetes.io/os: linux
  {{- include "mbcas.pod" $root | nindent 2 }}
  containers:
    - name: restore
      {{- include "mbcas.image" (list $root "controller") | nindent 6 }}
      args:
        - restore
        - --all
        - --timeout=$(MBCAS_RESTORE_TIMEOUT)
        - --workers=$(MBCAS_RESTORE_WORKERS)
        - --rate=$(MBCAS_RESTORE_RATE)
      env:
        - name: MBCAS_RESTORE_TIMEOUT
          value: {{ index . 1 }}
        - name: MBCAS_RESTORE_WORKERS
          value: "32"
        - name: MBCAS_RESTORE_RATE
          value: "200"
        - name: MBCAS_MEMORY_LIMIT
          valueFrom:
            resourceFieldRef:
              resource: limits.memory
      resources:
        requests:
          cpu: 100m
          memory: 64Mi
        limits:
          memory: 256Mi
      {{- include "mbcas.container" $root | nindent 6 }}
{{- end }}

{{- /* "true" if objects of a kind of the Prometheus Operator are made; argument: the root, the value, and the kind. on and
off are booleans in YAML 1.1. */ -}}
{{- define "mbcas.observed" -}}
{{- $asked := toString (index . 1) }}
{{- if or (has $asked (list "on" "true")) (and (eq $asked "auto") ((index . 0).Capabilities.APIVersions.Has (printf "monitoring.coreos.com/v1/%s" (index . 2)))) -}}
true
{{- end }}
{{- end }}
