"""Faults at every step: rows 2.1 to 2.5 of build/quality/hold.json, and docs/quality/faults.md.

    python -m benchmarks.hold.faults [ROW...] [--minutes N] [--workload NAME...] [--lanes N]
    python -m benchmarks.hold.faults --sample

Each call takes plans that have no result yet, until its time is over, so a campaign is resumed by the same command. When all plans have
one, it goes on with those whose version of the code is the oldest. The results are in docs/quality/data/faults, in git, so another machine
resumes too. Needs the embedded API server (`e2e.cluster`); each lane has one of its own, with a part of the workloads, so that one lane
works while another waits until its runs are at rest.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Protocol

from benchmarks.hold import faults_page
from benchmarks.quality.rows import DATA, OUT, commit, record
from e2e.cluster import cluster as clusters
from e2e.cluster.options import Options
from halcyon.kube import kinds
from tests.faults import acto, campaigns, mutations, stale
from tests.faults.campaigns import Workbench
from tests.faults.drive import ANSWERS, EVENTS
from tests.faults.forks import ForkedOperator
from tests.faults.mutations import Mutation
from tests.faults.results import MUTATIONS, Result, Results, load, save
from tests.faults.site import Site, site
from tests.faults.tested_code import Code, load_codes, present, save_codes
from tests.faults.workloads import WORKLOADS
from tests.integration import gateway_api
from tests.integration.operator_process import crd

FOLDER = DATA / "faults"
OUTCOMES = OUT / "raw" / "faults"
"""Outcomes of undisturbed runs on this machine."""
VIEWS = 12
"""Number of moments whose view an operator starts with."""
_STALE = tuple(name for name, workload in WORKLOADS.items() if name != "refresh")
"""Workloads that one version of the operator runs."""
_WAVE = 12


class Campaign(Protocol):
    """Plans of one row, for some workloads, until a monotonic time; with `again` also those with a divergence."""

    def __call__(self, site: Site, names: Sequence[str], until_s: float, *, again: bool) -> None:
        """Run the plans."""


def crash(site: Site, names: Sequence[str], until_s: float, *, again: bool) -> None:
    """Run crash plans of these workloads."""
    bench = _bench(site, names, until_s, again=again)
    campaigns.crash(bench)
    for results in bench.results.values():
        _print(results)
    print(f"discarded, since the machine stood still: {bench.discarded}")


def views(site: Site, names: Sequence[str], until_s: float, *, again: bool) -> None:
    """Run plans of stale views."""
    results, code = load(FOLDER, "views"), tested().digest
    chosen = [name for name in names if name in _STALE]
    current = [r for r in results.results.values() if r.code == code and not (again and r.problems)]
    if chosen and len(current) < VIEWS * len(chosen):
        began = time.monotonic()
        for outcomes in stale.run(site, chosen, views=VIEWS, until_s=until_s, commit=commit(), code=code):
            for plan, result in outcomes.items():
                results.add(plan, result)
            now = time.monotonic()
            results.wall_s, began = results.wall_s + now - began, now
            save(FOLDER, results)
        _print(results)


def disturb(site: Site, names: Sequence[str], until_s: float, *, again: bool) -> None:
    """Run plans of events and requests that are disturbed."""
    bench = _bench(site, names, until_s, again=again)
    campaigns.disturb(bench, [*EVENTS, *ANSWERS], most=3)
    for results in bench.results.values():
        _print(results)


def _bench(site: Site, names: Sequence[str], until_s: float, *, again: bool) -> Workbench:
    by_workload = {name: load(FOLDER, name, OUTCOMES) for name in names}
    ages = {code.digest: age for age, code in enumerate(sorted(load_codes(FOLDER).values(), key=lambda c: c.since))}
    return Workbench(
        site,
        by_workload,
        until_s,
        commit(),
        tested().digest,
        ages,
        again=again,
        save=lambda results: save(FOLDER, results, OUTCOMES),
    )


@cache
def tested() -> Code:
    """Return the version of the code in the working tree."""
    return present(commit(), datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"))


def every_mutation() -> list[Mutation]:
    """Return the mutations of all leaf fields of the CRD."""
    schema = crd()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    return [mutation for leaf in mutations.leaves(schema) for mutation in mutations.mutations(leaf)]


def mutate(site: Site, names: Sequence[str], until_s: float, *, again: bool) -> None:
    """Run mutations that have no result of this version of the code: first those without any, then those with a problem."""
    del names  # a mutation is of no workload
    results, code = load(FOLDER, MUTATIONS), tested().digest
    by_id = {mutation.id: mutation for mutation in every_mutation()}
    results.results = {plan: result for plan, result in results.results.items() if plan in by_id}
    done = {plan for plan, r in results.results.items() if r.code == code and not (again and r.problems)}
    pending = [mutation for mutation in by_id.values() if mutation.id not in done]
    # Spread, so that a campaign that isn't complete has something of each field.
    pending = [mutation for start in range(7) for mutation in pending[start::7]]
    problems = results.problems()
    pending.sort(key=lambda mutation: (mutation.id in results.results, mutation.id not in problems))
    _run_waves(site, results, pending, until_s)
    _print(results)


def _run_waves(site: Site, results: Results, pending: Sequence[Mutation], until_s: float) -> None:
    began = time.monotonic()
    refused, accepted = acto.dry_run(site.space(), pending)
    _add(results, refused, began)
    save(FOLDER, results)
    if not accepted:
        return
    # Fields of a Gateway have an effect only if the cluster has the kinds of its routes.
    gateway_api.install(site.cluster)
    site.ledger.add(kinds.ROUTES)
    operator = _start_for_mutations(site)
    while accepted and time.monotonic() < until_s:
        began = time.monotonic()
        wave, accepted = accepted[:_WAVE], accepted[_WAVE:]
        space = site.space()
        space.apply(_files())
        earlier = len(operator.complaints())
        try:
            outcomes = acto.Wave(space, site.ledger, operator, wave).run()
        except acto.OperatorEndedError as ended:
            # Its plans have no result, and are run by the next call.
            print(f"the operator has ended, so {len(wave)} mutations are discarded: {ended}", flush=True)
            outcomes, operator = {}, _start_for_mutations(site)
        else:
            for result in outcomes.values() if len(operator.complaints()) > earlier else ():
                result.problems.append(f"the log has errors: {operator.complaints()[earlier:][:2]}")
        space.end()
        if site.standstills.since(began):
            outcomes = {plan: result for plan, result in outcomes.items() if not result.problems}
        _add(results, outcomes, began)
        save(FOLDER, results)
        _print(results)
    assert operator.stop() == 0, operator.tail()


def _start_for_mutations(site: Site) -> ForkedOperator:
    """Start an operator whose site allows the labels and annotations of mutated specs."""
    return site.start(more=("--model-pod-labels=example.com/", "--model-pod-annotations=example.com/"))[0]


def _add(results: Results, outcomes: dict[str, Result], began: float) -> None:
    """Add the results of plans that began together, at a monotonic time."""
    seconds = time.monotonic() - began
    code = tested()
    for name, result in outcomes.items():
        result.commit, result.code, result.seconds = code.commit, code.digest, seconds / max(len(outcomes), 1)
        results.add(name, result)
    results.wall_s += seconds


def _files() -> dict[str, object]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "files"}, "data": {"config.pbtxt": ""}}


CAMPAIGNS: dict[str, tuple[Campaign, ...]] = {"2.1": (crash,), "2.2": (views, disturb), "2.3": (mutate,)}
"""Campaigns of each row, in order."""
_LANES: dict[Campaign, int] = {views: 0, mutate: 1}
"""Lanes of campaigns that have one file of results for all workloads, so that one lane writes it."""


def jobs(rows: Sequence[str], names: Sequence[str], lane: int, lanes: int) -> list[tuple[Campaign, Sequence[str]]]:
    """Return the campaigns of a lane, with their workloads."""
    selected: list[tuple[Campaign, Sequence[str]]] = []
    for campaign in (campaign for row in rows for campaign in CAMPAIGNS[row]):
        if campaign not in _LANES:
            selected.append((campaign, names[lane::lanes]))
        elif _LANES[campaign] % lanes == lane:
            selected.append((campaign, names))
    return [(campaign, chosen) for campaign, chosen in selected if chosen]


def sample(site: Site, minutes: float) -> dict[str, list[str]]:
    """Run a few plans of each kind without recording them; return the problems by the plan's id."""
    results = Results("create")
    bench = Workbench(site, {"create": results}, time.monotonic() + 60 * minutes, commit(), tested().digest)
    campaigns.crash(bench, sample=4)
    problems = results.problems()
    space = site.space()
    refused, _ = acto.dry_run(space, every_mutation()[::20])
    return problems | {name: result.problems for name, result in refused.items() if result.problems}


