"""Table of `make bench-scaling`: scenarios x service laws x start delays x policies x seeds.

It can be resumed after each run. A cell of the table is a combination of a scenario, a service law and a start delay.

The first pass runs every peer's grid of knobs on one seed. The second pass runs the points that might be on the peers'
Pareto front on a few seeds. The third pass runs Halcyon, the peers' defaults and that front on all seeds. Out of scope:
the processes that execute the runs (`jobs`), the store (`result_store`), the page (`page`).
"""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType
from typing import Any

import orjson

from halcyon_simulator.benchmark import jobs, page, scenarios, statistics
from halcyon_simulator.benchmark.result_store import Store, StoredResult
from halcyon_simulator.benchmark.scenarios import LAWS
from halcyon_simulator.benchmark.statistics import Cell, PolicyPoint
from halcyon_simulator.policies import peers
from halcyon_simulator.policies.registry import BALANCED, HALCYON, OWN, Named, parsed


@dataclass(frozen=True)
class Effort:
    """Numbers of seeds with which the points of a scenario run."""

    grid: int
    """Number of seeds for each point of the peers' grids; 0 if there is no grid."""
    compared: int
    """Number of seeds for Halcyon and the points with which it is compared."""
    defaults: bool = True
    """Whether the defaults of the peers run on all seeds even if no verdict depends on them."""


_EFFORT: Mapping[str, Effort] = {
    "S4": Effort(1, 10),
    "S5": Effort(0, 3),
    "S9": Effort(0, 1),
    "S11": Effort(0, 3),
}
"""Numbers of seeds, by scenario or family. Scenarios that aren't listed use `_USUAL`. S4 and S5 have fewer seeds,
because each run has millions of requests."""
_USUAL = Effort(3, 10)
_USUAL_SECOND = Effort(1, 10, defaults=False)
"""Numbers of seeds for the second service law, which has 7.7 times as many requests. Peers' defaults that affect no
verdict are omitted, because they would take 14 % of all requests."""
_BORROWED: Mapping[str, tuple[str, ...]] = {"S5": ("S2", "S4"), "S11": ("S1", "S2")}
"""Scenarios without a grid of knobs, each with the scenarios whose Pareto fronts it uses instead. The fronts are those
for the same service law and start delay, and are first run on one seed."""
_SLACK = 0.3
"""Share by which another point must be better in both figures for a point to be dropped after the first seed. A larger
share drops fewer points. A small share is enough, because all points run on the same load."""
_LENT_SLACK = 0.1
"""Share with the same meaning as `_SLACK`, for points from the front of another scenario. In the full table, neither
this share nor half of it dropped a point that was on the front with all seeds."""
_FAR = 0.2
"""Share by which the excess of a point (`statistics.excess`) may exceed that of the nearest point, for the point to run
on all seeds. Points that are further away from Halcyon's point keep the seeds of the grid, unless a verdict depends on
them (`Table._deciding`). In the full table, a share of 1 gave the same verdicts; this share saves 33 % of the
requests."""
_BASELINES_SEEDS = 3
"""Number of seeds for each baseline. Baselines are listed but not compared, so narrow intervals aren't needed."""
_SINGLE = ("S1", "S2", "S3", "S3r", "S4", "S5", "S6", "S7", "S8", "S11", "S12")
_TOO_LONG = frozenset({"S4", "S5"})
"""Scenarios that run with the second service law only in the full table, because they have 22 and 93 million requests
per run."""


def _end(_signal: int, _frame: FrameType | None) -> None:
    sys.exit(143)


