"""Objects of a slot's servers: pod template, Deployment, headless Service and PodDisruptionBudget.

The pod template is rendered once per revision and stored in its ControllerRevision, so that an operator upgrade
restarts no pods.
"""

from __future__ import annotations

import math

from halcyon.api.documents.balancer_plan import READINESS_TIMEOUT_S
from halcyon.api.spec import Spec, routing_mode
from halcyon.api.spec.model import DEFAULT_SIZE_LIMIT, Source
from halcyon.api.spec.runtime import ResourceList
from halcyon.api.types import duration_s, quantity
from halcyon.render import download, gpu, names, server_settings, server_start
from halcyon.render.metadata import RESTRICTED, Object, child, placed, pod_security, pull_secrets, resources, spread
from halcyon.render.names import Slot
from halcyon.render.site import Site, Subject

PRE_STOP_S = 5
"""Minimum time from the deletion of a pod until its SIGTERM, in seconds.

During this time, all balancers detect the deletion and stop sending requests. If gRPC streams are open, SIGTERM is
delayed until they end, by at most `traffic.drainTimeout`.
"""
EXIT_MARGIN_S = 10
"""Time from the end of Triton's own exit timeout until the kubelet's SIGKILL, in seconds."""

_FETCH_MEMORY = "256Mi"
"""Memory limit of the fetcher. In a pod with the QoS class Guaranteed, the limit may be higher."""
_CLOSED = "shared-memory,trace,logging"
_REPOSITORY, _SOURCE = "/models", "/halcyon/source"
_OVERLAY, _HOME = "/halcyon/overlay", "/halcyon/home"
_EVICTABLE = "cluster-autoscaler.kubernetes.io/safe-to-evict-local-volumes"
"""Annotation with the names of the emptyDirs that the cluster autoscaler may discard when it removes a node. Each new
pod fills these volumes again."""
_RESTART_FIELD = f"metadata.annotations['{names.RESTART_ANNOTATION}']"
_HOME_LIMIT = "20Gi"
"""Size limit of the volume HOME. It is the default of `source.sizeLimit`, because libraries download weights to caches
in this volume."""


def drain_s(spec: Spec) -> int:
    """Return the maximum time for requests in progress to finish (`traffic.drainTimeout`), in whole seconds."""
    return math.ceil(duration_s(spec.traffic.drain_timeout))


def startup_s(spec: Spec) -> int:
    """Return the maximum time for Triton to load the model (`runtime.startupTimeout`), in whole seconds."""
    return math.ceil(duration_s(spec.runtime.startup_timeout))


