"""The servers of a slot: pod template, Deployment, headless Service and PodDisruptionBudget.

The template is rendered once per revision and then kept in its record: a newer operator restarts no pod.
"""

from __future__ import annotations

import math

from halcyon.api.documents.repository_marker import COMPLETE
from halcyon.api.spec import Spec, routing_mode
from halcyon.api.spec.model import DEFAULT_SIZE_LIMIT, Source
from halcyon.api.types import duration_s, quantity
from halcyon.render import grpc_keepalive, names
from halcyon.render.metadata import RESTRICTED, Object, child, placed, pod_security, pull_secrets, spread
from halcyon.render.names import Slot
from halcyon.render.site import Site, Subject

PRE_STOP_S = 5
"""Minimum time from the deletion of a pod until its SIGTERM, in which every balancer notices it and stops sending. If gRPC
streams continue, the SIGTERM waits for their end, at most `traffic.drainTimeout`."""
EXIT_MARGIN_S = 10
"""Time from Triton's own exit timeout until the kubelet's SIGKILL."""

_GPU = "nvidia.com/gpu"
_CLOSED = "shared-memory,trace,logging"
_REPOSITORY, _SOURCE, _OVERLAY, _CREDENTIALS, _HOME = (
    "/models",
    "/halcyon/source",
    "/halcyon/overlay",
    "/halcyon/credentials",
    "/halcyon/home",
)
_HOME_LIMIT = "20Gi"
"""Size limit of the home. Libraries download weights to their caches, so it equals the default of `source.sizeLimit`."""

_START = f'test ! -e {_REPOSITORY}/{COMPLETE} || set -- "$@" --disable-auto-complete-config; exec tritonserver "$@"'
"""Start command. A Python model whose configuration Triton completes is started twice (`fetch.auto_complete`), and only the pod
knows whether that is needed."""


def drain_s(spec: Spec) -> int:
    """Return the time for requests in flight to end, in whole seconds."""
    return math.ceil(duration_s(spec.traffic.drain_timeout))


def startup_s(spec: Spec) -> int:
    """Return the time for a pod to load the model, in whole seconds."""
    return math.ceil(duration_s(spec.runtime.startup_timeout))