def main(argv: Sequence[str]) -> int:
    """Create the table with the given command line options, and return the exit status."""
    parser = argparse.ArgumentParser(
        prog="halcyon_simulator.benchmark.table", description="Every scaler on every scenario, as a page."
    )
    parser.add_argument("--full", action="store_true", help="every start delay, and the second law everywhere: hours")
    parser.add_argument("--jobs", type=int, default=2, metavar="N", help="processes; default 2")
    parser.add_argument(
        "--only", action="append", metavar="S1", help="these scenarios or families alone; may be given more than once"
    )
    parser.add_argument("--policy", action="append", metavar="NAME", help="these policies alone; default: all")
    parser.add_argument("--out", type=Path, default=Path("build/bench"), metavar="FOLDER", help="default build/bench")
    parser.add_argument("--page", type=Path, default=Path("docs/benchmarks/scaling.md"), metavar="FILE.md")
    options = parser.parse_args(argv)
    selected = tuple(
        cell
        for cell in cells(full=options.full)
        if not options.only or {cell.scenario, cell.family} & set(options.only)
    )
    if not selected:
        parser.error(f"--only {' '.join(options.only)}: the table has none of them; for example --only S1")
    for name in options.policy or ():
        parsed(name)
    # Otherwise the pool's processes would outlive this one, and wait forever.
    signal.signal(signal.SIGTERM, _end)
    table = Table(Store(options.out / "cells"), jobs=options.jobs, names=tuple(options.policy or defaults()))
    points = table.run(selected)
    options.out.mkdir(parents=True, exist_ok=True)
    document = orjson.dumps(rows(points, table.wrong), option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)
    (options.out / "scaling.json").write_bytes(document)
    page.write(points, table.wrong, options.page)
    return 0


def defaults() -> tuple[str, ...]:
    """Return the names of the policies.

    They are Halcyon, with and without its balancer, and every peer at its defaults.
    """
    return (HALCYON, BALANCED, *peers.PEERS)


def cells(*, full: bool) -> tuple[Cell, ...]:
    """Return the cells of the table, which are combinations of scenario, service law and start delay.

    If `full` is true, start delays and the scenarios with the most requests are added.
    """
    singles = [name for family in _SINGLE for name in ((family,) if family == "S11" else scenarios.members(family))]
    delays = (20.0, 60.0, 180.0, 420.0) if full else (60.0, 180.0)
    selected = [Cell(name, "L1", delay_s) for delay_s in delays for name in singles]
    selected += [Cell(name, law, 60.0) for law in LAWS for name in scenarios.members("S9")]
    second = singles if full else [name for name in singles if name not in _TOO_LONG]
    return (
        *selected,
        *(Cell(name, "L2", delay_s) for delay_s in ((60.0, 180.0) if full else (60.0,)) for name in second),
    )


