"""Observation of one model at one time: time series merged from all agents that report on it.

Times are seconds of one monotonic clock, the operator's; the caller passes `now` from the same clock. An unknown
value is None in a point and `Missing` in a result, never zero. Counters are cumulative, start anywhere and never
fall: only differences are meaningful. Out of scope: targets and desired replicas.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from halcyon.api.documents.observation_report import Batches, PodState, SlotLatency

MAX_AGE_S = 10.0
"""Maximum age of a known value. Agents report at least every 5 s, so one lost report does no harm."""


@dataclass(frozen=True)
class Missing:
    """An unknown value, with the reason in words."""

    reason: str


@dataclass(frozen=True)
class Value:
    """A known value."""

    value: float
    at: float
    """Time of its newest sample."""


class Point(Protocol):
    """A sample with a time."""

    @property
    def at(self) -> float:
        """Return the time when it was taken."""


P = TypeVar("P", bound=Point)


@dataclass(frozen=True)
class PodPoint:
    """One sample of a pod."""

    at: float
    pending: float | None = None
    """Requests in Triton's queue."""
    gpu: float | None = None
    """GPU utilisation in percent, 0 to 100."""
    succeeded: float | None = None
    """Counter: requests answered."""
    failed: float | None = None
    """Counter: requests failed."""
    rows: float | None = None
    """Counter: batch items (rows) computed."""
    executions: float | None = None
    """Counter: batches computed."""
    queue_us: float | None = None
    """Counter: microseconds that requests waited in Triton."""
    compute_us: float | None = None
    """Counter: microseconds of computing."""


@dataclass(frozen=True)
class PodObservation:
    """One Triton pod, as the agents report it."""

    name: str
    state: PodState
    points: tuple[PodPoint, ...] = ()
    """Oldest first."""
    load_error: str | None = None
    versions: tuple[str, ...] = ()
    batches: Batches | None = None
    """Counters by batch size, as read last; they restart at zero with the pod's container. None if none was read."""

    @property
    def ready(self) -> bool:
        """Return whether the pod should take requests: ready in its EndpointSlice, even if no agent could read it."""
        return self.state in {"ready", "unreachable"}


@dataclass(frozen=True)
class BalancerPoint:
    """One sample of a balancer."""

    at: float
    queued: float
    """Requests in its queue."""
    inflight: float
    """Requests that servers are processing for it."""
    requests: float
    """Counter: requests received."""
    rejected: float
    """Counter: requests rejected."""
    errors: float
    """Counter: responses lost in transit."""
    counted_at: float
    """Time of the counters: growth counts once the next sample has confirmed it."""


@dataclass(frozen=True)
class BalancerObservation:
    """One balancer pod whose agent reports."""

    agent: str
    points: tuple[BalancerPoint, ...] = ()
    """Oldest first; none newer than `MAX_AGE_S` if its HAProxy does not respond."""
    latency: tuple[SlotLatency, ...] = ()
    """Latencies of the newest sample; reported while there are two slots. A restarted HAProxy counts from 0."""


@dataclass(frozen=True)
class Observation:
    """One model, with all agents and pods merged."""

    at: float
    """Time of the observation."""
    pods: tuple[PodObservation, ...] = ()
    balancers: tuple[BalancerObservation, ...] = ()
    """Balancers whose agents reported within `MAX_AGE_S`. A silent agent is left out, whether its pod or only its
    connection is gone."""
    silent: tuple[tuple[str, float], ...] = ()
    """Agents that stopped reporting, with the seconds since their last report."""


def fresh(points: Sequence[P], now: float, known: Callable[[P], float | None]) -> P | None:
    """Return the newest point for which `known` returns a value, if it is not older than `MAX_AGE_S`."""
    for point in reversed(points):
        if now - point.at > MAX_AGE_S:
            return None
        if known(point) is not None:
            return point
    return None


