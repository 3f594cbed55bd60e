"""The servers of a slot: pod template, Deployment, headless Service and PodDisruptionBudget.

The template is made once per revision and then kept in its record: a newer operator restarts no pod.
"""

from __future__ import annotations

import math
from typing import Any

from halcyon.api.documents.repository_marker import COMPLETE
from halcyon.api.spec import Spec, routing_mode
from halcyon.api.spec.model import Source, UriSource
from halcyon.api.types import duration_s, quantity
from halcyon.render import grpc_keepalive, names
from halcyon.render.metadata import RESTRICTED, Object, child, placed, pod_security, pull_secrets
from halcyon.render.names import Slot
from halcyon.render.site import Site, Subject

PRE_STOP_S = 5
"""From the deletion of a pod until its SIGTERM, at least: the time for every balancer to see it and stop sending. Where streams of
gRPC go on, the SIGTERM waits for their end, `traffic.drain` at most."""
EXIT_MARGIN_S = 10
"""From Triton's own exit time-out until the kubelet's SIGKILL."""

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
"""Libraries download weights to their caches, so a home may be as large as `source.uri.sizeLimit` lets a download be by default."""

_START = f'test ! -e {_REPOSITORY}/{COMPLETE} || set -- "$@" --disable-auto-complete-config; exec tritonserver "$@"'
"""A Python model that is asked to complete its configuration is started twice (`fetch.completion`). Whether that is needed is known in
the pod alone."""


def drain_s(spec: Spec) -> int:
    """Time for requests in flight to end, in whole seconds."""
    return math.ceil(duration_s(spec.traffic.drain))


def startup_s(spec: Spec) -> int:
    """Time for a pod to load the model, in whole seconds."""
    return math.ceil(duration_s(spec.runtime.startup_timeout))


def pod_template(
    subject: Subject, spec: Spec, site: Site, *, revision: str, model: str, overlay: str, snapshot: str | None
) -> Object:
    """The pod template of a revision, without the slot's label.

    `overlay` and `snapshot` name the immutable ConfigMaps with the configuration and, for a model in a ConfigMap, with
    its content.
    """
    runtime = spec.runtime
    placement = runtime.placement
    pod: Object = {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        # By construction longer than what happens inside it.
        "terminationGracePeriodSeconds": PRE_STOP_S + drain_s(spec) + drain_s(spec) + EXIT_MARGIN_S,
        "securityContext": pod_security(1000),
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
        "topologySpreadConstraints": [
            {
                "maxSkew": 1,
                "topologyKey": "kubernetes.io/hostname",
                "whenUnsatisfiable": "ScheduleAnyway",
                "labelSelector": {"matchLabels": names.selector(subject.name, names.SERVER)},
            }
        ],
    }
    pod |= pull_secrets(spec, site) | placed(placement)
    if runtime.gpu.count:
        pod["tolerations"] = [*pod.get("tolerations", ()), {"key": _GPU, "operator": "Exists"}]
    labels = names.labels(subject.name, names.SERVER) | {names.REVISION_LABEL: revision}
    return {"metadata": {"labels": labels}, "spec": pod}


def _source_volume(source: Source, snapshot: str | None) -> Object:
    if source.config_map is not None:
        items = [{"key": item.key, "path": item.path} for item in source.config_map.items]
        # A ConfigMap keeps no modes, and a model may bring something to be run.
        return {"configMap": {"name": snapshot, "items": items, "defaultMode": 0o755}}
    if source.uri is not None:
        return {"emptyDir": {"sizeLimit": source.uri.size_limit}}
    if source.image is not None:
        return {"image": {"reference": source.image.reference}}
    if source.persistent_volume_claim is None:
        raise ValueError("a source without a kind can't have been accepted")
    claim = source.persistent_volume_claim.claim_name
    return {"persistentVolumeClaim": {"claimName": claim, "readOnly": True}}


def _credentials(source: Source) -> list[Object]:
    """The volume with what a download is signed with: the kubelet reads the Secret, and the fetcher alone mounts it."""
    if source.uri is None or source.uri.secret_name is None:
        return []
    return [{"name": "credentials", "secret": {"secretName": source.uri.secret_name}}]


def _download(uri: UriSource) -> list[str]:
    given = {
        "url": uri.url,
        "endpoint": uri.endpoint,
        "region": uri.region,
        "path": uri.path,
        "sha256": uri.sha256,
        "credentials": _CREDENTIALS if uri.secret_name else None,
        "limit-bytes": int(quantity(uri.size_limit)),
    }
    return [f"--{name}={value}" for name, value in given.items() if value is not None]