class Table:
    """Runs of the benchmark on some cells (scenario, service law, start delay).

    The result of a run is taken from the store, or else the run is executed.
    """

    def __init__(
        self,
        store: Store,
        *,
        jobs: int,
        names: Sequence[str],
        seeds: Callable[[Cell], Effort] | None = None,
        borrowed: Mapping[str, tuple[str, ...]] = _BORROWED,
    ) -> None:
        """Specify the runs that are needed.

        `seeds` returns the number of seeds for a cell; by default, it is `effort`. `borrowed` maps a scenario without a
        grid to the scenarios whose fronts it uses.
        """
        self._store = store
        self._effort = seeds or effort
        self._jobs = jobs
        self._names = tuple(names)
        self._borrowed = borrowed
        self.wrong: dict[str, int] = {}
        """Number of wrong scalings in scenario S9 by policy, summed over its simulation cases."""

    def run(self, cells: Sequence[Cell]) -> dict[Cell, list[PolicyPoint]]:
        """Return the points (policies with their outcomes) of each cell. The compared points have run on all seeds."""
        grids = {cell: tuple(self._grid(cell)) for cell in cells}
        self._run_first_seed("grids, first seed", grids)
        ahead = {cell: self._ahead(cell, points) for cell, points in grids.items()}
        own = [parsed(name) for name in self._names]
        own_policies = [point for point in own if point.name in OWN]
        self.complete(
            "grids",
            [
                (cell, point, seed)
                for cell in cells
                for seed in self._trials(cell)
                for point in (*ahead[cell], *own_policies)
            ],
        )
        fronts = {cell: self._front(cell, ahead[cell]) for cell in cells}
        lent = {cell: tuple(self._lent(cell, fronts)) for cell in cells}
        self._run_first_seed("fronts of others, first seed", lent)
        for cell, points in lent.items():
            if points:
                fronts[cell], grids[cell] = self._ahead(cell, points, _LENT_SLACK), points
        compared = {
            cell: tuple(dict.fromkeys((*self._always(cell, own), *self._rivals(cell, own_policies, fronts[cell]))))
            for cell in cells
        }
        self._run_all_seeds("all seeds", compared)
        while any((deciding := {cell: self._deciding(cell, compared[cell], grids[cell]) for cell in cells}).values()):
            self._run_all_seeds("points that decide, all seeds", deciding)
            compared = {cell: (*compared[cell], *deciding[cell]) for cell in cells}
        self._count_wrong_scalings(compared)
        return {cell: self._points(cell, (*compared[cell], *grids[cell])) for cell in cells}

    def listed(self, points: Mapping[Cell, Sequence[Named]]) -> dict[Cell, list[PolicyPoint]]:
        """Return only the given points of each cell, run on all seeds, without a search for other points."""
        self._run_all_seeds("listed points, all seeds", points)
        return {cell: self._points(cell, some) for cell, some in points.items()}

    def _run_first_seed(self, title: str, points: Mapping[Cell, Sequence[Named]]) -> None:
        self.complete(title, [(cell, point, 1) for cell, cell_points in points.items() for point in cell_points])

    def _run_all_seeds(self, title: str, points: Mapping[Cell, Sequence[Named]]) -> None:
        self.complete(
            title,
            [
                (cell, point, seed)
                for cell, cell_points in points.items()
                for point in cell_points
                for seed in self._seeds(cell, point)
            ],
        )

    def _count_wrong_scalings(self, compared: Mapping[Cell, Sequence[Named]]) -> None:
        """Add the wrong scalings of the compared policies in scenario S9 to `wrong`."""
        for cell, points in compared.items():
            if cell.family != "S9":
                continue
            for point in points:
                results = self._stored_results(cell, point, self._seeds(cell, point))
                wrong = sum(result.wrong_scalings for result in results)
                self.wrong[point.name] = self.wrong.get(point.name, 0) + wrong

    def _always(self, cell: Cell, own: Sequence[Named]) -> list[Named]:
        """Return the policies that always run on all seeds.

        These are all defaults, or only Halcyon and the baselines if the peers' defaults are omitted in this cell.
        """
        effort = self._effort(cell)
        return [point for point in own if effort.defaults or not effort.grid or point.name in OWN | page.BASELINES]

    def _trials(self, cell: Cell) -> range:
        """Return the seeds for the grid of knobs.

        If the points are borrowed from another scenario, this is only one seed.
        """
        return _seeds(max(self._effort(cell).grid, 1))

    def _rivals(self, cell: Cell, own_policies: Sequence[Named], front: Sequence[Named]) -> list[Named]:
        """Return the points of a front that run on all seeds; all of them if Halcyon isn't among the policies."""
        if not own_policies:
            return list(front)
        trials = len(self._trials(cell))
        points = self._policy_points(cell, front, trials)
        rival_policies = {
            rival.policy
            for own in self._policy_points(cell, own_policies, trials)
            for rival in statistics.rivals(own, points, _FAR)
        }
        return [point for point in front if str(point) in rival_policies]

    def _deciding(self, cell: Cell, compared: Sequence[Named], grid: Sequence[Named]) -> list[Named]:
        """Return the points that determine a verdict on Halcyon but have run only on the seeds of the grid.

        They must run on all seeds, because a verdict must not be based on fewer. Such points exist because the front
        keeps only one of two points that are equal on the seeds of the grid.
        """
        remaining = {str(point): point for point in grid if point not in compared}
        compared_points = [point for point in self._points(cell, (*compared, *remaining.values())) if point.outcomes]
        names = {str(point): point.name for point in (*compared, *grid)}
        own_points = [point for point in compared_points if names[point.policy] in OWN]
        points = [point for point in compared_points if names[point.policy] not in OWN | page.BASELINES]
        deciding = {other.policy for own in own_points for other in statistics.deciding(own, points)}
        return [point for policy, point in remaining.items() if policy in deciding]

    def _seeds(self, cell: Cell, point: Named) -> range:
        """Return the seeds for a point that is compared or listed in the table."""
        compared = self._effort(cell).compared
        return _seeds(min(compared, _BASELINES_SEEDS) if point.name in page.BASELINES else compared)

    def _ahead(self, cell: Cell, candidates: Sequence[Named], slack: float = _SLACK) -> list[Named]:
        """Return the points that might be on the Pareto front after more seeds, according to the first seed."""
        by_text = {str(point): point for point in candidates}
        return [
            by_text[point.policy] for point in statistics.contenders(self._policy_points(cell, candidates, 1), slack)
        ]

    def _lent(self, cell: Cell, fronts: Mapping[Cell, Sequence[Named]]) -> Iterator[Named]:
        """Return the points to run in a cell without a grid: the peers' defaults, and the fronts of other scenarios."""
        lenders = [replace(cell, scenario=name) for name in self._borrowed.get(cell.scenario, ())]
        if lenders:
            yield from dict.fromkeys(Named(name) for name in self._names if name not in OWN | page.BASELINES)
        yield from dict.fromkeys(point for lender in lenders for point in fronts.get(lender, ()))

    def _grid(self, cell: Cell) -> Iterator[Named]:
        """Return the knobs to try for every peer, including its defaults."""
        if self._effort(cell).grid == 0:
            return
        case = jobs.drawn(cell, 1)[0]
        for name in self._names:
            if name not in OWN | page.BASELINES:
                yield from dict.fromkeys((Named(name), *(Named.of(name, params) for params in peers.sweep(name, case))))

    def _front(self, cell: Cell, candidates: Sequence[Named]) -> list[Named]:
        by_text = {str(point): point for point in candidates}
        best = statistics.front(self._policy_points(cell, candidates, self._effort(cell).grid))
        return [by_text[point.policy] for point in best if ":" in point.policy]

    def _policy_points(self, cell: Cell, policies: Sequence[Named], seeds: int) -> list[PolicyPoint]:
        stored = {str(point): self._stored_results(cell, point, _seeds(seeds)) for point in policies}
        return [PolicyPoint(name, tuple(result.outcome for result in results)) for name, results in stored.items()]

    def _stored_results(self, cell: Cell, point: Named, seeds: range) -> list[StoredResult]:
        results = (self._store.find(cell, point, seed) for seed in seeds)
        return [result for result in results if result is not None]

    def _points(self, cell: Cell, points: Iterable[Named]) -> list[PolicyPoint]:
        return [
            PolicyPoint(
                str(point),
                tuple(result.outcome for result in self._stored_results(cell, point, self._seeds(cell, point))),
            )
            for point in dict.fromkeys(points)
        ]

    def complete(self, title: str, runs: Sequence[tuple[Cell, Named, int]]) -> None:
        """Execute the runs that aren't in the store, and store the results."""
        jobs.complete(self._store, title, runs, processes=self._jobs)


def effort(cell: Cell) -> Effort:
    """Return the default numbers of seeds for a cell."""
    return _EFFORT.get(cell.family, _USUAL if cell.law == "L1" else _USUAL_SECOND)


def rows(points: Mapping[Cell, Sequence[PolicyPoint]], wrong: Mapping[str, int]) -> list[dict[str, Any]]:
    """Return the table as values for JSON: one row per cell and point, with means over its seeds."""
    return [
        {
            "scenario": cell.scenario,
            "law": cell.law,
            "start_delay_s": cell.start_s,
            "policy": point.outcomes[0].policy,
            "params": dict(point.outcomes[0].params),
            "seeds": [outcome.seed for outcome in point.outcomes],
            **statistics.finite(point.means()),
            **({"wrong_scalings": wrong[point.policy]} if cell.family == "S9" else {}),
        }
        for cell, cell_points in points.items()
        for point in cell_points
        if point.outcomes
    ]


def _seeds(number: int) -> range:
    return range(1, number + 1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
