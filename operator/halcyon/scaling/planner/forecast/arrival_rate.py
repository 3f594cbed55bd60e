"""Arrival rate: the present rate and its trend, from a counter of requests.

The rate follows a step of the load within seconds, but stays steady under noise and during a single burst. The state
consists of a few hundred (time, counter) pairs. Out of scope: seasons (`seasonality`), recurring spikes
(`recurring_spikes`).
"""

from __future__ import annotations

import math
from bisect import bisect_right
from dataclasses import field
from itertools import pairwise

from halcyon.scaling.frozen import immutable
from halcyon.scaling.planner.forecast.dispersion import Dispersion
from halcyon.scaling.planner.forecast.steady_rise import TREND_BLOCKS, extrapolated, rises_steadily

_WINDOWS_S = (0.9, 2.0, 4.0, 8.0, 15.0, 30.0)
"""Lengths, in seconds, of the windows in which a sudden rise is detected. A higher rate in one of them can replace the
mean of longer windows. The shortest length is the interval between two agent reports: one second minus jitter. Each
window is about twice as long as the one before."""
_LONG_S = 60.0
"""Length, in seconds, of the shortest window whose mean can lower the arrival rate. Other autoscalers (KPA, Cortex) use
this length as well."""
_CALM_S = (900.0, 480.0, 240.0, 120.0)
"""Lengths, in seconds, of the long windows over which the rate is averaged while the load is constant. Samples are kept
for the longest of them."""
_AGREE_SIGMAS = 2.0
"""Maximum difference, in standard errors of the mean, at which the means of a window and of a longer window count as
equal (95 % confidence). Values from 1.5 to 3 give the same results in the table of scenarios."""
_SIGMAS = 5.0
"""Number of standard errors by which the rate in a short window must exceed the mean of longer windows in order to
replace it. The number must be high because six windows are tested every second. With 20 % noise in each second, 3.5
standard errors (once in 4,300 samples) gave a false step every few hours. A step of the load that needs another replica
reaches 5 standard errors within seconds."""
_SURE_SIGMAS = 2.0
"""Number of standard errors that are subtracted from the arrival rate in the first seconds (95 % confidence). Replicas
are added only for the remaining rate. With one standard error, one pod start in six would be unnecessary."""
_UNKNOWN_NOISE = 0.2
"""Assumed standard deviation of the number of arrivals in one second, as a share of the mean. It is used until the
noise is known. Without it, noise at a high rate was mistaken for a step after a few similar seconds in a row. At low
rates, Poisson noise is at least as large. With 0.25, steps in the first half minute are detected later."""
_OPENING_SIGMAS = (1.0, 0.5)
"""Numbers of standard errors, first and last, that are subtracted from the rate in the first minute after the first
request (`_OPENING_S`). They apply to models with a measured capacity; other models use `_SURE_SIGMAS`. The first is
larger because a chance rise would start pods that then run for minutes."""
_OPENING_S = (1.0, 3.0)
"""Times in seconds after the first request: the first number of `_OPENING_SIGMAS` applies until the first time, and the
last number after the second time. Between the two times, the number falls linearly."""
_OPENING_FEW = 4.0
"""Up to this number of requests, the subtracted amount always uses the first number of `_OPENING_SIGMAS`. With more
requests, the amount is not smaller. If it were, a model with few requests of 5 s each would use 20 % more GPU time in
five minutes."""
_LIKELY = 1.65
"""Number of standard errors by which the load must exceed a forecast for the forecast to count as too low (95 %
confidence). This low number is enough, because one comparison changes the learnt values only slightly."""
_FINE_S = _LONG_S + 10.0
"""Maximum age, in seconds, of the samples that are stored at short intervals (fine samples). It is longer than the long
window, so that a lost report does not shorten that window."""
_COARSE_S = 900.0
"""Maximum age, in seconds, of the samples that are stored at long intervals (coarse samples). The trend needs samples
over four times the start time of a pod. This age is enough even for pods that start slowly."""
_COARSE_INTERVAL_S = 5.0
"""Interval of coarse samples, in seconds. The first sample after each whole multiple of the interval is kept. Agents
report at least this often. Multiples of the clock are used, not times since the previous sample, because two models
with the same load would otherwise detect a trend up to one interval apart."""
_ENDS_SIGMAS = 2.0
"""Minimum difference, in standard errors, between the arrivals in the first and the last block of a time span. With a
smaller difference, the span is not searched for a trend. Only one in 2,500 proven rises has a smaller difference."""
_TREND_SPANS = (0.25, 0.5, 1.0, 2.0, 4.0)
"""Lengths of the time spans that are searched for a trend, as multiples of the forecast's horizon."""
_MIN_TREND_S = 60.0
"""Minimum length of a time span that is searched for a trend, in seconds."""


