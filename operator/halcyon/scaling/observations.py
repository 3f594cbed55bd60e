"""Observation of one model at one time: time series merged from all agents that report on it.

All times, including `now`, are in seconds on the operator's monotonic clock. An unknown value is None in a sample and
`Missing` in a result, never zero. Counters start at any value and never fall, so only their differences are meaningful.
Out of scope: targets and desired replicas.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from halcyon.api.documents.observation_report import Batches, PodState, SlotLatency

MAX_AGE_S = 10.0
"""Age in seconds up to which a value is used. Agents report at least every 5 s, so a single lost report has no
effect."""


@dataclass(frozen=True)
class Missing:
    """Unknown value, with the reason why it is unknown."""

    reason: str


@dataclass(frozen=True)
class Value:
    """Known value, with the time of its data."""

    value: float
    at: float
    """Time of the newest sample that the value was computed from."""


class Point(Protocol):
    """Sample with the time at which it was taken."""

    @property
    def at(self) -> float:
        """Return the time at which the sample was taken."""


P = TypeVar("P", bound=Point)


@dataclass(frozen=True)
class PodPoint:
    """One sample of a Triton pod."""

    at: float
    pending: float | None = None
    """Number of requests in Triton's queue."""
    gpu: float | None = None
    """GPU utilisation in percent, 0 to 100."""
    succeeded: float | None = None
    """Counter of successful requests."""
    failed: float | None = None
    """Counter of failed requests. Requests that their clients canceled are not counted."""
    rows: float | None = None
    """Counter of batch items (rows) computed."""
    executions: float | None = None
    """Counter of batches computed."""
    queue_us: float | None = None
    """Total time that requests waited in Triton's queue (counter), in microseconds."""
    compute_us: float | None = None
    """Total compute time of requests (counter), in microseconds."""


@dataclass(frozen=True)
class PodObservation:
    """State and samples of one Triton pod, merged from the agents' reports."""

    name: str
    state: PodState
    points: tuple[PodPoint, ...] = ()
    """Samples of the pod, oldest first."""
    load_error: str | None = None
    versions: tuple[str, ...] = ()
    batches: Batches | None = None
    """Triton's counters by batch size, as last read; None if they were never read. They restart at zero with the
    container."""
    spent_us: int | None = None
    """Total execution time of all batches (counter), in microseconds, including sizes that are not in `batches`; None
    if it is unknown, for example because an older agent doesn't report it."""
    backend_failure: str | None = None
    """Failure of the pod's backend, as reported by an agent; None if there is none."""

    @property
    def ready(self) -> bool:
        """Return whether the pod is ready in its EndpointSlice, even if no agent can read its metrics."""
        return self.state in {"ready", "unreachable"}


@dataclass(frozen=True)
class BalancerPoint:
    """One sample of a balancer."""

    at: float
    queued: float
    """Number of requests in the balancer's queue."""
    inflight: float
    """Number of requests that the balancer has sent to servers and that are still unanswered."""
    requests: float
    """Counter of requests that the balancer received."""
    rejected: float
    """Counter of requests that the balancer rejected."""
    errors: float
    """Counter of responses that were lost between a server and the client."""
    counted_at: float
    """Time at which the counters had these values. It is the time of the previous sample, because an increase is
    counted only once the next sample confirms it."""
    unavailable: float = 0.0
    """Counter of requests that a server, rather than the balancer, rejected with HTTP 503 or gRPC UNAVAILABLE."""


@dataclass(frozen=True)
class BalancerObservation:
    """Samples of one balancer pod, as its agent reports them."""

    agent: str
    points: tuple[BalancerPoint, ...] = ()
    """Samples of the balancer, oldest first. While its HAProxy does not respond, no new samples are added."""
    latency: tuple[SlotLatency, ...] = ()
    """Latency histograms in the newest sample, reported only while the model has two Deployments (slots a and b). They
    restart at 0 with HAProxy."""


