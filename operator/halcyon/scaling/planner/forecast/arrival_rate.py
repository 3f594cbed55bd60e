"""The arrival rate now and soon, from a counter: quick on a step, steady under noise, not misled by a single burst.

The memory is a few hundred (time, counter) pairs. Out of scope: seasons (`seasonality`), spikes that repeat
(`recurring_spikes`).
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import field
from itertools import pairwise

from halcyon.scaling.frozen import immutable
from halcyon.scaling.planner.forecast.dispersion import Dispersion

_WINDOWS_S = (0.9, 2.0, 4.0, 8.0, 15.0, 30.0)
"""Shorter windows that may prove a higher rate. The shortest is the interval between two agent reports (a second, less its
jitter); each next one is about twice as long."""
_LONG_S = 60.0
"""Shortest window that may lower the rate. Autoscalers usually use this length (KPA, Cortex)."""
_CALM_S = (900.0, 480.0, 240.0, 120.0)
"""Longer windows, whose mean is the rate of a constant load. The longest is as long as samples are kept."""
_AGREE_SIGMAS = 2.0
"""Standard errors of a window's mean (95 %) within which it agrees with longer ones. 1.5 to 3 give the same table of scenarios.
"""
_SIGMAS = 5.0
"""Standard errors by which a shorter window must exceed the long ones to override them. There are six windows, and a sample
every second: with 20 % noise in each second, 3.5 standard errors (once in 4,300 samples) gave a false step every few hours. A
step that needs another replica reaches 5 within seconds."""
_SURE_SIGMAS = 2.0
"""Standard errors of the rate that do not justify more replicas in the first seconds: 95 %. With one, one start in six is
wrong."""
_UNKNOWN_NOISE = 0.2
"""Deviation of the arrivals in a second, as a share of their mean, that is assumed possible until the noise is known. At high
rates, a few similar seconds in a row made noise look like a step; at low rates, chance alone is as large. With 0.25, steps in
the first half minute are detected later."""
_LIKELY = 1.65
"""Confidence with which forecasts are judged, in standard errors: 95 %, because a single judgement moves little."""
_FINE_S = _LONG_S + 10.0
"""Age up to which fine samples are kept: a lost report must not shorten the long window."""
_COARSE_S = 900.0
"""Age up to which coarse samples are kept: four times the start time of the slowest usual pod, for its trend."""
_COARSE_INTERVAL_S = 5.0
"""Grid of coarse samples: the first sample after each whole multiple is kept, because an agent is silent for no longer. The
grid follows the clock and not the previous sample. Otherwise models with the same load would detect a trend at times up to one
interval apart."""
_TREND_BLOCKS = 7
"""Number of blocks in a trend: the minimum at which the median of the increases ignores a step."""
_TREND_SIGMAS = 5.0
"""Standard errors by which a line through the blocks must rise to be extrapolated, because trends are tested continuously, in
five spans. A line at 5 standard errors separates a rise from noise as well as the last block minus the first at 4, with a
hundredth of the errors."""
_BEFORE_SIGMAS = 3.0
"""The same threshold without the last block: a step that has just begun lies only in that block."""
_ENDS_SIGMAS = 2.0
"""Standard errors by which the last block must exceed the first for a span to be tested. Only one proven rise in 2,500 has
less."""
_STEP_BLOCKS = 3
"""Minimum number of blocks in which a step is searched."""
_TREND_SPANS = (0.25, 0.5, 1.0, 2.0, 4.0)
"""Spans in which a trend is searched, as multiples of the horizon."""
_MIN_TREND_S = 60.0
"""Minimum span of a trend."""
_STEP_SIGMAS = 2.0
"""Standard errors by which a step must explain the blocks better than a line to be accepted as a step."""
_MEDIAN_ERROR = 0.5
"""Share of a block's deviation that is subtracted from the slope: two thirds of the standard error of the median of six
neighbouring differences, 0.72 (computed). Subtracting all of it misses rises no longer than a start."""


@immutable(frozen=True, slots=True)
class ArrivalRate:
    """Memory of the arrival counter. Restarts of the counting process are bridged."""

    times: tuple[float, ...] = ()
    """Times of the fine samples, ascending."""
    counts: tuple[float, ...] = ()
    """Counter at those times, continued over restarts."""
    coarse_times: tuple[float, ...] = ()
    coarse_counts: tuple[float, ...] = ()
    raw: float | None = None
    """Counter as read last."""
    spread: Dispersion = field(default_factory=Dispersion)
    last_at: float | None = None
    """Time of the last request, as far as known."""
    since: float | None = None
    """Time of the first sample."""
    _rate: float | None = field(default=math.nan, init=False, repr=False, compare=False)
    """Cached result of `rate`; NaN before the first call. A decision uses it three times."""
    _begins: tuple[tuple[float, float], ...] | None = field(default=None, init=False, repr=False, compare=False)
    """Cached result of `_since_long`; it only changes with a coarse sample."""
    _ends: tuple[float, tuple[tuple[float, float, float], ...]] | None = field(
        default=None, init=False, repr=False, compare=False
    )
    """Horizon of the last call of `rising`, with (span, arrivals in its first block, in its last) for the spans that samples
    cover. They only change with a coarse sample. Usually there is no rise, and nothing else is computed."""

    def with_sample(self, at: float, counter: float, *, block_s: float) -> ArrivalRate:
        """Return the memory with one more sample; one that is not newer than the last changes nothing.

        If the clock was set back by more than a minute, the memory starts from scratch: waiting for the clock to catch up would
        leave the planner without a rate.

        `block_s` is the horizon over which bursts matter: about the latency objective.
        """
        if self.raw is None or not self.times or at < self.times[-1] - _LONG_S:
            return ArrivalRate((at,), (0.0,), (at,), (0.0,), counter, self.spread.beginning(at), since=at)
        if at <= self.times[-1]:
            return self
        # A counter that fell was reset: its present value arrived since.
        increase = counter - self.raw if counter >= self.raw else counter
        total = self.counts[-1] + increase
        first = bisect_right(self.times, at - _FINE_S)
        coarse_times, coarse_counts = self.coarse_times, self.coarse_counts
        if at // _COARSE_INTERVAL_S > coarse_times[-1] // _COARSE_INTERVAL_S:
            keep = bisect_right(coarse_times, at - _COARSE_S)
            coarse_times, coarse_counts = (*coarse_times[keep:], at), (*coarse_counts[keep:], total)
        result = ArrivalRate(
            (*self.times[first:], at),
            (*self.counts[first:], total),
            coarse_times,
            coarse_counts,
            counter,
            self.spread.with_count(at, total, block_s),
            at if increase > 0 else self.last_at,
            self.times[0] if self.since is None else self.since,
        )
        if coarse_times is self.coarse_times:
            object.__setattr__(result, "_begins", self._begins)
            object.__setattr__(result, "_ends", self._ends)
        return result

    def with_last(self, at: float) -> ArrivalRate:
        """Return the memory with another time of the last request."""
        if at == self.last_at:
            return self
        result = ArrivalRate(
            self.times,
            self.counts,
            self.coarse_times,
            self.coarse_counts,
            self.raw,
            self.spread,
            at,
            self.since,
        )
        object.__setattr__(result, "_rate", self._rate)
        object.__setattr__(result, "_begins", self._begins)
        object.__setattr__(result, "_ends", self._ends)
        return result

    def rate(self) -> float | None:
        """Return requests per second now: the calm mean, or a higher rate proven by a shorter window.

        The calm mean covers the longest time that no later window contradicts. From 15 minutes down to one, each shorter window
        moves the rate into its own confidence interval. Under constant load the rate is thus stable, while the mean of a minute
        would wander. A falling load lowers it within that minute.

        Of the windows within that minute that prove more than the calm mean, the one that proves the highest rate moves it into
        its own interval as well. A step is thus known within seconds, and never overestimated. The result is monotone in the
        last count: of two windows, the shorter one gains more from it. None with fewer than two samples.
        """
        known = self._rate
        if known is not None and math.isnan(known):
            known = self._measured()
            object.__setattr__(self, "_rate", known)
        return known

    def _measured(self) -> float | None:
        times, counts = self.times, self.counts
        if len(times) < 2:
            return None
        now, total = times[-1], counts[-1]
        if total <= counts[0]:
            return 0.0  # nothing has arrived, so no window proves anything
        spread = self.spread.doubt
        proven = rate = self._calm(now, total, spread)
        if not self.spread.is_known:
            spread = max(spread, _UNKNOWN_NOISE**2 * rate)
        high = len(times)
        for window in reversed(_WINDOWS_S):
            index = max(bisect_right(times, now - window, 0, high) - 1, 0)
            span, count = now - times[index], total - counts[index]
            if span <= 0 or count <= 0:
                continue
            error = math.sqrt(spread * count)
            bound = (count - _SIGMAS * error) / span
            if bound > proven:
                proven, rate = bound, (count - _AGREE_SIGMAS * error) / span
        return rate

    def _calm(self, now: float, total: float, spread: float) -> float:
        """Return the mean of the longest time that no later window contradicts, in requests/s; the minute isn't empty."""
        (at, count), *later = (*self._since_long(), self._begin(now - _LONG_S))
        rate = (total - count) / max(now - at, 1.0)
        for at, count in later:
            seen, span = total - count, max(now - at, 1.0)
            error = _AGREE_SIGMAS * math.sqrt(spread * seen)
            low, high = (seen - error) / span, (seen + error) / span
            if rate < low:
                rate = low
            elif rate > high:
                rate = high
        return rate

    def _since_long(self) -> tuple[tuple[float, float], ...]:
        """Return (time, counter) at the start of the windows `_CALM_S`, or of the samples that are kept."""
        if self._begins is None:
            times, counts = self.coarse_times, self.coarse_counts
            indexes = (max(bisect_right(times, times[-1] - window) - 1, 0) for window in _CALM_S)
            object.__setattr__(self, "_begins", tuple((times[index], counts[index]) for index in indexes))
        return self._begins or ()

    def sure(self) -> float:
        """Return the share of the rate that justifies more replicas: 1 from a minute on.

        The replicas running at the first requests were presumably chosen for a reason, and a few seconds prove little against
        them. So two standard errors are subtracted from the rate at first, and less with every second.
        """
        if len(self.times) < 2:
            return 1.0
        young = 1.0 - self.seen_s() / _LONG_S
        seen = self.counts[-1] - self.coarse_counts[0]
        if young <= 0 or seen <= 0:
            return 1.0
        spread = self.spread.doubt
        if not self.spread.is_seen:
            spread = max(spread, _UNKNOWN_NOISE**2 * seen / self.seen_s())
        # A factor, which leaves part of even the first request.
        return 1.0 / (1.0 + _SURE_SIGMAS * young * math.sqrt(spread / seen))

    def seen_s(self) -> float:
        """Return the seconds that the samples cover."""
        return self.times[-1] - self.coarse_times[0] if self.times else 0.0

    def error(self) -> float:
        """Return the standard error of the rate of a minute, in requests per second."""
        if len(self.times) < 2:
            return 0.0
        span, count = self._since(self.times[-1], self.counts[-1], _LONG_S)
        return math.sqrt(self.spread.doubt * count) / max(span, 1.0)

    def proven(self, window_s: float) -> float:
        """Return the rate that the last `window_s` prove with 95 % confidence: anything above it may be chance."""
        if self._is_empty:
            return 0.0
        span, count = self._since(self.times[-1], self.counts[-1], window_s)
        return max(count - _LIKELY * math.sqrt(self.spread.doubt * count), 0.0) / max(span, 1.0)

    def mean(self, window_s: float) -> float:
        """Return the requests per second of the last `window_s`, max one minute; 0 with fewer than two samples."""
        if self._is_empty:
            return 0.0
        span, count = self._since(self.times[-1], self.counts[-1], window_s)
        return count / max(span, 1.0)

    @property
    def _is_empty(self) -> bool:
        """Return whether no request arrived in any window of the fine samples."""
        return not self.counts or self.counts[-1] <= self.counts[0]

    def _since(self, now: float, total: float, window_s: float) -> tuple[float, float]:
        """Return (seconds, arrivals) since the newest sample that is at least `window_s` old, or the oldest one."""
        at, count = self._begin(now - window_s)
        return now - at, total - count

    def _begin(self, when: float) -> tuple[float, float]:
        """Return (time, counter) of the newest fine sample that isn't after `when`, or of the oldest one."""
        index = max(bisect_right(self.times, when) - 1, 0)
        return self.times[index], self.counts[index]

    def rising(self, horizon_s: float) -> float | None:
        """Return the rate `horizon_s` from now if a steady rise continues; None if there is no rise.

        It tests spans from 0.25 to 4 times the horizon, extrapolates none beyond its own length, and takes the highest proven
        rate. A span is cut into seven blocks; the slope is the median of the six increases, minus its standard error. A trend
        exists if a line through the blocks rises by more than chance, and no step explains them, or the last of them, better.
        The result is monotone in the last count.
        """
        if len(self.coarse_times) < 2 or self.coarse_counts[-1] <= self.coarse_counts[0]:
            return None  # nothing has arrived, so nothing rises
        spread = self.spread.doubt
        rates = []
        for span, first, last in self._spans(horizon_s):
            if last - first > _ENDS_SIGMAS * math.sqrt(spread * (first + last)):
                counts = self._blocks(span, first, last)
                if (rate := _extrapolated(counts, span / _TREND_BLOCKS, spread, horizon_s)) is not None:
                    rates.append((rate, counts))
        # The highest first: usually there is one, and the others need no test.
        return next((rate for rate, counts in sorted(rates, reverse=True) if _rises(counts, spread)), None)

    def _spans(self, horizon_s: float) -> tuple[tuple[float, float, float], ...]:
        """Return `_ends` for this horizon."""
        if self._ends is not None and self._ends[0] == horizon_s:
            return self._ends[1]
        spans = {min(max(horizon_s * times, _MIN_TREND_S), _COARSE_S - _COARSE_INTERVAL_S) for times in _TREND_SPANS}
        now, total = self.coarse_times[-1], self.coarse_counts[-1]
        known = []
        for span in spans:
            begin, block = self._at(now - span), span / _TREND_BLOCKS
            if begin is not None:
                known.append(
                    (span, (self._at(now - span + block) or 0.0) - begin, total - (self._at(now - block) or 0.0))
                )
        ends = (horizon_s, tuple(known))
        object.__setattr__(self, "_ends", ends)
        return ends[1]

    def _blocks(self, span_s: float, first: float, last: float) -> list[float]:
        """Return the arrivals in each block of a span, whose first and last block are known."""
        now, block = self.coarse_times[-1], span_s / _TREND_BLOCKS
        between = [self._at(now - block * k) or 0.0 for k in range(_TREND_BLOCKS - 1, 0, -1)]
        return [first, *(b - a for a, b in pairwise(between)), last]

    def _at(self, when: float) -> float | None:
        """Return the counter at a time between coarse samples; None before the first."""
        index = bisect_right(self.coarse_times, when) - 1
        if index < 0:
            return None
        if index + 1 == len(self.coarse_times):
            return self.coarse_counts[-1]
        t0, t1 = self.coarse_times[index], self.coarse_times[index + 1]
        c0, c1 = self.coarse_counts[index], self.coarse_counts[index + 1]
        return c0 + (c1 - c0) * (when - t0) / (t1 - t0)