def downloads(template: Object) -> list[tuple[str, str | None]]:
    """Of a pod template: the URL that its model comes from, and the endpoint; empty where it isn't downloaded."""
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
        args += _download(source.uri)
        # What the site has listed, and so what was accepted, it has vouched for.
        listed = models.urls if source.uri.endpoint is None else models.endpoints
        args += ["--private"] if exempt or listed is not None else []
    allowed = models.backends
    if allowed is not None and not exempt:
        args.append(f"--backends={','.join(allowed)}")
    return {
        "name": "fetch",
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
            # A model that doesn't load leaves a server that can say why.
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
        # Triton opens its port once the models are loaded, or have failed to.
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
            # The repository holds links into the source, so it is mounted where the fetcher saw it.
            {"name": "source", "mountPath": _SOURCE, "readOnly": True},
            {"name": "shm", "mountPath": "/dev/shm"},  # noqa: S108  # the kernel's name for shared memory
            {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108  # a volume of the pod's own
            {"name": "home", "mountPath": _HOME},
        ],
        "env": _environment(spec),
    }


def _closed(subject: Subject) -> list[str]:
    """What nobody has business with at a Triton: it needs a header with a value that nobody is told.

    A second wall: balancers pass none of it on, and where clients reach servers it is the only one. Its statistics, configuration and
    index of models stay open: agents read them.
    """
    key = f"halcyon={names.digest([subject.uid, 'restricted'])}"
    return [f"{option}={_CLOSED}:{key}" for option in ("--http-restricted-api", "--grpc-restricted-protocol")]


def _pre_stop(spec: Spec) -> str:
    if spec.traffic.stickiness is not None:
        # What belongs to this pod comes to it until the drain is over, and may pause meanwhile.
        return f"sleep {PRE_STOP_S + drain_s(spec)}"
    # From its SIGTERM on, Triton fails each message on a stream that is open. A balancer closes its connections when the last of
    # them is idle, and at the end of the drain, so one to the gRPC port that is established (01) is one in use.
    in_use = f"grep -qs ':{names.GRPC_PORT:04X} [0-9A-F]*:[0-9A-F]* 01 ' /proc/net/tcp /proc/net/tcp6"
    return f"sleep {PRE_STOP_S}; n=0; while [ $n -lt {drain_s(spec)} ] && {in_use}; do sleep 1; n=$((n+1)); done"


def _environment(spec: Spec) -> list[Object]:
    """Return what the spec says, and a HOME that can be written unless the spec names another.

    The image's own is on the read-only root. Caches follow HOME by their defaults (XDG, Hugging Face, PyTorch, Numba, Matplotlib,
    Triton's language, CUDA), so no other variable is set, and one that the image sets still counts. HOME comes first: later values
    may refer to `$(HOME)`.
    """
    said = [_env(entry.to_dict()) for entry in spec.runtime.env or ()]
    return said if any(entry["name"] == "HOME" for entry in said) else [{"name": "HOME", "value": _HOME}, *said]


def _env(entry: dict[str, Any]) -> Object:
    reference = entry.pop("secretKeyRef", None)
    return entry if reference is None else {**entry, "valueFrom": {"secretKeyRef": reference}}


def _resources(spec: Spec) -> Object:
    requests: dict[str, str] = {}
    limits: dict[str, str] = {}
    if spec.runtime.resources.cpu:
        requests["cpu"] = spec.runtime.resources.cpu
    if spec.runtime.resources.memory:
        requests["memory"] = limits["memory"] = spec.runtime.resources.memory
    if spec.runtime.gpu.count:
        limits[_GPU] = str(spec.runtime.gpu.count)
    return {key: value for key, value in (("requests", requests), ("limits", limits)) if value}


def gpus(template: Object) -> int:
    """GPUs that one pod of a template asks for."""
    containers = (template.get("spec") or {}).get("containers") or ()
    limits = ((container.get("resources") or {}).get("limits") or {} for container in containers)
    return sum(int(quantity(str(each.get(_GPU, "0")))) for each in limits)


def progress_deadline_s(startup_timeout_s: int) -> int:
    """Time for a revision's pod to become ready, from its creation: the start, and what comes before it."""
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
    """The Deployment of a slot, from the template of its revision."""
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
    """The headless Service whose EndpointSlices tell the balancers a slot's pods."""
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
    """At most one pod of a slot is evicted at a time; one that isn't ready may always go."""
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
