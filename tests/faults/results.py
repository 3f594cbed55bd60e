"""Results of plans in a file per workload, so that a campaign resumes, on another machine too.

docs/quality/data/faults has the results, the points and the names of events, in git. The outcome of an undisturbed run is large and valid
for one version of the code, so it is in build/quality/raw/faults, and is measured again on a machine that doesn't have it.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.faults.oracles import Counts, Outcome
from tests.faults.plans import Point
from tests.faults.tested_code import Code

MUTATIONS = "mutations"
"""Name of the results of mutations."""


@dataclass
class Result:
    """The result of one plan."""

    hit: bool
    """Whether the fault has happened; a request that concurrent writes had made superfluous never comes."""
    problems: list[str]
    commit: str
    code: str = ""
    """Digest of the version under test (`tested_code.Code`)."""
    seconds: float = 0.0
    """Wall time of the plan, with its part of what a slice does once."""


@dataclass
class Reference:
    """An undisturbed run."""

    points: list[Point]
    outcome: Outcome | None
    """Outcome of the runs; None if another machine or another version of the code has run them."""
    events: list[str] = field(default_factory=list)
    """Events of watches, as text, in order."""
    code: str = ""
    """Digest of the version of the code."""


@dataclass
class Results:
    """All results of one workload, or of another group of plans."""

    name: str
    reference: Reference | None = None
    results: dict[str, Result] = field(default_factory=dict)
    """Results by the plan's id."""
    wall_s: float = 0.0
    """Time that the plans have taken, in seconds."""
    runs: int = 0
    """Number of plans that were ever run, with those that were run again."""

    def problems(self) -> dict[str, list[str]]:
        """Return the problems by the plan's id, of plans that have any."""
        return {name: result.problems for name, result in self.results.items() if result.problems}

    def add(self, plan: str, result: Result) -> None:
        """Add the result of a plan that was run."""
        self.results[plan] = result
        self.runs += 1


def counting(results: Results, codes: Mapping[str, Code], present: Code) -> dict[str, Result]:
    """Return the results that count for the present version of the code.

    They were measured on this version, or on an earlier one of which at most `tested_code.MOST_CHANGED` of the modules have changed.
    A spec that the API server refuses never comes to the operator, so it counts while the CRD's schema is the same.
    """
    close = {digest for digest, code in codes.items() if code.is_close_to(present)}
    same_schema = {digest for digest, code in codes.items() if code.schema == present.schema}
    return {
        plan: result
        for plan, result in results.results.items()
        if result.code in close or (results.name == MUTATIONS and not result.hit and result.code in same_schema)
    }


def load(folder: Path, name: str, outcomes: Path | None = None) -> Results:
    """Return the results in a folder, empty if there are none, with outcomes of this machine if their folder is given."""
    try:
        document = json.loads((folder / f"{name}.json").read_text())
    except FileNotFoundError:
        return Results(name)
    stored = document["reference"]
    reference = None
    if stored is not None:
        points = [Point(*point) for point in stored["points"]]
        outcome = None if outcomes is None else _outcome(outcomes / f"{name}.json", stored["code"])
        reference = Reference(points, outcome, stored["events"], stored["code"])
    results = {
        plan: Result(bool(hit), problems, commit, code, seconds)
        for plan, (hit, seconds, code, commit, problems) in document["results"].items()
    }
    return Results(name, reference, results, document["wall_s"], document["runs"])


def save(folder: Path, results: Results, outcomes: Path | None = None) -> None:
    """Write the results into a folder, one line each, and the outcome of the reference into another."""
    reference = results.reference
    stored = None
    if reference is not None:
        points = sorted({(p.scope, p.method, p.target, p.number) for p in reference.points})
        stored = {"code": reference.code, "points": points, "events": sorted(set(reference.events))}
    lines = [
        f"  {json.dumps(plan)}: {json.dumps([int(r.hit), round(r.seconds, 1), r.code, r.commit, r.problems])}"
        for plan, r in sorted(results.results.items())
    ]
    body = [
        f' "reference": {json.dumps(stored)}',
        f' "wall_s": {round(results.wall_s, 1)}',
        f' "runs": {results.runs}',
        ' "results": {' + ("\n" + ",\n".join(lines) + "\n }" if lines else "}"),
    ]
    _write(folder / f"{results.name}.json", "{\n" + ",\n".join(body) + "\n}\n")
    if outcomes is not None and reference is not None and reference.outcome is not None:
        _write(outcomes / f"{results.name}.json", json.dumps(_written(reference.outcome, reference.code)))


def _write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    new = file.with_name(f".{file.name}")
    new.write_text(text)
    new.replace(file)


def _written(outcome: Outcome, code: str) -> dict[str, Any]:
    counts = outcome.counts
    return {
        "code": code,
        "state": outcome.state,
        "created": [[*name, n] for name, n in sorted(counts.created.items())],
        "deleted": [[*name, n] for name, n in sorted(counts.deleted.items())],
    }


def _outcome(file: Path, code: str) -> Outcome | None:
    try:
        document = json.loads(file.read_text())
    except FileNotFoundError:
        return None
    if document["code"] != code:
        return None
    created, deleted = (
        Counter({(kind, name): n for kind, name, n in document[which]}) for which in ("created", "deleted")
    )
    return Outcome(document["state"], Counts(created, deleted))
