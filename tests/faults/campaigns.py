"""Campaigns: the plans of one kind of fault for several workloads, run in slices that each end with a comparison.

Plans without a result come first, then those with a divergence, and then those whose version of the code is the oldest. A slice has plans
of all workloads in turn. Parts that take a fixed time are shared by all of its runs: their beginning, the way to rest, and the undisturbed
runs. An operator has one set of images, so a workload with other images has slices of its own.
"""

from __future__ import annotations

import itertools
import logging
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Self

from tests.faults import plans
from tests.faults.drive import EVENTS, Driver, LeaseLostError, Run, judge
from tests.faults.plans import Plan
from tests.faults.results import Reference, Result, Results
from tests.faults.site import Site
from tests.faults.workloads import WORKLOADS

_LOG = logging.getLogger(__name__)
CONTROL = "none"
"""Fault of a plan that is compared with the reference without any fault: each problem is a false alarm."""
SLICE = 24
"""Number of runs that are compared at once. One operator works on all of them, so on a busy machine it must have time to renew its lease."""
CONTROLS = 3
"""Number of undisturbed runs of a workload: the reference, and two that are compared with it."""
_REFERRING = 3
"""Number of attempts to run references, which a busy machine may fail."""


@dataclass(frozen=True)
class Workbench:
    """State that the campaigns of one call share."""

    site: Site
    results: Mapping[str, Results]
    """Results by workload, which the campaigns add to."""
    until_s: float
    """Monotonic time in seconds after which no run begins."""
    commit: str
    """Commit of the operator under test."""
    code: str
    """Digest of the code under test."""
    ages: Mapping[str, int] = field(default_factory=dict)
    """Rank of each earlier version of the code, by digest; the oldest has 0."""
    again: bool = False
    """Whether plans with a divergence are run again on the same code, after the tests were mended."""
    discarded: list[str] = field(default_factory=list)
    """Plans with a divergence while the machine stood still, and those of slices that failed. They have no result, and are run again."""
    save: Callable[[Results], None] = lambda _: None
    """Function that keeps the results of a workload after each slice."""

    def is_referred(self, results: Results) -> bool:
        """Return whether this machine has an undisturbed run of the workload with the code under test."""
        reference = results.reference
        return reference is not None and reference.outcome is not None and reference.code == self.code

    def urgency(self, plan: Plan) -> int | None:
        """Return the rank of a plan, the first one 0; None if its result is of the code under test."""
        result = self.results[plan.workload].results.get(plan.id)
        if result is None:
            return 0
        if result.code == self.code and not (self.again and result.problems):
            return None
        return 1 if result.problems else 2 + self.ages.get(result.code, 0)

    @property
    def over(self) -> bool:
        """Whether the time has passed."""
        return time.monotonic() >= self.until_s


def crash(bench: Workbench, *, sample: int = 0) -> None:
    """Run crash plans that have no result yet; `sample` is the number of points of each workload, 0 for all."""
    _refer(bench)
    plan_groups = []
    for results in bench.results.values():
        if bench.is_referred(results) and results.reference is not None:
            points = sorted(set(results.reference.points))
            plan_groups.append(plans.crashes(results.name, plans.spread(points, sample) if sample else points))
    for chunk in _pending(bench, plan_groups):
        with Timed(bench, chunk) as timed:
            driver = _driver(bench, chunk)
            begun = []
            for run in driver.prepared(chunk):
                if bench.over:
                    break
                try:
                    driver.disturb(run)
                    begun.append(run)
                except LeaseLostError:
                    bench.discarded.append(run.plan.id)
            if begun:
                driver.converge(begun)
            _record(bench, begun, timed.began)


def disturb(bench: Workbench, faults: Sequence[str], *, most: int) -> None:
    """Run plans of faults of single requests or events that have no result yet, several at once under one operator.

    Args:
        bench: installation and results.
        faults: names of `drive.ANSWERS` or `drive.EVENTS`.
        most: number of places of a workload to disturb with each fault, evenly spread over the reference.
    """
    _refer(bench)
    plan_groups = []
    for results in bench.results.values():
        if bench.is_referred(results) and results.reference is not None:
            places: dict[bool, Sequence[object]] = {
                True: plans.spread(sorted(set(results.reference.events)), most),
                False: plans.spread(sorted(set(results.reference.points)), most),
            }
            groups = ([name for name in faults if (name in EVENTS) == of_events] for of_events in (True, False))
            plan_groups.append(
                plans.in_turn(
                    [
                        [p for name in group for p in plans.each(results.name, places[name in EVENTS], [name])]
                        for group in groups
                    ]
                )
            )
    for chunk in _pending(bench, plan_groups):
        with Timed(bench, chunk) as timed:
            driver = _driver(bench, chunk)
            runs = driver.prepared(chunk)
            driver.together(runs)
            driver.converge(runs)
            _record(bench, runs, timed.began)


