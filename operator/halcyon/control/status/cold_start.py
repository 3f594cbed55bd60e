"""Duration of the last start of a server pod, by parts: `status.coldStart`. Pure.

| part       | from                                 | to                              |
| ---------- | ------------------------------------ | ------------------------------- |
| scheduling | the pod was created                  | it was scheduled                |
| pulling    | it was scheduled                     | its first container started     |
| fetching   | the fetcher started                  | the fetcher ended               |
| loading    | the fetcher ended                    | the pod became ready            |

Kubernetes reports whole seconds. Pulling includes mounting the volumes. Loading includes the pull of the Triton image if the node
doesn't have it yet. A pod that becomes ready again, or has restarted, is not a start.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from halcyon.api.timestamps import epoch_seconds, rfc3339
from halcyon.control.objects import pods
from halcyon.control.state.scope import Scope
from halcyon.kube.client import Object
from halcyon.kube.pod_times import pod_times
from halcyon.render import names


@dataclass(frozen=True)
class ColdStart:
    """One start; unknown parts are left out."""

    pod: str
    ready_at: float
    """Seconds since the epoch."""
    total_s: int
    parts: tuple[tuple[str, int], ...]
    """Name and whole seconds, in chronological order."""


def make(view: Scope, *, longest_s: float) -> dict[str, Any] | None:
    """Return the field `coldStart`, which stays until a later start is known; None if there was never a start.

    A pod must become ready within `longest_s`. If it seems to have taken longer, it was ready before, and that is no start.
    """
    told = view.status.get("coldStart")
    starts = [s for s in map(start, view.pods) if s is not None and s.total_s <= longest_s]
    last = max(starts, key=lambda s: (s.ready_at, s.pod), default=None)
    known = epoch_seconds(str((told or {}).get("readyAt") or ""))
    if last is None or (known is not None and last.ready_at <= known):
        return told
    found: dict[str, Any] = {"pod": last.pod, "readyAt": rfc3339(last.ready_at), "seconds": last.total_s}
    return found | {f"{name}Seconds": value for name, value in last.parts}


def start(pod: Object) -> ColdStart | None:
    """Return the start of a ready pod; None if it isn't ready, or a restart has overwritten the times."""
    statuses = (*pod["status"]["initContainerStatuses"], *pod["status"]["containerStatuses"])
    times = pod_times(pod, names.FETCHER)
    created, ready = times.created_at, times.ready_at
    if created is None or ready is None or not pods.is_ready(pod) or any(one["restartCount"] for one in statuses):
        return None
    marks = (
        ("scheduling", created, times.scheduled_at),
        ("pulling", times.scheduled_at, times.init_started_at),
        ("fetching", times.init_started_at, times.init_ended_at),
        ("loading", times.init_ended_at, ready),
    )
    parts = [(name, a, b) for name, a, b in marks if a is not None and b is not None]
    told = tuple((name, max(round(b - a), 0)) for name, a, b in parts)
    return ColdStart(pod["metadata"]["name"], ready, max(round(ready - created), 0), told)
