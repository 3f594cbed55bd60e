"""Functions on pods, mostly on their status: readiness, scheduling and failures. Pure."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from halcyon.api.conditions import Reason
from halcyon.api.timestamps import epoch_seconds
from halcyon.control.objects import pod_interference
from halcyon.kube.kinds import Object
from halcyon.kube.pod_times import (
    condition,
    created_at,
    node_clock_ahead_s,
    on_scheduler_clock,
    ready_at,
    start_began_at,
)
from halcyon.render import names
from halcyon.scaling.planner.reading import PodPhase, PodReading


@dataclass(frozen=True)
class PodFailure:
    """Failure of a pod, which explains why the pod isn't ready."""

    reason: Reason
    message: str
    pod: str


LOST_AFTER_S = 60.0
"""Seconds after the deletionTimestamp of a pod, by which it should have ended, until the pod counts as lost."""
_CONDITION_FIELDS = ("type", "status", "reason", "message", "lastTransitionTime")
"""Fields of a condition that the caches keep."""
_CONDITIONS = frozenset({"Ready", "PodScheduled", "DisruptionTarget"})
_UNPREPARED = ("PodReadyToStartContainers", "False")
"""Condition, as (type, status), of a pod whose volumes and network aren't ready. The caches keep it with this status
only, because all other pods have it with status True."""


def project(pod: Object) -> Object:
    """Return the fields of a pod that the caches keep, which are a few percent of the whole object.

    Times that the kubelet wrote are converted to the scheduler's clock. Containers that others added are in `injected`.
    """
    meta, spec, status = pod["metadata"], pod.get("spec") or {}, pod.get("status") or {}
    ahead_s = node_clock_ahead_s(status)
    init = [_container(c, ahead_s) for c in status.get("initContainerStatuses") or ()]
    main = [_container(c, ahead_s) for c in status.get("containerStatuses") or ()]
    return {
        "metadata": {
            "namespace": meta["namespace"],
            "name": meta["name"],
            "uid": meta["uid"],
            "resourceVersion": meta["resourceVersion"],
            "labels": {key: _shared(value) for key, value in (meta.get("labels") or {}).items()},
            "creationTimestamp": meta.get("creationTimestamp"),
            "deletionTimestamp": meta.get("deletionTimestamp"),
        },
        "spec": {
            "priority": spec.get("priority"),
            **({"nodeName": spec["nodeName"]} if spec.get("nodeName") else {}),
            **_claim(spec),
            **_devices(spec),
        },
        "status": {
            "phase": _shared(status.get("phase")),
            **{key: status[key] for key in ("reason", "message") if status.get(key)},
            **_missing_claim(pod),
            **_interference(spec, init, main),
            "podIP": status.get("podIP"),
            "conditions": [
                on_scheduler_clock(fields, ahead_s if fields["type"] == "Ready" else 0.0)
                for c in status.get("conditions") or ()
                if c.get("type") in _CONDITIONS or (c.get("type"), c.get("status")) == _UNPREPARED
                for fields in [{k: _shared(c.get(k)) for k in _CONDITION_FIELDS}]
            ],
            "initContainerStatuses": [c for c in init if c["name"] in names.CONTAINERS],
            "containerStatuses": [c for c in main if c["name"] in names.CONTAINERS],
        },
    }


def _shared(value: Any) -> Any:  # any JSON value
    """Return a string that is shared with other objects, because many pods have mostly the same strings."""
    return sys.intern(value) if type(value) is str else value


def _claim(spec: Mapping[str, Any]) -> Object:
    """Return the cached field `claim`, the PersistentVolumeClaim with the model; {} if the source isn't a claim."""
    volumes = (volume for volume in spec.get("volumes") or () if volume.get("name") == "source")
    claims = ((volume.get("persistentVolumeClaim") or {}).get("claimName") for volume in volumes)
    return {"claim": name} if (name := next(filter(None, claims), None)) else {}