def mean(points: Sequence[P], now: float, window_s: float, known: Callable[[P], float | None]) -> float | None:
    """Return the mean over the last `window_s`, each value weighted by the time until the next point.

    Agents report on change, so a value holds until the next one (but no longer than `MAX_AGE_S`). A plain mean over
    samples would give five steady seconds the weight of a single change. Unknown values have no weight. Returns None
    if nothing in the window is known.
    """
    return mean_of_sum([points], now, window_s, known)


def mean_of_sum(
    series: Iterable[Sequence[P]], now: float, window_s: float, known: Callable[[P], float | None]
) -> float | None:
    """Return the mean over the last `window_s` of the sum of all series, over the time in which any of them is known.

    This is not the sum of the means. A series that begins within the window (a new balancer, which takes over part of
    the queue of the others) would count that part twice.
    """
    total = 0.0
    spans: list[tuple[float, float]] = []
    last: list[float] = []
    for points in series:
        newest_known = None
        for begin, end, value in _held(points, now, known):
            if end >= now - window_s:
                newest_known = value
            begin_in = max(begin, now - window_s)
            if end > begin_in:
                total += value * (end - begin_in)
                spans.append((begin_in, end))
        if newest_known is not None:
            last.append(newest_known)
    covered = _covered(spans)
    if covered > 0:
        return total / covered
    return sum(last) if last else None


def _held(points: Sequence[P], now: float, known: Callable[[P], float | None]) -> Iterable[tuple[float, float, float]]:
    """Yield (from, until, value) for each point that has a value."""
    for index, point in enumerate(points):
        value = known(point)
        if value is not None and point.at <= now:
            following = points[index + 1].at if index + 1 < len(points) else now
            yield point.at, min(following, now, point.at + MAX_AGE_S), value


def _covered(spans: list[tuple[float, float]]) -> float:
    """Return the length of the union of spans."""
    length, until = 0.0, -math.inf
    for begin, end in sorted(spans):
        length += max(end - max(begin, until), 0.0)
        until = max(until, end)
    return length


def rate(points: Sequence[P], now: float, window_s: float, counter: Callable[[P], float | None]) -> float | None:
    """Return a counter's increase per second over the last `window_s`; None with fewer than two points that know it.

    An increase within less than a second counts as that of one second: two reports sent at once must not look like a
    flood.
    """
    known = [(p.at, c) for p in points if p.at >= now - window_s and (c := counter(p)) is not None]
    if len(known) < 2 or known[-1][0] <= known[0][0]:
        return None
    return max(known[-1][1] - known[0][1], 0.0) / max(known[-1][0] - known[0][0], 1.0)


def total_rate(
    series: Iterable[Sequence[P]], now: float, window_s: float, counter: Callable[[P], float | None]
) -> float | None:
    """Return the sum of the known rates; None if there is none."""
    rates = [r for points in series if (r := rate(points, now, window_s, counter)) is not None]
    return sum(rates) if rates else None


def mean_batch(observation: Observation, window_s: float) -> float | None:
    """Return the rows per batch over the window, for all pods together; None if nothing ran or nothing is known."""
    series = [pod.points for pod in observation.pods]
    rows = total_rate(series, observation.at, window_s, lambda p: p.rows)
    executions = total_rate(series, observation.at, window_s, lambda p: p.executions)
    return rows / executions if rows is not None and executions else None


def request_rate(observation: Observation, window_s: float) -> float | None:
    """Return the requests per second that reached the balancers, including rejected ones; None if unknown."""
    return total_rate([b.points for b in observation.balancers], observation.at, window_s, lambda p: p.requests)


def newest(observation: Observation) -> float | None:
    """Return the time of the newest sample of any kind."""
    pods = [pod.points[-1].at for pod in observation.pods if pod.points]
    balancers = [balancer.points[-1].at for balancer in observation.balancers if balancer.points]
    return max(pods + balancers, default=None)