def _extrapolated(counts: Sequence[float], block_s: float, spread: float, horizon_s: float) -> float | None:
    """Return the rate `horizon_s` from now by the counts of equal blocks; None if most of them don't rise."""
    increases = sorted(b - a for a, b in pairwise(counts))
    half = len(increases) // 2
    median = (increases[half - 1] + increases[half]) / 2
    # The median of six neighbouring differences with deviation s each has a deviation of about 0.72 s.
    slope = (median - _MEDIAN_ERROR * math.sqrt(spread * sum(counts) / len(counts))) / block_s**2
    return counts[-1] / block_s + slope * (block_s / 2 + min(horizon_s, block_s * len(counts))) if slope > 0 else None


def _rises(counts: Sequence[float], spread: float) -> bool:
    """Return whether the counts of equal blocks rise steadily and by more than chance.

    Only the blocks before the last decide whether it is a step, so a higher last block never speaks against a trend. Both all
    of them and the last few are tested: in a row of two steps (from nothing to some, and to more), a line is nearer than any
    single step.
    """
    before = counts[:-1]
    if _rise(counts) <= _TREND_SIGMAS * math.sqrt(spread) or _rise(before) <= _BEFORE_SIGMAS * math.sqrt(spread):
        return False
    return not any(_is_step(before[skipped:], spread) for skipped in range(len(before) - _STEP_BLOCKS + 1))


def _rise(counts: Sequence[float]) -> float:
    """Return the rise of a line through the counts of equal blocks, in standard errors of Poisson arrivals."""
    middle = (len(counts) - 1) / 2
    rise = error = 0.0
    for index, count in enumerate(counts):
        rise += (index - middle) * count
        error += (index - middle) ** 2 * count
    return rise / math.sqrt(error) if error > 0 else 0.0


def _is_step(counts: Sequence[float], spread: float) -> bool:
    """Return whether the best step fits the counts of equal blocks better than the best line, by more than chance.

    Both have two parameters for the levels. Sums of squared errors are compared, in units of the counts' variance.
    """
    size, total = len(counts), sum(counts)
    mean = total / size
    middle = (size - 1) / 2
    tilt = sum((index - middle) * count for index, count in enumerate(counts))
    by_line = 12 * tilt**2 / (size * (size**2 - 1))
    by_step = below = 0.0
    for index in range(1, size):
        below += counts[index - 1]
        by_step = max(by_step, (below - index * mean) ** 2 * size / (index * (size - index)))
    return by_step - by_line > _STEP_SIGMAS**2 * spread * mean
