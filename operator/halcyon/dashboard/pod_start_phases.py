"""Pods on a model's page: the phases of a pod's start, and the container whose log explains its state. Pure.

Times are in seconds since the epoch, with a resolution of one second, as in Kubernetes. Phases whose times were
overwritten by a restart are omitted. The phases are pending, pulling, fetching, starting and loading, in this order.
Together they cover the time from the pod's creation until it is ready.

Out of scope: the current stage of a pod (`control.objects.pod_stage`), and the cold start in the status
(`control.status`).
"""

# | phase      | from                     | to                                  |
# | ---------- | ------------------------ | ----------------------------------- |
# | pending    | the pod is created       | the pod is scheduled                |
# | pulling    | end of the last phase    | the first container runs            |
# | fetching   | the fetcher runs         | the fetcher has ended               |
# | starting   | end of the last phase    | the server container runs           |
# | loading    | end of the last phase    | Ready: the model is loaded and warm |

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from halcyon.dashboard.ports import DashboardPod, Object
from halcyon.kube.pod_times import created_at, pod_times, ready_at
from halcyon.render import names

PhaseName = Literal["pending", "pulling", "fetching", "starting", "loading"]


@dataclass(frozen=True, slots=True)
class StartPhase:
    """Phase of a pod's start."""

    name: PhaseName
    begin: float
    end: float | None
    """End of the phase, in seconds since the epoch; None if the phase has not ended."""


def pod_document(pod: DashboardPod) -> dict[str, Any]:
    """Return the JSON document of a pod for the page of its model."""
    obj = pod.obj
    meta, status = obj["metadata"], obj["status"]
    containers: Sequence[Object] = (*status["initContainerStatuses"], *status["containerStatuses"])
    return {
        "name": meta["name"],
        "state": pod.state,
        "reason": pod.reason,
        "message": pod.message,
        "created": created_at(obj),
        "restarts": sum(int(container.get("restartCount") or 0) for container in containers),
        "revision": str(meta["labels"].get(names.REVISION_LABEL, "")),
        "slot": str(meta["labels"].get(names.SLOT_LABEL, "")),
        "phases": [asdict(phase) for phase in phases(obj)],
        "ready_at": ready_at(obj),
        "log": log_of(obj),
    }


def log_of(obj: Object) -> dict[str, Any] | None:
    """Return the container whose log explains the pod's state, and whether to show the log of its previous run.

    Return None if no container has run yet.

    The container is the first one that has failed or restarted. If there is none, it is the first running init
    container, else the first main container, else the first init container.
    """
    status = obj["status"]
    started = [
        container
        for container in (*status["initContainerStatuses"], *status["containerStatuses"])
        if (container.get("state") or {}).keys() & {"running", "terminated"} or container.get("lastState")
    ]
    if not started:
        return None
    init = {container["name"] for container in status["initContainerStatuses"]}
    chosen = min(started, key=lambda c: (not _failed(c), c["name"] in init and not _runs(c)))
    return {"container": chosen["name"], "previous": bool(chosen.get("lastState")) and not _runs(chosen)}


def _runs(container: Object) -> bool:
    return "running" in (container.get("state") or {})


def _failed(container: Object) -> bool:
    ended = (container.get("state") or {}).get("terminated") or {}
    return bool(container.get("restartCount") or ended.get("exitCode"))


def phases(obj: Object) -> list[StartPhase]:
    """Return the phases of a pod's first start whose times are known. Each phase begins when the previous one ends."""
    return list(_phases(obj))


def _phases(obj: Object) -> Iterator[StartPhase]:
    times = pod_times(obj, names.FETCHER)
    status = obj["status"]
    marks: list[tuple[PhaseName, float | None]] = [("pending", times.scheduled_at)]
    if any(container["name"] == names.FETCHER for container in status["initContainerStatuses"]):
        marks += [("pulling", times.init_started_at), ("fetching", times.init_ended_at)]
        marks += [("starting", times.main_started_at)]
    else:
        marks += [("pulling", times.main_started_at)]
    marks += [("loading", times.ready_at)]
    begin = times.created_at
    over = times.ready_at is not None or any(c.get("restartCount") for c in status["containerStatuses"][:1])
    for name, end in marks:
        # If the start is over, a missing time stays unknown. A time before the previous one belongs to another start.
        if begin is None or (end is None and over) or (end is not None and end < begin):
            return
        yield StartPhase(name, begin, end)
        begin = end
