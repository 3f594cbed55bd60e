"""The arrival rate now and soon, from a counter: quick on a step, steady under noise, no faith in a single burst.

What is kept is a few hundred (time, counter) pairs. Not here: seasons (`scaling.season`), spikes that repeat (`scaling.spikes`).
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
"""Shorter windows that may prove a higher rate: from one look of an agent to the next (a second, less its jitter) on, each about twice
the one before."""
_LONG_S = 60.0
"""The shortest window that may lower the rate. The usual one of autoscalers (KPA, Cortex)."""
_CALM_S = (900.0, 480.0, 240.0, 120.0)
"""Longer windows, whose mean is the rate of a load that stands still. The longest is as long as samples are kept."""
_AGREE_SIGMAS = 2.0
"""Standard errors of a window's mean (95 %) within which it agrees with longer ones. 1.5 to 3 give the same table of scenarios."""
_SIGMAS = 5.0
"""How sure a shorter window must be before it overrides the long ones. There are six windows and a look every second: with 20 % of noise in
each second 3.5 standard errors (once in 4,300 looks) came true every few hours. A step that is worth a replica is as sure within seconds."""
_SURE_SIGMAS = 2.0
"""Standard errors of the rate that are no reason for more in the first seconds: 95 %. One is too few in one beginning of six."""
_UNKNOWN_NOISE = 0.2
"""Deviation of the arrivals in a second, as a share of their mean, that is thought possible until the noise is known. Where many arrive,
a few alike in a row made noise a step; where few do, chance alone is as much. With 0.25 steps in the first half minute are known later."""
_LIKELY = 1.65
"""How sure a forecast's judgement is: 95 %, since a single one moves little."""
_FINE_S = _LONG_S + 10.0
"""Samples are kept so long; a lost record must not shorten the long window."""
_COARSE_S = 900.0
"""Coarse samples are kept so long: four times the start time of the slowest usual pod, for its trend."""
_COARSE_STEP_S = 5.0
"""Coarse samples are the first ones after whole multiples of this: an agent is silent for no longer. On a grid of the clock's, not so
long after the one before, or models with the same load would see its trends up to so long apart."""
_TREND_BLOCKS = 7
"""Blocks of a trend: the least number with which the median of the increases is blind to a step."""
_TREND_SIGMAS = 5.0
"""How sure the rise of a line through the blocks must be: a trend is extrapolated, and is looked for all the time in five spans. A line
tells a rise from noise as well with 5 standard errors as the last block less the first does with 4, and errs a hundred times less."""
_BEFORE_SIGMAS = 3.0
"""The same without the last block: a step that has just begun is all in that one."""
_ENDS_SIGMAS = 2.0
"""Spans whose last block isn't as far above the first aren't looked at: one rise in 2,500 that is proven has less than that."""
_STEP_BLOCKS = 3
"""The least number of blocks that a step is looked for in."""
_TREND_SPANS = (0.25, 0.5, 1.0, 2.0, 4.0)
"""Spans in which a trend is looked for, in horizons."""
_MIN_TREND_S = 60.0
"""No trend is read from less."""
_STEP_SIGMAS = 2.0
"""Standard errors by which a step has to explain blocks better than a line does, to be taken for one."""
_MEDIAN_ERROR = 0.5
"""Share of a block's deviation that is taken off the slope: two thirds of the standard error of the median of six
differences of neighbours, 0.72 (computed). All of it misses rises that last no longer than a start."""


