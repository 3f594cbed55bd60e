"""What is known about one model at one time: series of points with their times, merged from every agent that speaks.

Times are seconds of one monotonic clock, the operator's; the caller passes `now` in the same clock. A value that is not
known is None in a point and `Missing` in a result; it is never zero. Counters are cumulative, start somewhere and never
fall: only differences mean something. Not here: any target, any count that is wanted.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from halcyon.api.documents.observation_report import Batches, PodState, SlotLatency

FRESH_S = 10.0
"""A value older than this is not known any more. Agents speak at least every 5 s, so one lost record does no harm."""


@dataclass(frozen=True)
class Missing:
    """A value that is not known, with the reason in words."""

    reason: str


@dataclass(frozen=True)
class Value:
    """A value that is known."""

    value: float
    at: float
    """Time of the newest sample in it."""


class Point(Protocol):
    """A sample with a time."""

    @property
    def at(self) -> float:
        """When it was taken."""


P = TypeVar("P", bound=Point)


@dataclass(frozen=True)
class PodPoint:
    """One look at a pod."""

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
    """Counter: rows computed."""
    executions: float | None = None
    """Counter: batches computed."""
    queue_us: float | None = None
    """Counter: microseconds waited in Triton."""
    compute_us: float | None = None
    """Counter: microseconds of computing."""


@dataclass(frozen=True)
class PodObservation:
    """One Triton pod, as the agents see it."""

    name: str
    state: PodState
    points: tuple[PodPoint, ...] = ()
    """Oldest first."""
    load_error: str | None = None
    versions: tuple[str, ...] = ()
    batches: Batches | None = None
    """Counters by batch size, the newest read; they start anew with the pod's container. None where none was read."""

    @property
    def ready(self) -> bool:
        """Whether it should take requests: ready by its EndpointSlice, also where no agent could read it."""
        return self.state in {"ready", "unreachable"}


@dataclass(frozen=True)
class BalancerPoint:
    """One look at a balancer."""

    at: float
    queued: float
    """Requests that wait in it."""
    inflight: float
    """Requests that servers are working on for it."""
    requests: float
    """Counter: requests that reached it."""
    refused: float
    """Counter: requests that it refused."""
    errors: float
    """Counter: answers lost on the way."""
    counted_at: float
    """Of when the counters are: growth counts when the next look has confirmed it."""


@dataclass(frozen=True)
class BalancerObservation:
    """One balancer pod whose agent speaks."""

    agent: str
    points: tuple[BalancerPoint, ...] = ()
    """Oldest first; none newer than `FRESH_S` where its HAProxy does not answer."""
    latency: tuple[SlotLatency, ...] = ()
    """Of the newest; told while there are two slots. A HAProxy that starts anew counts from 0."""


@dataclass(frozen=True)
class Observation:
    """One model, all agents and pods together."""

    at: float
    """The time that this is true for."""
    pods: tuple[PodObservation, ...] = ()
    balancers: tuple[BalancerObservation, ...] = ()
    """Agents heard within `FRESH_S`. One that fell silent is left out, whether its pod is gone or only its voice."""
    silent: tuple[tuple[str, float], ...] = ()
    """Agents that fell silent, with the seconds since they were heard."""


def fresh(points: Sequence[P], now: float, known: Callable[[P], float | None]) -> P | None:
    """The newest point of which `known` knows the value, if it is not older than `FRESH_S`."""
    for point in reversed(points):
        if now - point.at > FRESH_S:
            return None
        if known(point) is not None:
            return point
    return None


def mean(points: Sequence[P], now: float, window_s: float, known: Callable[[P], float | None]) -> float | None:
    """Mean over the last `window_s`, each value weighted by the time until the next point.

    Agents send on change, so a value holds until the next one (but no longer than `FRESH_S`); a plain mean over samples
    would count five steady seconds as little as one of unrest. What is not known has no weight; None where nothing in
    the window is known.
    """
    return mean_of_sum([points], now, window_s, known)


def mean_of_sum(
    series: Iterable[Sequence[P]], now: float, window_s: float, known: Callable[[P], float | None]
) -> float | None:
    """Mean over the last `window_s` of what all series add up to, over the time in which any of them is known.

    Not the sum of the means: a series that begins within the window (a new balancer, which takes over a share of what
    waited elsewhere) would count that share twice.
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
    """(from, until, value) of each point that knows a value."""
    for index, point in enumerate(points):
        value = known(point)
        if value is not None and point.at <= now:
            following = points[index + 1].at if index + 1 < len(points) else now
            yield point.at, min(following, now, point.at + FRESH_S), value


def _covered(spans: list[tuple[float, float]]) -> float:
    """Length of the union of spans."""
    length, until = 0.0, -math.inf
    for begin, end in sorted(spans):
        length += max(end - max(begin, until), 0.0)
        until = max(until, end)
    return length


def rate(points: Sequence[P], now: float, window_s: float, counter: Callable[[P], float | None]) -> float | None:
    """Increase per second of a counter over the last `window_s`; None with fewer than two points that know it.

    An increase within less than a second counts as that of one second: two records sent at once must not read as a flood.
    """
    known = [(p.at, c) for p in points if p.at >= now - window_s and (c := counter(p)) is not None]
    if len(known) < 2 or known[-1][0] <= known[0][0]:
        return None
    return max(known[-1][1] - known[0][1], 0.0) / max(known[-1][0] - known[0][0], 1.0)


def total_rate(
    series: Iterable[Sequence[P]], now: float, window_s: float, counter: Callable[[P], float | None]
) -> float | None:
    """Sum of the rates that are known; None where none is."""
    rates = [r for points in series if (r := rate(points, now, window_s, counter)) is not None]
    return sum(rates) if rates else None


def mean_batch(observation: Observation, window_s: float) -> float | None:
    """Rows per batch over the window, all pods together; None where nothing ran or nothing is known."""
    series = [pod.points for pod in observation.pods]
    rows = total_rate(series, observation.at, window_s, lambda p: p.rows)
    executions = total_rate(series, observation.at, window_s, lambda p: p.executions)
    return rows / executions if rows is not None and executions else None


def request_rate(observation: Observation, window_s: float) -> float | None:
    """Requests per second that reached the balancers, refused ones included; None where it is not known."""
    return total_rate([b.points for b in observation.balancers], observation.at, window_s, lambda p: p.requests)


def newest(observation: Observation) -> float | None:
    """Time of the newest sample of any kind."""
    pods = [pod.points[-1].at for pod in observation.pods if pod.points]
    balancers = [balancer.points[-1].at for balancer in observation.balancers if balancer.points]
    return max(pods + balancers, default=None)
