"""Sections `capacity`, `sweep` and `comparison` as text, at most 80 columns wide. Pure."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping, Sequence

from halcyon_measure.results.figure import Figure
from halcyon_measure.results.number_text import count_text, number, signed_percent
from halcyon_measure.results.sections.capacity import Capacity
from halcyon_measure.results.sections.comparison import ComparedSide, Comparison, Difference, LeaderboardRow
from halcyon_measure.results.sections.sweep import Sweep

_NAME, _FIGURE = 20, 10
"""Widths of the name column and the figure columns of a leaderboard, in characters."""
_KEPT = {True: "kept", False: "not kept", None: "-"}


def capacity(section: Capacity) -> list[str]:
    """Return a table of the runs of a search, and its other results."""
    tail = f"p{100 * section.percentile:g}"
    lines = [f"{'run':<14}{'load':<18}{'s':>5}{'answers/s':>11}{tail + ', ms':>12}{'late, %':>9}{'blocks':>8}"]
    for run in section.runs:
        load = f"{number(run.rate_rps)} requests/s" if run.rate_rps is not None else count_text(run.callers, "caller")
        late = None if run.late.value is None else 100 * run.late.value
        kept = "" if run.rate_rps is None or section.objective_ms is None else f"  {_KEPT[run.kept]}"
        lines.append(
            f"{run.purpose:<14}{load:<18}{run.seconds:>5.0f}{number(run.throughput.value):>11}"
            f"{number(run.latency.value):>12}{number(late):>9}{run.blocks or '-':>8}{kept}"
        )
    lines.append("")
    for name, figure in (("one caller", section.single), ("saturation", section.saturation), ("knee", section.knee)):
        lines += textwrap.wrap(_figure(figure), 80, initial_indent=f"{name:<12}", subsequent_indent=" " * 12)
    return lines


def comparison(section: Comparison) -> list[str]:
    """Return a table of the differences, or of the leaderboard, with the reasons for missing values."""
    lines: list[str] = []
    if section.baseline is not None and section.candidate is not None:
        lines += _difference_table(section, section.baseline, section.candidate)
    lines += _leaderboard(section.leaderboard)
    for reason, names in _reasons(section).items():
        lines += textwrap.wrap(f"{', '.join(names)}: {reason}", 80)
    for phrase in section.unlike:
        lines += textwrap.wrap(f"unlike    {phrase}", 80, subsequent_indent=" " * 10)
    for bound in section.bounds:
        outcome = "FAILED" if bound.failed else "NOT DECIDED" if bound in section.undecided else "not shown"
        lines += textwrap.wrap(f"{bound.text}: {outcome}; {bound.evidence}", 80)
    return lines


def _difference_table(section: Comparison, baseline: ComparedSide, candidate: ComparedSide) -> list[str]:
    sides = f"A {baseline.name}, B {candidate.name}, rounds {section.order or 'not in turns'}"
    heading = f"{'':<12}{'A':>10}{'B':>10}{'change':>9}  {'95 % interval':<18}"
    return [*textwrap.wrap(sides, 80), "", heading, *map(_difference_row, section.differences)]


def _difference_row(difference: Difference) -> str:
    change, interval = difference.change.value, difference.change.interval
    change_text = "-" if change is None else f"{change:+.1%}"
    interval_text = "-" if interval is None else f"[{interval[0]:+.1%}, {interval[1]:+.1%}]"
    return (
        f"{difference.figure:<12}{number(difference.baseline.value):>10}{number(difference.candidate.value):>10}"
        f"{change_text:>9}  {interval_text:<18}  {difference.result}"
    )


_RANKED: Mapping[str, Callable[[LeaderboardRow], Figure]] = {
    "requests/s": lambda row: row.rate,
    "p99, ms": lambda row: row.p99,
    "cost/1000": lambda row: row.cost_per_thousand,
    "J": lambda row: row.energy_per_inference,
    "mg CO2": lambda row: row.carbon_per_inference,
    "accuracy": lambda row: row.accuracy,
}
"""Columns of a leaderboard, with the figure that each shows."""


def _leaderboard(rows: Sequence[LeaderboardRow]) -> list[str]:
    if not rows:
        return []
    heading = f"{'':<{_NAME}}" + "".join(f"{head:>{_FIGURE}}" for head in _RANKED)
    return [heading, *(line for row in rows for line in _leaderboard_row(row))]


def _leaderboard_row(row: LeaderboardRow) -> list[str]:
    cells = "".join(f"{number(figure(row).value):>{_FIGURE}}" for figure in _RANKED.values())
    # A longer name has a line of its own, because a cut one may be that of another row.
    return [f"{row.name:<{_NAME}}{cells}"] if len(row.name) < _NAME else [row.name, f"{'':<{_NAME}}{cells}"]


def _reasons(section: Comparison) -> dict[str, list[str]]:
    """Return the reasons for missing values, each with the names of the figures that it concerns."""
    missing: list[tuple[str, str]] = []
    if section.baseline is not None and section.candidate is not None:
        missing += [(entry.change.reason, entry.figure) for entry in section.differences if entry.change.reason]
    missing += [
        (figure(row).reason, head)
        for row in section.leaderboard
        for head, figure in _RANKED.items()
        if figure(row).value is None
    ]
    reasons: dict[str, list[str]] = {}
    for reason, name in dict.fromkeys(missing):
        reasons.setdefault(reason, []).append(name)
    return reasons


def sweep(section: Sweep) -> list[str]:
    """Return a table with the points of a sweep, and a table with the cost of payloads."""
    heads = (("answers/s", 9), ("rows/s", 9), ("p50, ms", 8), ("p99, ms", 8), ("CPU, us", 8), ("failed", 7))
    named = [("rows", "form", "load")]
    named += [
        (
            point.rows,
            point.form,
            f"{number(point.rate_rps)}/s" if point.rate_rps is not None else count_text(point.callers, "caller"),
        )
        for point in section.points
    ]
    widths = [max(map(len, column)) + 1 for column in zip(*named, strict=True)]
    names = ["".join(f"{text:<{width}}" for text, width in zip(row, widths, strict=True)) for row in named]
    lines = [names[0] + "".join(f"{head:>{width}}" for head, width in heads)]
    for name, point in zip(names[1:], section.points, strict=True):
        figures = (point.throughput, point.rows_per_second, point.p50, point.p99, point.cpu_per_request)
        cells = "".join(f"{number(figure.value):>{width}}" for figure, (_, width) in zip(figures, heads, strict=False))
        lines.append(f"{name}{cells}{point.failed:>7}" + ("" if point.valid else "!"))
    for reason in dict.fromkeys(reason for point in section.points for reason in point.invalid_because):
        lines += textwrap.wrap(f"!: not valid, {reason}", 80)
    lines += _second_engine(section, names)
    if section.payloads:
        lines += ["", f"{'payload':<10}{'rows':<6}{'bytes':>10}{'write, us':>11}{'read, us':>10}"]
    for cost in section.payloads:
        lines.append(
            f"{cost.form:<10}{cost.rows:<6}{number(cost.size.value):>10}{number(cost.write.value):>11}"
            f"{number(cost.read.value):>10}"
        )
    for reason in dict.fromkeys(cost.size.reason for cost in section.payloads if cost.size.value is None):
        lines += textwrap.wrap(f"-: {reason}", 80)
    return lines


def _second_engine(section: Sweep, names: Sequence[str]) -> list[str]:
    """Return a table with the second engine's results at the points of a sweep; empty if there is no second engine.

    `names` are the heading and the names of the points.
    """
    judged = [
        (name, point.second_engine)
        for name, point in zip(names[1:], section.points, strict=True)
        if point.second_engine is not None
    ]
    if not judged:
        return []
    heads = (("answers/s", 11), ("", 9), ("p50, ms", 9), ("", 9), ("p99, ms", 9), ("", 9))
    lines = ["", f"{judged[0][1].engine} {judged[0][1].version}, with the difference from halcyon, from send:"]
    lines.append(names[0] + "".join(f"{head:>{width}}" for head, width in heads))
    for name, engine in judged:
        texts = [
            text
            for entry in (engine.throughput, engine.p50, engine.p99)
            for text in (number(entry.other.value), signed_percent(entry.relative.value))
        ]
        lines.append(name + "".join(f"{text:>{width}}" for text, (_, width) in zip(texts, heads, strict=True)))
    for reason in dict.fromkeys(engine.reason for _, engine in judged if engine.reason):
        lines += textwrap.wrap(f"-: {reason}", 80)
    return lines


def _figure(figure: Figure) -> str:
    if figure.value is None:
        return f"- ({figure.reason})"
    return f"{number(figure.value)} {figure.unit}" + (f" ({figure.reason})" if figure.reason else "")
