{{/* Name of the objects: the release's name, followed by the chart's name unless it contains that. Children's suffixes have
     at most 23 characters, so 40 is safe in every label and name. A longer name ends with a checksum, so that two releases whose
     names begin alike have no object in common. */}}
{{- define "halcyon.fullname" -}}
{{- $name := .Release.Name -}}
{{- if not (contains .Chart.Name $name) -}}
{{- $name = printf "%s-%s" $name .Chart.Name -}}
{{- end -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride -}}
{{- else if gt (len $name) 40 -}}
{{- printf "%s-%s" ($name | trunc 31 | trimSuffix "-") (sha256sum $name | trunc 8) -}}
{{- else -}}
{{- $name -}}
{{- end -}}
{{- end -}}

{{/* The release's name, followed by the alias if a larger chart has this one as a dependency with an alias: Helm then replaces the
     chart's name. Two aliases in one release stay apart by it. */}}
{{- define "halcyon.instance" -}}
{{- if eq .Chart.Name "halcyon" -}}
{{- .Release.Name -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 63 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* The name is never an alias, because the command line and the runbooks find operators by it. */}}
{{- define "halcyon.selector" -}}
app.kubernetes.io/name: halcyon
app.kubernetes.io/instance: {{ include "halcyon.instance" . | quote }}
{{- end -}}

{{- define "halcyon.labels" -}}
{{- with omit .Values.commonLabels "app.kubernetes.io/name" "app.kubernetes.io/instance" "app.kubernetes.io/version" "app.kubernetes.io/component" "app.kubernetes.io/part-of" "app.kubernetes.io/managed-by" "helm.sh/chart" }}
{{- toYaml . }}
{{ end -}}
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

{{/* An image reference; the digest wins. Takes the root and one entry of .Values.images. */}}
{{- define "halcyon.image" -}}
{{- $root := index . 0 -}}
{{- $image := index . 1 -}}
{{- $registry := $root.Values.global.imageRegistry | default $image.registry | default $root.Values.images.registry -}}
{{- $name := printf "%s/%s" $registry $image.repository -}}
{{- if $image.digest -}}
{{- printf "%s@%s" $name $image.digest -}}
{{- else -}}
{{- printf "%s:%s" $name $image.tag -}}
{{- end -}}
{{- end -}}

{{/* An argument of a container with an arbitrary value. Kubernetes expands $(NAME) in arguments, and turns $$ into $. */}}
{{- define "halcyon.argument" -}}
{{- printf "--%s=%s" (index . 0) (index . 1 | replace "$" "$$") | quote -}}
{{- end -}}

{{- define "halcyon.apiServiceName" -}}
v1beta1.external.metrics.k8s.io
{{- end -}}

{{/* "namespace/release" of the Helm release that owns the APIService, "another owner" if it isn't part of a release, empty if
     it doesn't exist or the cluster can't be queried. */}}
{{- define "halcyon.apiServiceOwner" -}}
{{- with lookup "apiregistration.k8s.io/v1" "APIService" "" (include "halcyon.apiServiceName" .) -}}
{{- $annotations := .metadata.annotations | default dict -}}
{{- if and (get $annotations "meta.helm.sh/release-name") (get $annotations "meta.helm.sh/release-namespace") -}}
{{- printf "%s/%s" (get $annotations "meta.helm.sh/release-namespace") (get $annotations "meta.helm.sh/release-name") -}}
{{- else -}}
another owner
{{- end -}}
{{- end -}}
{{- end -}}

{{/* "true" if this release owns the APIService, or will create it. A release for listed namespaces never does. */}}
{{- define "halcyon.registers" -}}
{{- $register := toString .Values.metricsAPI.register -}}
{{- if .Values.watchNamespaces -}}
{{- else if eq $register "true" -}}
true
{{- else if eq $register "auto" -}}
{{- $owner := include "halcyon.apiServiceOwner" . -}}
{{- if or (not $owner) (eq $owner (printf "%s/%s" .Release.Namespace .Release.Name)) -}}
true
{{- end -}}
{{- end -}}
{{- end -}}

