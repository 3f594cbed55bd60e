"""A pod -> what its start took, part by part, as far as it has come. Pure.

Times are seconds since the epoch, as precise as Kubernetes tells them: a second. A start that a restart has overwritten isn't told.

| phase      | from                     | to                                 |
| ---------- | ------------------------ | ---------------------------------- |
| pending    | it was created           | the scheduler has found a node     |
| pulling    | then                     | its first container runs           |
| fetching   | the fetcher runs         | it has ended                       |
| starting   | then                     | the server's container runs        |
| loading    | then                     | Ready: the model is loaded and warm|

Not here: what a pod is doing (`control.stages`), and the start that the status tells of (`control.cold_start`).
"""

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
    """One part of a start."""

    name: PhaseName
    begin: float
    end: float | None
    """None while it lasts."""


def told(pod: DashboardPod) -> dict[str, Any]:
    """What a page shows of a pod, as JSON has it."""
    obj = pod.obj
    meta, status = obj["metadata"], obj["status"]
    containers: Sequence[Object] = (*status["initContainerStatuses"], *status["containerStatuses"])
    return {
        "name": meta["name"],
        "state": pod.state,
        "reason": pod.reason,
        "message": pod.message,
        "created": created_at(obj),
        "restarts": sum(int(one.get("restartCount") or 0) for one in containers),
        "revision": str(meta["labels"].get(names.REVISION_LABEL, "")),
        "slot": str(meta["labels"].get(names.SLOT_LABEL, "")),
        "phases": [asdict(phase) for phase in phases(obj)],
        "ready_at": ready_at(obj),
    }


def phases(obj: Object) -> list[StartPhase]:
    """The phases of its first start, as far as they can still be told: each begins where the one before has ended."""
    return list(_phases(obj))


def _phases(obj: Object) -> Iterator[StartPhase]:
    times = pod_times(obj, names.FETCHER)
    status = obj["status"]
    marks: list[tuple[PhaseName, float | None]] = [("pending", times.scheduled_at)]
    if any(one["name"] == names.FETCHER for one in status["initContainerStatuses"]):
        marks += [("pulling", times.init_started_at), ("fetching", times.init_ended_at)]
        marks += [("starting", times.main_started_at)]
    else:
        marks += [("pulling", times.main_started_at)]
    marks += [("loading", times.ready_at)]
    begin = times.created_at
    over = times.ready_at is not None or any(one.get("restartCount") for one in status["containerStatuses"][:1])
    for name, end in marks:
        # A mark that is missing from a start that is over can't be told any more; one before the last is of a later start.
        if begin is None or (end is None and over) or (end is not None and end < begin):
            return
        yield StartPhase(name, begin, end)
        begin = end