def _devices(spec: Mapping[str, Any]) -> Object:
    """Return the cached field `devices`, with the pod's number of each extended resource, or {} if it has none.

    The names of extended resources contain a slash, for example nvidia.com/gpu.
    """
    amounts: dict[str, int] = {}
    for container in spec.get("containers") or ():
        for name, amount in ((container.get("resources") or {}).get("limits") or {}).items():
            if "/" in name and str(amount).isdecimal():
                amounts[sys.intern(name)] = amounts.get(name, 0) + int(amount)
    return {"devices": amounts} if amounts else {}


def devices(pod: Object, resource: str) -> int | None:
    """Return how many devices of an extended resource the pod has; None if it has no resource of this name."""
    count: int | None = (pod["spec"].get("devices") or {}).get(resource)
    return count


def _interference(spec: Mapping[str, Any], init: list[Object], main: list[Object]) -> Object:
    """Return the cached fields `gates` (scheduling gates) and `injected` (containers of others), without empty ones."""
    gates = [str(gate.get("name")) for gate in spec.get("schedulingGates") or ()]
    injected = [c | {"init": c in init} for c in (*init, *main) if c["name"] not in names.CONTAINERS]
    return ({"gates": gates} if gates else {}) | ({"injected": injected} if injected else {})


def _missing_claim(pod: Object) -> Object:
    """Return the cached field `missingClaimOf`, with the ResourceClaimTemplate of a claim that isn't created yet, or {}."""
    created = {entry.get("name") for entry in (pod.get("status") or {}).get("resourceClaimStatuses") or ()}
    claims = (pod.get("spec") or {}).get("resourceClaims") or ()
    missing = (claim.get("resourceClaimTemplateName") for claim in claims if claim.get("name") not in created)
    return {"missingClaimOf": name} if (name := next(filter(None, missing), None)) else {}


def _container(status: Mapping[str, Any], ahead_s: float) -> Object:
    return {
        "name": _shared(status["name"]),
        "image": _shared(status.get("image")),
        "restartCount": status.get("restartCount", 0),
        "started": status.get("started") is True,
        "ready": status.get("ready") is True,
        "state": on_scheduler_clock(status.get("state") or {}, ahead_s),
        "lastState": on_scheduler_clock(status.get("lastState") or {}, ahead_s),
    }


def is_live(pod: Object) -> bool:
    """Return whether the pod has not ended and is not being deleted."""
    return pod["metadata"]["deletionTimestamp"] is None and pod["status"]["phase"] not in {"Failed", "Succeeded"}


def lost_at(pod: Object) -> float | None:
    """Return the time from which a pod that is being deleted counts as lost, in seconds since the epoch.

    The node of a lost pod no longer responds, and the object of the pod may stay for days. Return None if the pod isn't
    being deleted.
    """
    ends = epoch_seconds(pod["metadata"]["deletionTimestamp"])
    return None if ends is None else ends + LOST_AFTER_S


def is_ended_or_lost(pod: Object, now: float) -> bool:
    """Return whether a pod serves no more requests, although its object exists: it has ended, or it is lost.

    No controller deletes the object of a pod that was evicted, or that ended because its node was shut down.
    """
    lost_from = lost_at(pod)
    return pod["status"]["phase"] in {"Failed", "Succeeded"} or (lost_from is not None and now >= lost_from)


def is_ready(pod: Object) -> bool:
    """Return whether the pod is live and has the Ready condition with status True."""
    return is_live(pod) and condition(pod, "Ready").get("status") == "True"


def is_unschedulable(pod: Object) -> bool:
    """Return whether the scheduler has found no node for the pod, or a scheduling gate keeps it from searching for one."""
    scheduled = condition(pod, "PodScheduled")
    reasons = {"Unschedulable", "SchedulingGated"}
    return is_live(pod) and scheduled.get("status") == "False" and scheduled.get("reason") in reasons


def is_unplaced(pod: Object) -> bool:
    """Return whether the pod has no node, and the scheduler has reported why.

    Unlike `is_unschedulable`, this includes errors of the scheduler, for example if a volume can't be bound. More
    capacity wouldn't help then.
    """
    return is_live(pod) and condition(pod, "PodScheduled").get("status") == "False"


