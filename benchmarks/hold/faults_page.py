"""Rows 2.1 to 2.5 and docs/quality/faults.md, from the results of the campaigns. Pure but for the page's file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from benchmarks.quality.rows import PAGES, Row, commit, today
from tests.faults.campaigns import CONTROL
from tests.faults.drive import ANSWERS, EVENTS
from tests.faults.findings import FALSE_ALARMS, FINDINGS
from tests.faults.mutations import Mutation
from tests.faults.oracles import MASKED
from tests.faults.plans import crashes
from tests.faults.results import MUTATIONS, Result, Results, counting
from tests.faults.stale import FAULT
from tests.faults.tested_code import MOST_CHANGED, Code
from tests.faults.workloads import WORKLOADS

_COMMAND = "python -m benchmarks.hold.faults"
_STAND_INS = "pods are KWOK's and load nothing; the HPA's write is the test's; no agent runs"
ResultsByName = Mapping[str, Results]


def of_kind(by_name: ResultsByName, faults: Sequence[str]) -> dict[str, Result]:
    """Return the results of all plans with one of these faults."""
    return {
        name: result
        for results in by_name.values()
        for name, result in results.results.items()
        if results.name != MUTATIONS and name.split("/")[1] in faults
    }


def rows(by_name: ResultsByName, mutations: Sequence[Mutation], codes: Mapping[str, Code], code: Code) -> list[Row]:
    """Return the rows of the section, for the version `code` of the operator."""
    counted = {
        name: replace(results, results=_planned(results, counting(results, codes, code)))
        for name, results in by_name.items()
    }
    crashed = _crashes(counted, codes, code)
    return [
        crashed,
        _views(counted, codes, code),
        _mutations(counted, mutations, codes, code),
        _mistakes(),
        _alarms(by_name),
    ]


def _planned(results: Results, counted: Mapping[str, Result]) -> dict[str, Result]:
    """Return the results without crashes at writes that no undisturbed run of the newest reference has."""
    points = results.reference.points if results.reference is not None else []
    planned = {plan.id for plan in crashes(results.name, points)}
    return {name: r for name, r in counted.items() if name in planned or "/crash-" not in name}


def _versions(results: Mapping[str, Result], codes: Mapping[str, Code], code: Code) -> tuple[dict[str, object], str]:
    """Return the numbers of results on this version of the code and on earlier ones, and the earlier ones in words."""
    earlier = Counter(result.code for result in results.values() if result.code != code.digest)
    counts = ", ".join(
        f"{count} on {codes[digest].commit}" if digest in codes else f"{count} on another"
        for digest, count in sorted(earlier.items(), key=lambda item: -item[1])
    )
    value: dict[str, object] = {"on this code": len(results) - earlier.total(), "on earlier code": earlier.total()}
    return value, f"of earlier code count {counts}" if counts else ""


def _crashes(by_name: ResultsByName, codes: Mapping[str, Code], code: Code) -> Row:
    results = of_kind(by_name, ("crash-before", "crash-after"))
    started = [by_name[name] for name in WORKLOADS if by_name[name].reference is not None]
    planned = sum(len(crashes(r.name, r.reference.points)) for r in started if r.reference is not None)
    hit = sum(result.hit for result in results.values())
    versions, earlier = _versions(results, codes, code)
    value = {
        "workloads begun": len(started),
        "plans": planned,
        "run": len(results),
        **versions,
        "killed": hit,
        "percent of plans run": round(100 * len(results) / planned, 1) if planned else None,
        "divergences": sum(bool(result.problems) for result in results.values()),
    }
    limits = (("workloads begun", len(WORKLOADS), "=="), ("percent of plans run", 100, ">="), ("divergences", 0, "=="))
    missing = [name for name in WORKLOADS if by_name[name].reference is None]
    why = "a plan that is run without a kill is one whose write didn't come in that run"
    if earlier:
        why += f"; {earlier}"
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


def _views(by_name: ResultsByName, codes: Mapping[str, Code], code: Code) -> Row:
    stale = of_kind(by_name, (FAULT,))
    events, answers = of_kind(by_name, tuple(EVENTS)), of_kind(by_name, tuple(ANSWERS))
    wrong = sum(bool(result.problems) for results in (stale, events, answers) for result in results.values())
    versions, earlier = _versions(stale | events | answers, codes, code)
    value = {
        "stale views": len(stale),
        "plans of events": len(events),
        "events disturbed": sum(result.hit for result in events.values()),
        "plans of answers": len(answers),
        **versions,
        "divergences": wrong,
    }
    limits = (
        ("stale views", 100, ">="),
        ("events disturbed", 100, ">="),
        ("plans of answers", 100, ">="),
        ("divergences", 0, "=="),
    )
    title = (
        "Stale views of lists and watches, single events lost, held, repeated or swapped, and errors of single writes"
    )
    n = len(stale) + len(events) + len(answers)
    return _row("2.2", title, value, ">= 100 plans each, 0 divergences", limits=limits, n=n, why=earlier)


def _mutations(by_name: ResultsByName, planned: Sequence[Mutation], codes: Mapping[str, Code], code: Code) -> Row:
    paths = {mutation.id: mutation.path for mutation in planned}
    results = {plan: result for plan, result in by_name[MUTATIONS].results.items() if plan in paths}
    fields = {paths[plan] for plan in results}
    lines = [line for result in results.values() for line in result.problems]
    versions, earlier = _versions(results, codes, code)
    value = {
        "mutations": len(results),
        "of": len(paths),
        "percent of mutations run": round(100 * len(results) / len(paths), 1),
        "percent of leaf fields": round(100 * len(fields) / len(set(paths.values())), 1),
        **versions,
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
    why = [] if len(results) >= len(paths) else ["not all specs that the API server accepts are judged yet"]
    why += [earlier] if earlier else []
    number = len(set(paths.values()))
    title = f"Mutations of {number} leaf fields of the CRD: unset, changed, at bounds, invalid, wrong beside others"
    target = ">= 1,000, all fields, 0 unrecovered, 0 silent"
    return _row("2.3", title, value, target, limits=limits, n=len(results), why="; ".join(why))


def _mistakes() -> Row:
    value = {"found and mended": len(FINDINGS), "without a test": sum(not finding.test for finding in FINDINGS)}
    limits = (("without a test", 0, "=="),)
    target = "a list: what, how it was found, the test (docs/quality/faults.md)"
    return _row(
        "2.4", "Mistakes of the product, found and mended on the way", value, target, limits=limits, n=len(FINDINGS)
    )


def _alarms(by_name: ResultsByName) -> Row:
    controls = of_kind(by_name, (CONTROL,))
    runs = sum(results.runs for results in by_name.values())
    discarded = sum(alarm.plans for alarm in FALSE_ALARMS if alarm.discarded)
    former = sum(alarm.plans for alarm in FALSE_ALARMS)
    wrong = sum(bool(result.problems) for result in controls.values())
    wrong += sum(alarm.plans for alarm in FALSE_ALARMS if not alarm.mended)
    value = {
        "plans": runs,
        "false alarms": wrong,
        "percent": round(100 * wrong / runs, 2) if runs else None,
        "controls": len(controls),
        "former kinds, mended": sum(bool(alarm.mended) for alarm in FALSE_ALARMS),
        "their plans": former,
        "percent with those": round(100 * (wrong + former) / (runs + discarded), 2) if runs else None,
    }
    limits = (("percent", 3.5, "<="), ("controls", len(WORKLOADS), ">="))
    title = "False alarms of the comparison as it is: divergences that were mistakes of the tests"
    why = "a kind of false alarm that is mended, with a test, is listed with its explanation and counted apart"
    return _row("2.5", title, value, "<= 3.5 %, each explained", limits=limits, n=runs, why=why)


def _row(
    number: str,
    title: str,
    value: Mapping[str, object],
    target: str,
    *,
    limits: Sequence[tuple[str, float, str]],
    n: int,
    why: str = "",
) -> Row:
    return Row(
        number,
        title,
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


def write(by_name: ResultsByName, rows: Sequence[Row], codes: Mapping[str, Code], code: Code) -> None:
    """Write the page."""
    (PAGES / "faults.md").write_text("\n".join(_lines(by_name, rows, codes, code)) + "\n")


def _lines(by_name: ResultsByName, rows: Sequence[Row], codes: Mapping[str, Code], code: Code) -> Iterator[str]:
    yield from (
        "# Faults at every step",
        "",
        "Written by `make bench-faults` from the results of the campaigns, not by hand. How the faults are injected and the runs are",
        "compared: docs/decisions/0068-faults-at-every-step.md. The results are in docs/quality/data/faults, so that a campaign resumes on",
        "any machine: the next call runs the plans without a result, and then those with the oldest code.",
        "",
        f"State: commit {commit()}, {today()}.",
        "",
        "| row | what | figures | target |",
        "| --- | --- | --- | --- |",
    )
    for row in rows:
        figures = "; ".join(f"{name} {'unknown' if value is None else value}" for name, value in row.value.items())
        yield f"| {row.id} | {row.what} | {figures} | {row.target} |"
    yield from _by_code(by_name, codes, code)
    yield from ("", "## By workload", "")
    yield "| workload | mutating requests | crash plans run | killed | other plans | divergences | wall time, s |"
    yield "| --- | --- | --- | --- | --- | --- | --- |"
    for name in WORKLOADS:
        results = by_name[name]
        points = "not begun" if results.reference is None else str(len(set(results.reference.points)))
        crashed = of_kind({name: results}, ("crash-before", "crash-after"))
        others = len(results.results) - len(crashed)
        hit = sum(result.hit for result in crashed.values())
        yield f"| {name} | {points} | {len(crashed)} | {hit} | {others} | {len(results.problems())} | {results.wall_s:.0f} |"
    for name in ("views", MUTATIONS):
        yield f"| {name} | | | | {len(by_name[name].results)} | {len(by_name[name].problems())} | {by_name[name].wall_s:.0f} |"
    yield from ("", "## What isn't compared", "", "| field | why |", "| --- | --- |")
    yield from (f"| {name} | {why} |" for name, why in MASKED.items())
    yield from ("", "## Found and mended", "", "| what | found by | test |", "| --- | --- | --- |")
    yield from (f"| {finding.description} | {finding.how} | {finding.test} |" for finding in FINDINGS)
    yield from (
        "",
        "## False alarms",
        "",
        "| what | plans | cause | mended by | test |",
        "| --- | --- | --- | --- | --- |",
    )
    for alarm in FALSE_ALARMS:
        yield f"| {alarm.description} | {alarm.plans} | {alarm.cause} | {alarm.mended or 'not mended'} | {alarm.test} |"
    divergences = {name: problems for results in by_name.values() for name, problems in results.problems().items()}
    yield from ("", "## Divergences that are open", "")
    if not divergences:
        yield "None."
    yield from (f"- `{name}`: {'; '.join(problems)[:300]}" for name, problems in sorted(divergences.items())[:40])
    if len(divergences) > 40:
        yield f"- and {len(divergences) - 40} more, in docs/quality/data/faults"


def _by_code(by_name: ResultsByName, codes: Mapping[str, Code], code: Code) -> Iterator[str]:
    """Yield the rule by which results count, and the numbers of plans by version of the code."""
    yield from (
        "",
        "## Which results count",
        "",
        "A result has a digest of the code that it was measured on: of each module that the operator process imports, without comments and",
        f"docstrings, and of the CRD's schema. It counts for a row while the schema is the same and at most {100 * MOST_CHANGED:g} % of the modules differ",
        "from the present ones. A spec that the API server refuses never comes to the operator, so its result counts while the schema is the",
        "same. Crash points are those of the newest undisturbed runs; results of other points don't count.",
        "",
        "| code | first tested on commit | modules that differ, % | plans | that count |",
        "| --- | --- | --- | --- | --- |",
    )
    measured = Counter(result.code for results in by_name.values() for result in results.results.values())
    count = Counter(r.code for results in by_name.values() for r in counting(results, codes, code).values())
    for digest, number in sorted(measured.items(), key=lambda item: -item[1]):
        tested = codes.get(digest)
        if tested is None:
            yield f"| {digest} | unknown | unknown | {number} | {count[digest]} |"
            continue
        name = f"{digest} (this code)" if digest == code.digest else digest
        yield f"| {name} | {tested.commit} | {100 * tested.changed(code):.1f} | {number} | {count[digest]} |"