def _refer(bench: Workbench) -> None:
    """Run each workload three times without a fault, unless this machine has done so with the code under test."""
    for _ in range(_REFERRING):
        new = [results.name for results in bench.results.values() if not bench.is_referred(results)]
        for group in _of_equal_images(new):
            for names in plans.sliced(group, SLICE // CONTROLS // 2):
                if bench.over:
                    return
                _refer_together(bench, names)


def _refer_together(bench: Workbench, names: Sequence[str]) -> None:
    numbers = range(1, CONTROLS + 1)
    undisturbed = [Plan(name, CONTROL, str(number)) for name in names for number in numbers]
    with Timed(bench, undisturbed) as timed:
        driver = _driver(bench, undisturbed)
        runs = driver.prepared(undisturbed)
        driver.together(runs)
        driver.converge(runs)
        references = [run for run in runs if run.plan.place == "1"]
        assert not bench.site.standstills.since(timed.began), "the machine stood still in a reference"
        assert not any(run.problems for run in references), [(run.plan, run.problems) for run in references]
        for run in references:
            _begin_reference(bench, run)
        for run in runs:
            reference = bench.results[run.plan.workload].reference
            assert reference is not None
            reference.points.extend(driver.points[run.plan.id])
        _record(bench, [run for run in runs if run.plan.place != "1"], timed.began)


def _begin_reference(bench: Workbench, run: Run) -> None:
    """Make an undisturbed run the reference of its workload. Points of other runs of the same code are kept: a write may come in some only."""
    results = bench.results[run.plan.workload]
    earlier = results.reference
    points = earlier.points if earlier is not None and earlier.code == bench.code else []
    results.reference = Reference(list(points), run.outcome, run.events, bench.code)


def _pending(bench: Workbench, plan_groups: Sequence[Sequence[Plan]]) -> Iterator[list[Plan]]:
    """Yield slices of the plans without a result of the code under test, the most urgent first, until the time is over."""
    by_rank: dict[int, dict[str, list[Plan]]] = {}
    for plan in itertools.chain.from_iterable(plan_groups):
        if (rank := bench.urgency(plan)) is not None:
            by_rank.setdefault(rank, {}).setdefault(plan.workload, []).append(plan)
    for _, by_name in sorted(by_rank.items()):
        for names in _of_equal_images(list(by_name)):
            for chunk in plans.sliced(plans.in_turn([by_name[name] for name in names]), SLICE):
                if bench.over:
                    return
                yield list(chunk)


def _of_equal_images(names: Sequence[str]) -> list[list[str]]:
    """Return the workloads in groups whose operators have the same images."""
    groups: dict[tuple[str, ...], list[str]] = {}
    for name in names:
        groups.setdefault(WORKLOADS[name].images, []).append(name)
    return list(groups.values())


def _driver(bench: Workbench, chunk: Sequence[Plan]) -> Driver:
    return Driver(bench.site, WORKLOADS[chunk[0].workload].images)


def _record(bench: Workbench, runs: Sequence[Run], began: float) -> None:
    seconds = (time.monotonic() - began) / max(len(runs), 1)
    for run in runs:
        results = bench.results[run.plan.workload]
        assert results.reference is not None
        assert results.reference.outcome is not None
        problems = judge(run, results.reference.outcome)
        if problems and bench.site.standstills.since(began):
            bench.discarded.append(run.plan.id)
            continue
        results.add(run.plan.id, Result(run.hit, problems, bench.commit, bench.code, seconds))
    bench.site.leave()


class Timed:
    """A context in which plans take time, which is shared among the workloads by their numbers of plans.

    A failure of the scene, such as an operator that loses its lease on a busy machine, discards the plans, and the campaign goes on.
    """

    def __init__(self, bench: Workbench, chunk: Sequence[Plan]) -> None:
        self._bench, self._chunk = bench, chunk

    def __enter__(self) -> Self:
        self.began = time.monotonic()
        return self

    def __exit__(self, kind: type[BaseException] | None, reason: BaseException | None, _: object) -> bool:
        seconds = time.monotonic() - self.began
        failed = isinstance(reason, (AssertionError, OSError, subprocess.TimeoutExpired))
        if failed:
            self._bench.discarded.extend(plan.id for plan in self._chunk)
            _LOG.warning("%d plans are discarded: %r", len(self._chunk), reason)
            self._bench.site.leave()
        counts = Counter(plan.workload for plan in self._chunk)
        for name, count in counts.items():
            results = self._bench.results[name]
            results.wall_s += seconds * count / counts.total()
            if reason is None:
                self._bench.save(results)
        return failed
