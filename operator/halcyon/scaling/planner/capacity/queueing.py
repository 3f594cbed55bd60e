"""Queueing formulas: how many requests are late if n replicas compute them in batches.

Rates are in requests per second, times in seconds. `dispersion` is the variance of the number of arrivals over its mean
(1 for Poisson arrivals).

The formulas use the decay rate of a queue with deterministic service (see `largest_load`). The distribution of waiting
times is needed, and other known results don't give it: Inoue's bound (arXiv 1912.06322) is for the mean with one
server, and Erlang C is for servers without batches.
"""

from __future__ import annotations

import math
from dataclasses import field

from halcyon.scaling.frozen import immutable

LATE_SHARE = 0.001
"""Share of the requests that may be late in steady state. It is a tenth of the share that a p99 objective allows. The
rest is left for effects outside the formulas, such as load changes and pods that start late."""
_RESIDUAL = 0.5
"""Mean time that a request waits for the batch ahead of it in its pod, as a multiple of the time of a full batch.

With this value, `largest_load` allows 99 % of the rate that can be sustained in simulations. This is the median over
seven arrival distributions, 1 and 20 replicas, and objectives of 2.4, 4 and 8 times a full batch. With the objective of
2.4 times, up to 0.7 % of the requests are late at the allowed rate. With the longer objectives, at most `LATE_SHARE` of
the requests are late.
"""
_MIN_BATCHES = 2.0
"""Minimum latency objective, as a multiple of the time of a full batch. A request that arrives just after a batch has
begun waits for that batch to end, and is then computed in the next one.

If the objective is shorter, some requests are late even at the lowest rate, so smaller batches are assumed. In
simulations with objectives of 0.6 to 2 full batches, the result is the minimum number of replicas that meets the
objective, or a few percent more."""


@immutable(frozen=True, slots=True)
class ServiceLine:
    """Service time of one batch on one instance, as a linear function of its size.

    A batch with b rows takes t0_s + row_s x b seconds.
    """

    t0_s: float
    row_s: float

    def seconds(self, rows: float) -> float:
        """Return the seconds that a batch of `rows` rows takes on one instance."""
        return self.t0_s + self.row_s * rows


@immutable(frozen=True, slots=True)
class Replica:
    """Capacity of one replica of a model."""

    line: ServiceLine
    max_batch: int
    """Number of requests in the largest batch."""
    instances: int = 1
    residual: float = _RESIDUAL
    """Mean time that a request waits for the batch ahead of it, as a multiple of the time of a full batch. It is 0 if a
    pod executes many requests at once without batches (`answer_evidence`)."""
    batch_s: float = field(init=False, compare=False)
    """Seconds that a full batch takes."""
    peak_rps: float = field(init=False, compare=False)
    """Maximum rate of one replica, in requests per second. It is reached with full batches."""

    def __post_init__(self) -> None:
        """Compute `batch_s` and `peak_rps` once, because each decision reads these fields several times."""
        batch_s = self.line.seconds(self.max_batch)
        object.__setattr__(self, "batch_s", batch_s)
        object.__setattr__(self, "peak_rps", self.instances * self.max_batch / batch_s)

    def slack_s(self, latency_s: float) -> float:
        """Return how many seconds of a latency objective are left for queueing.

        The time of a full batch and the mean wait for the batch ahead are subtracted from the objective. The result is
        negative if their sum exceeds the objective.
        """
        return latency_s - (1 + self.residual) * self.batch_s

    def within(self, latency_s: float) -> Replica:
        """Return the replica with batches small enough that two in a row take no longer than the objective.

        The two batches are the one ahead of a request and the request's own. If even two batches of one request each
        take too long, the maximum batch size is 1.
        """
        line = self.line
        if _MIN_BATCHES * self.batch_s <= latency_s or not self.residual:
            return self
        fits = (latency_s / _MIN_BATCHES - line.t0_s) / line.row_s + 1e-9 if line.row_s > 0 else 1.0
        return Replica(line, int(min(max(fits, 1.0), self.max_batch)), self.instances)


def largest_load(peak_rps: float, slack_s: float, *, dispersion: float = 1.0, late: float = LATE_SHARE) -> float:
    """Return the highest utilisation at which at most a share `late` of the requests waits longer than `slack_s`.

    The utilisation rho is the arrival rate divided by mu = `peak_rps`, the constant service rate of all replicas
    together. Arrivals have the dispersion I. The formula is derived as follows:

        1. The share of requests that wait longer than t seconds is about exp(-x mu t / I).
        2. Here x = ln z, where z is the root of rho (z - 1) = ln z, as in the M/D/1 queue.
        3. Setting this share to `late` at t = `slack_s` gives x = I ln(1 / late) / (mu t).
        4. The equation for the root then gives rho = x / (e^x - 1).

    The same root holds for batches of any size B, because B times as many requests are served and arrive during one
    service.
    """
    if slack_s <= 0 or peak_rps <= 0:
        return 0.0
    x = dispersion * math.log(1 / late) / (peak_rps * slack_s)
    return x / math.expm1(x) if x < 700 else 0.0


def rate_within(replicas: int, replica: Replica, latency_s: float, *, dispersion: float = 1.0) -> float:
    """Return the highest rate at which `replicas` replicas answer requests within `latency_s`.

    At this rate, only the share `LATE_SHARE` of the requests takes longer.
    """
    sized = replica.within(latency_s)
    peak = replicas * sized.peak_rps
    return peak * largest_load(peak, sized.slack_s(latency_s), dispersion=dispersion)


def replicas_within(rate: float, replica: Replica, latency_s: float, *, dispersion: float = 1.0, most: int) -> int:
    """Return the fewest replicas that answer `rate` requests per second within `latency_s`.

    A share of `LATE_SHARE` of the requests may take longer. The result is at least 1 if the rate is above 0, and at
    most `most`.
    """
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

    # Larger pools are more efficient, so the result is usually near the lower bound. An exponential search finds a
    # range, then bisection finds the result.
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
