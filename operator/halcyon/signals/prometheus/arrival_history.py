"""History of a model's request rate over the past weeks, from Prometheus, as the planner's `History`.

This module builds the query and parses its result. There is one sample per bin of five minutes: the mean request rate
over the bin, with the time of its end. Times are in seconds since the epoch on Prometheus's clock, and are multiples of
the bin's length. A bin without data is unknown, never idle. Out of scope: running the query (`source`), and the use of
a history (`halcyon.scaling.planner.forecast.seasonality`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from halcyon.scaling.planner.forecast.seasonality import BIN_S, MAX_BINS, History

_BALANCERS = 'namespace="$namespace",pod=~"$name-balan(cer-([a-z0-9]+-)?)?[a-z0-9]+",cluster=~"$cluster"'
"""Matchers of a model's balancers, with labels of a PodMonitor.

The pattern allows for truncated pod names: if the name of a Deployment is long, Kubernetes cuts off its end and the
hash.
"""
ARRIVALS = (
    f"sum(rate(halcyon_agent_requests_total{{{_BALANCERS}}}[5m]))"
    f" - (sum(rate(halcyon_agent_client_retries_total{{{_BALANCERS}}}[5m])) or vector(0))"
    f' or sum(rate(haproxy_frontend_http_requests_total{{{_BALANCERS},proxy=~"http|grpc"}}[5m]))'
)
"""Default PromQL query for the requests per second to a model's balancers.

The agents count inference requests of users. HAProxy's counters also include batch inference, and requests for
readiness and metadata. They are used for times without series of the agents.
"""

Sample = tuple[float, float]
"""Sample of a model's request rate, as (time in seconds since the epoch, requests per second)."""

_MAX_OFF_GRID_S = 1.0


def query(template: str, *, namespace: str, name: str, cluster: str = "") -> str:
    """Return the PromQL query for one model: `template` with `$namespace`, `$name` and `$cluster` replaced."""
    filled = {"namespace": namespace, "name": name, "cluster": cluster_pattern(cluster)}
    return re.sub(r"\$(namespace|name|cluster)\b", lambda match: filled[match[1]], template)


def cluster_pattern(cluster: str) -> str:
    """Return a regular expression for the label `cluster` in the series of this cluster; it matches all without a name.

    It also matches series without the label. A cluster's own Prometheus may add the label only to the series that it
    sends elsewhere.
    """
    return "|" + cluster.replace(".", "[.]") if cluster else ".*"


def query_span(now: float) -> tuple[float, float]:
    """Return the times of the first and the last sample to query.

    The last sample is at the end of the last complete bin. There is one sample for each bin of a history.
    """
    end = now // BIN_S * BIN_S
    return end - (MAX_BINS - 1) * BIN_S, end


def parse(rows: Sequence[Mapping[str, Any]]) -> tuple[Sample, ...]:
    """Parse the result of a range query into samples, oldest first; empty if the result has no series.

    Raises:
        ValueError: the result has several series, which may count the same requests twice.
        ValueError, KeyError or TypeError: the rows are not the result of a range query.
    """
    if len(rows) > 1:
        raise ValueError(f"{len(rows)} series, exactly one is required; for example sum(rate(NAME[5m]))")
    return tuple((float(at), float(rate)) for row in rows for at, rate in row["values"])


def history(samples: Iterable[Sample]) -> History | None:
    """Build the history from samples in any order; None if none of them is valid.

    Implausible rates (negative, NaN, infinite) and samples that are not at the end of a bin are dropped. The function
    takes about 0.15 s for 15 days.
    """
    bins: dict[int, float] = {}
    for at, rate in samples:
        number = round(at / BIN_S)
        # The comparison is also false for NaN and infinity.
        if 0 <= rate < float("inf") and abs(at - number * BIN_S) <= _MAX_OFF_GRID_S:
            bins[number] = rate
    if not bins:
        return None
    newest = max(bins)
    oldest = max(min(bins), newest - MAX_BINS + 1)
    return History.of([bins.get(number) for number in range(oldest, newest + 1)], end=newest * BIN_S)
