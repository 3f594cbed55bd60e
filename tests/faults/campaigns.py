"""Campaigns: the plans of one kind of fault for a workload, run in slices that each end with a comparison."""

from __future__ import annotations

import time
from collections.abc import Sequence

from tests.faults import plans
from tests.faults.drive import EVENTS, Driver, Run, crash_at, judge
from tests.faults.plans import Plan
from tests.faults.results import Reference, Result, Results
from tests.faults.site import Site
from tests.faults.workloads import WORKLOADS, Workload

CONTROL = "none"
"""Fault of a plan that is compared with the reference without any fault: each problem is a false alarm."""
CHUNK = 10
"""Number of runs that are compared at once."""


def crash(site: Site, results: Results, *, until_s: float, commit: str, sample: int = 0) -> None:
    """Run crash plans of a workload that have no result yet, and add their results.

    Args:
        site: the installation.
        results: results of the workload.
        until_s: monotonic time in seconds after which no slice begins.
        commit: commit of the operator under test.
        sample: number of points to take, evenly spread; 0: all.
    """
    workload = WORKLOADS[results.name]
    began = time.monotonic()
    if results.reference is None:
        _undisturbed(site, workload, results, commit)
    assert results.reference is not None
    points = sorted(set(results.reference.points))
    wanted = plans.crashes(results.name, plans.spread(points, sample) if sample else points)
    left = [plan for plan in wanted if plan.id not in results.results]
    while left and time.monotonic() < until_s:
        chunk, left = left[:CHUNK], left[CHUNK:]
        _slice(site, workload, results, chunk, commit)
    results.wall_s += time.monotonic() - began


def _undisturbed(site: Site, workload: Workload, results: Results, commit: str) -> None:
    """Run the workload three times without a fault: the reference, and two controls."""
    driver = Driver(site, workload)
    runs = driver.prepared([Plan(results.name, CONTROL, str(number)) for number in (1, 2, 3)])
    driver.together(runs)
    driver.converge(runs)
    first, second, third = runs
    assert not first.problems, first.problems
    assert first.outcome is not None
    points = [point for run in runs for point in driver.points[run.plan.id]]
    results.reference = Reference(points, first.outcome, first.events)
    _record(site, results, [second, third], commit)


def _slice(site: Site, workload: Workload, results: Results, chunk: Sequence[Plan], commit: str) -> None:
    driver = Driver(site, workload)
    runs = driver.prepared(chunk)
    for run in runs:
        driver.disturb(run, crash_at(run.plan))
    driver.converge(runs)
    _record(site, results, runs, commit)


def _record(site: Site, results: Results, runs: Sequence[Run], commit: str) -> None:
    assert results.reference is not None
    for name, problems in judge(runs, results.reference.outcome).items():
        hit = next(run.hit for run in runs if run.plan.id == name)
        results.results[name] = Result(hit, problems, commit)
    site.leave()


def disturb(site: Site, results: Results, faults: Sequence[str], *, most: int, until_s: float, commit: str) -> None:
    """Run plans of faults of single requests or events that have no result yet, several at once under one operator.

    Args:
        site: the installation.
        results: results of the workload, with its reference.
        faults: names of `drive.ANSWERS` or `drive.EVENTS`.
        most: number of places to disturb with each fault, evenly spread over the reference.
        until_s: monotonic time in seconds after which no slice begins.
        commit: commit of the operator under test.
    """
    workload = WORKLOADS[results.name]
    began = time.monotonic()
    if results.reference is None:
        _undisturbed(site, workload, results, commit)
    assert results.reference is not None
    places: dict[bool, Sequence[object]] = {
        True: plans.spread(sorted(set(results.reference.events)), most),
        False: plans.spread(sorted(set(results.reference.points)), most),
    }
    wanted = [plan for fault in faults for plan in plans.each(results.name, places[fault in EVENTS], [fault])]
    left = [plan for plan in wanted if plan.id not in results.results]
    while left and time.monotonic() < until_s:
        chunk, left = left[:CHUNK], left[CHUNK:]
        driver = Driver(site, workload)
        runs = driver.prepared(chunk)
        driver.together(runs)
        driver.converge(runs)
        _record(site, results, runs, commit)
    results.wall_s += time.monotonic() - began
