"""Observation of several starts of a model's server pods. For each start after the first, the pod is deleted.

Out of scope: the phases of a start (`halcyon_measure.breakdown.cold_start`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from halcyon.kube import kinds
from halcyon.render import names
from halcyon_cli.bench.cold_start import start_events
from halcyon_cli.bench.cold_start.start_readings import POLL_S, StartReadings
from halcyon_cli.errors import ClusterError
from halcyon_cli.kube import fields
from halcyon_cli.kube.object_writer import ObjectWriter
from halcyon_cli.kube.pod_stage import stage

if TYPE_CHECKING:
    from halcyon_measure.breakdown.cold_start import Boundaries

Json = Mapping[str, Any]


def watch(
    cluster: ObjectWriter,
    measured: str,
    *,
    model: str,
    starts: int,
    timeout_s: float,
    keep: Callable[[], None],
) -> list[Boundaries]:
    """Watch a number of starts of a ModelDeployment with one replica, and return the times of their steps.

    `keep` is called ten times a second or more often, for example to extend a lease.

    Raises:
        ClusterError: the user may not read or delete the model's pods, or the API server is unreachable.
    """
    boundaries: list[Boundaries] = []
    selector = ",".join(f"{key}={value}" for key, value in names.selector(measured, names.SERVER).items())
    old_uids: set[str] = set()
    with StartReadings(cluster, selector) as readings:
        for number in range(starts):
            if number:
                for pod in cluster.items(kinds.POD, selector=selector) or []:
                    old_uids.add(_uid(pod))
                    cluster.delete(kinds.POD, str(pod["metadata"]["name"]), _uid(pod))
            start = _watch_start(readings, old_uids, timeout_s, keep)
            if not start.readings:
                break
            log = [] if start.failure else _log(cluster, str(start.readings[0][1]["metadata"]["name"]))
            boundaries.append(
                start_events.boundaries(start.readings, log, model=model, started=start.started, failure=start.failure)
            )
            if start.failure:
                break
    return boundaries


@dataclass
class _Start:
    """Readings of one pod's start. Times are in seconds since the epoch."""

    readings: list[tuple[float, Json]] = field(default_factory=list)
    """Readings of the pod, oldest first; empty if no pod appeared."""
    started: dict[str, float] = field(default_factory=dict)
    """Time of the first reading with the Event `Started`, by container."""
    failure: str = ""
    """Reason why the pod isn't ready; empty if it is ready, or if no pod appeared."""


def _watch_start(readings: StartReadings, old_uids: set[str], timeout_s: float, keep: Callable[[], None]) -> _Start:
    """Return the readings of the first new pod, up to the reading in which it is ready."""
    start = _Start()
    # An Event of a pod can arrive before the pod.
    events: dict[str, dict[str, float]] = {}
    end = time.monotonic() + timeout_s
    while time.monotonic() < end:
        reading = readings.next(POLL_S)
        keep()
        if reading is None:
            continue
        if reading.kind == kinds.EVENT:
            started = events.setdefault(start_events.uid_of(reading.obj), {})
            for container in start_events.started_containers([reading.obj]):
                started.setdefault(container, reading.at)
        elif _uid(reading.obj) not in old_uids and (
            not start.readings or _uid(reading.obj) == _uid(start.readings[0][1])
        ):
            start.readings.append((reading.at, reading.obj))
            if start_events.is_ready(reading.obj):
                break
    if not start.readings:
        return start
    pod = start.readings[-1][1]
    start.started = events.get(_uid(pod), {})
    if not start_events.is_ready(pod):
        last = stage(pod)
        state_text = " ".join(filter(None, (last.state, last.reason, last.message)))
        start.failure = f"it wasn't ready after {timeout_s:.0f} s: {state_text}"
    return start


def _log(cluster: ObjectWriter, pod: str) -> list[str]:
    """Return the lines of Triton's log with timestamps; an empty list if the log can't be read."""
    try:
        return list(cluster.follow_log(pod, names.TRITON, {"follow": "false", "timestamps": "true"}))
    except ClusterError:
        return []


def _uid(pod: Json) -> str:
    return str(fields.mapping(pod.get("metadata")).get("uid"))
