"""The parts of a replica's start, computed from the times at which it passed the boundaries between them.

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
"""Maximum time in seconds by which a boundary may precede the previous one, because their times come from different
clocks."""


@dataclass(frozen=True)
class Boundaries:
    """Times in seconds at which one replica passed the boundaries of its start; None if not observed."""

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
    """Why the replica didn't start; empty if it did."""


def parts(start: Boundaries) -> tuple[dict[StartPartName, float], list[str]]:
    """Return the length in seconds of each part whose beginning and end were observed, and notes on the others.

    If a boundary wasn't observed, the next part that ends at a known boundary has the time of both, and a note says so.
    """
    found: dict[StartPartName, float] = {}
    notes: list[str] = []
    last, missing = start.created, []
    for name, boundary in _BOUNDARIES:
        at = getattr(start, boundary)
        if at is None:
            missing.append(name)
            continue
        if at < last - _PRECISION_S:
            notes.append(
                f"{start.pod}: {boundary} is {last - at:.1f} s before the boundary that precedes it: not believed"
            )
            missing.append(name)
            continue
        found[name] = max(at - last, 0.0)
        if missing:
            notes.append(f"{start.pod}: {name} contains {', '.join(missing)}, whose end wasn't seen")
        last, missing = max(at, last), []
    return found, notes


def build(starts: Sequence[Boundaries], first_executions: Sequence[FirstExecution] = ()) -> ColdStart:
    """Return the section `cold_start` for these starts."""
    notes = [f"{one.pod} didn't start: {one.failure}" for one in starts if one.failure]
    whole = [one for one in starts if not one.failure]
    split = [parts(one) for one in whole]
    notes += [note for _, more in split for note in more]
    ends = [(one, one.first_answer if one.first_answer is not None else one.ready) for one in whole]
    totals = [end - one.created for one, end in ends if end is not None]
    made = []
    for name, _ in _BOUNDARIES:
        values = [found[name] for found, _ in split if name in found]
        made.append(
            StartPart(
                name=name,
                mean=_figure(values, sum(values) / len(values) if values else None),
                least=_figure(values, min(values, default=None)),
                most=_figure(values, max(values, default=None)),
            )
        )
    return ColdStart(
        starts=len(whole),
        total=_figure(totals, sum(totals) / len(totals) if totals else None),
        parts=tuple(made),
        first_executions=tuple(first_executions),
        notes=tuple(notes),
    )


def _figure(values: Sequence[float], value: float | None) -> Figure:
    if value is None:
        return unmeasured("s", "its end wasn't seen in any start")
    return Figure(value=value, unit="s", n=len(values), source="pod events and answers of the server")


BOUNDARY_NAMES: tuple[str, ...] = tuple(one.name for one in fields(Boundaries))[2:-1]
"""Names of the boundaries in order, for code that watches a start."""
