"""Results of plans in a file per workload, so that a campaign resumes."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.faults.oracles import Counts, Outcome
from tests.faults.plans import Point


@dataclass
class Result:
    """The result of one plan."""

    hit: bool
    """Whether the fault has happened; a request that concurrent writes had made superfluous never comes."""
    problems: list[str]
    commit: str


@dataclass
class Reference:
    """An undisturbed run."""

    points: list[Point]
    outcome: Outcome
    events: list[str] = field(default_factory=list)
    """Events of watches, as text, in order."""


@dataclass
class Results:
    """All that is known about one workload, or another group of plans."""

    name: str
    reference: Reference | None = None
    results: dict[str, Result] = field(default_factory=dict)
    """Results by the plan's id."""
    wall_s: float = 0.0
    """Time that the plans have taken, in seconds."""

    def problems(self) -> dict[str, list[str]]:
        """Return the problems by the plan's id, of plans that have any."""
        return {name: result.problems for name, result in self.results.items() if result.problems}


def load(folder: Path, name: str) -> Results:
    """Return the results in a folder; empty if there are none."""
    try:
        known = json.loads((folder / f"{name}.json").read_text())
    except FileNotFoundError:
        return Results(name)
    found = known["reference"]
    return Results(
        name,
        None if found is None else _reference(found),
        {key: Result(**result) for key, result in known["results"].items()},
        known["wall_s"],
    )


def save(folder: Path, results: Results) -> None:
    """Write the results into a folder."""
    reference = results.reference
    body = {
        "reference": None if reference is None else _written(reference),
        "results": {key: vars(result) for key, result in sorted(results.results.items())},
        "wall_s": round(results.wall_s, 1),
    }
    folder.mkdir(parents=True, exist_ok=True)
    new = folder / f".{results.name}.json"
    new.write_text(json.dumps(body, indent=1))
    new.replace(folder / f"{results.name}.json")


def _written(reference: Reference) -> dict[str, Any]:
    counts = reference.outcome.counts
    return {
        "points": [[p.scope, p.method, p.target, p.number] for p in reference.points],
        "events": reference.events,
        "state": reference.outcome.state,
        "created": [[*where, n] for where, n in sorted(counts.created.items())],
        "deleted": [[*where, n] for where, n in sorted(counts.deleted.items())],
    }


def _reference(known: dict[str, Any]) -> Reference:
    created, deleted = (
        Counter({(kind, name): n for kind, name, n in known[which]}) for which in ("created", "deleted")
    )
    points = [Point(*point) for point in known["points"]]
    return Reference(points, Outcome(known["state"], Counts(created, deleted)), known["events"])
