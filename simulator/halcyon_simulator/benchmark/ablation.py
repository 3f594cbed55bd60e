"""Ablation study, `make bench-ablation`: every scenario, with the whole planner and without each of its learning parts.

The runs use the same scenarios and the same store as those of the table. An interrupted benchmark continues with the
missing runs. Out of scope: how a part is switched off (`policies.ablation`), and the page (`ablation_section`).
"""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import Any

import orjson

from halcyon_simulator.benchmark import ablation_section, table
from halcyon_simulator.benchmark.ablation_section import BEHIND_BALANCER, PARTS, Ablation, Column, Figures
from halcyon_simulator.benchmark.result_store import Store, StoredResult
from halcyon_simulator.benchmark.statistics import Cell, PolicyPoint
from halcyon_simulator.policies.registry import BALANCED, HALCYON, WITHOUT, Named

LAW, START_S = "L1", 60.0
"""Service law and start time of all runs of the ablation."""
_SEEDS = 3
"""Maximum number of seeds per scenario. They are the first seeds of the scaling benchmark's table, so that its runs of
the whole planner can be reused."""
_LONG = frozenset({"S5"})
"""Scenarios that run with only one seed, because each run covers 14 days and takes minutes."""


def main(argv: Sequence[str]) -> int:
    """Run the ablation with these command line options, and return the exit status."""
    parser = argparse.ArgumentParser(
        prog="halcyon_simulator.benchmark.ablation", description="The planner without each of its parts, as a page."
    )
    parser.add_argument("--jobs", type=int, default=2, metavar="N", help="processes; default 2")
    parser.add_argument(
        "--only", action="append", metavar="S1", help="these scenarios or families alone; may be given more than once"
    )
    parser.add_argument(
        "--seeds",
        type=int,
        default=_SEEDS,
        metavar="N",
        help=f"at most so many seeds for each scenario; default {_SEEDS}",
    )
    parser.add_argument("--out", type=Path, default=Path("build/bench"), metavar="FOLDER", help="default build/bench")
    parser.add_argument("--page", type=Path, default=Path("docs/benchmarks/scaling.md"), metavar="FILE.md")
    options = parser.parse_args(argv)
    selected = [cell for cell in cells() if not options.only or {cell.scenario, cell.family} & set(options.only)]
    if not selected:
        parser.error(f"--only {' '.join(options.only)}: there are none of them; for example --only S1")
    signal.signal(signal.SIGTERM, _end)
    runs = Runs(Store(options.out / "cells"), selected, most_seeds=options.seeds, jobs=options.jobs)
    runs.complete()
    options.out.mkdir(parents=True, exist_ok=True)
    document = orjson.dumps(runs.rows(), option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)
    (options.out / "ablation.json").write_bytes(document)
    ablation_section.write(runs.ablation(), options.page, seeds=runs.seeds_in_words())
    return 0


def _end(_signal: int, _frame: FrameType | None) -> None:
    sys.exit(143)


def cells() -> tuple[Cell, ...]:
    """Return the cells (scenario, law, start delay) of the table with service law L1 and a start time of 60 s."""
    return tuple(cell for cell in table.cells(full=False) if (cell.law, cell.start_s) == (LAW, START_S))


def policies() -> tuple[Named, ...]:
    """Return the policies of the ablation.

    They are the whole planner, without and with its balancer, and the planner without each of its learning parts.
    """
    return (Named(HALCYON), Named(BALANCED), *map(without, PARTS))


def without(part: str) -> Named:
    """Return the policy that is the planner without the given learning part."""
    return Named(BALANCED if part in BEHIND_BALANCER else HALCYON, ((WITHOUT, part),))


class Runs:
    """Runs of all policies on some cells (scenario, service law, start delay).

    The result of a run is taken from the store, or else the run is executed.
    """

    def __init__(self, store: Store, cells: Sequence[Cell], *, most_seeds: int, jobs: int) -> None:
        self._store = store
        self._jobs = jobs
        self._seeds = {cell: range(1, _most(cell, most_seeds) + 1) for cell in cells}

    def complete(self) -> None:
        """Execute the runs that aren't in the store yet."""
        runs = [(cell, policy, seed) for cell, seeds in self._seeds.items() for policy in policies() for seed in seeds]
        table.Table(self._store, jobs=self._jobs, names=()).complete("ablation", runs)

    def ablation(self) -> Ablation:
        """Return the results for the page."""
        planner, installed = self._column(Named(HALCYON)), self._column(Named(BALANCED))
        return Ablation(planner, installed, {part: self._column(without(part)) for part in PARTS})

    def rows(self) -> list[dict[str, Any]]:
        """Return the results as values for JSON: one row per cell and policy, with means over the seeds."""
        return [
            {
                "scenario": cell.scenario,
                "law": cell.law,
                "start_delay_s": cell.start_s,
                "policy": policy.name,
                "without": policy.without,
                "seeds": list(seeds),
                **dict(
                    zip(("violations_pct", "gpu_ratio_clairvoyant", "direction_changes_per_h"), figures, strict=True)
                ),
                "wrong_scalings": sum(result.wrong_scalings for result in self._results(cell, policy)),
            }
            for cell, seeds in self._seeds.items()
            for policy in policies()
            for figures in [self._figures(cell, policy)]
        ]

    def seeds_in_words(self) -> str:
        """Return a phrase for the page that states the number of seeds per scenario."""
        by_number: dict[int, list[str]] = {}
        for cell, seeds in self._seeds.items():
            by_number.setdefault(len(seeds), []).append(cell.family)
        return "; ".join(
            f"{number} for {', '.join(dict.fromkeys(families))}" for number, families in sorted(by_number.items())
        )

    def _column(self, policy: Named) -> Column:
        members: dict[str, list[Figures]] = {}
        wrong = 0
        for cell in self._seeds:
            # The 35 cases of S9 aren't separate rows of the table.
            name = cell.family if cell.family == "S9" else cell.scenario
            members.setdefault(name, []).append(self._figures(cell, policy))
            wrong += sum(result.wrong_scalings for result in self._results(cell, policy))
        return Column({name: _mean(cell_figures) for name, cell_figures in members.items()}, wrong)

    def _results(self, cell: Cell, policy: Named) -> list[StoredResult]:
        results = (self._store.find(cell, policy, seed) for seed in self._seeds[cell])
        return [result for result in results if result is not None]

    def _figures(self, cell: Cell, policy: Named) -> Figures:
        point = PolicyPoint(str(policy), tuple(result.outcome for result in self._results(cell, policy)))
        return point.violations_pct, point.gpu_ratio, point.mean("direction_changes_per_h") or 0.0


def _most(cell: Cell, most_seeds: int) -> int:
    return 1 if cell.family in _LONG else min(table.effort(cell).compared, most_seeds)


def _mean(figures: Sequence[Figures]) -> Figures:
    a, b, c = (sum(values) / len(figures) for values in zip(*figures, strict=True))
    return a, b, c


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
