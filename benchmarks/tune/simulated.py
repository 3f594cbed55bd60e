"""Row 6.2: drawn laws, three objectives each, against other searches with as many points; the truth is another event loop.

A point is slower or faster by 5 %, as on a noisy machine. The figure is the true largest rate within the objective of the
configuration that a search recommends, over that of the best of all configurations.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from statistics import mean, median

import numpy as np

from benchmarks.quality.rows import OUT, Row, commit
from benchmarks.tune.judges import EVALUATION_POINTS, JUDGES
from benchmarks.tune.laws import drawn, objectives
from benchmarks.tune.truth import Law, SimulatedTrial
from e2e.cluster.progress import say
from halcyon.api.spec.parse import parse
from halcyon_tune.criterion import Criterion
from halcyon_tune.errors import TuneError
from halcyon_tune.points import Configuration
from halcyon_tune.prediction import Predictor
from halcyon_tune.search import MAX_POINTS, Budget, End, Search
from halcyon_tune.space import Space, space

LAWS = 60
_NOISE = 0.05
_SWEEP_LOADS = 8
"""Loads that a full sweep measures of each configuration, as many as the search of `halcyon bench` has at most."""
_PARTS = OUT / "raw" / "tune-6.2-parts.json"


@dataclass(frozen=True)
class Cell:
    """One law with one objective."""

    law: str
    objective_ms: float
    configurations: int
    points: int
    end: str
    share: float
    """True rate of the recommended configuration over that of the best one."""
    judges: Mapping[str, float]
    """The same of the other searches."""


def cell(law: Law, objective_s: float, seed: int) -> Cell | None:
    """Return the result of a law with an objective; None if no configuration keeps the objective."""
    search_space = configurations(objective_s)
    truth = {configuration: law.capacity(configuration, objective_s) for configuration in search_space.configurations}
    top = max(truth.values())
    if top <= 0:
        return None
    trial = SimulatedTrial(law, _NOISE, seed)
    chosen, end = _tuned(search_space, trial, objective_s)
    evaluations = MAX_POINTS // EVALUATION_POINTS
    shares = {}
    for name, judge in JUDGES.items():
        random = np.random.default_rng([seed, len(name)])

        def measure(configuration: Configuration, random: np.random.Generator = random) -> float:
            return truth[configuration] * math.exp(_NOISE * float(random.standard_normal()))

        shares[name] = truth[judge(search_space, measure, evaluations, seed)] / top
    return Cell(
        law.name, 1000 * objective_s, len(truth), trial.points, end, law.capacity(chosen, objective_s) / top, shares
    )


def configurations(objective_s: float) -> Space:
    """Return the configurations of a batched model on a GPU, today with one instance and batches of 8."""
    spec = parse(
        "m",
        {
            "model": {"source": {"uri": "s3://models/m"}},
            "runtime": {"gpu": {"count": 1}, "instancesPerGPU": 1},
            "batching": {"maxBatchSize": 8},
        },
    )
    return space(spec, {"max_batch_size": 8, "dynamic_batching": {}}, objective_s=objective_s)


def row(laws: int = LAWS) -> Row:
    """Measure the cells that weren't measured on this commit, and return the row."""
    cells: dict[str, dict[str, object] | None] = {}
    if _PARTS.exists():
        stored = json.loads(_PARTS.read_text())
        cells = stored["cells"] if stored["commit"] == commit() else {}
    for number in range(laws):
        law = drawn(number)
        for place, objective_s in enumerate(objectives(law)):
            key = f"{number}.{place}"
            if key in cells:
                continue
            measured = cell(law, objective_s, seed=number)
            cells[key] = None if measured is None else asdict(measured)
            _PARTS.parent.mkdir(parents=True, exist_ok=True)
            _PARTS.write_text(json.dumps({"commit": commit(), "cells": cells}, indent=1))
            if measured is not None:
                say(
                    f"tune 6.2: {measured.law}, {measured.objective_ms:.0f} ms: {measured.share:.3f}, {measured.points} points, {measured.end}"
                )
    return row_of([Cell(**stored_cell) for stored_cell in cells.values() if stored_cell is not None])  # type: ignore[arg-type]  # JSON values


def row_of(cells: list[Cell]) -> Row:
    """Return the row of measured cells."""
    laws = len({cell.law for cell in cells})
    shares = [cell.share for cell in cells]
    judges = {name: mean(cell.judges[name] for cell in cells) for name in JUDGES}
    worst = min(cell.share - max(cell.judges.values()) for cell in cells)
    value = {
        "median_share": round(median(shares), 4),
        "worst_share": round(min(shares), 4),
        "mean_share": round(mean(shares), 4),
        "mean_lead": round(mean(shares) - max(judges.values()), 4),
        "worst_lead": round(worst, 4),
        "share_of_a_sweeps_points": round(max(cell.points / (_SWEEP_LOADS * cell.configurations) for cell in cells), 4),
        "judges_mean_share": {name: round(share, 4) for name, share in judges.items()},
    }
    why = "" if laws == LAWS else f"{laws} laws of {LAWS}; `make bench-tune` has them all"
    return Row(
        id="6.2",
        what="goodput of the recommended settings over that of the best ones, in the simulator, and its lead over other searches",
        value=value,
        target="median >= 98.5 %, worst >= 92 %, on average above the others, in no cell more than 2 % below the best of them",
        limits=(
            ("median_share", 0.985, ">="),
            ("worst_share", 0.92, ">="),
            ("mean_lead", 0.0, ">="),
            ("worst_lead", -0.02, ">="),
            ("share_of_a_sweeps_points", 0.1, "<="),
        ),
        command="make bench-tune ONLY=6.2",
        stand_ins="an event loop of its own in place of Triton",
        why=why,
        n=len(cells),
        law="drawn: lines, floors, shared devices, cliffs with memory that ends",
        load="callers and Poisson, 3,000 requests a point, 5 % noise of times",
        raw=[asdict(cell) for cell in cells],
    )


def _tuned(search_space: Space, trial: SimulatedTrial, objective_s: float) -> tuple[Configuration, str]:
    """Return the recommended configuration, and why the search ended."""
    search = Search.begin(search_space, Criterion(predictor=Predictor(objective_s)), Budget(seconds=3600))
    while True:
        try:
            search, proposal = search.next()
        except TuneError as error:
            return search_space.today, str(error)
        if isinstance(proposal, End):
            best = search.best()
            return (
                search_space.today if best is None or proposal.reason == "nothing to change" else best
            ), proposal.reason
        search = search.after(trial.measure(proposal.configuration, proposal.load))