def missing_claim(pod: Object) -> str:
    """Return the ResourceClaimTemplate from which a claim must be created before the pod can be scheduled, or "".

    The scheduler reports no reason in this case.
    """
    return "" if holds_node(pod) else str(pod["status"].get("missingClaimOf", ""))


def holds_node(pod: Object) -> bool:
    """Return whether the pod has a node and hasn't ended. Such a pod occupies the resources that it requests."""
    scheduled = condition(pod, "PodScheduled").get("status") == "True" or pod["status"].get("podIP") is not None
    return scheduled and pod["status"]["phase"] not in {"Failed", "Succeeded"}


def is_server(pod: Object) -> bool:
    """Return whether the pod is a server pod, which runs Triton, and not a balancer pod."""
    return bool(pod["metadata"]["labels"].get(names.COMPONENT_LABEL) == names.SERVER)


def reading(pod: Object, ready_at: float | None) -> PodReading | None:
    """Return a server pod in the form of the planner's input; None if the pod has ended.

    `ready_at` is the time at which the pod first became ready, in seconds since the epoch. It is None if the pod was
    never ready, or if the time is unknown.
    """
    # being deleted   ended   unschedulable   Ready   was ready, or restarted   phase
    # yes             -       -               -       -                         draining
    # no              yes     -               -       -                         (no reading)
    # no              no      yes             -       -                         unschedulable
    # no              no      no              yes     -                         ready
    # no              no      no              no      yes                       broken: no capacity is expected from it soon
    # no              no      no              no      no                        starting
    meta = pod["metadata"]
    created = start_began_at(pod) or 0.0
    if meta["deletionTimestamp"] is not None:
        return PodReading(meta["name"], "draining", created, ready_at)
    if not is_live(pod):
        return None
    if is_unschedulable(pod):
        return PodReading(meta["name"], "unschedulable", created, ready_at)
    if is_ready(pod):
        return PodReading(meta["name"], "ready", created, ready_at)
    has_restarted = any(c["restartCount"] > 0 for c in pod["status"]["containerStatuses"])
    phase: PodPhase = "broken" if has_restarted or ready_at is not None else "starting"
    return PodReading(meta["name"], phase, created, ready_at)


def ready_since(pod: Object) -> float | None:
    """Return the time at which the pod last became ready, in seconds since the epoch. Return None if it isn't ready."""
    return ready_at(pod) if is_ready(pod) else None


def lacking(message: str) -> list[str]:
    """Return the names of the resources that a scheduler's message reports as insufficient. The list has no duplicates."""
    return list(dict.fromkeys(re.findall(r"Insufficient ([\w./-]*\w)", message)))


def unschedulable_since(pod: Object) -> float | None:
    """Return the time since which the pod has been unschedulable, in seconds since the epoch.

    The result is None if the pod isn't unschedulable, or if the time is unknown.
    """
    if not is_unschedulable(pod):
        return None
    return epoch_seconds(condition(pod, "PodScheduled").get("lastTransitionTime")) or created_at(pod)


def priority(pod: Object) -> int:
    """Return the pod's priority, which the API server derives from its PriorityClass; 0 if it has none."""
    return int((pod.get("spec") or {}).get("priority") or 0)


def revision(pod: Object) -> str:
    """Return the key of the revision that the pod runs."""
    return str(pod["metadata"]["labels"].get(names.REVISION_LABEL, ""))