@dataclass(frozen=True)
class Observation:
    """Observation of one model, merged from the reports of all agents."""

    at: float
    """Time at which the observation was made."""
    pods: tuple[PodObservation, ...] = ()
    balancers: tuple[BalancerObservation, ...] = ()
    """Balancers whose agents reported within `MAX_AGE_S`. A working balancer is missing too if its agent has lost the
    connection to the operator."""
    silent: tuple[tuple[str, float], ...] = ()
    """Agents that haven't sent a report within `MAX_AGE_S`, as (agent, seconds since the last report)."""


def fresh(points: Sequence[P], now: float, getter: Callable[[P], float | None]) -> P | None:
    """Return the newest point for which `getter` returns a value.

    Return None if there is no such point or if it is older than `MAX_AGE_S`.
    """
    for point in reversed(points):
        if now - point.at > MAX_AGE_S:
            return None
        if getter(point) is not None:
            return point
    return None


def mean(points: Sequence[P], now: float, window_s: float, getter: Callable[[P], float | None]) -> float | None:
    """Return the time-weighted mean of a value over the last `window_s`; None if no value in the window is known.

    Agents report when a value changes, so each value applies until the next one, but at most for `MAX_AGE_S`. A plain
    mean would give a value that lasted five seconds the same weight as one that lasted one second. Unknown values have
    no weight.
    """
    return mean_of_sum([points], now, window_s, getter)


def mean_of_sum(
    series: Iterable[Sequence[P]], now: float, window_s: float, getter: Callable[[P], float | None]
) -> float | None:
    """Return the time-weighted mean of the sum of all series over the last `window_s`; None if no value is known.

    Only the time in which at least one series has a known value counts.

    Adding up the means of the single series would be wrong. If a new balancer takes over a part of another balancer's
    queue within the window, this part would count twice.
    """
    total = 0.0
    spans: list[tuple[float, float]] = []
    last: list[float] = []
    for points in series:
        newest_known = None
        for begin, end, value in _runs(points, now, getter):
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


def _runs(points: Sequence[P], now: float, getter: Callable[[P], float | None]) -> Iterable[tuple[float, float, float]]:
    """Yield (begin, end, value) for each point with a known value, which applies from `begin` to `end`."""
    for index, point in enumerate(points):
        value = getter(point)
        if value is not None and point.at <= now:
            following = points[index + 1].at if index + 1 < len(points) else now
            yield point.at, min(following, now, point.at + MAX_AGE_S), value


def _covered(spans: list[tuple[float, float]]) -> float:
    """Return the total length of the spans. Time that several spans cover counts only once."""
    length, until = 0.0, -math.inf
    for begin, end in sorted(spans):
        length += max(end - max(begin, until), 0.0)
        until = max(until, end)
    return length


def rate(points: Sequence[P], now: float, window_s: float, counter: Callable[[P], float | None]) -> float | None:
    """Return a counter's increase per second over the last `window_s`; None if fewer than two points have its value.

    Points less than a second apart count as one second apart, so that two reports in quick succession do not look like
    a surge.
    """
    samples = [(p.at, c) for p in points if p.at >= now - window_s and (c := counter(p)) is not None]
    if len(samples) < 2 or samples[-1][0] <= samples[0][0]:
        return None
    return max(samples[-1][1] - samples[0][1], 0.0) / max(samples[-1][0] - samples[0][0], 1.0)


def total_rate(
    series: Iterable[Sequence[P]], now: float, window_s: float, counter: Callable[[P], float | None]
) -> float | None:
    """Return the sum of a counter's rates over all series whose rate is known; None if no rate is known."""
    rates = [r for points in series if (r := rate(points, now, window_s, counter)) is not None]
    return sum(rates) if rates else None


def mean_batch(observation: Observation, window_s: float) -> float | None:
    """Return the mean rows per batch of all pods over the last `window_s`; None if no batch ran or none is known."""
    series = [pod.points for pod in observation.pods]
    rows = total_rate(series, observation.at, window_s, lambda p: p.rows)
    executions = total_rate(series, observation.at, window_s, lambda p: p.executions)
    return rows / executions if rows is not None and executions else None


def newest(observation: Observation) -> float | None:
    """Return the time of the newest sample of any pod or balancer; None if there is no sample."""
    pods = [pod.points[-1].at for pod in observation.pods if pod.points]
    balancers = [balancer.points[-1].at for balancer in observation.balancers if balancer.points]
    return max(pods + balancers, default=None)
