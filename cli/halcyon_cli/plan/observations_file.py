"""Parser for observations files, which produces readings for the planner.

The format is documented in docs/reference/observations.md.

The parser checks the types of values, but not whether they are plausible, because users run `halcyon plan` partly to
see how the planner handles broken signals. Omitted and null fields are unknown.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, get_args

from halcyon.api.timestamps import epoch_seconds
from halcyon.scaling.planner.reading import PodPhase, PodReading, Reading

MAX_COUNT = 10**6
_NUMBERS = ("arrived", "refused", "waiting", "inflight", "gpu")
_FIELDS = ("now", "at", "replicas", *_NUMBERS, "batches", "revision", "rows_per_request", "pods")
_POD_FIELDS = ("name", "phase", "created_at", "ready_at")


class ObservationsError(ValueError):
    """The observations are invalid. The message contains the location, the value and a valid example."""


@dataclass(frozen=True)
class RecordedReading:
    """Reading for the planner, and the time of its decision in seconds since the epoch."""

    now: float
    reading: Reading


def parse_observations(text: str | bytes, *, file: str) -> tuple[RecordedReading, ...]:
    """Return the readings of a file, in chronological order.

    Raises:
        ObservationsError: the file is invalid. The message describes the first error.
    """
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ObservationsError(f"{file}: invalid JSON: {error}") from None
    if not isinstance(document, list) or not document:
        content = "an empty list" if document == [] else f"{_abbreviated(document)}"
        raise ObservationsError(
            f'{file}: is {content}; it must be a list of readings, for example [{{"at": 0, "replicas": 1}}]'
        )
    readings: list[RecordedReading] = []
    for index, raw in enumerate(document):
        recorded = _recorded_reading(raw, _Location(file, f"[{index}]"))
        if readings and recorded.now <= readings[-1].now:
            raise ObservationsError(
                f"{file}: [{index}].now is {recorded.now:.3f}, and the previous reading is of {readings[-1].now:.3f}; "
                "readings must be in chronological order, each later than the one before"
            )
        readings.append(recorded)
    return tuple(readings)


@dataclass(frozen=True)
class _Location:
    """Location in a file, for error messages."""

    file: str
    path: str

    def child(self, name: str) -> _Location:
        return _Location(self.file, f"{self.path}.{name}")

    def error(self, value: object, must: str, example: str) -> ObservationsError:
        return ObservationsError(
            f"{self.file}: {self.path} is {_abbreviated(value)}; it must be {must}, for example {example}"
        )


def _recorded_reading(raw: object, location: _Location) -> RecordedReading:
    entry = _object(raw, location, _FIELDS, example='{"at": 1763700000, "replicas": 2, "arrived": 1200}')
    at = _optional(entry, "at", location, _time)
    now = _optional(entry, "now", location, _time)
    if now is None:
        now = at
    if now is None:
        raise ObservationsError(
            f'{location.file}: {location.path} has neither "at" nor "now"; give the time of the newest sample, for example '
            '"at": 1763700000, or, if no report arrived, that of the decision, for example "now": 1763700000'
        )
    if "replicas" not in entry:
        raise ObservationsError(f'{location.file}: {location.path}.replicas is missing; for example "replicas": 2')
    numbers = {name: _optional(entry, name, location, _number) for name in _NUMBERS}
    rows = _optional(entry, "rows_per_request", location, _number)
    pods = entry.get("pods") or ()
    if not isinstance(pods, list | tuple):
        raise location.child("pods").error(
            pods, "a list", '[{"name": "m-a-1", "phase": "ready", "created_at": 1763700000}]'
        )
    revision = "" if entry.get("revision") is None else entry["revision"]
    if not isinstance(revision, str):
        raise location.child("revision").error(revision, "a string", '"0db7c77ec7"')
    reading = Reading(
        at=at,
        replicas=_count(entry["replicas"], location.child("replicas")),
        batches=_batches(entry.get("batches"), location.child("batches")),
        revision=revision,
        rows_per_request=1.0 if rows is None else rows,
        pods=tuple(_pod(pod, _Location(location.file, f"{location.path}.pods[{i}]")) for i, pod in enumerate(pods)),
        arrived=numbers["arrived"],
        rejected=numbers["refused"],
        waiting=numbers["waiting"],
        inflight=numbers["inflight"],
        gpu=numbers["gpu"],
    )
    return RecordedReading(now, reading)


def _pod(raw: object, location: _Location) -> PodReading:
    example = '{"name": "m-a-1", "phase": "ready", "created_at": 1763700000, "ready_at": 1763700045}'
    entry = _object(raw, location, _POD_FIELDS, example=example)
    for name in _POD_FIELDS[:3]:
        if name not in entry:
            raise ObservationsError(
                f"{location.file}: {location.path}.{name} is missing; a pod is for example {example}"
            )
    name, phase = entry["name"], entry["phase"]
    if not isinstance(name, str) or not name:
        raise location.child("name").error(name, "a string", '"m-a-1"')
    if phase not in get_args(PodPhase):
        raise location.child("phase").error(phase, f"one of {', '.join(get_args(PodPhase))}", '"ready"')
    created = _time(entry["created_at"], location.child("created_at"))
    return PodReading(name, phase, created, _optional(entry, "ready_at", location, _time))


def _batches(raw: object, location: _Location) -> Mapping[int, tuple[int, float]] | None:
    example = '{"1": [3, 0.09], "16": [3, 0.044]}'
    if raw is None:
        return None
    if not isinstance(raw, dict):
        raise location.error(raw, "an object: batch size to [executions, seconds]", example)
    batches: dict[int, tuple[int, float]] = {}
    for rows, value in raw.items():
        if not (rows.isascii() and rows.isdigit() and 0 < int(rows) <= MAX_COUNT):
            raise location.error({rows: value}, f"keyed by batch size, from 1 to {MAX_COUNT}", example)
        if not isinstance(value, list) or len(value) != 2:
            raise location.child(rows).error(value, "[executions, seconds]", "[3, 0.09]")
        count, seconds = value
        if not _is_number(count) or count != int(count):
            raise location.child(f"{rows}[0]").error(count, "a whole number of executions", "3")
        batches[int(rows)] = (int(count), _finite(seconds, location.child(f"{rows}[1]"), "0.09"))
    return batches


def _object(raw: object, location: _Location, names: tuple[str, ...], *, example: str) -> dict[str, Any]:
    if not isinstance(raw, dict):
        raise location.error(raw, "an object", example)
    for name in raw:
        if name not in names:
            raise ObservationsError(
                f"{location.file}: {location.path}.{name} is not a field; the fields are {', '.join(names)}"
            )
    return raw


def _optional(
    entry: Mapping[str, Any], name: str, location: _Location, read: Callable[[object, _Location], float]
) -> float | None:
    value = entry.get(name)
    return None if value is None else read(value, location.child(name))


def _time(value: object, location: _Location) -> float:
    if _is_number(value):
        return float(value)  # type: ignore[arg-type]  # a number
    if (at := epoch_seconds(value)) is not None:
        return at
    raise location.error(
        value, "seconds since the epoch, or a timestamp with a time zone", '1763700000.5, or "2025-11-21T04:40:00Z"'
    )


def _number(value: object, location: _Location) -> float:
    # Infinity and NaN are broken signals, which a replay shows; an integer beyond the range of a float is neither.
    if isinstance(value, bool) or not (isinstance(value, float) or _is_number(value)):
        raise location.error(value, "a number", "12")
    return float(value)  # type: ignore[arg-type]  # a number


def _finite(value: object, location: _Location, example: str) -> float:
    if not _is_number(value):
        raise location.error(value, "a number", example)
    return float(value)  # type: ignore[arg-type]  # a number


def _count(value: object, location: _Location) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MAX_COUNT:
        raise location.error(value, f"a whole number from 0 to {MAX_COUNT}", "2")
    return value


def _is_number(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:  # an integer of hundreds of digits
        return False


def _abbreviated(value: object) -> str:
    text = json.dumps(value, default=str)
    return text if len(text) <= 80 else text[:77] + "..."
