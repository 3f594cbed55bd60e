"""Stale views: an operator that starts behind an API server whose lists and watches are those of an earlier moment.

All workloads run undisturbed, one model each, while the resource version is noted. Then an operator starts for each of the noted
versions: its lists are those of that version, from the API server's own history, and its watches stand still until the operator has
had time to act on what it sees. At the end each model must be as before. Reads of single objects are current, as from etcd.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence

from tests.faults import plans
from tests.faults.drive import BEGINNING_S, REST_LIMIT_S, Run
from tests.faults.oracles import Outcome, divergences
from tests.faults.plans import Plan
from tests.faults.rest import at_rest
from tests.faults.results import Result
from tests.faults.site import Site
from tests.faults.workloads import WORKLOADS
from tests.integration.operator_process import IMAGES
from tests.integration.proxy import AsOf, Fault, Request
from tests.integration.waiting import PATIENCE
from tests.integration.watch_faults import Wait, WatchEvent

_LOG = logging.getLogger(__name__)
FAULT = "stale"
BLIND_S = 4.0
"""Time for which an operator acts on an old view, from its first reconcile."""


def run(
    site: Site, names: Sequence[str], *, views: int, until_s: float, commit: str, code: str
) -> Iterator[dict[str, Result]]:
    """Run the workloads to their end, and then an operator for each of at most `views` moments.

    Yields the results of all workloads at each moment by the plan's id.
    """
    runs, versions = _history(site, names)
    outcomes = site.outcomes([run.space for run in runs])
    references = {run.plan.workload: outcome for run, outcome in zip(runs, outcomes, strict=True)}
    for number, version in enumerate(plans.spread(versions, views), 1):
        began = time.monotonic()
        if began > until_s:
            break
        try:
            problems = _view(site, runs, references, version)
        except AssertionError as failed:  # such as an operator that loses its lease on a busy machine
            _LOG.warning("a view is discarded: %s", failed)
            site.kill()
            continue
        seconds = (time.monotonic() - began) / len(runs)
        yield {
            Plan(name, FAULT, f"view-{number}").id: Result(True, lines, commit, code, seconds)
            for name, lines in problems.items()
            if not (lines and site.standstills.since(began))
        }
    site.leave()


def _history(site: Site, names: Sequence[str]) -> tuple[list[Run], list[str]]:
    """Run the workloads, and return them with the resource versions of the time."""
    runs = []
    for name in names:
        steps = [*WORKLOADS[name].before, *WORKLOADS[name].steps]
        runs.append(Run(Plan(name, FAULT, "history"), site.space(), steps))
    versions = [site.version()]
    operator, door = site.start()
    unfinished = list(runs)
    end = time.monotonic() + BEGINNING_S * PATIENCE
    while unfinished and time.monotonic() < end:
        unfinished = [run for run in unfinished if not run.advance(site.ledger.changes)]
        version = site.version()
        if version != versions[-1]:
            versions.append(version)
    assert not unfinished, (
        f"the workloads have not come to their end: {[(run.plan.workload, run.excuse) for run in unfinished]}"
    )
    at_rest(operator, door, site.ledger, _namespaces(site, runs), time.monotonic() + REST_LIMIT_S * PATIENCE)
    assert operator.stop() == 0
    return runs, versions


def _namespaces(site: Site, runs: Sequence[Run]) -> set[str]:
    return {site.namespace, *(run.space.namespace for run in runs)}


def _view(site: Site, runs: Sequence[Run], references: Mapping[str, Outcome], version: str) -> dict[str, list[str]]:
    gate = threading.Event()

    def rule(request: Request) -> Fault | None:
        return AsOf(version) if request.listing and not gate.is_set() else None

    def hold(_: WatchEvent) -> Wait:
        return Wait(gate)

    operator, door = site.start(rule, images=IMAGES, events=hold)
    operator.wait_leading()
    time.sleep(BLIND_S)
    gate.set()
    busy = at_rest(operator, door, site.ledger, _namespaces(site, runs), time.monotonic() + REST_LIMIT_S * PATIENCE)
    problems_by_name = {}
    for run, outcome in zip(runs, site.outcomes([run.space for run in runs]), strict=True):
        name = run.plan.workload
        problems = [f"isn't at rest: {busy[run.space.namespace]}"] if run.space.namespace in busy else []
        problems += [f"objects of others were touched: {path}" for path in site.touched(run.space)]
        problems_by_name[name] = problems + divergences(outcome, references[name])
    complaints = operator.complaints()
    for lines in problems_by_name.values() if complaints else ():
        lines.append(f"the log has errors: {complaints[:2]}")
    assert operator.stop() == 0, operator.tail()
    must_have_had(version, operator.lines())
    return problems_by_name


def must_have_had(version: str, log: Iterable[Mapping[str, str]]) -> None:
    """Check that the API server could list and watch from a version, by the log of the operator.

    Raises:
        AssertionError: it couldn't, so the operator has seen something else than this view.
    """
    too_old = [line["error"] for line in log if "too old" in line.get("error", "")]
    assert not too_old, f"version {version} is too old for the API server, so there was no view: {too_old[0]}"