_PULL = {"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "RegistryUnavailable"}


def failure(candidates: Iterable[Object]) -> PodFailure | None:
    """Return the most specific failure of the given pods; None if no pod has failed.

    The list `order` ranks the reasons. Among failures with the same reason, the first pod by name wins.
    """
    failures = [t for pod in candidates if is_live(pod) and not is_ready(pod) for t in _failures(pod)]
    order = [
        Reason.MODEL_CONFIG_INVALID,
        Reason.MODEL_SOURCE_NOT_FOUND,
        Reason.MODEL_DOWNLOAD_FAILED,
        Reason.IMAGE_PULL_FAILED,
        Reason.CONTAINER_FAILED,
        Reason.START_BLOCKED,
        Reason.UNSCHEDULABLE,
    ]
    return min(failures, key=lambda t: (order.index(t.reason), t.pod), default=None)


def _failures(pod: Object) -> list[PodFailure]:
    name = pod["metadata"]["name"]
    if text := _unplaced(pod):
        return [PodFailure(Reason.UNSCHEDULABLE, text, name)]
    failures = []
    for status in (*pod["status"]["initContainerStatuses"], *pod["status"]["containerStatuses"]):
        waiting = status["state"].get("waiting") or {}
        terminated = status["state"].get("terminated") or status["lastState"].get("terminated") or {}
        if waiting.get("reason") in _PULL:
            failures.append(PodFailure(Reason.IMAGE_PULL_FAILED, _pull(status, waiting), name))
        elif status["name"] == names.FETCHER and terminated.get("exitCode"):
            failures.append(_fetch(terminated, name))
        elif waiting.get("reason") in {"CreateContainerConfigError", "CreateContainerError"}:
            text = f"container {status['name']}: {_create(waiting)}"
            failures.append(PodFailure(Reason.CONTAINER_FAILED, text, name))
        elif terminated.get("exitCode") and status["restartCount"] > 0:
            cause = f"{terminated.get('reason') or 'Error'} (exit code {terminated['exitCode']})"
            text = f"container {status['name']} terminated: {cause}"
            if terminated.get("message"):
                text += f": {terminated['message']}"
            failures.append(PodFailure(Reason.CONTAINER_FAILED, f"{text}, {status['restartCount']} restarts", name))
    if not failures and (text := pod_interference.start_blocker(pod)):
        failures.append(PodFailure(Reason.START_BLOCKED, text, name))
    return failures


def _unplaced(pod: Object) -> str:
    """Return the reason why a pod has no node. It is empty if the pod has a node, or if the reason isn't known."""
    if is_unplaced(pod):
        if not (gates := pod["status"].get("gates")):
            scheduled = condition(pod, "PodScheduled")
            return str(scheduled.get("message") or scheduled.get("reason") or "the scheduler gives no reason")
        return (
            f"scheduling gate {', '.join(gates)} keeps the scheduler from placing it; the controller that set the gate, "
            "for example Kueue, removes it"
        )
    if template := missing_claim(pod):
        return (
            f"its ResourceClaim of ResourceClaimTemplate {template} is not created yet; if that lasts, check that the "
            "template exists in the namespace and that its ResourceQuotas allow another claim"
        )
    return ""


def _pull(status: Mapping[str, Any], waiting: Mapping[str, Any]) -> str:
    return f"container {status['name']}: {waiting['reason']}: {waiting.get('message') or status.get('image')}"


def _create(waiting: Mapping[str, Any]) -> str:
    message = str(waiting.get("message"))
    # containerd 1.6 and 1.7 report this for a volume type that they don't support (checked with 1.6.20).
    if message.endswith('failed to mkdir "": mkdir : no such file or directory'):
        message += (
            ". The node's container runtime does not support image volumes, which need containerd 2.1 or "
            "CRI-O 1.31 or newer"
        )
    return message


def _fetch(terminated: Mapping[str, Any], pod: str) -> PodFailure:
    # The fetcher's own termination message is JSON. Any other, for example after OOMKilled, is shown as it is.
    try:
        report = json.loads(terminated.get("message") or "")
        reason, message = str(report["reason"]), str(report["message"])
    except (ValueError, KeyError, TypeError, RecursionError):
        text = (
            f"container fetch terminated: {terminated.get('reason')} (exit code {terminated.get('exitCode')}) "
            f"{terminated.get('message') or ''}"
        )
        return PodFailure(Reason.CONTAINER_FAILED, text.strip(), pod)
    reasons = {
        "ModelSourceNotFound": Reason.MODEL_SOURCE_NOT_FOUND,
        "ModelDownloadFailed": Reason.MODEL_DOWNLOAD_FAILED,
        "ModelConfigInvalid": Reason.MODEL_CONFIG_INVALID,
        "ModelConfigConflict": Reason.MODEL_CONFIG_INVALID,
    }
    return PodFailure(reasons.get(reason, Reason.CONTAINER_FAILED), message, pod)