def pod_template(
    subject: Subject, spec: Spec, site: Site, *, revision: str, model: str, overlay: str, snapshot: str | None
) -> Object:
    """Build the pod template of a revision, without the slot's label.

    `overlay` and `snapshot` name the immutable ConfigMaps with the configuration and, for a model in a ConfigMap, with its
    content.
    """
    runtime = spec.runtime
    placement = runtime.placement
    pod: Object = {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        # By construction longer than the steps inside it.
        "terminationGracePeriodSeconds": PRE_STOP_S + drain_s(spec) + drain_s(spec) + EXIT_MARGIN_S,
        "securityContext": pod_security(1000, site),
        "initContainers": [_fetch(subject, spec.model.source, site)],
        "containers": [_triton(subject, spec, site, model)],
        "volumes": [
            {"name": "models", "emptyDir": {}},
            {"name": "source", **_source_volume(spec.model.source, snapshot)},
            {"name": "overlay", "configMap": {"name": overlay}},
            {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": runtime.shared_memory}},
            {"name": "tmp", "emptyDir": {}},
            {"name": "home", "emptyDir": {"sizeLimit": _HOME_LIMIT}},
            *_credentials(spec.model.source),
        ],
    }
    spreads = placement.topology_spread_constraints
    pod |= spread(
        names.selector(subject.name, names.SERVER), None if spreads is None else [s.to_dict() for s in spreads]
    )
    pod |= pull_secrets(spec, site) | placed(placement)
    if placement.affinity is not None:
        pod["affinity"] = placement.affinity.to_dict()
    if runtime.service_account_name:
        pod["serviceAccountName"] = runtime.service_account_name
    if runtime.gpus:
        pod["tolerations"] = [*pod.get("tolerations", ()), {"key": _GPU, "operator": "Exists"}]
    labels = names.labels(subject.name, names.SERVER) | {names.REVISION_LABEL: revision}
    labels = dict(runtime.pod_labels or {}) | labels
    annotations = {"annotations": dict(runtime.pod_annotations)} if runtime.pod_annotations else {}
    return {"metadata": {"labels": labels, **annotations}, "spec": pod}


def _source_volume(source: Source, snapshot: str | None) -> Object:
    if source.config_map is not None:
        items = [{"key": item.key, "path": item.path} for item in source.config_map.items]
        # A ConfigMap keeps no file modes, and a model may include executables.
        return {"configMap": {"name": snapshot, "items": items, "defaultMode": 0o755}}
    if source.uri is not None:
        return {"emptyDir": {"sizeLimit": source.size_limit or DEFAULT_SIZE_LIMIT}}
    if source.image is not None:
        return {"image": {"reference": source.image.reference}}
    if source.persistent_volume_claim is None:
        raise ValueError("the model source has no kind; such a spec is never accepted")
    claim = source.persistent_volume_claim.claim_name
    return {"persistentVolumeClaim": {"claimName": claim, "readOnly": True}}


def _credentials(source: Source) -> list[Object]:
    """Return the volume with the download credentials: the kubelet reads the Secret, and only the fetcher mounts it."""
    if source.credentials is None:
        return []
    return [{"name": "credentials", "secret": {"secretName": source.credentials.secret_name}}]


def _download(source: Source) -> list[str]:
    given = {
        "url": source.uri,
        "endpoint": source.endpoint,
        "region": source.region,
        "path": source.path,
        "sha256": None if source.digest is None else source.digest.removeprefix("sha256:"),
        "credentials": None if source.credentials is None else _CREDENTIALS,
        "limit-bytes": int(quantity(source.size_limit or DEFAULT_SIZE_LIMIT)),
    }
    return [f"--{name}={value}" for name, value in given.items() if value is not None]


def downloads(template: Object) -> list[tuple[str, str | None]]:
    """Return the URL and the endpoint of a pod template's model; empty if it isn't downloaded."""
    given = dict(
        argument.removeprefix("--").partition("=")[::2]
        for container in template["spec"].get("initContainers", ())
        for argument in container.get("args", ())
        if argument.startswith(("--url=", "--endpoint="))
    )
    return [(given["url"], given.get("endpoint"))] if "url" in given else []


def _fetch(subject: Subject, source: Source, site: Site) -> Object:
    args = ["fetch", f"--source={_SOURCE}", f"--overlay={_OVERLAY}/overlay.json", f"--repository={_REPOSITORY}"]
    mounted = source.persistent_volume_claim or source.image
    if mounted is not None and mounted.path is not None:
        args.append(f"--path={mounted.path}")
    models, exempt = site.policy.models, subject.namespace in site.policy.exempt_namespaces
    if source.uri is not None:
        args += _download(source)
        # Sources that the site has listed, and so accepted, are trusted even at private addresses.
        listed = models.urls if source.endpoint is None else models.endpoints
        args += ["--private"] if exempt or listed is not None else []
    allowed = models.backends
    if allowed is not None and not exempt:
        args.append(f"--backends={','.join(allowed)}")
    return {
        "name": names.FETCHER,
        "image": site.operator_image,
        "args": args,
        "resources": {"requests": {"cpu": "50m", "memory": "64Mi"}, "limits": {"memory": "256Mi"}},
        "securityContext": RESTRICTED,
        "volumeMounts": [
            {"name": "models", "mountPath": _REPOSITORY},
            {"name": "source", "mountPath": _SOURCE, **({} if source.uri else {"readOnly": True})},
            {"name": "overlay", "mountPath": _OVERLAY, "readOnly": True},
            *({"name": volume["name"], "mountPath": _CREDENTIALS, "readOnly": True} for volume in _credentials(source)),
        ],
    }


def _triton(subject: Subject, spec: Spec, site: Site, model: str) -> Object:
    runtime = spec.runtime
    loaded = {"httpGet": {"path": f"/v2/models/{model}/ready", "port": "http"}}
    return {
        "name": "triton",
        "image": runtime.image or site.server_image,
        "command": ["/bin/sh", "-c", _START, "tritonserver"],
        "args": [
            f"--model-repository={_REPOSITORY}",
            "--model-control-mode=none",
            # If the model doesn't load, the server keeps running and can report why.
            "--exit-on-error=false",
            f"--exit-timeout-secs={drain_s(spec)}",
            "--metrics-interval-ms=1000",
            *_closed(subject),
            *(grpc_keepalive.triton_args(drain_s=drain_s(spec)) if routing_mode.is_direct(spec) else ()),
        ],
        "ports": [
            {"name": "http", "containerPort": names.HTTP_PORT},
            {"name": "grpc", "containerPort": names.GRPC_PORT},
            {"name": "metrics", "containerPort": names.METRICS_PORT},
        ],
        # Triton opens its port once the models have loaded or failed.
        "startupProbe": {**loaded, "periodSeconds": 1, "timeoutSeconds": 2, "failureThreshold": startup_s(spec)},
        "readinessProbe": {**loaded, "periodSeconds": 2, "timeoutSeconds": 2, "failureThreshold": 2},
        "livenessProbe": {
            "httpGet": {"path": "/v2/health/live", "port": "http"},
            "periodSeconds": 10,
            "timeoutSeconds": 5,
            "failureThreshold": 6,
        },
        "lifecycle": {"preStop": {"exec": {"command": ["/bin/sh", "-c", _pre_stop(spec)]}}},
        "resources": _resources(spec),
        "securityContext": RESTRICTED,
        "volumeMounts": [
            {"name": "models", "mountPath": _REPOSITORY},
            # The repository holds links into the source, so the mount path must be the fetcher's.
            {"name": "source", "mountPath": _SOURCE, "readOnly": True},
            {"name": "shm", "mountPath": "/dev/shm"},  # noqa: S108  # the kernel's name for shared memory
            {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108  # a volume of the pod's own
            {"name": "home", "mountPath": _HOME},
        ],
        "env": _environment(spec),
        **({"envFrom": [entry.to_dict() for entry in spec.runtime.env_from]} if spec.runtime.env_from else {}),
    }


def _closed(subject: Subject) -> list[str]:
    """Return the arguments that restrict Triton's other APIs: they require a header with an undisclosed value.

    A second security boundary: balancers forward none of these calls, but if clients reach servers directly it is the only one.
    Statistics, configuration and the index of models stay open, because agents read them.
    """
    key = f"halcyon={names.digest([subject.uid, 'restricted'])}"
    return [f"{option}={_CLOSED}:{key}" for option in ("--http-restricted-api", "--grpc-restricted-protocol")]


def _pre_stop(spec: Spec) -> str:
    if spec.traffic.stickiness is not None:
        # Requests that belong to this pod arrive until the drain is over, possibly with pauses.
        return f"sleep {PRE_STOP_S + drain_s(spec)}"
    # After SIGTERM, Triton fails every message on an open stream. A balancer closes its connections when the last stream on
    # them is idle, and at the end of the drain. So an established connection (01) to the gRPC port is in use.
    in_use = f"grep -qs ':{names.GRPC_PORT:04X} [0-9A-F]*:[0-9A-F]* 01 ' /proc/net/tcp /proc/net/tcp6"
    return f"sleep {PRE_STOP_S}; n=0; while [ $n -lt {drain_s(spec)} ] && {in_use}; do sleep 1; n=$((n+1)); done"


def _environment(spec: Spec) -> list[Object]:
    """Return the variables of the spec, and a writable HOME unless the spec sets another.

    The image's own HOME is on the read-only root. Caches follow HOME by default (XDG, Hugging Face, PyTorch, Numba, Matplotlib,
    Triton's language, CUDA), so no other variable is set, and those of the image still apply. HOME comes first: later values
    may refer to `$(HOME)`.
    """
    said = [entry.to_dict() for entry in spec.runtime.env or ()]
    return said if any(entry["name"] == "HOME" for entry in said) else [{"name": "HOME", "value": _HOME}, *said]


def _resources(spec: Spec) -> Object:
    asked, gpu = spec.runtime.resources, spec.runtime.gpu
    requests = asked.requests.to_dict() if asked.requests else {}
    limits = asked.limits.to_dict() if asked.limits else {}
    if gpu is not None and gpu.count:
        limits[gpu.resource_name] = str(gpu.count)
    return {key: value for key, value in (("requests", requests), ("limits", limits)) if value}


def gpus(template: Object) -> int:
    """Return the GPUs that one pod of a template requests."""
    containers = (template.get("spec") or {}).get("containers") or ()
    limits = ((container.get("resources") or {}).get("limits") or {} for container in containers)
    # Extended resources have a domain in their names, and only GPUs are requested this way.
    return sum(int(quantity(str(count))) for each in limits for name, count in each.items() if "/" in name)


def progress_deadline_s(startup_timeout_s: int) -> int:
    """Return the time from creation for a revision's pod to become ready: the start, and the time before it."""
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
    """Build the Deployment of a slot, from the template of its revision."""
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
    """Build the headless Service whose EndpointSlices list a slot's pods for the balancers."""
    result = child(
        "v1",
        "Service",
        subject,
        names.slot_service(subject.name, slot),
        names.SERVER,
        labels={names.SLOT_LABEL: slot},
    )
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
    """Build the PodDisruptionBudget, which allows one pod of a slot to be evicted at a time, and always unready ones."""
    result = child(
        "policy/v1",
        "PodDisruptionBudget",
        subject,
        names.server(subject.name, slot),
        names.SERVER,
        labels={names.SLOT_LABEL: slot},
    )
    result["spec"] = {
        "maxUnavailable": 1,
        "unhealthyPodEvictionPolicy": "AlwaysAllow",
        "selector": {"matchLabels": names.selector(subject.name, names.SERVER, slot)},
    }
    return result
