"""Differences between the figures of two servers, each with a 95 % confidence interval."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from halcyon_measure.results.document import BenchDocument
from halcyon_measure.results.figure import Figure, unmeasured
from halcyon_measure.results.sections.comparison import Difference
from halcyon_measure.stats.student import MIN_VALUES, mean_interval

NO_DIFFERENCE = "no difference shown"


@dataclass(frozen=True)
class ComparedFigure:
    """Figure that is compared, and whether a larger value is better."""

    read: Callable[[BenchDocument], Figure | None]
    larger_is: str
    """Either `worse` or `better`."""


FIGURES: Mapping[str, ComparedFigure] = {
    "capacity": ComparedFigure(
        lambda document: document.capacity.rate if document.capacity is not None else None, "better"
    ),
    "throughput": ComparedFigure(lambda document: document.throughput, "better"),
    "mean": ComparedFigure(lambda document: document.latency.mean, "worse"),
    "p50": ComparedFigure(lambda document: document.latency.p50, "worse"),
    "p95": ComparedFigure(lambda document: document.latency.p95, "worse"),
    "p99": ComparedFigure(lambda document: document.latency.p99, "worse"),
    "cpu": ComparedFigure(lambda document: document.client.cpu_per_request, "worse"),
}
"""Figures that are compared, by name."""
_AT_ANY_RATE = frozenset({"throughput", "cpu"})
"""Figures that can be compared between different rates."""


def order(rounds: int) -> str:
    """Return the order in which the sides A and B run: AB, BA, AB, ...

    A steady drift then affects both sides equally.
    """
    return "".join("AB" if number % 2 == 0 else "BA" for number in range(rounds))


def of_rounds(baseline: Sequence[BenchDocument], candidate: Sequence[BenchDocument]) -> tuple[Difference, ...]:
    """Return the differences between two sides that have one document for each round.

    The two results of a round are paired, because they are close in time and have the same arrivals. The logarithms of
    their ratios are independent from round to round, and Student's t distribution gives the interval of their mean.
    """
    differences = []
    for name, figure in FIGURES.items():
        pairs = [
            (first, second)
            for baseline_round, candidate_round in zip(baseline, candidate, strict=True)
            if (first := figure.read(baseline_round)) is not None
            and (second := figure.read(candidate_round)) is not None
        ]
        if pairs:
            differences.append(_over_rounds(name, pairs))
    return tuple(differences)


def of_results(baseline: BenchDocument, candidate: BenchDocument) -> tuple[Difference, ...]:
    """Return the differences between two results of one run each, with intervals from the variation within the runs.

    The intervals don't cover variation from day to day. Steps on a served model that ended because clients were affected
    have different rates, so their latencies aren't compared.
    """
    differences = []
    in_steps = baseline.is_limited_by_clients and candidate.is_limited_by_clients
    for name, figure in FIGURES.items():
        if in_steps and name not in _AT_ANY_RATE:
            continue
        first, second = figure.read(baseline), figure.read(candidate)
        if first is not None and second is not None:
            differences.append(_difference(name, first, second, _change_of_runs(first, second)))
    return tuple(differences)


def _over_rounds(name: str, pairs: Sequence[tuple[Figure, Figure]]) -> Difference:
    values = [
        (first.value, second.value)
        for first, second in pairs
        if first.value is not None and second.value is not None and first.value > 0 and second.value > 0
    ]
    means = [_mean([pair[side] for pair in pairs]) for side in (0, 1)]
    if len(values) < len(pairs):
        # Rounds without a value are those in which a side failed, so a mean of the others would hide the failures.
        cause = (
            next((figure.reason for pair in pairs for figure in pair if figure.value is None), "") or "the figure is 0"
        )
        reason = f"in {len(pairs) - len(values)} of {len(pairs)} rounds, {cause}"
        return _difference(name, means[0], means[1], unmeasured("ratio", reason))
    logs = [math.log(second / first) for first, second in values]
    spread = mean_interval(logs)
    mean = math.fsum(logs) / len(logs)
    change = Figure(
        value=math.expm1(mean),
        unit="ratio",
        n=len(logs),
        interval=None if spread is None else (math.expm1(spread[0]), math.expm1(spread[1])),
        source="rounds in turns, Student's t over the logarithms of their ratios",
        reason="" if spread is not None else f"fewer than {MIN_VALUES} rounds, so there is no interval",
    )
    return _difference(name, means[0], means[1], change)


def _mean(figures: Sequence[Figure]) -> Figure:
    """Return the mean of a side's figure over its rounds; the first figure if no round has a value."""
    values = [figure.value for figure in figures if figure.value is not None]
    if not values:
        return figures[0]
    return figures[0].model_copy(
        update={
            "value": math.fsum(values) / len(values),
            "n": sum(figure.n for figure in figures),
            "interval": mean_interval(values),
            "source": f"mean of {len(values)} rounds",
            "reason": next((figure.reason for figure in figures if figure.reason), ""),
        }
    )


def _change_of_runs(first: Figure, second: Figure) -> Figure:
    if not first.value or not second.value or first.value <= 0 or second.value <= 0:
        reason = first.reason or second.reason or "the figure is 0"
        return unmeasured("ratio", reason)
    mean = math.log(second.value / first.value)
    interval = None
    if first.interval is not None and second.interval is not None and min(*first.interval, *second.interval) > 0:
        # Half the width of an interval is about two standard errors; those of independent runs add up by squares.
        half_widths = [
            math.log(figure.interval[1] / figure.interval[0]) / 2 for figure in (first, second) if figure.interval
        ]
        half_width = math.hypot(*half_widths)
        interval = (math.expm1(mean - half_width), math.expm1(mean + half_width))
    return Figure(
        value=math.expm1(mean),
        unit="ratio",
        n=1,
        interval=interval,
        source="one run each; the interval is from within the runs, without changes from day to day",
        reason="" if interval is not None else "one run each, of which one has no interval",
    )


def _difference(name: str, first: Figure, second: Figure, change: Figure) -> Difference:
    result = "not known"
    if change.interval is not None:
        low, high = change.interval
        result = "higher" if low > 0 else "lower" if high < 0 else NO_DIFFERENCE
    return Difference(figure=name, baseline=first, candidate=second, change=change, result=result)
