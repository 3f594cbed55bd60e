"""Times of the steps in a pod's start, from readings of the pod and its Events and from Triton's log. Pure.

Times in a pod's status have a resolution of one second. Therefore the time of the first reading that shows a step is
used. The kubelet updates a pod's status up to a second after a container has started, but writes the Event `Started` at
once.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from halcyon.render import names
from halcyon_cli.kube import fields

if TYPE_CHECKING:
    from halcyon_measure.breakdown.cold_start import Boundaries

Json = Mapping[str, Any]

_CONTAINER = re.compile(r"spec\.(?:initContainers|containers)\{(.+)\}")
_STAMP = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)\.?(\d*)Z (.*)", re.DOTALL)


def boundaries(
    readings: Sequence[tuple[float, Json]],
    log: Sequence[str],
    *,
    model: str,
    started: Mapping[str, float] | None = None,
    failure: str = "",
) -> Boundaries:
    """Return the times of the steps of one pod's start.

    `readings` has at least one reading of the pod as (seconds since the epoch, pod), oldest first. `started` has the
    time of the first reading with the Event `Started`, by container. `log` has the lines of Triton's log with the
    timestamps of Kubernetes.
    """
    from halcyon_measure.breakdown.cold_start import Boundaries  # noqa: PLC0415  # NumPy takes a while to import

    pod = readings[0][1]
    lines = [stamped for line in log if (stamped := _stamped(line)) is not None]
    by_event = started or {}
    # The server has started before it writes its first line.
    server = (by_event.get(names.TRITON), lines[0][0] if lines else None, _first(readings, _server_runs))
    return Boundaries(
        pod=str(pod["metadata"]["name"]),
        created=_created(readings),
        bound=_first(readings, lambda reading: bool(fields.mapping(reading.get("spec")).get("nodeName"))),
        first_container=_earliest(
            *by_event.values(), _first(readings, lambda reading: any(_has_run(status) for status in _statuses(reading)))
        ),
        server_container=_earliest(*server),
        server_answers=_line(lines, f"loading: {model}:"),
        model_loaded=_line(lines, f"successfully loaded '{model}'"),
        ready=_first(readings, is_ready),
        failure=failure,
    )


def is_ready(pod: Json) -> bool:
    """Return True if the pod's condition Ready is true."""
    conditions = fields.mappings(fields.mapping(pod.get("status")).get("conditions"))
    return any((condition.get("type"), condition.get("status")) == ("Ready", "True") for condition in conditions)


def started_containers(events: Sequence[Json]) -> set[str]:
    """Return the names of the containers that have started, from the Events of a pod."""
    containers = set()
    for event in events:
        path = fields.text(fields.mapping(event.get("regarding")).get("fieldPath")) or ""
        if event.get("reason") == "Started" and (match := _CONTAINER.fullmatch(path)) is not None:
            containers.add(match[1])
    return containers


def uid_of(event: Json) -> str:
    """Return the UID of the object that an Event is about; empty if the Event names none."""
    return fields.text(fields.mapping(event.get("regarding")).get("uid")) or ""


def _earliest(*times: float | None) -> float | None:
    return min((at for at in times if at is not None), default=None)


def _created(readings: Sequence[tuple[float, Json]]) -> float:
    """Return the time at which the pod was created, in seconds since the epoch.

    The creation timestamp has whole seconds. The result is the time of the first reading, limited to this second.
    """
    first, pod = readings[0]
    stamp = fields.text(fields.mapping(pod.get("metadata")).get("creationTimestamp"))
    if not stamp:
        return first
    second = datetime.fromisoformat(stamp).timestamp()
    return max(second, min(first, second + 1.0))


def _first(readings: Sequence[tuple[float, Json]], holds: Any) -> float | None:
    return next((at for at, pod in readings if holds(pod)), None)


def _statuses(pod: Json) -> list[Json]:
    status = fields.mapping(pod.get("status"))
    return [*fields.mappings(status.get("initContainerStatuses")), *fields.mappings(status.get("containerStatuses"))]


def _has_run(status: Json) -> bool:
    state = fields.mapping(status.get("state"))
    return "running" in state or "terminated" in state


def _server_runs(pod: Json) -> bool:
    return any(status.get("name") == names.TRITON and _has_run(status) for status in _statuses(pod))


def _stamped(line: str) -> tuple[float, str] | None:
    match = _STAMP.match(line)
    if match is None:
        return None
    return datetime.fromisoformat(match[1] + "+00:00").timestamp() + float(f"0.{match[2] or 0}"), match[3]


def _line(lines: Sequence[tuple[float, str]], text: str) -> float | None:
    return next((at for at, line in lines if text in line), None)