def _print(results: Results) -> None:
    hit = sum(result.hit for result in results.results.values())
    wrong = results.problems()
    print(
        f"{results.name}: {len(results.results)} plans, {hit} hit, {len(wrong)} with problems, {results.wall_s:.0f} s"
    )
    for name, problems in wrong.items():
        print(f"  {name}")
        for problem in problems[:8]:
            print(f"    {problem[:400]}")
    sys.stdout.flush()


@contextmanager
def installed() -> Iterator[Site]:
    """Start a control plane, and install on it."""
    name = f"faults-{os.getpid()}"
    with tempfile.TemporaryDirectory(prefix="halcyon-faults-") as folder:
        cluster = clusters.up(name, Options(control_plane_only=True, history=True))
        try:
            with site(cluster, Path(folder)) as installation:
                yield installation
        finally:
            clusters.down(name)


def report() -> None:
    """Write the rows and the page from the results."""
    by_name = {name: load(FOLDER, name) for name in (*WORKLOADS, "views", MUTATIONS)}
    code = tested()
    codes = {code.digest: code} | load_codes(FOLDER)
    digests = {result.code for results in by_name.values() for result in results.results.values()}
    save_codes(FOLDER, {digest: code for digest, code in codes.items() if digest in digests})
    rows = faults_page.rows(by_name, every_mutation(), codes, code)
    record("hold", rows)
    faults_page.write(by_name, rows, codes, code)


