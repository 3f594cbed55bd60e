"""Execution of `halcyon simulate`: cases, runs, and the output as a table, JSON or plots.

Out of scope: the syntax of the options (`main`), the engine (`engine.run`), the score (`bounds.score`,
`benchmark.statistics`).
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from halcyon_simulator.benchmark import budgeted, scenarios, statistics
from halcyon_simulator.benchmark.scenarios import LAWS, Law
from halcyon_simulator.bounds.clairvoyant import bounds
from halcyon_simulator.bounds.score import score
from halcyon_simulator.engine import traces
from halcyon_simulator.engine.case import Case, RunOutcome, ServiceLaw
from halcyon_simulator.engine.load import superposed
from halcyon_simulator.engine.run import Trajectory
from halcyon_simulator.policies import peers
from halcyon_simulator.policies.registry import HALCYON, OWN, Named, PolicyTextError, pairs, parsed

_KEYS = ("t0_ms", "a_ms", "max_batch", "instances", "delay_ms")
_EXAMPLE = "t0_ms=80,a_ms=6,max_batch=8,instances=1"
_MAX_REQUESTS = 50_000_000
_COPY_SPREAD_S = 60.0
_COLUMNS = (
    ("violations", "violations_pct", "{:.2f} %"),
    ("p50 ms", "p50_ms", "{:.0f}"),
    ("p95 ms", "p95_ms", "{:.0f}"),
    ("p99 ms", "p99_ms", "{:.0f}"),
    ("GPU s", "gpu_seconds", "{:.0f}"),
    ("/ clairvoyant", "gpu_ratio_clairvoyant", "{:.2f}"),
    ("/ work", "gpu_ratio_work", "{:.2f}"),
    ("turns/h", "direction_changes_per_h", "{:.1f}"),
    ("overshoot", "overshoot", "{:.2f}"),
    ("settling s", "settling_s", "{:.0f}"),
    ("in vain", "pods_in_vain", "{:.1f}"),
)


@dataclass(frozen=True)
class _Run:
    case: Case
    policy: Named
    outcome: RunOutcome
    trajectory: Trajectory | None
    """Trajectory of the run; None if it won't be plotted."""


def run(options: argparse.Namespace) -> int:
    """Run the simulations that the options request, print the results, and return the exit status.

    Raises:
        ValueError: the options can't be run; the message is for the user.
    """
    law = law_of(options.service, options.slo_ms)
    policies = [parsed(text) for text in options.policy or [HALCYON]]
    runs = []
    for result in _runs(options, law, policies):
        runs.append(result)
        _progress(f"{len(runs)} runs; {result.case.name}, {result.policy}, seed {result.case.seed}")
    _progress("")
    points = _points(runs)
    marked = (
        {id(point) for scenario_points in points.values() for point in statistics.front(scenario_points)}
        if options.sweep
        else set()
    )
    if options.plot is not None:
        _draw(options, runs, points)
    if options.json:
        fronts = {
            name: [point.policy for point in scenario_points if id(point) in marked]
            for name, scenario_points in points.items()
        }
        sys.stdout.buffer.write(_document(options, law, runs, fronts if options.sweep else None))
    else:
        print(_table(points, marked))  # noqa: T201  # a command line prints
    return 0