{{/* "true" if an object of the Prometheus Operator must be created. Takes the root and the value: auto, true, false. */}}
{{- define "halcyon.monitored" -}}
{{- $create := toString (index . 1) -}}
{{- if or (eq $create "true") (and (eq $create "auto") ((index . 0).Capabilities.APIVersions.Has "monitoring.coreos.com/v1")) -}}
true
{{- end -}}
{{- end -}}

{{/* A text with placeholders replaced. Takes the text and a dict of placeholders and values. */}}
{{- define "halcyon.replaced" -}}
{{- $text := index . 0 -}}
{{- range $word, $value := index . 1 -}}
{{- $text = replace $word $value $text -}}
{{- end -}}
{{- $text -}}
{{- end -}}

{{/* The namespaces of models, as a namespaceSelector of the Prometheus Operator. */}}
{{- define "halcyon.modelNamespaces" -}}
{{- if .Values.watchNamespaces -}}
matchNames:
  {{- toYaml .Values.watchNamespaces | nindent 2 }}
{{- else -}}
any: true
{{- end -}}
{{- end -}}

{{/* The limits of sitePolicy that are set, as JSON; empty if none is set. Exempt namespaces count even without a limit: they are also exempt
     from what the operator denies by default (ServiceAccounts, queries of canaries, downloads from private networks). */}}
{{- define "halcyon.sitePolicy" -}}
{{- $policy := dict -}}
{{- range $name, $section := .Values.sitePolicy -}}
{{- if kindIs "map" $section -}}
{{- $limits := dict -}}
{{- range $limit, $value := $section -}}
{{- if not (or (kindIs "invalid" $value) (and (kindIs "map" $value) (empty $value))) -}}
{{- $_ := set $limits $limit $value -}}
{{- end -}}
{{- end -}}
{{- if $limits -}}
{{- $_ := set $policy $name $limits -}}
{{- end -}}
{{- else if $section -}}
{{- $_ := set $policy $name $section -}}
{{- end -}}
{{- end -}}
{{- if $policy -}}
{{- toJson $policy -}}
{{- end -}}
{{- end -}}

{{/* The peers in the NetworkPolicies of models, as JSON; empty if these are disabled. If clients are listed, the pod of `helm test` is
     added to them. */}}
{{- define "halcyon.modelPeers" -}}
{{- $models := .Values.networkPolicies.models -}}
{{- if $models.create -}}
{{- $here := dict "matchLabels" (dict "kubernetes.io/metadata.name" .Release.Namespace) -}}
{{- $own := dict "namespaceSelector" $here "podSelector" (dict "matchLabels" (include "halcyon.selector" . | fromYaml)) -}}
{{- $peers := dict "operator" ($models.operator | default (list $own)) "apiServerPorts" .Values.networkPolicies.operator.apiServerPorts -}}
{{- range $name := list "scrapers" "egress" "sources" -}}
{{- with get $models $name -}}
{{- $_ := set $peers $name . -}}
{{- end -}}
{{- end -}}
{{- with $models.clients -}}
{{- $asks := dict "app.kubernetes.io/name" "halcyon-test" "app.kubernetes.io/instance" (include "halcyon.instance" $) -}}
{{- $benches := dict "app.kubernetes.io/component" "bench" "app.kubernetes.io/managed-by" "halcyon" -}}
{{- $tests := dict "namespaceSelector" $here "podSelector" (dict "matchLabels" $asks) -}}
{{- $_ := set $peers "clients" (concat . (list $tests (dict "podSelector" (dict "matchLabels" $benches)))) -}}
{{- end -}}
{{- toJson $peers -}}
{{- end -}}
{{- end -}}

