"""Timestamps of a pod's startup steps, in seconds since the epoch. Kubernetes reports whole seconds. Pure.

`status.coldStart`, the metric of start times, the planner's readings, the timeouts of a rollout and the start phases in
the dashboard use these times. Each of them computes its own durations from the times.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from halcyon.api.timestamps import epoch_seconds, rfc3339

Json = Mapping[str, Any]
MAX_KUBELET_DELAY_S = 60.0
"""Maximum time, in seconds, from the scheduling of a pod until the kubelet starts it. A longer time is taken as a
difference between the clocks."""


@dataclass(frozen=True, slots=True)
class PodTimes:
    """Times at which the steps in the start of a pod happened.

    A time is None if the step has not happened, is not reported, or was overwritten by a restart.
    """

    created_at: float | None
    scheduled_at: float | None
    init_started_at: float | None
    init_ended_at: float | None
    main_started_at: float | None
    """Start time of the first regular container (not an init container); None if this container has restarted."""
    ready_at: float | None
    """Time since which the pod has been ready without interruption. It may be later than the time at which the pod
    first became ready."""


def pod_times(pod: Json, init_container: str) -> PodTimes:
    """Return the times of a pod; `init_container` is the name of the init container whose times are read."""
    status = pod["status"]
    init: Json = next((c for c in status["initContainerStatuses"] if c["name"] == init_container), {})
    main: Json = next(iter(status["containerStatuses"]), {})
    return PodTimes(
        created_at=created_at(pod),
        scheduled_at=scheduled_at(pod),
        init_started_at=_started_at(init),
        init_ended_at=epoch_seconds(((init.get("state") or {}).get("terminated") or {}).get("finishedAt")),
        main_started_at=None if main.get("restartCount") else _started_at(main),
        ready_at=ready_at(pod),
    )


def node_clock_ahead_s(status: Json) -> float:
    """Return by how many seconds the clock of the pod's node is ahead of the scheduler's; 0 if they seem to agree.

    A kubelet starts a pod just after the scheduler has placed it. If the start time that the kubelet reports is earlier
    than the scheduler's time, or much later, the node's clock differs.
    """
    conditions = {c.get("type"): c for c in status.get("conditions") or ()}
    placed = epoch_seconds((conditions.get("PodScheduled") or {}).get("lastTransitionTime"))
    started = epoch_seconds(status.get("startTime"))
    if placed is None or started is None or -2.0 <= started - placed <= MAX_KUBELET_DELAY_S:
        return 0.0
    return started - placed


def on_scheduler_clock(value: Any, ahead_s: float) -> Any:  # any JSON value
    """Return a part of a pod's status with its times converted from the node's clock to the scheduler's."""
    if not ahead_s or not isinstance(value, dict):
        return value
    times = ("startedAt", "finishedAt", "lastTransitionTime")
    moved = {k: epoch_seconds(value[k]) for k in times if isinstance(value.get(k), str)}
    converted = {k: on_scheduler_clock(item, ahead_s) for k, item in value.items()}
    return converted | {k: rfc3339(at - ahead_s) for k, at in moved.items() if at is not None}


def condition(pod: Json, kind: str) -> Json:
    """Return the pod's condition of this type; empty if it has none."""
    return next((c for c in pod["status"]["conditions"] if c.get("type") == kind), {})


def true_since(pod: Json, kind: str) -> float | None:
    """Return the time since which this condition of the pod is True; None if it isn't True or the time is unknown."""
    state = condition(pod, kind)
    return epoch_seconds(state.get("lastTransitionTime")) if state.get("status") == "True" else None


def created_at(pod: Json) -> float | None:
    """Return the time at which the pod was created."""
    return epoch_seconds(pod["metadata"].get("creationTimestamp"))


def scheduled_at(pod: Json) -> float | None:
    """Return the time at which the pod was scheduled. Return None if the pod has no node, or if the time is unknown."""
    return true_since(pod, "PodScheduled")


def ready_at(pod: Json) -> float | None:
    """Return the time at which the pod last became ready; None if it is not ready."""
    return true_since(pod, "Ready")


def start_began_at(pod: Json) -> float | None:
    """Return the time at which the pod was scheduled, or else the time at which it was created.

    The start duration of a replica begins at this time, so it doesn't include the wait for a node.
    """
    return scheduled_at(pod) or created_at(pod)


def _started_at(container: Json) -> float | None:
    state = container.get("state") or {}
    return epoch_seconds((state.get("running") or state.get("terminated") or {}).get("startedAt"))