def law_of(text: str, slo_ms: float | None) -> Law:
    """Return the service law for the options `--service` and `--slo-ms`.

    Raises:
        ValueError: a value is invalid; the message has an example.
    """
    if text in LAWS:
        return LAWS[text] if slo_ms is None else replace(LAWS[text], slo_s=slo_ms / 1000)
    parameters = pairs(text, subject="--service", example=_EXAMPLE)
    for key in parameters:
        if key not in _KEYS:
            raise PolicyTextError(
                f"--service has no {key!r}; it has {', '.join(_KEYS)}; for example {_EXAMPLE}, or L1, or L2"
            )
    missing = [key for key in ("t0_ms", "max_batch") if key not in parameters]
    if missing:
        raise PolicyTextError(f"--service lacks {' and '.join(missing)}; for example {_EXAMPLE}")
    if slo_ms is None:
        raise PolicyTextError(
            "--service with a law of your own needs --slo-ms, the latest answer; for example --slo-ms 500"
        )
    service = ServiceLaw(
        t0_s=_quantity(parameters, "t0_ms", "80") / 1000,
        a_s=_quantity(parameters, "a_ms", "6") / 1000,
        max_batch=_integer(parameters, "max_batch", "8"),
        instances=_integer(parameters, "instances", "1"),
        delay_s=_quantity(parameters, "delay_ms", "2") / 1000,
    )
    if service.seconds(1) <= 0:
        raise PolicyTextError(
            f"--service {text}: a batch takes no time; t0_ms or a_ms has to be above 0, for example {_EXAMPLE}"
        )
    return Law("custom", service, slo_ms / 1000)


def _quantity(parameters: dict[str, str], key: str, example: str) -> float:
    try:
        value = float(parameters.get(key, "0"))
    except ValueError:
        value = math.nan
    if not 0 <= value < math.inf:
        raise PolicyTextError(
            f"--service: {key} is {parameters[key]!r}; it has to be a number of at least 0, for example {key}={example}"
        )
    return value


def _integer(parameters: dict[str, str], key: str, example: str) -> int:
    text = parameters.get(key, "1")
    if not (text.isascii() and text.isdigit() and int(text) > 0):
        raise PolicyTextError(
            f"--service: {key} is {text!r}; it has to be a whole number of at least 1, for example {key}={example}"
        )
    return int(text)


def _runs(options: argparse.Namespace, law: Law, policies: Sequence[Named]) -> Iterator[_Run]:
    is_plotted = options.plot is not None and not options.sweep
    for seed in range(1, options.seeds + 1):
        for group in _groups(options):
            cases = tuple(_limited(_case(options, law, name, seed), options) for name in group)
            limits = [bounds(case) for case in cases]
            for policy in _grid(policies, cases[0]) if options.sweep else policies:
                tracks = budgeted.runs(cases, policy)
                for case, trajectory, bound in zip(cases, tracks, limits, strict=True):
                    outcome = score(case, trajectory, policy=policy.name, params=dict(policy.params), limits=bound)
                    yield _Run(case, policy, outcome, trajectory if is_plotted and seed == 1 else None)


def _groups(options: argparse.Namespace) -> Iterator[tuple[str, ...]]:
    """Yield lists of the scenarios that run together. Each list has one name, except for models that share a budget."""
    if options.trace is not None:
        yield (str(options.trace),)
    for family in options.scenario:
        if family == "S11":
            yield scenarios.members(family)
        else:
            yield from ((name,) for name in scenarios.members(family))


def _case(options: argparse.Namespace, law: Law, name: str, seed: int) -> Case:
    if options.trace is None:
        return scenarios.scenario(name, law=law, start_s=options.start_delay, seed=seed, cv=options.cv)
    path = Path(name)
    rng = np.random.Generator(np.random.PCG64(seed))
    recorded = traces.read(path)
    if len(recorded) * options.superpose > _MAX_REQUESTS:
        raise ValueError(
            f"--superpose {options.superpose} of {path} is {len(recorded) * options.superpose:,} requests; at most "
            f"{_MAX_REQUESTS:,} are possible, for example --superpose {max(_MAX_REQUESTS // len(recorded), 1)}"
        )
    times = superposed(recorded, copies=options.superpose, spread_s=_COPY_SPREAD_S, rng=rng)
    return Case(
        name=path.name,
        arrivals=times,
        duration_s=float(math.ceil(times[-1])) + 1.0,
        service=law.service,
        slo_s=law.slo_s,
        start_s=options.start_delay,
        seed=seed,
    )


