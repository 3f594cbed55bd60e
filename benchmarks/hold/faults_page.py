"""Rows 2.1 to 2.5 and docs/quality/faults.md, from the results of the campaigns. Pure but for the page's file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from benchmarks.quality.rows import PAGES, Row, commit, today
from tests.faults.campaigns import CONTROL
from tests.faults.drive import ANSWERS, EVENTS
from tests.faults.findings import FALSE_ALARMS, FOUND
from tests.faults.oracles import MASKED
from tests.faults.plans import crashes
from tests.faults.results import Result, Results
from tests.faults.stale import FAULT
from tests.faults.workloads import WORKLOADS

_COMMAND = "python -m benchmarks.hold.faults"
_STAND_INS = "pods are KWOK's and load nothing; the HPA's write is the test's; no agent runs"
Known = Mapping[str, Results]


def of_kind(known: Known, faults: Sequence[str]) -> dict[str, Result]:
    """Return the results of all plans with one of these faults."""
    return {
        name: result
        for results in known.values()
        for name, result in results.results.items()
        if results.name != "mutations" and name.split("/")[1] in faults
    }


def rows(known: Known, mutations: int, paths: Sequence[str]) -> list[Row]:
    """Return the rows of the section; `paths` are the fields of all mutations, one each."""
    return [_crashes(known), _views(known), _mutations(known, mutations, paths), _found(), _alarms(known)]


def _crashes(known: Known) -> Row:
    results = of_kind(known, ("crash-before", "crash-after"))
    begun = [known[name] for name in WORKLOADS if known[name].reference is not None]
    planned = sum(len(crashes(r.name, r.reference.points)) for r in begun if r.reference is not None)
    hit = sum(result.hit for result in results.values())
    value = {
        "workloads begun": len(begun),
        "plans": planned,
        "run": len(results),
        "killed": hit,
        "percent of plans run": round(100 * len(results) / planned, 1) if planned else None,
        "divergences": sum(bool(result.problems) for result in results.values()),
    }
    limits = (("workloads begun", len(WORKLOADS), "=="), ("percent of plans run", 100, ">="), ("divergences", 0, "=="))
    missing = [name for name in WORKLOADS if known[name].reference is None]
    why = "a plan that is run without a kill is one whose write didn't come in that run"
    if missing:
        why += f"; not begun: {', '.join(missing)}"
    return _row(
        "2.1",
        f"Crash points: a kill before and after each mutating request of {len(WORKLOADS)} workloads",
        value,
        "100 % of mutating requests, both variants, 0 divergences",
        limits=limits,
        why=why,
        n=len(results),
    )


def _views(known: Known) -> Row:
    stale = of_kind(known, (FAULT,))
    events, answers = of_kind(known, tuple(EVENTS)), of_kind(known, tuple(ANSWERS))
    wrong = sum(bool(result.problems) for found in (stale, events, answers) for result in found.values())
    value = {
        "stale views": len(stale),
        "plans of events": len(events),
        "events disturbed": sum(result.hit for result in events.values()),
        "plans of answers": len(answers),
        "divergences": wrong,
    }
    limits = (("stale views", 100, ">="), ("events disturbed", 100, ">="), ("divergences", 0, "=="))
    what = (
        "Stale views of lists and watches, single events lost, held, repeated or swapped, and errors of single writes"
    )
    n = len(stale) + len(events) + len(answers)
    return _row("2.2", what, value, ">= 100 plans each, 0 divergences", limits=limits, n=n)


def _mutations(known: Known, planned: int, paths: Sequence[str]) -> Row:
    results = known["mutations"].results
    fields = {name.partition("/")[0] for name in results}
    lines = [line for result in results.values() for line in result.problems]
    value = {
        "mutations": len(results),
        "of": planned,
        "percent of mutations run": round(100 * len(results) / planned, 1),
        "percent of leaf fields": round(100 * len(fields) / len(set(paths)), 1),
        "accepted by the API server": sum(result.hit for result in results.values()),
        "unrecovered": sum(line.startswith("recovery") for line in lines),
        "silent": sum(line.startswith("silent") for line in lines),
        "other problems": sum(not line.startswith(("recovery", "silent")) for line in lines),
    }
    limits = (
        ("mutations", 1000, ">="),
        ("percent of mutations run", 100, ">="),
        ("percent of leaf fields", 100, ">="),
        ("unrecovered", 0, "=="),
        ("silent", 0, "=="),
        ("other problems", 0, "=="),
    )
    why = "" if len(results) >= planned else "specs that the API server accepts are not judged yet"
    what = f"Mutations of {len(set(paths))} leaf fields of the CRD: unset, changed, at bounds, invalid, wrong beside others"
    return _row(
        "2.3", what, value, ">= 1,000, all fields, 0 unrecovered, 0 silent", limits=limits, n=len(results), why=why
    )


def _found() -> Row:
    value = {"found and mended": len(FOUND), "without a test": sum(not finding.test for finding in FOUND)}
    limits = (("without a test", 0, "=="),)
    target = "a list: what, how it was found, the test (docs/quality/faults.md)"
    return _row(
        "2.4", "Mistakes of the product, found and mended on the way", value, target, limits=limits, n=len(FOUND)
    )


def _alarms(known: Known) -> Row:
    plans = sum(len(results.results) for results in known.values())
    wrong = sum(alarm.plans for alarm in FALSE_ALARMS) + sum(
        bool(result.problems) for result in of_kind(known, (CONTROL,)).values()
    )
    value = {
        "plans": plans,
        "false alarms": wrong,
        "percent": round(100 * wrong / plans, 2) if plans else None,
        "controls": len(of_kind(known, (CONTROL,))),
    }
    limits = (("percent", 3.5, "<="),)
    what = "False alarms: divergences that were mistakes of the tests"
    return _row("2.5", what, value, "<= 3.5 %, each explained", limits=limits, n=plans)


def _row(
    number: str,
    what: str,
    value: Mapping[str, object],
    target: str,
    *,
    limits: Sequence[tuple[str, float, str]],
    n: int,
    why: str = "",
) -> Row:
    return Row(
        number,
        what,
        value,
        target,
        limits,
        command=f"{_COMMAND} {number}" if number < "2.4" else _COMMAND,
        stand_ins=_STAND_INS,
        why=why,
        n=n,
        law="none",
        load="none",
        raw=dict(value),
    )


def write(known: Known, made: Sequence[Row]) -> None:
    """Write the page."""
    (PAGES / "faults.md").write_text("\n".join(_lines(known, made)) + "\n")


def _lines(known: Known, made: Sequence[Row]) -> Iterator[str]:
    yield from (
        "# Faults at every step",
        "",
        "Written by `make bench-faults` from the results of the campaigns, not by hand. How the faults are injected and the runs are",
        "compared: docs/decisions/0068-faults-at-every-step.md. A campaign resumes: what has no result yet is run by the next call.",
        "",
        f"State: commit {commit()}, {today()}.",
        "",
        "| row | what | figures | target |",
        "| --- | --- | --- | --- |",
    )
    for row in made:
        figures = "; ".join(f"{name} {'unknown' if value is None else value}" for name, value in row.value.items())
        yield f"| {row.id} | {row.what} | {figures} | {row.target} |"
    yield from ("", "## By workload", "")
    yield "| workload | mutating requests | crash plans run | killed | other plans | divergences | wall time, s |"
    yield "| --- | --- | --- | --- | --- | --- | --- |"
    for name in WORKLOADS:
        results = known[name]
        points = "not begun" if results.reference is None else str(len(set(results.reference.points)))
        crashed = of_kind({name: results}, ("crash-before", "crash-after"))
        others = len(results.results) - len(crashed)
        hit = sum(result.hit for result in crashed.values())
        yield f"| {name} | {points} | {len(crashed)} | {hit} | {others} | {len(results.problems())} | {results.wall_s:.0f} |"
    for name in ("views", "mutations"):
        yield f"| {name} | | | | {len(known[name].results)} | {len(known[name].problems())} | {known[name].wall_s:.0f} |"
    yield from ("", "## What isn't compared", "", "| field | why |", "| --- | --- |")
    yield from (f"| {name} | {why} |" for name, why in MASKED.items())
    yield from ("", "## Found and mended", "", "| what | found by | test |", "| --- | --- | --- |")
    yield from (f"| {finding.what} | {finding.how} | {finding.test} |" for finding in FOUND)
    yield from ("", "## False alarms", "", "| what | plans |", "| --- | --- |")
    yield from (f"| {alarm.what} | {alarm.plans} |" for alarm in FALSE_ALARMS)
    left = {name: problems for results in known.values() for name, problems in results.problems().items()}
    yield from ("", "## Divergences that are open", "")
    if not left:
        yield "None."
    yield from (f"- `{name}`: {'; '.join(problems)[:300]}" for name, problems in sorted(left.items())[:40])
    if len(left) > 40:
        yield f"- and {len(left) - 40} more, in build/quality/raw/faults"