def pod_template(
    subject: Subject, spec: Spec, site: Site, *, revision: str, model: str, overlay: str, snapshot: str | None
) -> Object:
    """Build the pod template of a revision, without the label of the slot.

    `overlay` is the name of the ConfigMap with the overlay. `snapshot` is the name of the copy of the model's ConfigMap; None if the
    model has another source.
    """
    runtime = spec.runtime
    placement = runtime.placement
    pod: Object = {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        # The sum of all steps, so the kubelet never kills the pod during one of them.
        "terminationGracePeriodSeconds": PRE_STOP_S + drain_s(spec) + drain_s(spec) + EXIT_MARGIN_S,
        "securityContext": pod_security(1000, site),
        "initContainers": [_fetch(subject, spec, site)],
        "containers": [_triton(subject, spec, site, model)],
        "volumes": [
            {"name": "models", "emptyDir": {}},
            {"name": "source", **_source_volume(spec.model.source, snapshot)},
            {"name": "overlay", "configMap": {"name": overlay}},
            {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": runtime.shared_memory}},
            {"name": "tmp", "emptyDir": {}},
            {"name": "home", "emptyDir": {"sizeLimit": _HOME_LIMIT}},
            {
                "name": "orders",
                "downwardAPI": {"items": [{"path": "restart", "fieldRef": {"fieldPath": _RESTART_FIELD}}]},
            },
            *download.volumes(spec.model.source, site.downloads).values(),
        ],
    }
    spreads = placement.topology_spread_constraints
    pod |= spread(
        names.selector(subject.name, names.SERVER), None if spreads is None else [s.to_dict() for s in spreads]
    )
    pod |= pull_secrets(spec, site) | placed(placement)
    if placement.affinity is not None:
        pod["affinity"] = placement.affinity.to_dict()
    # Named also if it is the default: the API server keeps the name of a removed account in the old field `serviceAccount`.
    pod["serviceAccountName"] = runtime.service_account_name or "default"
    labels = names.labels(subject.name, names.SERVER) | {names.REVISION_LABEL: revision}
    labels = dict(runtime.pod_labels or {}) | labels
    local = [v["name"] for v in pod["volumes"] if v.get("emptyDir", {"medium": ""}).get("medium") is None]
    annotations = {_EVICTABLE: ",".join(local)} | dict(runtime.pod_annotations or {})
    if runtime.gpu is not None and runtime.gpus:
        pod["tolerations"] = [*pod.get("tolerations", ()), *gpu.tolerations(runtime.gpu)]
        if claims := gpu.claims(runtime.gpu):
            pod["resourceClaims"] = claims
            annotations[gpu.COUNT] = str(runtime.gpus)
    return {"metadata": {"labels": labels, "annotations": annotations}, "spec": pod}


def _source_volume(source: Source, snapshot: str | None) -> Object:
    if source.config_map is not None:
        items = [{"key": item.key, "path": item.path} for item in source.config_map.items]
        # ConfigMaps store no file modes, and a model may contain executables.
        return {"configMap": {"name": snapshot, "items": items, "defaultMode": 0o755}}
    if source.uri is not None:
        return {"emptyDir": {"sizeLimit": source.size_limit or DEFAULT_SIZE_LIMIT}}
    if source.image is not None:
        return {"image": {"reference": source.image.reference}}
    if source.persistent_volume_claim is None:
        raise ValueError("the model source has no kind; such a spec is never accepted")
    claim = source.persistent_volume_claim.claim_name
    return {"persistentVolumeClaim": {"claimName": claim, "readOnly": True}}


def _fetch(subject: Subject, spec: Spec, site: Site) -> Object:
    source = spec.model.source
    args = ["fetch", f"--source={_SOURCE}", f"--overlay={_OVERLAY}/overlay.json", f"--repository={_REPOSITORY}"]
    mounted = source.persistent_volume_claim or source.image
    if mounted is not None and mounted.path is not None:
        args.append(f"--path={mounted.path}")
    models, exempt = site.policy.models, subject.namespace in site.policy.exempt_namespaces
    if source.uri is not None:
        args += download.arguments(source, site.downloads)
        # Servers that the site policy lists may have private addresses.
        listed = models.urls if source.endpoint is None else models.endpoints
        args += ["--private"] if exempt or listed is not None else []
    allowed = models.backends
    if allowed is not None and not exempt:
        args.append(f"--backends={','.join(allowed)}")
    return {
        "name": names.FETCHER,
        "image": site.operator_image,
        "args": args,
        "resources": _fetch_resources(spec, site),
        "securityContext": RESTRICTED,
        "volumeMounts": [
            {"name": "models", "mountPath": _REPOSITORY},
            {"name": "source", "mountPath": _SOURCE, **({} if source.uri else {"readOnly": True})},
            {"name": "overlay", "mountPath": _OVERLAY, "readOnly": True},
            *(
                {"name": v["name"], "mountPath": path, "readOnly": True}
                for path, v in download.volumes(source, site.downloads).items()
            ),
        ],
    }


def _fetch_resources(spec: Spec, site: Site) -> Object:
    """Return the resources of the fetcher, chosen so that the pod can have the QoS class Guaranteed.

    A pod is Guaranteed if requests equal limits in each container, init containers included. Only such pods get
    exclusive cores (static CPU manager) near their GPU (topology manager). The fetcher then gets Triton's CPU and at
    least its memory, which costs nothing, because it ends before Triton starts.
    """
    specified = spec.runtime.resources
    limits, requests = specified.limits or ResourceList(), specified.requests or ResourceList()
    if _are_equal(requests.cpu, limits.cpu) and _are_equal(requests.memory, limits.memory):
        amounts = {"cpu": limits.cpu, "memory": max(str(limits.memory), _FETCH_MEMORY, key=quantity)}
        return {"requests": amounts, "limits": dict(amounts)}
    return resources(site, cpu="50m", memory="64Mi", memory_limit=_FETCH_MEMORY)


def _are_equal(request: str | None, limit: str | None) -> bool:
    """Return whether request and limit are equal. A missing request defaults to the limit in the API server."""
    return limit is not None and (request is None or quantity(request) == quantity(limit))


def _triton(subject: Subject, spec: Spec, site: Site, model: str) -> Object:
    runtime = spec.runtime
    loaded = {"httpGet": {"path": f"/v2/models/{model}/ready", "port": "http"}}
    return {
        "name": names.TRITON,
        "image": runtime.image or site.server_image,
        "command": server_start.command(_REPOSITORY, direct=routing_mode.is_direct(spec)),
        "args": [
            f"--model-repository={_REPOSITORY}",
            "--model-control-mode=none",
            # If loading fails, Triton keeps running, so that the reason can be read from it.
            "--exit-on-error=false",
            f"--exit-timeout-secs={drain_s(spec)}",
            "--metrics-interval-ms=1000",
            *gpu.triton_args(runtime.gpu),
            *server_settings.triton_args(runtime),
            *_closed(subject),
            *server_start.larger_bodies(int(quantity(spec.traffic.max_request_size))),
            *(server_start.direct_clients(drain_s=drain_s(spec)) if routing_mode.is_direct(spec) else ()),
        ],
        "ports": [
            {"name": "http", "containerPort": names.HTTP_PORT},
            {"name": "grpc", "containerPort": names.GRPC_PORT},
            {"name": "metrics", "containerPort": names.METRICS_PORT},
        ],
        # Triton opens its port after loading the models, whether or not this succeeded. It is ready if all of them are
        # loaded: a Python model (BLS) is ready even if a model that it calls isn't.
        "startupProbe": {
            "httpGet": {"path": "/v2/health/ready", "port": "http"},
            "periodSeconds": 1,
            "timeoutSeconds": 2,
            "failureThreshold": startup_s(spec),
        },
        "readinessProbe": {**loaded, "periodSeconds": 2, "timeoutSeconds": READINESS_TIMEOUT_S, "failureThreshold": 2},
        # A Triton that is only slow to respond has 30 s. If it doesn't respond, its container is killed without time to
        # finish requests. A restart that the operator orders doesn't wait for this probe (`server_start`).
        "livenessProbe": {
            "httpGet": {"path": "/v2/health/live", "port": "http"},
            "periodSeconds": 1,
            "timeoutSeconds": 10,
            "failureThreshold": 3,
            "terminationGracePeriodSeconds": 1,
        },
        "lifecycle": {"preStop": {"exec": {"command": ["/bin/sh", "-c", _pre_stop(spec)]}}},
        "resources": _resources(spec),
        "securityContext": RESTRICTED,
        "volumeMounts": [
            {"name": "models", "mountPath": _REPOSITORY},
            # The repository contains links into the source, so the mount path must be the same as in the fetcher.
            {"name": "source", "mountPath": _SOURCE, "readOnly": True},
            {"name": "shm", "mountPath": "/dev/shm"},  # noqa: S108  # the kernel's name for shared memory
            {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108  # a volume of the pod's own
            {"name": "home", "mountPath": _HOME},
            {"name": "orders", "mountPath": server_start.ORDERS, "readOnly": True},
        ],
        "env": _environment(spec),
        **({"envFrom": [entry.to_dict() for entry in spec.runtime.env_from]} if spec.runtime.env_from else {}),
    }


def _closed(subject: Subject) -> list[str]:
    """Return the arguments with which Triton restricts its administrative APIs.

    Requests to these APIs then need a header with a secret value. Balancers forward no such requests, so this is a
    second security boundary. It is the only one if clients connect directly to servers. Statistics, configuration and
    the repository index are not restricted, because agents read them.
    """
    key = f"halcyon={names.digest([subject.uid, 'restricted'])}"
    return [f"{option}={_CLOSED}:{key}" for option in ("--http-restricted-api", "--grpc-restricted-protocol")]


def _pre_stop(spec: Spec) -> str:
    if spec.traffic.stickiness is not None:
        # Sticky requests can arrive at this pod until the drain is over, possibly with pauses.
        return f"sleep {PRE_STOP_S + drain_s(spec)}"
    # After SIGTERM, Triton fails every message on an open stream. A balancer closes a connection when its last stream has ended, and at the
    # end of the drain. So an established connection (state 01) to the gRPC port is still in use.
    in_use = f"grep -qs ':{names.GRPC_PORT:04X} [0-9A-F]*:[0-9A-F]* 01 ' /proc/net/tcp /proc/net/tcp6"
    return f"sleep {PRE_STOP_S}; n=0; while [ $n -lt {drain_s(spec)} ] && {in_use}; do sleep 1; n=$((n+1)); done"


def _environment(spec: Spec) -> list[Object]:
    """Return Halcyon's environment variables, unless the spec sets them, and then those of the spec.

    HOME is set because the image's own home folder is on the read-only root file system. Libraries keep their caches
    under HOME by default (XDG, Hugging Face, PyTorch, Numba, Matplotlib, the Triton language, CUDA), so no other cache
    variable is set, and those of the image still apply. USER is set because libraries look up the user's name, and the
    image may have none for the pod's user. Halcyon's variables come first, because later ones may refer to `$(HOME)`.
    """
    entries = [entry.to_dict() for entry in spec.runtime.env or ()]
    ours: list[Object] = [
        {"name": "HOME", "value": _HOME},
        {"name": "USER", "value": "triton"},
        {"name": "PYTHONUNBUFFERED", "value": "1"},
        {"name": server_start.POD_IP, "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
    ]
    named = {entry["name"] for entry in entries}
    return [*(entry for entry in ours if entry["name"] not in named), *entries]


def _resources(spec: Spec) -> Object:
    specified = spec.runtime.resources
    parts = {"requests": specified.requests, "limits": specified.limits}
    amounts: Object = {part: each.to_dict() for part, each in parts.items() if each is not None and each.to_dict()}
    if spec.runtime.gpu is not None and spec.runtime.gpus:
        gpu.request(amounts, spec.runtime.gpu)
    return amounts


def progress_deadline_s(startup_timeout_s: int) -> int:
    """Return the progress deadline of a Deployment in seconds.

    It is the startup timeout plus a margin for the time before the container starts.
    """
    return startup_timeout_s + 60


def deployment(
    subject: Subject,
    slot: Slot,
    template: Object,
    *,
    replicas: int,
    startup_timeout_s: int,
    max_surge: int = 1,
    max_unavailable: int = 0,
) -> Object:
    """Build the Deployment of a slot from the pod template of its revision."""
    labels = template["metadata"]["labels"] | {names.SLOT_LABEL: slot}
    result = child(
        "apps/v1",
        "Deployment",
        subject,
        names.server(subject.name, slot),
        names.SERVER,
        labels={names.SLOT_LABEL: slot, names.REVISION_LABEL: template["metadata"]["labels"][names.REVISION_LABEL]},
    )
    result["spec"] = {
        "replicas": replicas,
        "revisionHistoryLimit": 2,
        "progressDeadlineSeconds": progress_deadline_s(startup_timeout_s),
        "selector": {"matchLabels": names.selector(subject.name, names.SERVER, slot)},
        "strategy": {
            "type": "RollingUpdate",
            "rollingUpdate": {"maxSurge": max_surge, "maxUnavailable": max_unavailable},
        },
        "template": {**template, "metadata": {**template["metadata"], "labels": labels}},
    }
    return result


def slot_service(subject: Subject, slot: Slot) -> Object:
    """Build the headless Service of a slot, in whose EndpointSlices balancers find the slot's pods."""
    name, labels = names.slot_service(subject.name, slot), {names.SLOT_LABEL: slot}
    result = child("v1", "Service", subject, name, names.SERVER, labels=labels)
    result["spec"] = {
        "clusterIP": "None",
        "selector": names.selector(subject.name, names.SERVER, slot),
        "ports": [
            {"name": "http", "port": names.HTTP_PORT, "protocol": "TCP", "targetPort": "http"},
            {"name": "grpc", "port": names.GRPC_PORT, "protocol": "TCP", "targetPort": "grpc"},
            {"name": "metrics", "port": names.METRICS_PORT, "protocol": "TCP", "targetPort": "metrics"},
        ],
    }
    return result


def disruption_budget(subject: Subject, slot: Slot) -> Object:
    """Build the PodDisruptionBudget of a slot."""
    return evictable_singly(subject, names.server(subject.name, slot), names.SERVER, slot)


def evictable_singly(subject: Subject, name: str, component: str, slot: Slot | None = None) -> Object:
    """Build a PodDisruptionBudget that allows one eviction at a time. Pods that aren't ready can always be evicted."""
    labels = None if slot is None else {names.SLOT_LABEL: slot}
    result = child("policy/v1", "PodDisruptionBudget", subject, name, component, labels=labels)
    result["spec"] = {
        "maxUnavailable": 1,
        "unhealthyPodEvictionPolicy": "AlwaysAllow",
        "selector": {"matchLabels": names.selector(subject.name, component, slot)},
    }
    return result
