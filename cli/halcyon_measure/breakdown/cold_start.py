"""Parts of a replica's start, computed from the times at which it passed the boundaries between them.

| part | from | to |
| --- | --- | --- |
| scheduling | the pod was created | it was bound to a node |
| pulling | it was bound | its first container ran |
| fetching | its first container ran | the server's container ran |
| server_start | the server's container ran | the server answered |
| loading | the server answered, or its log begins to load the model | the model was loaded |
| warm_up | the model was loaded | the pod was ready |
| first_answer | the pod was ready | the first answer of the model |
| steady | the first answer | rate and median had settled |
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

from halcyon_measure.results.figure import Figure, unmeasured
from halcyon_measure.results.sections.cold_start import ColdStart, FirstExecution, StartPart, StartPartName

_BOUNDARIES: tuple[tuple[StartPartName, str], ...] = (
    ("scheduling", "bound"),
    ("pulling", "first_container"),
    ("fetching", "server_container"),
    ("server_start", "server_answers"),
    ("loading", "model_loaded"),
    ("warm_up", "ready"),
    ("first_answer", "first_answer"),
    ("steady", "steady"),
)
_PRECISION_S = 0.1
"""Maximum time in seconds by which a boundary may appear to precede the previous one, because different clocks are
used."""


@dataclass(frozen=True)
class Boundaries:
    """Times in seconds at which a replica passed the boundaries of its start; None if they weren't observed."""

    pod: str
    created: float
    bound: float | None = None
    first_container: float | None = None
    server_container: float | None = None
    server_answers: float | None = None
    model_loaded: float | None = None
    ready: float | None = None
    first_answer: float | None = None
    steady: float | None = None
    failure: str = ""
    """Reason why the replica didn't start; empty if it started."""


def parts(start: Boundaries) -> tuple[dict[StartPartName, float], list[str]]:
    """Return the length in seconds of each part whose beginning and end were observed, and notes on the others.

    If the end of a part wasn't observed, its time is included in the next part with a known end, and a note says so.
    """
    lengths: dict[StartPartName, float] = {}
    notes: list[str] = []
    last, missing = start.created, []
    for name, boundary in _BOUNDARIES:
        time = getattr(start, boundary)
        if time is None:
            missing.append(name)
            continue
        if time < last - _PRECISION_S:
            notes.append(
                f"{start.pod}: {boundary} is {last - time:.1f} s before the boundary that precedes it: not believed"
            )
            missing.append(name)
            continue
        lengths[name] = max(time - last, 0.0)
        if missing:
            notes.append(f"{start.pod}: {name} contains {', '.join(missing)}, whose end wasn't seen")
        last, missing = max(time, last), []
    return lengths, notes


def build(starts: Sequence[Boundaries], first_executions: Sequence[FirstExecution] = ()) -> ColdStart:
    """Return the section `cold_start` for the observed starts."""
    notes = [f"{start.pod} didn't start: {start.failure}" for start in starts if start.failure]
    completed = [start for start in starts if not start.failure]
    parts_by_start = [parts(start) for start in completed]
    notes += [note for _, start_notes in parts_by_start for note in start_notes]
    ends = [(start, start.first_answer if start.first_answer is not None else start.ready) for start in completed]
    totals = [end - start.created for start, end in ends if end is not None]
    start_parts = []
    for name, _ in _BOUNDARIES:
        values = [lengths[name] for lengths, _ in parts_by_start if name in lengths]
        start_parts.append(
            StartPart(
                name=name,
                mean=_figure(values, sum(values) / len(values) if values else None),
                least=_figure(values, min(values, default=None)),
                most=_figure(values, max(values, default=None)),
            )
        )
    return ColdStart(
        starts=len(completed),
        total=_figure(totals, sum(totals) / len(totals) if totals else None),
        parts=tuple(start_parts),
        first_executions=tuple(first_executions),
        notes=tuple(notes),
    )


def _figure(values: Sequence[float], value: float | None) -> Figure:
    if value is None:
        return unmeasured("s", "its end wasn't seen in any start")
    return Figure(value=value, unit="s", n=len(values), source="pod events and answers of the server")


BOUNDARY_NAMES: tuple[str, ...] = tuple(field.name for field in fields(Boundaries))[2:-1]
"""Names of the boundaries in order, for code that watches a start."""