{{/* Where the dashboard listens: localhost or pod; empty if it is disabled. With hostNetwork it is not served on localhost, which would
     be the node's: every process on the node could see all models. */}}
{{- define "halcyon.dashboard" -}}
{{- if .Values.dashboard.enabled -}}
{{- if eq .Values.dashboard.listen "pod" -}}
pod
{{- else if not .Values.hostNetwork -}}
localhost
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Resident memory of an operator pod with `expectedModels` models, in MiB: 130, plus 0.8 per model. docs/benchmarks/size.md
     measured less, with two balancers and two servers per model: 497 MiB at 1,000 models under load, and 663 MiB in a restart, for
     930 MiB here. The rest is a reserve, for example for more balancers. docs/guides/install.md has the figures. */}}
{{- define "halcyon.memoryMiB" -}}
{{- add 130 (div (add (mul 8 (int .Values.expectedModels)) 9) 10) -}}
{{- end -}}

{{/* Resources of the operator's container. The limit is 1.5 times the expected memory, which leaves a reserve for a start, a relist and a
     growing fleet: the expected memory is 67 % of the limit, and the alert fires at 80 %. */}}
{{- define "halcyon.resources" -}}
{{- $resources := deepCopy .Values.resources -}}
{{- $requests := $resources.requests | default dict -}}
{{- $limits := $resources.limits | default dict -}}
{{- if not (or (hasKey $requests "memory") (hasKey $limits "memory")) -}}
{{- $mib := include "halcyon.memoryMiB" . | int -}}
{{- $_ := set $resources "requests" (set $requests "memory" (printf "%dMi" $mib)) -}}
{{- $_ := set $resources "limits" (set $limits "memory" (printf "%dMi" (div (mul 3 $mib) 2))) -}}
{{- end -}}
{{- toYaml $resources -}}
{{- end -}}

{{/* Options of `halcyon operator` that the chart sets, which extraArgs must not contain, in full or abbreviated. */}}
{{- define "halcyon.ownOptions" -}}
agents-service balancer-image balancer-placement bench-image bench-priority-class cpu-limit currency dashboard dashboard-alerts dashboard-cluster dashboard-grafana dashboard-groups-header dashboard-port dashboard-proxy dashboard-runbooks
dashboard-user-header downloads gpu-budget gpu-price http-port image-pull-secret kubeconfig lease log-level memory-config-maps model-pod-annotations
model-pod-labels namespace network-policies no-fixed-user-ids no-front-proxy operator-image pod-name port
prometheus-arrivals prometheus-ca-file prometheus-gpu-matchers prometheus-query prometheus-token-file prometheus-url server-image service
service-annotations site-policy-file tls-secret traces-endpoint traces-ratio watch-namespace
{{- end -}}

