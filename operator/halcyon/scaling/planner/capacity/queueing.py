"""Queueing formulae: how late requests are with n replicas that compute in batches.

Source: the decay rate of a queue with deterministic service, see `largest_load`. Inoue's bound (arXiv 1912.06322) and Erlang C
are means of one server and of servers without batches; neither gives the tail of a pool. Rates are per second, times in
seconds. `dispersion` is the variance of the number of arrivals over its mean (1 for Poisson).
"""

from __future__ import annotations

import math
from dataclasses import field

from halcyon.scaling.frozen import immutable

LATE_SHARE = 0.001
"""Share of the requests that may be late in steady state. It is a tenth of what a p99 objective allows: the rest is for effects
outside the formula, such as load changes and pods that start late."""
_RESIDUAL = 0.5
"""Average wait of a request for the batch ahead of it in its pod, in service times. With this value, the formula of
`largest_load` allows 99 % of the rate that simulation shows to be sustainable (the median over seven laws, 1 and 20 replicas
and objectives of 2.4, 4 and 8 batches). With an objective of 2.4 batches, up to 0.7 % of the requests are late at the allowed
rate; with larger ones, the share never exceeds `LATE_SHARE`."""
_MIN_BATCHES = 2.0
"""Batches that must fit in an objective: a request that arrives right after a batch has begun waits for all of it, and then has
its own. With less, a share of the requests is late however few they are, so batches must be smaller. Simulated for objectives
of 0.6 to 2 full batches: the result is the minimum number of replicas that holds, or a few percent more."""


@immutable(frozen=True, slots=True)
class ServiceLine:
    """Time of a batch of b rows on one instance: t0_s + row_s x b."""

    t0_s: float
    row_s: float

    def seconds(self, rows: float) -> float:
        """Return the time of one batch."""
        return self.t0_s + self.row_s * rows


@immutable(frozen=True, slots=True)
class Replica:
    """Capacity of one replica."""

    line: ServiceLine
    max_batch: int
    """Requests in the largest batch."""
    instances: int = 1
    batch_s: float = field(init=False, compare=False)
    """Time of a full batch."""
    peak_rps: float = field(init=False, compare=False)
    """Requests per second with full batches."""

    def __post_init__(self) -> None:
        """Precompute values that every decision uses several times."""
        batch_s = self.line.seconds(self.max_batch)
        object.__setattr__(self, "batch_s", batch_s)
        object.__setattr__(self, "peak_rps", self.instances * self.max_batch / batch_s)

    def slack_s(self, latency_s: float) -> float:
        """Return the part of an objective beyond a full batch and the wait for the one ahead; below 0 if they don't fit."""
        return latency_s - (1 + _RESIDUAL) * self.batch_s

    def within(self, latency_s: float) -> Replica:
        """Return the replica with batches small enough that two in a row fit the latency: the one ahead, and one's own.

        If not even two batches of one fit, it has batches of one.
        """
        line = self.line
        if _MIN_BATCHES * self.batch_s <= latency_s:
            return self
        fits = (latency_s / _MIN_BATCHES - line.t0_s) / line.row_s + 1e-9 if line.row_s > 0 else 1.0
        return Replica(line, int(min(max(fits, 1.0), self.max_batch)), self.instances)


def largest_load(peak_rps: float, slack_s: float, *, dispersion: float = 1.0, late: float = LATE_SHARE) -> float:
    """Return the highest share of `peak_rps` at which at most `late` of the requests wait longer than `slack_s`.

    Requests are served at the constant rate mu = peak_rps (all replicas together). The queue of arrivals with dispersion I
    against constant service has the tail exp(-x mu t / I), where x solves ln z = x, rho (z - 1) = ln z: the root of the M/D/1
    queue. The same root applies to batches of any size (each batch takes B at once and as many more arrive in its time). So x =
    I ln(1/late) / (mu t), and rho = x / (e^x - 1).
    """
    if slack_s <= 0 or peak_rps <= 0:
        return 0.0
    x = dispersion * math.log(1 / late) / (peak_rps * slack_s)
    return x / math.expm1(x) if x < 700 else 0.0


def rate_within(replicas: int, replica: Replica, latency_s: float, *, dispersion: float = 1.0) -> float:
    """Return the highest arrival rate that `replicas` serve within `latency_s`, except for `LATE_SHARE` of the requests."""
    sized = replica.within(latency_s)
    peak = replicas * sized.peak_rps
    return peak * largest_load(peak, sized.slack_s(latency_s), dispersion=dispersion)


def replicas_within(rate: float, replica: Replica, latency_s: float, *, dispersion: float = 1.0, most: int) -> int:
    """Return the minimum replicas that serve `rate` within `latency_s`; at most `most`, at least 1 if rate > 0."""
    if rate <= 0:
        return 0
    low, high = max(1, math.ceil(rate / replica.peak_rps)), most
    if low >= high:
        return most
    sized = replica.within(latency_s)
    each, slack_s = sized.peak_rps, sized.slack_s(latency_s)

    def within(count: int) -> float:
        peak = count * each
        return peak * largest_load(peak, slack_s, dispersion=dispersion)

    # Pools gain efficiency with size, so the answer is near the smallest possible one: gallop up, then bisect.
    step = 1
    while low + step < high and within(low + step) < rate:
        low, step = low + step, 2 * step
    high = min(low + step, high)
    while low < high:
        middle = (low + high) // 2
        if within(middle) < rate:
            low = middle + 1
        else:
            high = middle
    return low
