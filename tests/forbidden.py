"""Properties that no child object of a ModelDeployment may have, whatever its spec: limits that no policy can relax.

The rules are derived from the threat model (docs/concepts/security.md) and not from the code that builds the objects.
Everything that isn't listed here is forbidden.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

from halcyon.render import server_start
from tests.unit.render.pod_security import violations

Object = dict[str, Any]

KINDS = {
    "ConfigMap", "ControllerRevision", "Deployment", "GRPCRoute", "HTTPRoute", "HorizontalPodAutoscaler", "NetworkPolicy", "PodDisruptionBudget",
    "Role", "RoleBinding", "Service", "ServiceAccount",
}  # fmt: skip
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
_POD = {
    "affinity", "automountServiceAccountToken", "containers", "enableServiceLinks", "imagePullSecrets", "initContainers", "nodeSelector",
    "priorityClassName", "resourceClaims", "runtimeClassName", "securityContext", "serviceAccountName", "terminationGracePeriodSeconds",
    "tolerations", "topologySpreadConstraints", "volumes",
}  # fmt: skip
_CONTAINER = {
    "args", "command", "env", "image", "lifecycle", "livenessProbe", "name", "ports", "readinessProbe", "resources", "restartPolicy",
    "securityContext", "startupProbe", "volumeMounts",
}  # fmt: skip
_VOLUMES = {"configMap", "downwardAPI", "emptyDir", "image", "persistentVolumeClaim", "projected", "secret"}
_SERVICE = {
    "clusterIP", "loadBalancerSourceRanges", "ports", "publishNotReadyAddresses", "selector", "sessionAffinity", "trafficDistribution",
    "type",
}  # fmt: skip
_OUR_LABELS = {
    "app.kubernetes.io/component", "app.kubernetes.io/managed-by", "serving.halcyon.dev/model-deployment", "serving.halcyon.dev/revision",
    "serving.halcyon.dev/slot",
}  # fmt: skip
_ANNOTATIONS = {
    "serving.halcyon.dev/gpus", "cluster-autoscaler.kubernetes.io/safe-to-evict-local-volumes", "config.linkerd.io/skip-inbound-ports",
    "traffic.sidecar.istio.io/excludeInboundPorts", "traffic.sidecar.istio.io/excludeOutboundPorts",
}  # fmt: skip
_SITES = "example.com/"
"""Prefix of the keys that the site of the tests allows on server pods."""
_RESERVED = ("LD_", "NVIDIA_", "CUDA_", "KUBERNETES_", "AIP_", "PYTHONPATH", "PYTHONHOME", "PYTHONSTARTUP")
_SETTING = re.compile(
    r"--log-(warning|info)=false|--log-verbose=1|--cache-config=local,size=\d+|--pinned-memory-pool-byte-size=\d+|"
    r"--cuda-memory-pool-byte-size=\d+:\d+|--(http|grpc)-header-forward-pattern=\(\?i\)\^\([A-Za-z0-9_|-]+\)\$"
)
"""Arguments of Triton from `spec.runtime.server`, with the values that they may have."""
_TRITON = {
    "--model-repository", "--model-control-mode", "--exit-on-error", "--exit-timeout-secs", "--metrics-interval-ms",
    "--http-restricted-api", "--grpc-restricted-protocol", "--grpc-max-connection-age", "--grpc-max-connection-age-grace",
    "--allow-gpu-metrics", "--http-max-input-size", "--grpc-http2-min-recv-ping-interval-without-data",
    "--grpc-keepalive-permit-without-calls",
}  # fmt: skip
_STARTS = [server_start.command("/models", direct=direct) for direct in (False, True)]
_CLOUDS = re.compile(r"sts\.amazonaws\.com|api://AzureADTokenExchange|//iam\.googleapis\.com/projects/.+")
"""Audiences of the tokens that a download may have for the identity of `spec.model.source.credentials`."""
_RIGHTS = {("", "configmaps"), ("discovery.k8s.io", "endpointslices")}


def forbidden_properties(obj: Object, *, namespace: str, name: str) -> Iterator[str]:
    """Return the forbidden properties of a child of `namespace/name`, one sentence each.

    The object is checked as the operator writes it, without the API server's defaults.
    """
    kind, meta = obj["kind"], obj["metadata"]
    child = f"{kind} {meta['name']}"
    if kind not in KINDS:
        yield f"{child}: of a kind that nobody makes"
    if meta.get("namespace") != namespace:
        yield f"{child}: in namespace {meta.get('namespace')}"
    if not (_SUBDOMAIN if kind in {"ConfigMap", "HTTPRoute", "GRPCRoute"} else _LABEL).fullmatch(meta["name"]):
        yield f"{child}: no name"
    if not meta["name"].startswith(name):
        yield f"{child}: not of {name}"
    yield from (f"{child}: label {key}" for key in meta.get("labels", {}) if key not in _OUR_LABELS)
    yield from (f"{child}: label {k}={v!r}" for k, v in meta.get("labels", {}).items() if len(v) > 63)
    yield from (f"{child}: {violation}" for violation in _of_kind(obj, namespace, name))


def _of_kind(obj: Object, namespace: str, name: str) -> Iterator[str]:
    check = _CHECKS.get(obj["kind"])
    return iter(()) if check is None else check(obj, namespace, name)


def _deployment(obj: Object, _: str, name: str) -> Iterator[str]:
    return pod(obj["spec"]["template"], name=name)


def _record(obj: Object, _: str, name: str) -> Iterator[str]:
    return pod(obj["data"]["template"], name=name)


def _service(obj: Object, _: str, name: str) -> Iterator[str]:
    spec = obj["spec"]
    yield from (f"field {key}" for key in spec.keys() - _SERVICE)
    if spec.get("type", "ClusterIP") not in {"ClusterIP", "NodePort", "LoadBalancer"}:
        yield f"type {spec['type']}"
    if spec.get("clusterIP", "None") != "None" or spec["selector"].get("serving.halcyon.dev/model-deployment") != name:
        yield f"leads to {spec.get('clusterIP')} {spec['selector']}"


def _role(obj: Object, _: str, name: str) -> Iterator[str]:
    for rule in obj["rules"]:
        rights = {(group, resource) for group in rule["apiGroups"] for resource in rule["resources"]}
        named = ("", "configmaps") not in rights or rule.get("resourceNames") == [f"{name}-balancer"]
        if not rights <= _RIGHTS or not set(rule["verbs"]) <= {"get", "list", "watch"} or not named:
            yield f"right {rule}"


def _binding(obj: Object, namespace: str, name: str) -> Iterator[str]:
    own = {"kind": "ServiceAccount", "name": f"{name}-balancer", "namespace": namespace}
    if obj["subjects"] != [own] or (obj["roleRef"]["kind"], obj["roleRef"]["name"]) != ("Role", own["name"]):
        yield f"grants {obj['roleRef']} to {obj['subjects']}"


def _route(obj: Object, namespace: str, name: str) -> Iterator[str]:
    for backend in (backend for rule in obj["spec"]["rules"] for backend in rule["backendRefs"]):
        local = backend.get("namespace", namespace) == namespace and backend.get("kind", "Service") == "Service"
        if not local or not backend["name"].startswith(name):
            yield f"leads to {backend}"


def _scaler(obj: Object, _: str, name: str) -> Iterator[str]:
    if obj["spec"]["scaleTargetRef"]["name"] != name:
        yield f"scales {obj['spec']['scaleTargetRef']}"


def _wall(obj: Object, _: str, name: str) -> Iterator[str]:
    spec = obj["spec"]
    picked = spec["podSelector"].get("matchLabels", {})
    if picked.get("serving.halcyon.dev/model-deployment") != name or spec["podSelector"].keys() != {"matchLabels"}:
        yield f"is around {spec['podSelector']}"
    if spec["policyTypes"] != ["Ingress", "Egress"] or not all(rule.get("ports") for rule in spec["ingress"]):
        yield f"is open: {spec['policyTypes']}, {spec['ingress']}"


_CHECKS: dict[str, Callable[[Object, str, str], Iterator[str]]] = {
    "Deployment": _deployment,
    "ControllerRevision": _record,
    "Service": _service,
    "Role": _role,
    "RoleBinding": _binding,
    "HTTPRoute": _route,
    "GRPCRoute": _route,
    "HorizontalPodAutoscaler": _scaler,
    "NetworkPolicy": _wall,
}


def pod(template: Object, *, name: str) -> Iterator[str]:
    """Return the forbidden properties of a pod template, one sentence each."""
    spec = template["spec"]
    yield from violations(template)
    labels, annotations = template["metadata"]["labels"], template["metadata"].get("annotations", {})
    served = labels["app.kubernetes.io/component"] == "server"
    known = (_SITES,) if served else ()
    yield from (f"label {key}" for key in labels if key not in _OUR_LABELS and not key.startswith(known))
    yield from (f"annotation {key}" for key in annotations if key not in _ANNOTATIONS and not key.startswith(known))
    yield from (f"pod field {key}" for key in spec.keys() - _POD)
    if spec.get("automountServiceAccountToken") is not False:
        yield "a token is mounted"
    account = "default" if served else f"{name}-balancer"
    if spec.get("serviceAccountName", account) != account:
        yield f"service account {spec['serviceAccountName']}"
    yield from (f"volume {volume}" for volume in spec["volumes"] if not _is_harmless(volume))
    stores = {volume["name"] for volume in spec["volumes"] if served and _is_for_a_store(volume)}
    tokens = {volume["name"] for volume in spec["volumes"] if _has_token(volume)}
    if tokens - stores and (served or "serviceAccountName" not in spec):
        yield f"tokens {tokens - stores}"
    for container in (*spec["initContainers"], *spec["containers"]):
        hidden = tokens - stores if container["name"] == "fetch" else tokens
        yield from (f"{container['name']}: {violation}" for violation in _container(container, hidden))


def _is_harmless(volume: Object) -> bool:
    read_only = volume.get("persistentVolumeClaim", {"readOnly": True}).get("readOnly")
    return set(volume) - {"name"} <= _VOLUMES and bool(read_only)


def _has_token(volume: Object) -> bool:
    return any("serviceAccountToken" in source for source in volume.get("projected", {}).get("sources", ()))


def _is_for_a_store(volume: Object) -> bool:
    """Return whether the volume holds one token that a cloud's token service accepts and the API server refuses."""
    sources = volume.get("projected", {}).get("sources", [])
    tokens = [source.get("serviceAccountToken", {}) for source in sources]
    return len(tokens) == 1 and bool(_CLOUDS.fullmatch(tokens[0].get("audience", "")))


def _container(container: Object, tokens: set[str]) -> Iterator[str]:
    fields = _CONTAINER | ({"envFrom"} if container["name"] == "triton" else set())
    yield from (f"field {key}" for key in container.keys() - fields)
    yield from (f"variable {e['name']}" for e in container.get("env", ()) if e["name"].startswith(_RESERVED))
    if container["name"] not in {"fetch", "triton", "agent", "haproxy"}:
        yield "of a name that nobody gives"
    if not container["securityContext"].get("readOnlyRootFilesystem"):
        yield "writes to its image"
    if container["name"] != "agent" and tokens & {mount["name"] for mount in container["volumeMounts"]}:
        yield "has a token"
    if container["name"] == "triton":
        options = {argument.partition("=")[0] for argument in container["args"]}
        # In any other mode, everyone who reaches Triton's API can load models.
        fixed = "--model-control-mode=none" in container["args"]
        options -= {argument.partition("=")[0] for argument in container["args"] if _SETTING.fullmatch(argument)}
        if container["command"] not in _STARTS or not options <= _TRITON or not fixed:
            yield f"runs {container['command']} {container['args']}"
