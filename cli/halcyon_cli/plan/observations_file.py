"""Observations in a file -> the planner's readings. The form is in docs/reference/observations.md.

Values are checked for what they are, not for whether they can be true: what the planner makes of a broken signal is one of the
questions that `halcyon plan` answers. A field that is left out, or null, is not known.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, get_args

from halcyon.scaling.planner.reading import PodPhase, PodReading, Reading

MAX_COUNT = 10**6
_NUMBERS = ("arrived", "refused", "waiting", "inflight", "gpu")
_FIELDS = ("now", "at", "replicas", *_NUMBERS, "batches", "revision", "rows_per_request", "pods")
_POD_FIELDS = ("name", "phase", "created_at", "ready_at")


class ReadingsError(ValueError):
    """The file holds no observations: the text names the place, the value and a good example."""


@dataclass(frozen=True)
class Recorded:
    """One reading and the time of the decision on it, seconds since the epoch."""

    now: float
    reading: Reading


def parsed(text: str | bytes, *, file: str) -> tuple[Recorded, ...]:
    """The readings of a file, in the order of their times.

    Raises:
        ReadingsError: for the first thing that is wrong.
    """
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ReadingsError(f"{file}: not JSON: {error}") from None
    if not isinstance(document, list) or not document:
        what = "an empty list" if document == [] else f"{_shown(document)}"
        raise ReadingsError(
            f'{file}: is {what}; it must be a list of readings, for example [{{"at": 0, "replicas": 1}}]'
        )
    found: list[Recorded] = []
    for index, raw in enumerate(document):
        one = _recorded(raw, _Place(file, f"[{index}]"))
        if found and one.now <= found[-1].now:
            raise ReadingsError(
                f"{file}: [{index}].now is {one.now:.3f}, and the reading before is of {found[-1].now:.3f}; "
                "readings stand in the order of their times, each later than the one before"
            )
        found.append(one)
    return tuple(found)


@dataclass(frozen=True)
class _Place:
    """Where in which file."""

    file: str
    path: str

    def under(self, name: str) -> _Place:
        return _Place(self.file, f"{self.path}.{name}")

    def wrong(self, value: object, must: str, example: str) -> ReadingsError:
        return ReadingsError(f"{self.file}: {self.path} is {_shown(value)}; it must be {must}, for example {example}")


def _recorded(raw: object, place: _Place) -> Recorded:
    entry = _object(raw, place, _FIELDS, example='{"at": 1763700000, "replicas": 2, "arrived": 1200}')
    at = _optional(entry, "at", place, _time)
    now = _optional(entry, "now", place, _time)
    if now is None:
        now = at
    if now is None:
        raise ReadingsError(
            f'{place.file}: {place.path} has neither "at" nor "now"; give the time of the newest sample, for example '
            '"at": 1763700000, or, where nothing was heard, that of the decision, for example "now": 1763700000'
        )
    if "replicas" not in entry:
        raise ReadingsError(f'{place.file}: {place.path}.replicas is missing; for example "replicas": 2')
    numbers = {name: _optional(entry, name, place, _number) for name in _NUMBERS}
    rows = _optional(entry, "rows_per_request", place, _number)
    pods = entry.get("pods") or ()
    if not isinstance(pods, list | tuple):
        raise place.under("pods").wrong(
            pods, "a list", '[{"name": "m-a-1", "phase": "ready", "created_at": 1763700000}]'
        )
    revision = "" if entry.get("revision") is None else entry["revision"]
    if not isinstance(revision, str):
        raise place.under("revision").wrong(revision, "a text", '"0db7c77ec7"')
    reading = Reading(
        at=at,
        replicas=_count(entry["replicas"], place.under("replicas")),
        batches=_batches(entry.get("batches"), place.under("batches")),
        revision=revision,
        rows_per_request=1.0 if rows is None else rows,
        pods=tuple(_pod(pod, _Place(place.file, f"{place.path}.pods[{i}]")) for i, pod in enumerate(pods)),
        arrived=numbers["arrived"],
        rejected=numbers["refused"],
        waiting=numbers["waiting"],
        inflight=numbers["inflight"],
        gpu=numbers["gpu"],
    )
    return Recorded(now, reading)


def _pod(raw: object, place: _Place) -> PodReading:
    example = '{"name": "m-a-1", "phase": "ready", "created_at": 1763700000, "ready_at": 1763700045}'
    entry = _object(raw, place, _POD_FIELDS, example=example)
    for name in _POD_FIELDS[:3]:
        if name not in entry:
            raise ReadingsError(f"{place.file}: {place.path}.{name} is missing; a pod is for example {example}")
    name, phase = entry["name"], entry["phase"]
    if not isinstance(name, str) or not name:
        raise place.under("name").wrong(name, "a text", '"m-a-1"')
    if phase not in get_args(PodPhase):
        raise place.under("phase").wrong(phase, f"one of {', '.join(get_args(PodPhase))}", '"ready"')
    created = _time(entry["created_at"], place.under("created_at"))
    return PodReading(name, phase, created, _optional(entry, "ready_at", place, _time))


def _batches(raw: object, place: _Place) -> Mapping[int, tuple[int, float]] | None:
    example = '{"1": [3, 0.09], "16": [3, 0.044]}'
    if raw is None:
        return None
    if not isinstance(raw, dict):
        raise place.wrong(raw, "an object: [executions, seconds] by rows in the batch", example)
    found: dict[int, tuple[int, float]] = {}
    for rows, value in raw.items():
        if not (rows.isascii() and rows.isdigit() and 0 < int(rows) <= MAX_COUNT):
            raise place.wrong({rows: value}, f"by rows in the batch, from 1 to {MAX_COUNT}", example)
        if not isinstance(value, list) or len(value) != 2:
            raise place.under(rows).wrong(value, "[executions, seconds]", "[3, 0.09]")
        count, seconds = value
        if not _is_number(count) or count != int(count):
            raise place.under(f"{rows}[0]").wrong(count, "a whole number of executions", "3")
        found[int(rows)] = (int(count), _finite(seconds, place.under(f"{rows}[1]"), "0.09"))
    return found


def _object(raw: object, place: _Place, names: tuple[str, ...], *, example: str) -> dict[str, Any]:
    if not isinstance(raw, dict):
        raise place.wrong(raw, "an object", example)
    for name in raw:
        if name not in names:
            raise ReadingsError(f"{place.file}: {place.path}.{name} is not a field; the fields are {', '.join(names)}")
    return raw


def _optional(
    entry: Mapping[str, Any], name: str, place: _Place, read: Callable[[object, _Place], float]
) -> float | None:
    value = entry.get(name)
    return None if value is None else read(value, place.under(name))


def _time(value: object, place: _Place) -> float:
    if _is_number(value):
        return float(value)  # type: ignore[arg-type]  # a number
    if isinstance(value, str):
        try:
            at = datetime.fromisoformat(value)
        except ValueError:
            at = None
        if at is not None and at.tzinfo is not None:
            return at.timestamp()
    raise place.wrong(
        value, "seconds since the epoch, or a time with its zone", '1763700000.5, or "2025-11-21T04:40:00Z"'
    )


def _number(value: object, place: _Place) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise place.wrong(value, "a number", "12")
    return float(value)


def _finite(value: object, place: _Place, example: str) -> float:
    if not _is_number(value):
        raise place.wrong(value, "a number", example)
    return float(value)  # type: ignore[arg-type]  # a number


def _count(value: object, place: _Place) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MAX_COUNT:
        raise place.wrong(value, f"a whole number from 0 to {MAX_COUNT}", "2")
    return value


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _shown(value: object) -> str:
    text = json.dumps(value, default=str)
    return text if len(text) <= 80 else text[:77] + "..."