{{/* "true" if an address has bits beyond the prefix of its network, or isn't an address. The operator would not start with it. Takes the
     address and the length of the prefix. An IPv6 address with an IPv4 part isn't checked. */}}
{{- define "halcyon.hasHostBits" -}}
{{- $address := index . 0 -}}
{{- $prefix := index . 1 | atoi -}}
{{- $bits := 8 -}}
{{- $numbers := list -}}
{{- if not (contains ":" $address) -}}
{{- range splitList "." $address -}}
{{- $numbers = append $numbers (atoi .) -}}
{{- end -}}
{{- else if not (contains "." $address) -}}
{{- $bits = 16 -}}
{{- $halves := splitList "::" $address -}}
{{- range $place, $half := $halves -}}
{{- $groups := list -}}
{{- range $half | splitList ":" | compact -}}
{{- $groups = append $groups (int64 (printf "0x%s" .)) -}}
{{- end -}}
{{- if $place -}}
{{- range until (max 0 (sub (sub 8 (len $numbers)) (len $groups)) | int) -}}
{{- $numbers = append $numbers 0 -}}
{{- end -}}
{{- end -}}
{{- $numbers = concat $numbers $groups -}}
{{- end -}}
{{- if ne (len $numbers) 8 -}}
true
{{- end -}}
{{- end -}}
{{- range $index, $number := $numbers -}}
{{- $size := 1 -}}
{{- range until (min $bits (max 0 (sub (mul $bits (add $index 1)) $prefix)) | int) -}}
{{- $size = mul $size 2 -}}
{{- end -}}
{{- if mod $number $size -}}
true
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Checks that the schema can't express. */}}
{{- define "halcyon.check" -}}
{{- $values := .Values -}}
{{- $name := include "halcyon.fullname" . -}}
{{- if not (regexMatch "^[a-z]([-a-z0-9]*[a-z0-9])?$" $name) -}}
{{- fail (printf "the release is named %s, so its objects would be named %s, but the name of a Service begins with a letter and has only lower-case letters, digits and hyphens; set another name, for example fullnameOverride=halcyon" .Release.Name $name) -}}
{{- end -}}
{{- if and (hasKey $values "enabled") (not $values.enabled) -}}
{{- fail "enabled is false, but only a larger chart with `condition: halcyon.enabled` in its dependencies reads it; remove it, or uninstall the release" -}}
{{- end -}}
{{- range $key := list "operator" "balancer" "triton" -}}
{{- if not (or $values.global.imageRegistry $values.images.registry (get $values.images $key).registry) -}}
{{- fail (printf "images.registry is empty, so the location of %s is unknown: Halcyon's images are not published yet. Push them, and pass the file that is written: make images push REGISTRY=registry.example.com/halcyon (with docker or podman and without root: make push WITH=docker REGISTRY=...; for kind: make kind); helm ... --values build/images-values.yaml. If they were loaded into the nodes by hand: --set images.registry=localhost" (get $values.images $key).repository) -}}
{{- end -}}
{{- end -}}
{{- if and .Values.hostNetwork (eq (int .Values.ports.https) 10250) -}}
{{- fail "hostNetwork is true and ports.https is 10250, which the node's kubelet uses; set another port, for example ports.https=10260" -}}
{{- end -}}
{{- if eq (int .Values.ports.https) (int .Values.ports.http) -}}
{{- fail (printf "ports.https and ports.http are both %d; they must differ, for example ports.https=10250 and ports.http=8080" (int .Values.ports.http)) -}}
{{- end -}}
{{- if and (include "halcyon.dashboard" .) (has (int .Values.ports.dashboard) (list (int .Values.ports.https) (int .Values.ports.http))) -}}
{{- fail (printf "ports.dashboard is %d, which is also ports.https or ports.http; they must differ, for example ports.dashboard=8090" (int .Values.ports.dashboard)) -}}
{{- end -}}
{{- range $section := list "balancers" "test" -}}
{{- range (get $values $section).tolerations -}}
{{- if and (hasKey . "value") (eq (.operator | default "Equal") "Exists") -}}
{{- fail (printf "%s.tolerations has the key %s with the operator Exists and the value %q, but Exists has no value; remove it, or set operator: Equal" $section .key .value) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- range $network := .Values.dashboard.proxy.addresses -}}
{{- $parts := splitList "/" $network -}}
{{- if include "halcyon.hasHostBits" $parts -}}
{{- $ipv6 := contains ":" $network -}}
{{- fail (printf "dashboard.proxy.addresses has %s, which is an address in a network; set the network, for example %s, or one address, for example %s/%s" $network ($ipv6 | ternary "fd00:12::/64" "10.0.12.0/24") (first $parts) ($ipv6 | ternary "128" "32")) -}}
{{- end -}}
{{- end -}}
{{- if and .Values.dashboard.proxy.addresses (ne (include "halcyon.dashboard" .) "pod") -}}
{{- fail (printf "dashboard.proxy.addresses has %s, but the dashboard is reachable from localhost only; set dashboard.listen=pod" (first .Values.dashboard.proxy.addresses)) -}}
{{- end -}}
{{- if and (or .Values.dashboard.ingress.enabled .Values.dashboard.httpRoute.parentRefs) (ne (include "halcyon.dashboard" .) "pod") -}}
{{- fail "dashboard.ingress or dashboard.httpRoute is set, but the dashboard is reachable from localhost only; set dashboard.listen=pod" -}}
{{- end -}}
{{- if and .Values.dashboard.ingress.enabled (not .Values.dashboard.ingress.host) -}}
{{- fail "dashboard.ingress.enabled is true and dashboard.ingress.host is empty; set it, for example dashboard.ingress.host=halcyon.example.com" -}}
{{- end -}}
{{- if and .Values.prometheus.caConfigMap.name .Values.prometheus.caSecret.name -}}
{{- fail (printf "prometheus.caConfigMap.name is %s and prometheus.caSecret.name is %s; set only one of them, for example prometheus.caConfigMap.name=ca" .Values.prometheus.caConfigMap.name .Values.prometheus.caSecret.name) -}}
{{- end -}}
{{- if and (not .Values.prometheus.url) (or .Values.prometheus.tokenSecret.name .Values.prometheus.caConfigMap.name .Values.prometheus.caSecret.name .Values.prometheus.gpuMatchers .Values.prometheus.arrivals) -}}
{{- fail "prometheus has values but prometheus.url is empty, so no Prometheus would be queried; set it, for example prometheus.url=http://prometheus-operated.monitoring:9090" -}}
{{- end -}}
{{- if and (not .Values.serviceAccount.create) (not .Values.serviceAccount.name) -}}
{{- fail "serviceAccount.create is false and serviceAccount.name is empty; set the name of an existing ServiceAccount in the release's namespace, for example serviceAccount.name=halcyon" -}}
{{- end -}}
{{- if and (not .Values.serviceAccount.create) .Values.serviceAccount.annotations -}}
{{- fail (printf "serviceAccount.annotations has %s, but serviceAccount.create is false, so the chart does not write the ServiceAccount; annotate %s yourself, or set serviceAccount.create=true" (keys .Values.serviceAccount.annotations | sortAlpha | first) .Values.serviceAccount.name) -}}
{{- end -}}
{{- if and .Values.watchNamespaces (eq (toString .Values.metricsAPI.register) "true") -}}
{{- fail "metricsAPI.register is true and watchNamespaces is set, but external.metrics.k8s.io is cluster-scoped and this release would serve some namespaces only; leave metricsAPI.register at auto (models then scale with the actuator Direct), or watchNamespaces empty" -}}
{{- end -}}
{{- range $argument := .Values.extraArgs -}}
{{- $option := $argument | trimPrefix "--" | splitList "=" | first -}}
{{- range $own := include "halcyon.ownOptions" $ | replace "\n" " " | splitList " " -}}
{{- if hasPrefix $option $own -}}
{{- fail (printf "extraArgs has %s, but the chart itself sets --%s; use the chart value for it (README.md), or another option, for example --workers=32" $argument $own) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- range $variable := .Values.extraEnv -}}
{{- if has $variable.name (list "POD_NAMESPACE" "POD_NAME") -}}
{{- fail (printf "extraEnv has %s, which the chart itself sets; remove it" $variable.name) -}}
{{- end -}}
{{- end -}}
{{- if and .Values.networkPolicies.models.create .Values.hostNetwork (not .Values.networkPolicies.models.operator) -}}
{{- fail "networkPolicies.models.create and hostNetwork are true: operator pods then have their nodes' addresses, which the chart does not know; set them, for example networkPolicies.models.operator[0].ipBlock.cidr=10.0.0.0/16" -}}
{{- end -}}
{{- if and .Values.networkPolicies.operator.create .Values.hostNetwork -}}
{{- fail "networkPolicies.operator.create and hostNetwork are true, but policies do not apply to pods in the node's network; set only one of them" -}}
{{- end -}}
{{- if and .Values.test.image.repository (not (or .Values.test.image.tag .Values.test.image.digest)) -}}
{{- fail (printf "test.image.repository is %s, without a tag or digest; set one, for example test.image.tag=26.07-py3" .Values.test.image.repository) -}}
{{- end -}}
{{- end -}}
