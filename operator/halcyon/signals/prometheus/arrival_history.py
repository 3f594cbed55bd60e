"""Arrivals of the past weeks from Prometheus, as the planner's `History`: the query, and the meaning of its result.

There is one sample per bin: the mean rate of requests over the five minutes that end at its time. Times are seconds since the
epoch, multiples of a bin, by Prometheus's clock. Missing data is an unknown bin, never an idle one. Out of scope: running the
query (`source`), the use of a history (`halcyon.scaling.planner.forecast.seasonality`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from halcyon.scaling.planner.forecast.seasonality import BIN_S, MAX_BINS, History

ARRIVALS = (
    'sum(rate(haproxy_frontend_http_requests_total{namespace="$namespace",'
    'pod=~"$name-balancer-[a-z0-9]+-[a-z0-9]+",proxy=~"http|grpc"}[5m]))'
)
"""Requests per second that reached a model's balancers, as counted by HAProxy and labelled by a PodMonitor."""

Sample = tuple[float, float]
"""Time in seconds since the epoch, requests per second."""

_MAX_OFF_GRID_S = 1.0


def query(template: str, *, namespace: str, name: str) -> str:
    """Return the PromQL query for one model: `template` with `$namespace` and `$name` filled in."""
    filled = {"namespace": namespace, "name": name}
    return re.sub(r"\$(namespace|name)\b", lambda match: filled[match[1]], template)


def query_span(now: float) -> tuple[float, float]:
    """Return the times of the first and the last sample to query: the bins that a history keeps, up to the last closed one."""
    end = now // BIN_S * BIN_S
    return end - (MAX_BINS - 1) * BIN_S, end


def parse(rows: Sequence[Mapping[str, Any]]) -> tuple[Sample, ...]:
    """Return the samples in a range query's result, oldest first; none if there is no series.

    Raises:
        ValueError: there are several series, which may count the same requests twice.
        ValueError, KeyError or TypeError: they are not rows of a matrix.
    """
    if len(rows) > 1:
        raise ValueError(f"{len(rows)} series, exactly one is required; for example sum(rate(NAME[5m]))")
    return tuple((float(at), float(rate)) for row in rows for at, rate in row["values"])


def history(known: Iterable[Sample]) -> History | None:
    """Return the history of these samples, in any order; None if none of them is a rate.

    Implausible rates (negative, NaN, infinite) and samples between the ends of bins count as not known. Takes about 0.15 s for
    15 days.
    """
    bins: dict[int, float] = {}
    for at, rate in known:
        number = round(at / BIN_S)
        # NaN fails the comparison too, and infinity is no rate.
        if 0 <= rate < float("inf") and abs(at - number * BIN_S) <= _MAX_OFF_GRID_S:
            bins[number] = rate
    if not bins:
        return None
    newest = max(bins)
    oldest = max(min(bins), newest - MAX_BINS + 1)
    return History.of([bins.get(number) for number in range(oldest, newest + 1)], end=newest * BIN_S)