def _limited(case: Case, options: argparse.Namespace) -> Case:
    """Return the case with the replica limits from the options."""
    case = replace(
        case,
        low=case.low if options.low is None else options.low,
        high=case.high if options.high is None else options.high,
        queue_limit=options.queue_limit,
        refuse_late=options.refuse_late,
        observation_lag_s=options.observation_lag,
    )
    if case.low > case.high:
        raise PolicyTextError(f"--min {case.low} is above --max {case.high}; for example --min 1 --max 100")
    return case


def _grid(policies: Sequence[Named], case: Case) -> Iterator[Named]:
    """Yield each policy with its grid of settings. Halcyon has no knobs to vary, so it runs only once.

    A knob that the user sets replaces that of the grid. Settings that are equal after this run only once.
    """
    for policy in policies:
        grid = () if policy.name in OWN else peers.sweep(policy.name, case)
        points = (Named.of(policy.name, {**params, **dict(policy.params)}) for params in grid)
        yield from dict.fromkeys((policy, *points))


def _points(runs: Sequence[_Run]) -> dict[str, list[statistics.PolicyPoint]]:
    """Return the points of each scenario, in the order in which they first ran."""
    outcomes_by_scenario: dict[str, dict[str, list[RunOutcome]]] = {}
    for result in runs:
        outcomes_by_scenario.setdefault(result.case.name, {}).setdefault(str(result.policy), []).append(result.outcome)
    return {
        name: [statistics.PolicyPoint(policy, tuple(outcomes)) for policy, outcomes in by_policy.items()]
        for name, by_policy in outcomes_by_scenario.items()
    }


def _draw(options: argparse.Namespace, runs: Sequence[_Run], points: dict[str, list[statistics.PolicyPoint]]) -> None:
    from halcyon_simulator.benchmark import plot  # noqa: PLC0415  # matplotlib takes a second, and most runs draw nothing

    if options.sweep:
        plot.fronts(points, options.plot)
    else:
        first = runs[0].case
        if other_names := [name for name in points if name != first.name]:
            print(  # noqa: T201  # a command line prints
                f"halcyon simulate: --plot shows {first.name} alone; plot {', '.join(other_names)} with a --plot of their own",
                file=sys.stderr,
            )
        plotted = [result for result in runs if result.case is first and result.trajectory is not None]
        plot.timeline(
            first,
            {str(result.policy): result.trajectory for result in plotted if result.trajectory is not None},
            options.plot,
        )


def _document(options: argparse.Namespace, law: Law, runs: Sequence[_Run], fronts: dict[str, Any] | None) -> bytes:
    service = law.service
    document: dict[str, Any] = {
        "law": law.name,
        "service": {
            "t0_ms": service.t0_s * 1000,
            "a_ms": service.a_s * 1000,
            "max_batch": service.max_batch,
            "instances": service.instances,
            "delay_ms": service.delay_s * 1000,
        },
        "slo_ms": law.slo_s * 1000,
        "start_delay_s": options.start_delay,
        "runs": [statistics.plain(result.outcome) for result in runs],
    }
    if fronts is not None:
        document["front"] = fronts
    return orjson.dumps(document, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)


def _table(points: dict[str, list[statistics.PolicyPoint]], marked: set[int]) -> str:
    rows = [("scenario", "policy", *(title for title, _, _ in _COLUMNS), *(["front"] if marked else []))]
    for name, scenario_points in points.items():
        for point in scenario_points:
            cells = []
            for _, field, form in _COLUMNS:
                value = point.mean(field)
                cells.append("-" if value is None or not math.isfinite(value) else form.format(value))
            rows.append((name, point.policy, *cells, *(["*" if id(point) in marked else ""] if marked else [])))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    aligned = (str.ljust, str.ljust, *([str.rjust] * (len(widths) - 2)))
    return "\n".join(
        "  ".join(align(cell, width) for align, cell, width in zip(aligned, row, widths, strict=True)).rstrip()
        for row in rows
    )


def _progress(text: str) -> None:
    """Show one line of progress on stderr, which overwrites the previous line.

    Nothing is shown if stderr is not a terminal.
    """
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\x1b[K{text}")
        sys.stderr.flush()
