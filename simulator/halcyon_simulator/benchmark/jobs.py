"""Jobs for a pool of processes, which execute the runs of the table whose results aren't in the store."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from functools import lru_cache
from multiprocessing import get_context

from halcyon_simulator.benchmark import budgeted, scenarios, statistics
from halcyon_simulator.benchmark.result_store import Store, StoredResult
from halcyon_simulator.benchmark.scenarios import LAWS
from halcyon_simulator.benchmark.statistics import Cell
from halcyon_simulator.bounds.clairvoyant import Bounds, bounds
from halcyon_simulator.bounds.score import score
from halcyon_simulator.engine.case import Case
from halcyon_simulator.policies.registry import Named

_TOGETHER = 8
"""Number of policies that one job runs on its simulation case. If the benchmark is interrupted, only the results of
unfinished jobs are lost."""


@dataclass(frozen=True)
class Job:
    """Unit of work for one process: a simulation case, and the policies to run on it."""

    cell: Cell
    seed: int
    policies: tuple[Named, ...]


def complete(store: Store, title: str, runs: Sequence[tuple[Cell, Named, int]], *, processes: int) -> None:
    """Execute the runs that aren't in the store, in a pool of processes, and store the results."""
    missing: dict[tuple[Cell, int], dict[Named, None]] = {}
    for cell, point, seed in runs:
        if store.find(cell, point, seed) is None:
            missing.setdefault((cell, seed), {})[point] = None
    jobs = [Job(cell, seed, part) for (cell, seed), points in missing.items() for part in _parts(tuple(points))]
    progress = _Progress(title, sum(len(job.policies) for job in jobs), len(set(runs)))
    for job, results in _completed(jobs, processes):
        for policy, result in zip(job.policies, results, strict=True):
            store.add(job.cell, policy, job.seed, result)
        progress.step(len(results), str(job.cell))
    progress.end()


def _completed(jobs: Sequence[Job], processes: int) -> Iterator[tuple[Job, list[StoredResult]]]:
    if processes <= 1:
        yield from ((job, work(job)) for job in jobs)
        return
    # The processes are spawned, not forked, because the parent already has threads.
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        futures: dict[Future[list[StoredResult]], Job] = {pool.submit(work, job): job for job in jobs}
        try:
            for future in as_completed(futures):
                yield futures[future], future.result()
        finally:
            pool.shutdown(cancel_futures=True)


def work(job: Job) -> list[StoredResult]:
    """Run the policies of a job on its case, and return one result per policy."""
    cases = drawn(job.cell, job.seed)
    return [_result(cases, policy, job.cell, job.seed) for policy in job.policies]


def _result(cases: Sequence[Case], policy: Named, cell: Cell, seed: int) -> StoredResult:
    runs = budgeted.runs(cases, policy)
    outcomes = [
        score(case, run, policy=policy.name, params=dict(policy.params), limits=_bounds(cell, seed)[number])
        for number, (case, run) in enumerate(zip(cases, runs, strict=True))
    ]
    outcome = outcomes[0] if len(outcomes) == 1 else statistics.together(outcomes, scenario=cell.scenario)
    if cell.family != "S9":
        return StoredResult(outcome, 0)
    return StoredResult(outcome, scenarios.wrong_scalings(cases[0], runs[0].writes))


@lru_cache(maxsize=1)
def drawn(cell: Cell, seed: int) -> tuple[Case, ...]:
    """Return the simulation cases of a cell (scenario, service law, start delay), with the load for a seed."""
    names = scenarios.members(cell.scenario)
    return tuple(scenarios.scenario(name, law=LAWS[cell.law], start_s=cell.start_s, seed=seed) for name in names)


def _parts(points: tuple[Named, ...]) -> Iterator[tuple[Named, ...]]:
    for begin in range(0, len(points), _TOGETHER):
        yield points[begin : begin + _TOGETHER]


@lru_cache(maxsize=1)
def _bounds(cell: Cell, seed: int) -> tuple[Bounds, ...]:
    return tuple(bounds(case) for case in drawn(cell, seed))


class _Progress:
    """Progress display on stderr, with the number of finished runs and an estimate of the remaining time."""

    def __init__(self, title: str, runs: int, total: int) -> None:
        self._title, self._runs, self._done = title, runs, 0
        self._begin_s = self._printed_s = time.monotonic()
        self._live = sys.stderr.isatty()
        self._print(f"{title}: {runs} runs to do, {total - runs} known\n")

    def step(self, runs: int, doing: str) -> None:
        self._done += runs
        now = time.monotonic()
        if not self._live and now - self._printed_s < 60:
            return
        self._printed_s = now
        remaining_s = (now - self._begin_s) / self._done * (self._runs - self._done)
        text = f"{self._title}: {self._done} of {self._runs} runs, about {remaining_s / 60:.0f} min left; {doing}"
        self._print(f"\r\x1b[K{text}" if self._live else f"{text}\n")

    def end(self) -> None:
        if self._live and self._runs:
            self._print("\n")

    @staticmethod
    def _print(text: str) -> None:
        sys.stderr.write(text)
        sys.stderr.flush()
