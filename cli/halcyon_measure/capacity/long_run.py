"""Long-run behaviour of a queueing law under random arrivals: late share, mean latency, and maximum rates."""

from __future__ import annotations

import math

import numpy as np

from halcyon_measure.capacity.queue_law import QueueLaw

_REQUESTS = 100_000
_REQUESTS_UNBATCHED = 400_000
_BURN_IN = 0.02
_STEPS = 14
_SLOPE_STEPS = (0.03, 0.01, 0.004)
_MAX_SLOPE_SHARE = 0.3
"""Maximum share of late requests for which the slope of the share is computed. Above it, the logarithm of the share no
longer grows linearly."""
_UNKNOWN_SLOPE = 20.0
_MAX_RATE_SHARE = 0.999
"""Maximum rate that is tried, as a share of the saturation rate."""


class LongRun:
    """Long simulated runs with one queueing law.

    All rates use the same random draws, so that the share of late requests changes smoothly with the rate.
    """

    def __init__(self, law: QueueLaw, *, objective_s: float, seed: int) -> None:
        self.law, self.objective_s = law, objective_s
        count = _REQUESTS if law.batch > 1 else _REQUESTS_UNBATCHED
        self._units = np.cumsum(np.random.default_rng(seed).exponential(1.0, count))
        self._late: dict[float, float] = {}

    def late(self, rate_rps: float) -> float:
        """Return the share of requests whose latency exceeds the objective."""
        share = self._late.get(rate_rps)
        if share is None:
            share = float(np.mean(self._latencies(rate_rps) > self.objective_s))
            self._late[rate_rps] = share
        return share

    def mean_s(self, rate_rps: float) -> float:
        """Return the mean latency in seconds."""
        return float(np.mean(self._latencies(rate_rps)))

    def capacity(self, share: float) -> float:
        """Return the maximum rate at which at most `share` of the requests are late; 0 if there is none."""
        low, high = 0.0, _MAX_RATE_SHARE * self.law.saturation_rps
        if self.late(high) <= share:
            return high
        for _ in range(_STEPS):
            middle = (low + high) / 2
            if self.late(middle) <= share:
                low = middle
            else:
                high = middle
        return low

    def slope(self, rate_rps: float) -> float:
        """Return the slope of the logarithm of the late share over the logarithm of the rate; it is at least 1."""
        # Near saturation, the share rises from 0 to 1 within one percent of the rate.
        for step in _SLOPE_STEPS:
            low, high = rate_rps * (1 - step), min(rate_rps * (1 + step), _MAX_RATE_SHARE * self.law.saturation_rps)
            if high <= low:
                continue
            below, above = self.late(low), self.late(high)
            if 0 < below < above < _MAX_SLOPE_SHARE:
                return max(math.log(above / below) / math.log(high / low), 1.0)
        return _UNKNOWN_SLOPE

    def knee(self) -> float:
        """Return the rate with the largest ratio of rate to mean latency.

        Above this rate, latency grows faster than throughput.
        """
        rates = [self.law.saturation_rps * float(share) for share in np.linspace(0.1, 0.98, 23)]
        return max(rates, key=lambda rate: rate / self.mean_s(rate))

    def _latencies(self, rate_rps: float) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        latencies = self.law.latencies(self._units / rate_rps)
        return latencies[int(_BURN_IN * len(latencies)) :]
