{{/* Name of the objects: the release's name; the chart's name is added where it does not hold it. Children's suffixes
     are at most 23 characters, so 40 is safe in every label and name. */}}
{{- define "halcyon.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride -}}
{{- else if contains .Chart.Name .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" (.Release.Name | trunc 32 | trimSuffix "-") .Chart.Name -}}
{{- end -}}
{{- end -}}

{{- define "halcyon.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "halcyon.labels" -}}
{{ include "halcyon.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/component: operator
app.kubernetes.io/part-of: halcyon
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{- define "halcyon.serviceAccountName" -}}
{{- .Values.serviceAccount.name | default (include "halcyon.fullname" .) -}}
{{- end -}}

{{/* An image reference; the digest wins. Takes one entry of .Values.images. */}}
{{- define "halcyon.image" -}}
{{- if .digest -}}
{{- printf "%s@%s" .repository .digest -}}
{{- else -}}
{{- printf "%s:%s" .repository .tag -}}
{{- end -}}
{{- end -}}

{{- define "halcyon.apiServiceName" -}}
v1beta1.external.metrics.k8s.io
{{- end -}}

{{/* "namespace/release" of the Helm release that owns the APIService, "someone else" where it is nobody's that Helm
     knows, empty where there is none or the cluster cannot be asked. */}}
{{- define "halcyon.apiServiceOwner" -}}
{{- with lookup "apiregistration.k8s.io/v1" "APIService" "" (include "halcyon.apiServiceName" .) -}}
{{- $annotations := .metadata.annotations | default dict -}}
{{- if and (get $annotations "meta.helm.sh/release-name") (get $annotations "meta.helm.sh/release-namespace") -}}
{{- printf "%s/%s" (get $annotations "meta.helm.sh/release-namespace") (get $annotations "meta.helm.sh/release-name") -}}
{{- else -}}
someone else
{{- end -}}
{{- end -}}
{{- end -}}

{{/* "true" where this release owns the APIService, or is about to. */}}
{{- define "halcyon.registers" -}}
{{- $register := toString .Values.metricsAPI.register -}}
{{- if eq $register "true" -}}
true
{{- else if eq $register "auto" -}}
{{- $owner := include "halcyon.apiServiceOwner" . -}}
{{- if or (not $owner) (eq $owner (printf "%s/%s" .Release.Namespace .Release.Name)) -}}
true
{{- end -}}
{{- end -}}
{{- end -}}

{{/* What the schema cannot say. */}}
{{- define "halcyon.check" -}}
{{- if and .Values.hostNetwork (eq (int .Values.ports.https) 10250) -}}
{{- fail "hostNetwork: true with ports.https: 10250: the kubelet of the node listens there; give another port, for example ports.https=10260" -}}
{{- end -}}
{{- if eq (int .Values.ports.https) (int .Values.ports.http) -}}
{{- fail (printf "ports.https and ports.http are both %d; they must differ, for example ports.https=10250 and ports.http=8080" (int .Values.ports.http)) -}}
{{- end -}}
{{- if and (not .Values.serviceAccount.create) (not .Values.serviceAccount.name) -}}
{{- fail "serviceAccount.create: false needs serviceAccount.name, the name of an existing ServiceAccount of the release's namespace; for example serviceAccount.name=halcyon" -}}
{{- end -}}
{{- end -}}
