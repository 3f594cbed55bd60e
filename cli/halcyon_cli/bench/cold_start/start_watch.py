"""Watch of several starts of a model's server pods. For each start after the first, the pod is deleted.

The pods and their Events are read ten times a second. Out of scope: the parts of a start (`halcyon_measure.breakdown.cold_start`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from halcyon.kube import kinds
from halcyon.render import names
from halcyon_cli.bench.cold_start import start_events
from halcyon_cli.errors import ClusterError
from halcyon_cli.kube import fields
from halcyon_cli.kube.object_writer import ObjectWriter
from halcyon_cli.kube.pod_stage import stage

if TYPE_CHECKING:
    from halcyon_measure.breakdown.cold_start import Boundaries

Json = Mapping[str, Any]

_POLL_S = 0.1


def watch(
    cluster: ObjectWriter,
    measured: str,
    *,
    model: str,
    starts: int,
    timeout_s: float,
    keep: Callable[[], None],
) -> list[Boundaries]:
    """Watch this many starts of a ModelDeployment with one replica, and return the times of their steps.

    `keep` is called after each reading, for example to extend a lease.

    Raises:
        ClusterError: the user may not read or delete its pods, or the API server is unreachable.
    """
    found: list[Boundaries] = []
    selector = ",".join(f"{key}={value}" for key, value in names.selector(measured, names.SERVER).items())
    known: set[str] = set()
    for number in range(starts):
        if number:
            for pod in cluster.items(kinds.POD, selector=selector) or []:
                known.add(_uid(pod))
                cluster.delete(kinds.POD, str(pod["metadata"]["name"]), _uid(pod))
        start = _watched(cluster, selector, known, timeout_s, keep)
        if not start.seen:
            break
        log = [] if start.failure else _log(cluster, str(start.seen[0][1]["metadata"]["name"]))
        found.append(
            start_events.boundaries(start.seen, log, model=model, started=start.started, failure=start.failure)
        )
        if start.failure:
            break
    return found


@dataclass
class _Start:
    """Readings of one pod's start. Times are in seconds since the epoch."""

    seen: list[tuple[float, Json]] = field(default_factory=list)
    """Readings of the pod, oldest first; empty if no pod appeared."""
    started: dict[str, float] = field(default_factory=dict)
    """Time of the first reading with the Event `Started`, by container."""
    failure: str = ""
    """Reason why the pod isn't ready; empty if it is ready, or if no pod appeared."""


def _watched(
    cluster: ObjectWriter, selector: str, known: set[str], timeout_s: float, keep: Callable[[], None]
) -> _Start:
    """Return the readings of the first new pod until it is ready."""
    start = _Start()
    has_events = True
    end = time.monotonic() + timeout_s
    while time.monotonic() < end:
        now = time.time()
        pods = [pod for pod in cluster.items(kinds.POD, selector=selector) or [] if _uid(pod) not in known]
        mine = [pod for pod in pods if not start.seen or _uid(pod) == _uid(start.seen[0][1])]
        if mine:
            start.seen.append((now, mine[0]))
            if start_events.is_ready(mine[0]):
                return start
            has_events = has_events and _read_events(cluster, mine[0], start.started)
        keep()
        time.sleep(_POLL_S)
    if start.seen:
        last = stage(start.seen[-1][1])
        said = " ".join(filter(None, (last.state, last.reason, last.message)))
        start.failure = f"it wasn't ready after {timeout_s:.0f} s: {said}"
    return start


def _read_events(cluster: ObjectWriter, pod: Json, started: dict[str, float]) -> bool:
    """Add the containers whose Event `Started` is new to `started`; return False if the Events can't be read."""
    now = time.time()
    try:
        events = cluster.items(kinds.EVENT, fields=f"regarding.uid={_uid(pod)}") or []
    except ClusterError:
        return False
    for container in start_events.started_containers(events):
        started.setdefault(container, now)
    return True


def _log(cluster: ObjectWriter, pod: str) -> list[str]:
    """Return the lines of Triton's log with timestamps; an empty list if the log can't be read."""
    try:
        return list(cluster.follow_log(pod, names.TRITON, {"follow": "false", "timestamps": "true"}))
    except ClusterError:
        return []


def _uid(pod: Json) -> str:
    return str(fields.mapping(pod.get("metadata")).get("uid"))
