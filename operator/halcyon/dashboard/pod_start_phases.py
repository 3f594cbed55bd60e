"""The phases of a pod's start, up to the current one. Pure.

Times are seconds since the epoch, with the precision of Kubernetes: one second. A start whose times a restart has overwritten is omitted.

| phase      | from                     | to                                  |
| ---------- | ------------------------ | ----------------------------------- |
| pending    | the pod is created       | the pod is scheduled                |
| pulling    | end of the last phase    | the first container runs            |
| fetching   | the fetcher runs         | the fetcher has ended               |
| starting   | end of the last phase    | the server container runs           |
| loading    | end of the last phase    | Ready: the model is loaded and warm |

Out of scope: the current stage of a pod (`control.objects.pod_stage`), and the cold start in the status (`control.status`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from halcyon.api.timestamps import epoch_seconds
from halcyon.dashboard.ports import DashboardPod, Object
from halcyon.render import names

PhaseName = Literal["pending", "pulling", "fetching", "starting", "loading"]
_FETCHER = "fetch"


@dataclass(frozen=True, slots=True)
class StartPhase:
    """One phase of a start."""

    name: PhaseName
    begin: float
    end: float | None
    """End; None while the phase lasts."""


def pod_document(pod: DashboardPod) -> dict[str, Any]:
    """Return the JSON document of a pod for a page."""
    obj = pod.obj
    meta, status = obj["metadata"], obj["status"]
    containers: Sequence[Object] = (*status["initContainerStatuses"], *status["containerStatuses"])
    ready_at = _ready_at(obj)
    return {
        "name": meta["name"],
        "state": pod.state,
        "reason": pod.reason,
        "message": pod.message,
        "created": epoch_seconds(meta.get("creationTimestamp")),
        "restarts": sum(int(one.get("restartCount") or 0) for one in containers),
        "revision": str(meta["labels"].get(names.REVISION_LABEL, "")),
        "slot": str(meta["labels"].get(names.SLOT_LABEL, "")),
        "phases": [asdict(phase) for phase in phases(obj)],
        "ready_at": ready_at,
    }


def phases(obj: Object) -> list[StartPhase]:
    """The phases of its first start, as far as they can still be told: each begins where the one before has ended."""
    return list(_phases(obj, _ready_at(obj)))


def _ready_at(obj: Object) -> float | None:
    """When it became ready, this time."""
    ready = _condition(obj, "Ready")
    return epoch_seconds(ready.get("lastTransitionTime")) if ready.get("status") == "True" else None


def _phases(obj: Object, ready_at: float | None) -> Iterator[StartPhase]:
    status, scheduled = obj["status"], _condition(obj, "PodScheduled")
    fetcher: Object = next((c for c in status["initContainerStatuses"] if c["name"] == _FETCHER), {})
    server: Object = next(iter(status["containerStatuses"]), {})
    bound_at = epoch_seconds(scheduled.get("lastTransitionTime")) if scheduled.get("status") == "True" else None
    running_at = None if server.get("restartCount") else _started(server)
    marks: list[tuple[PhaseName, float | None]] = [("pending", bound_at)]
    if fetcher:
        marks += [("pulling", _started(fetcher)), ("fetching", _finished(fetcher)), ("starting", running_at)]
    else:
        marks += [("pulling", running_at)]
    marks += [("loading", ready_at)]
    begin = epoch_seconds(obj["metadata"].get("creationTimestamp"))
    over = ready_at is not None or bool(server.get("restartCount"))
    for name, end in marks:
        # A missing mark of a finished start is lost for good. A mark before the previous one belongs to a later start.
        if begin is None or (end is None and over) or (end is not None and end < begin):
            return
        yield StartPhase(name, begin, end)
        begin = end


def _condition(obj: Object, kind: str) -> Mapping[str, Any]:
    return next((c for c in obj["status"]["conditions"] if c.get("type") == kind), {})


def _started(container: Object) -> float | None:
    state = container.get("state") or {}
    return epoch_seconds((state.get("running") or state.get("terminated") or {}).get("startedAt"))


def _finished(container: Object) -> float | None:
    return epoch_seconds(((container.get("state") or {}).get("terminated") or {}).get("finishedAt"))
