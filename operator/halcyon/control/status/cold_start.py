"""The field `status.coldStart`: the duration of the last start of a server pod, in total and by part. Pure.

Kubernetes reports whole seconds. Pulling includes mounting the volumes. Loading includes pulling the Triton image if
the node doesn't have it yet. The restart of a container doesn't count as a start.
"""

# | part       | from                                 | to                              |
# | ---------- | ------------------------------------ | ------------------------------- |
# | scheduling | the pod was created                  | it was scheduled                |
# | pulling    | it was scheduled                     | its first container started     |
# | fetching   | the fetcher started                  | the fetcher ended               |
# | loading    | the fetcher ended                    | the pod became ready            |

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
    """Duration of the start of one pod. Parts of unknown duration are left out."""

    pod: str
    ready_at: float
    """Time at which the pod became ready, in seconds since the epoch."""
    total_s: int
    parts: tuple[tuple[str, int], ...]
    """Name and duration of each part of the start, in whole seconds and in chronological order."""


def make(scope: Scope, *, longest_s: float) -> dict[str, Any] | None:
    """Return the value of `status.coldStart`: the published one, or that of a later start; None if no start is known.

    Pods that have become ready again are left out if they can be recognised: the pod of the published start, and pods
    whose start would have taken longer than `longest_s`, the maximum duration of a start.
    """
    published = scope.status.get("coldStart") or {}
    starts = [s for s in map(start, scope.pods) if s is not None and s.total_s <= longest_s]
    # A later time of the published pod is that at which it became ready again.
    others = (s for s in starts if s.pod != published.get("pod"))
    last = max(others, key=lambda s: (s.ready_at, s.pod), default=None)
    published_at = epoch_seconds(published.get("readyAt"))
    if last is None or (published_at is not None and last.ready_at <= published_at):
        return published or None
    fields: dict[str, Any] = {"pod": last.pod, "readyAt": rfc3339(last.ready_at), "seconds": last.total_s}
    return fields | {f"{name}Seconds": value for name, value in last.parts}


def start(pod: Object) -> ColdStart | None:
    """Return the start of a pod; None if it isn't ready, or if the restart of a container has overwritten the times."""
    statuses = (*pod["status"]["initContainerStatuses"], *pod["status"]["containerStatuses"])
    times = pod_times(pod, names.FETCHER)
    created, ready = times.created_at, times.ready_at
    if created is None or ready is None or not pods.is_ready(pod) or any(status["restartCount"] for status in statuses):
        return None
    bounds = (
        ("scheduling", created, times.scheduled_at),
        ("pulling", times.scheduled_at, times.init_started_at),
        ("fetching", times.init_started_at, times.init_ended_at),
        ("loading", times.init_ended_at, ready),
    )
    parts = [(name, a, b) for name, a, b in bounds if a is not None and b is not None]
    durations = tuple((name, max(round(b - a), 0)) for name, a, b in parts)
    return ColdStart(pod["metadata"]["name"], ready, max(round(ready - created), 0), durations)
