"""Arrivals of the past weeks from a Prometheus, as the planner's `History`: the question, and what its answer means.

One sample per bin: the mean rate of requests over the five minutes that end at its time. Times are seconds since the epoch,
multiples of a bin, by Prometheus's clock. What Prometheus doesn't know is an unknown bin, never an idle one. Not here: how
it is asked (`prometheus`), what a history is good for (`halcyon.scaling.planner.forecast.seasonality`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from halcyon.scaling.planner.forecast.seasonality import BIN_S, KEEP, History

ARRIVALS = (
    'sum(rate(haproxy_frontend_http_requests_total{namespace="$namespace",'
    'pod=~"$name-balancer-[a-z0-9]+-[a-z0-9]+",proxy=~"http|grpc"}[5m]))'
)
"""Requests per second that reached a model's balancers, as HAProxy counts them and a PodMonitor names them."""

Sample = tuple[float, float]
"""Time in seconds since the epoch, requests per second."""

_OFF_GRID_S = 1.0


def question(template: str, *, namespace: str, name: str) -> str:
    """The PromQL expression for one model: `template` with `$namespace` and `$name` filled in."""
    filled = {"namespace": namespace, "name": name}
    return re.sub(r"\$(namespace|name)\b", lambda found: filled[found[1]], template)


def span(now: float) -> tuple[float, float]:
    """Times of the first and the last sample to ask for: as many whole bins as a history keeps, to the last that closed."""
    end = now // BIN_S * BIN_S
    return end - (KEEP - 1) * BIN_S, end


def samples(rows: Sequence[Mapping[str, Any]]) -> tuple[Sample, ...]:
    """The samples of a range query's answer, oldest first; none where there is no series.

    Raises:
        ValueError: several series: which of them are requests, and which the same ones again, can't be known from here.
        ValueError, KeyError or TypeError: where they are not rows of a matrix.
    """
    if len(rows) > 1:
        raise ValueError(f"{len(rows)} series, of which one is needed; good: sum(rate(NAME[5m]))")
    return tuple((float(at), float(rate)) for row in rows for at, rate in row["values"])


def history(known: Iterable[Sample]) -> History | None:
    """The history of these samples, whatever their order; None where none of them is a rate.

    Rates that can't be true (negative, NaN, infinite) and samples between the ends of bins count as not known.
    Takes about 0.15 s for 15 days.
    """
    bins: dict[int, float] = {}
    for at, rate in known:
        number = round(at / BIN_S)
        # NaN fails the comparison too, and infinity is no rate.
        if 0 <= rate < float("inf") and abs(at - number * BIN_S) <= _OFF_GRID_S:
            bins[number] = rate
    if not bins:
        return None
    newest = max(bins)
    oldest = max(min(bins), newest - KEEP + 1)
    return History.of([bins.get(number) for number in range(oldest, newest + 1)], end=newest * BIN_S)