def register() -> None:
    """Keep the modules of the code under test, by which its results are compared with later versions."""
    code = tested()
    codes = load_codes(FOLDER)
    if code.digest not in codes:
        save_codes(FOLDER, codes | {code.digest: code})


def main(argv: Sequence[str] | None = None) -> int:
    """Run campaigns, or a sample of them; return 1 if the sample has a problem."""
    parser = argparse.ArgumentParser(prog="benchmarks.hold.faults", description="Faults at every step.")
    parser.add_argument(
        "rows", nargs="*", metavar="ROW", help=f"rows to measure: {', '.join(CAMPAIGNS)} (default: all)"
    )
    parser.add_argument("--sample", action="store_true", help="run a few plans of each kind, and record nothing")
    parser.add_argument("--report", action="store_true", help="write rows and page from the results so far")
    parser.add_argument(
        "--again", action="store_true", help="also run plans with a divergence again, after the tests were mended"
    )
    parser.add_argument("--minutes", type=float, default=60.0, help="time after which no slice begins (default: 60)")
    parser.add_argument("--workload", action="append", choices=list(WORKLOADS), help="only this workload; repeatable")
    parser.add_argument("--lanes", type=int, default=1, help="number of API servers at the same time (default: 1)")
    parser.add_argument("--lane", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    if unknown := set(options.rows) - set(CAMPAIGNS):
        parser.error(f"{', '.join(sorted(unknown))}: not one of {', '.join(CAMPAIGNS)}")
    if options.report:
        report()
        return 0
    if options.lane is None and not options.sample:
        register()
    if options.lanes > 1 and options.lane is None:
        status = _run_lanes(options.lanes, [*(sys.argv[1:] if argv is None else argv)])
        report()
        return status
    began = time.monotonic()
    chosen = jobs(
        options.rows or list(CAMPAIGNS), options.workload or list(WORKLOADS), options.lane or 0, options.lanes
    )
    if not chosen:
        return 0
    with installed() as site:
        if options.sample:
            problems = sample(site, 2.0)
            print(problems or "no problem", f"{time.monotonic() - began:.0f} s", sep="\n")
            return int(bool(problems))
        failed = False
        for campaign, names in chosen:
            try:
                campaign(site, names, began + 60 * options.minutes, again=options.again)
            except AssertionError:  # the scene has failed, such as an operator without its lease on a busy machine
                traceback.print_exc()
                site.leave()
                failed = True
    if options.lane is None:
        report()
    return int(failed)


def _run_lanes(count: int, argv: Sequence[str]) -> int:
    """Run the same command once for each lane, and return the largest exit status."""
    command = [sys.executable, "-m", "benchmarks.hold.faults", *argv]
    running = [subprocess.Popen([*command, "--lane", str(number)]) for number in range(count)]
    return max(process.wait() for process in running)


if __name__ == "__main__":
    sys.exit(main())