@immutable(frozen=True, slots=True)
class ArrivalRate:
    """What is remembered of the counter of arrivals. Starts of the process that counts are bridged."""

    times: tuple[float, ...] = ()
    """Of the fine samples, ascending."""
    counts: tuple[float, ...] = ()
    """The counter at those times, continued over restarts."""
    coarse_times: tuple[float, ...] = ()
    coarse_counts: tuple[float, ...] = ()
    raw: float | None = None
    """The counter as it was read last."""
    spread: Dispersion = field(default_factory=Dispersion)
    last_at: float | None = None
    """When the last request arrived, as far as known."""
    since: float | None = None
    """When the counter was read first."""
    _rate: float | None = field(default=math.nan, init=False, repr=False, compare=False)
    """As `rate` has found it; NaN before it was asked for. It is asked for three times by a decision."""
    _begins: tuple[tuple[float, float], ...] | None = field(default=None, init=False, repr=False, compare=False)
    """As `_since_long` has found them; they change with a coarse sample only."""
    _ends: tuple[float, tuple[tuple[float, float, float], ...]] | None = field(
        default=None, init=False, repr=False, compare=False
    )
    """The horizon that `rising` was asked for last, and (span, arrivals in its first block, in its last) of the spans that
    samples cover: they change with a coarse sample only, and most of the time there is no rise and nothing else is looked at."""

    def with_sample(self, at: float, counter: float, *, block_s: float) -> ArrivalRate:
        """The memory with one more sample; one that is not newer than the last changes nothing.

        A clock that was set back by more than a minute begins a new memory: waiting for it to catch up would be blindness.

        `block_s` is the horizon over which bursts matter: about the latency objective.
        """
        if self.raw is None or not self.times or at < self.times[-1] - _LONG_S:
            return ArrivalRate((at,), (0.0,), (at,), (0.0,), counter, self.spread.beginning(at), since=at)
        if at <= self.times[-1]:
            return self
        # A counter that fell was started anew: what it shows now came since.
        increase = counter - self.raw if counter >= self.raw else counter
        total = self.counts[-1] + increase
        first = bisect_right(self.times, at - _FINE_S)
        coarse_times, coarse_counts = self.coarse_times, self.coarse_counts
        if at // _COARSE_STEP_S > coarse_times[-1] // _COARSE_STEP_S:
            keep = bisect_right(coarse_times, at - _COARSE_S)
            coarse_times, coarse_counts = (*coarse_times[keep:], at), (*coarse_counts[keep:], total)
        made = ArrivalRate(
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
            object.__setattr__(made, "_begins", self._begins)
            object.__setattr__(made, "_ends", self._ends)
        return made

    def with_last(self, at: float) -> ArrivalRate:
        """The same with another time of the last request."""
        if at == self.last_at:
            return self
        made = ArrivalRate(
            self.times,
            self.counts,
            self.coarse_times,
            self.coarse_counts,
            self.raw,
            self.spread,
            at,
            self.since,
        )
        object.__setattr__(made, "_rate", self._rate)
        object.__setattr__(made, "_begins", self._begins)
        object.__setattr__(made, "_ends", self._ends)
        return made

    def rate(self) -> float | None:
        """Requests per second now: the calm mean, or what a shorter window proves to be more.

        The calm mean is that of as long a time as nothing later contradicts: from a quarter of an hour down to a minute, each
        window that is shorter moves it into its own confidence interval. So under constant load it stands still, where the mean of a
        minute would wander, and a load that falls takes it along within that minute.

        Of the windows within that minute that prove more than the calm mean, the one that proves most moves the rate into its own
        interval as well. So a step is known within seconds, and never as more than it is. Monotone in the last count: what more of it
        adds to the shorter of two windows is more. None with fewer than two samples.
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
            return 0.0  # nothing has come, so no window proves anything
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
        """The mean of as long a time as nothing later contradicts, requests per second; of a minute that isn't empty."""
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
        """(time, counter) at the beginnings of the windows `_CALM_S`, or of what is kept."""
        if self._begins is None:
            times, counts = self.coarse_times, self.coarse_counts
            found = (max(bisect_right(times, times[-1] - window) - 1, 0) for window in _CALM_S)
            object.__setattr__(self, "_begins", tuple((times[index], counts[index]) for index in found))
        return self._begins or ()

    def sure(self) -> float:
        """The share of the rate that counts as a reason for more: 1 from a minute on.

        What runs when the first requests are seen was found right by somebody, and seconds say little against it. So there are two
        standard errors less of the rate at first, and less of that with every second.
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
        # As a factor, which leaves something of the first request too.
        return 1.0 / (1.0 + _SURE_SIGMAS * young * math.sqrt(spread / seen))

    def seen_s(self) -> float:
        """Seconds that the samples cover."""
        return self.times[-1] - self.coarse_times[0] if self.times else 0.0

    def error(self) -> float:
        """Standard error of the rate of a minute, requests per second."""
        if len(self.times) < 2:
            return 0.0
        span, count = self._since(self.times[-1], self.counts[-1], _LONG_S)
        return math.sqrt(self.spread.doubt * count) / max(span, 1.0)

    def proven(self, window_s: float) -> float:
        """The rate that the last `window_s` prove, with 95 % confidence: what is above it may be chance."""
        if self._is_empty:
            return 0.0
        span, count = self._since(self.times[-1], self.counts[-1], window_s)
        return max(count - _LIKELY * math.sqrt(self.spread.doubt * count), 0.0) / max(span, 1.0)

    def mean(self, window_s: float) -> float:
        """Requests per second of the last `window_s`, a minute at most; 0 with fewer than two samples."""
        if self._is_empty:
            return 0.0
        span, count = self._since(self.times[-1], self.counts[-1], window_s)
        return count / max(span, 1.0)

    @property
    def _is_empty(self) -> bool:
        """Whether nothing has come in any window of the fine samples."""
        return not self.counts or self.counts[-1] <= self.counts[0]

    def _since(self, now: float, total: float, window_s: float) -> tuple[float, float]:
        """(seconds, arrivals) since the newest sample that is at least `window_s` old, or the oldest one."""
        at, count = self._begin(now - window_s)
        return now - at, total - count

    def _begin(self, when: float) -> tuple[float, float]:
        """(time, counter) of the newest fine sample that isn't after `when`, or of the oldest one."""
        index = max(bisect_right(self.times, when) - 1, 0)
        return self.times[index], self.counts[index]

    def rising(self, horizon_s: float) -> float | None:
        """The rate `horizon_s` from now if a steady rise goes on; None where there is none.

        Looks at spans from a quarter of the horizon to four times of it, extrapolates none further than it is long, and takes what
        proves most. A span is cut into seven blocks; the median of the six increases is the slope, from which its
        standard error is taken away. There is a trend where a line through the blocks rises by more than chance, and no step explains
        them, or the last of them, better. Monotone in the last count.
        """
        if len(self.coarse_times) < 2 or self.coarse_counts[-1] <= self.coarse_counts[0]:
            return None  # nothing has come, so nothing rises
        spread = self.spread.doubt
        found = []
        for span, first, last in self._spans(horizon_s):
            if last - first > _ENDS_SIGMAS * math.sqrt(spread * (first + last)):
                counts = self._blocks(span, first, last)
                if (rate := _extrapolated(counts, span / _TREND_BLOCKS, spread, horizon_s)) is not None:
                    found.append((rate, counts))
        # The highest first: mostly it is one, and the others needn't be looked at.
        return next((rate for rate, counts in sorted(found, reverse=True) if _rises(counts, spread)), None)

    def _spans(self, horizon_s: float) -> tuple[tuple[float, float, float], ...]:
        """`_ends` for this horizon."""
        if self._ends is not None and self._ends[0] == horizon_s:
            return self._ends[1]
        spans = {min(max(horizon_s * times, _MIN_TREND_S), _COARSE_S - _COARSE_STEP_S) for times in _TREND_SPANS}
        now, total = self.coarse_times[-1], self.coarse_counts[-1]
        made = []
        for span in spans:
            begin, block = self._at(now - span), span / _TREND_BLOCKS
            if begin is not None:
                made.append(
                    (span, (self._at(now - span + block) or 0.0) - begin, total - (self._at(now - block) or 0.0))
                )
        ends = (horizon_s, tuple(made))
        object.__setattr__(self, "_ends", ends)
        return ends[1]

    def _blocks(self, span_s: float, first: float, last: float) -> list[float]:
        """The arrivals in each block of a span, of whose first and last they are known."""
        now, block = self.coarse_times[-1], span_s / _TREND_BLOCKS
        between = [self._at(now - block * k) or 0.0 for k in range(_TREND_BLOCKS - 1, 0, -1)]
        return [first, *(b - a for a, b in pairwise(between)), last]

    def _at(self, when: float) -> float | None:
        """The counter at a time between coarse samples; None before the first."""
        index = bisect_right(self.coarse_times, when) - 1
        if index < 0:
            return None
        if index + 1 == len(self.coarse_times):
            return self.coarse_counts[-1]
        t0, t1 = self.coarse_times[index], self.coarse_times[index + 1]
        c0, c1 = self.coarse_counts[index], self.coarse_counts[index + 1]
        return c0 + (c1 - c0) * (when - t0) / (t1 - t0)


def _extrapolated(counts: Sequence[float], block_s: float, spread: float, horizon_s: float) -> float | None:
    """The rate `horizon_s` from now by the counts of equal blocks; None where most of them don't rise."""
    increases = sorted(b - a for a, b in pairwise(counts))
    half = len(increases) // 2
    median = (increases[half - 1] + increases[half]) / 2
    # The median of six differences of neighbours with deviation s each has a deviation of about 0.72 s.
    slope = (median - _MEDIAN_ERROR * math.sqrt(spread * sum(counts) / len(counts))) / block_s**2
    return counts[-1] / block_s + slope * (block_s / 2 + min(horizon_s, block_s * len(counts))) if slope > 0 else None


def _rises(counts: Sequence[float], spread: float) -> bool:
    """Whether the counts of equal blocks rise by more than chance does, and steadily.

    Whether by a step is told by those before the last, so that more in the last never is a reason against a trend: all of them, and
    the last few, since in a row of two steps (from nothing to some, and to more) a line is nearer than any single one.
    """
    before = counts[:-1]
    if _rise(counts) <= _TREND_SIGMAS * math.sqrt(spread) or _rise(before) <= _BEFORE_SIGMAS * math.sqrt(spread):
        return False
    return not any(_is_step(before[skipped:], spread) for skipped in range(len(before) - _STEP_BLOCKS + 1))


def _rise(counts: Sequence[float]) -> float:
    """How far a line through the counts of equal blocks rises, in standard errors of Poisson arrivals."""
    middle = (len(counts) - 1) / 2
    rise = error = 0.0
    for index, count in enumerate(counts):
        rise += (index - middle) * count
        error += (index - middle) ** 2 * count
    return rise / math.sqrt(error) if error > 0 else 0.0


def _is_step(counts: Sequence[float], spread: float) -> bool:
    """Whether the best step through the counts of equal blocks is closer to them than the best line, by what isn't chance.

    Both have two parameters for the levels; sums of squared errors are compared, in units of the counts' variance.
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