@immutable(frozen=True, slots=True)
class ArrivalRate:
    """Arrival rate of a model, computed from samples of its arrival counter.

    The samples are adjusted so that the counter goes on after a restart of the counting process.
    """

    times: tuple[float, ...] = ()
    """Times of the samples that are stored at short intervals (fine samples), ascending."""
    counts: tuple[float, ...] = ()
    """Values of the arrival counter at `times`, with growth added up across restarts of the counting process."""
    coarse_times: tuple[float, ...] = ()
    coarse_counts: tuple[float, ...] = ()
    raw: float | None = None
    """Last value of the arrival counter as reported, not adjusted for restarts."""
    spread: Dispersion = field(default_factory=Dispersion)
    last_at: float | None = None
    """Time of the last sample that contained a request; None if no sample did."""
    since: float | None = None
    """Time of the first sample; None if there is no sample yet."""
    _rate: float | None = field(default=math.nan, init=False, repr=False, compare=False)
    """Cached result of `rate`; NaN before the first call. Each decision reads it three times."""
    _begins: tuple[tuple[float, float], ...] | None = field(default=None, init=False, repr=False, compare=False)
    """Cached result of `_since_long`. It changes only when a coarse sample is stored."""
    _ends: tuple[float, tuple[tuple[float, float, float], ...]] | None = field(
        default=None, init=False, repr=False, compare=False
    )
    """Cached result of `_spans`, with the horizon for which it was computed. It changes only when a coarse sample is
    stored. Usually the load doesn't rise, and nothing else is computed."""

    def with_sample(self, at: float, counter: float, *, block_s: float) -> ArrivalRate:
        """Return the samples with one more added. A sample that is not newer than the last one changes nothing.

        If the clock was set back by more than a minute, all earlier samples are dropped. Otherwise there would be no
        rate until the clock has caught up. `block_s` is the length of the blocks in which the dispersion is measured,
        which is about the latency objective.
        """
        if self.raw is None or not self.times or at < self.times[-1] - _LONG_S:
            return ArrivalRate((at,), (0.0,), (at,), (0.0,), counter, self.spread.beginning(at), since=at)
        if at <= self.times[-1]:
            return self
        # If the counter fell, it was reset, so its present value is the number of requests since then.
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
        """Return the same samples with `at` as the time of the last request."""
        if at == self.last_at:
            return self
        result = ArrivalRate(
            self.times, self.counts, self.coarse_times, self.coarse_counts, self.raw, self.spread, at, self.since
        )
        object.__setattr__(result, "_rate", self._rate)
        object.__setattr__(result, "_begins", self._begins)
        object.__setattr__(result, "_ends", self._ends)
        return result

    def rate(self) -> float | None:
        """Return the present arrival rate in requests per second; None if there are fewer than two samples.

        First, a mean over a long time is computed (`_calm`). It starts with the mean of 15 minutes. Each shorter
        window, down to one minute, limits the value to its own confidence interval. So the rate is more stable under a
        constant load than the mean of a minute, but still follows a falling load within a minute.

        Second, windows shorter than a minute can prove a higher rate. The window that proves the highest rate raises
        the result to the lower end of its confidence interval. A step of the load is therefore detected within seconds
        and not overestimated.

        Additional requests in the last sample never lower the result, because they raise the rate of a shorter window
        more than that of a longer one.
        """
        rate = self._rate
        if rate is not None and math.isnan(rate):
            rate = self._measured()
            object.__setattr__(self, "_rate", rate)
        return rate

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
        """Return the mean rate (requests/s) over the longest time that is consistent with the newer samples.

        The last minute must contain a request.
        """
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
        """Return (time, counter) at the start of each window in `_CALM_S`.

        If a window is longer than the time that the samples cover, these are the values of the oldest coarse sample.
        """
        if self._begins is None:
            times, counts = self.coarse_times, self.coarse_counts
            indexes = (max(bisect_right(times, times[-1] - window) - 1, 0) for window in _CALM_S)
            object.__setattr__(self, "_begins", tuple((times[index], counts[index]) for index in indexes))
        return self._begins or ()

    def sure(self) -> float:
        """Return the share of the arrival rate for which replicas may be added. It is 1 after the first minute.

        The replicas that ran at the first request were presumably chosen for a reason. A few seconds of arrivals are
        little evidence that more replicas are needed. Two standard errors are therefore subtracted from the rate at
        first, and less with each second.
        """
        if len(self.times) < 2:
            return 1.0
        young = 1.0 - self.seen_s() / _LONG_S
        requests = self.counts[-1] - self.coarse_counts[0]
        if young <= 0 or requests <= 0:
            return 1.0
        spread = self.spread.doubt
        if not self.spread.is_seen:
            spread = max(spread, _UNKNOWN_NOISE**2 * requests / self.seen_s())
        # A factor is used so that even the first request counts in part.
        return 1.0 / (1.0 + _SURE_SIGMAS * young * math.sqrt(spread / requests))

    def opening(self) -> float | None:
        """Return a cautious estimate of the rate since the first request, in requests per second.

        Return None if there was no request, or if the first one is more than a minute ago. The time before it is not
        counted, because it shows that the model was idle, not that its rate is low.
        """
        times, counts = self.times, self.counts
        if self._is_empty or counts[0] > self.coarse_counts[0]:
            return None
        first = bisect_right(counts, counts[0])
        span, count = times[-1] - times[first - 1], counts[-1] - counts[0]
        if first < 2 or span >= _LONG_S:
            return None
        (first_s, later_s), (most, least) = _OPENING_S, _OPENING_SIGMAS
        sigmas = most - (most - least) * min(max((span - first_s) / (later_s - first_s), 0.0), 1.0)
        errors = max(sigmas * math.sqrt(count), most * math.sqrt(min(count, _OPENING_FEW)))
        return max(count - errors * math.sqrt(self.spread.doubt), 0.0) / max(span, 1.0)

    def seen_s(self) -> float:
        """Return the seconds from the first to the last stored sample."""
        return self.times[-1] - self.coarse_times[0] if self.times else 0.0

    def error(self) -> float:
        """Return the standard error of the mean rate over the last minute, in requests per second."""
        if len(self.times) < 2:
            return 0.0
        span, count = self._since(self.times[-1], self.counts[-1], _LONG_S)
        return math.sqrt(self.spread.doubt * count) / max(span, 1.0)

    def proven(self, window_s: float) -> float:
        """Return a lower bound of the rate (requests/s), computed from the arrivals of the last `window_s` seconds.

        The actual rate is above this bound with 95 % confidence. A higher rate may be due to chance.
        """
        if self._is_empty:
            return 0.0
        span, count = self._since(self.times[-1], self.counts[-1], window_s)
        return max(count - _LIKELY * math.sqrt(self.spread.doubt * count), 0.0) / max(span, 1.0)

    def mean(self, window_s: float) -> float:
        """Return the mean rate over the last `window_s` seconds (at most 60), in requests per second.

        The rate is 0 if there are fewer than two samples.
        """
        if self._is_empty:
            return 0.0
        span, count = self._since(self.times[-1], self.counts[-1], window_s)
        return count / max(span, 1.0)

    @property
    def _is_empty(self) -> bool:
        """Return whether the stored samples of the last minute contain no request."""
        return not self.counts or self.counts[-1] <= self.counts[0]

    def _since(self, now: float, total: float, window_s: float) -> tuple[float, float]:
        """Return (seconds, arrivals) since the newest sample that is at least `window_s` old.

        If there is no such sample, the oldest sample is used.
        """
        at, count = self._begin(now - window_s)
        return now - at, total - count

    def _begin(self, time: float) -> tuple[float, float]:
        """Return (time, counter) of the newest fine sample at or before `time`.

        If there is no such sample, the oldest one is used.
        """
        index = max(bisect_right(self.times, time) - 1, 0)
        return self.times[index], self.counts[index]

    def rising(self, horizon_s: float) -> float | None:
        """Return the rate (requests/s) in `horizon_s` seconds if a steady rise continues; None if there is no rise.

        Spans from 0.25 to 4 times the horizon are tested:

            1. A span is divided into seven blocks.
            2. The slope is the median of the six increases between blocks, minus part of its standard error.
            3. The last block is extrapolated with this slope, but no further ahead than the span is long.
            4. The trend is accepted if the blocks rise steadily and by more than chance (`rises_steadily`).

        The result is the highest rate of any accepted trend. Additional requests in the last sample never lower it.
        """
        if len(self.coarse_times) < 2 or self.coarse_counts[-1] <= self.coarse_counts[0]:
            return None  # nothing has arrived, so nothing rises
        spread = self.spread.doubt
        rates = []
        for span, first, last in self._spans(horizon_s):
            if last - first > _ENDS_SIGMAS * math.sqrt(spread * (first + last)):
                counts = self._blocks(span, first, last)
                if (rate := extrapolated(counts, span / TREND_BLOCKS, spread, horizon_s)) is not None:
                    rates.append((rate, counts))
        # The highest rate is tested first, so the others usually need no test.
        return next((rate for rate, counts in sorted(rates, reverse=True) if rises_steadily(counts, spread)), None)

    def _spans(self, horizon_s: float) -> tuple[tuple[float, float, float], ...]:
        """Return the time spans that the samples cover.

        Each is (length, arrivals in its first block, arrivals in its last block).
        """
        if self._ends is not None and self._ends[0] == horizon_s:
            return self._ends[1]
        spans = {min(max(horizon_s * times, _MIN_TREND_S), _COARSE_S - _COARSE_INTERVAL_S) for times in _TREND_SPANS}
        now, total = self.coarse_times[-1], self.coarse_counts[-1]
        covered = []
        for span in spans:
            begin, block = self._at(now - span), span / TREND_BLOCKS
            if begin is not None:
                covered.append(
                    (span, (self._at(now - span + block) or 0.0) - begin, total - (self._at(now - block) or 0.0))
                )
        ends = (horizon_s, tuple(covered))
        object.__setattr__(self, "_ends", ends)
        return ends[1]

    def _blocks(self, span_s: float, first: float, last: float) -> list[float]:
        """Return the number of arrivals in each block of a time span.

        The numbers in the first and the last block are already known.
        """
        now, block = self.coarse_times[-1], span_s / TREND_BLOCKS
        between = [self._at(now - block * k) or 0.0 for k in range(TREND_BLOCKS - 1, 0, -1)]
        return [first, *(b - a for a, b in pairwise(between)), last]

    def _at(self, time: float) -> float | None:
        """Return the counter's value at a time, interpolated between coarse samples; None before the first sample."""
        index = bisect_right(self.coarse_times, time) - 1
        if index < 0:
            return None
        if index + 1 == len(self.coarse_times):
            return self.coarse_counts[-1]
        t0, t1 = self.coarse_times[index], self.coarse_times[index + 1]
        c0, c1 = self.coarse_counts[index], self.coarse_counts[index + 1]
        return c0 + (c1 - c0) * (time - t0) / (t1 - t0)
