"""Recurring spikes of the arrival rate: their onsets, heights and lengths, and the time of the next spike.

The rate is sampled every 1 to 10 s and compared with a baseline, which is its slow average. A spike begins when the
rate exceeds twice the baseline, and the rise is too large to be random. Random fluctuation is that of Poisson arrivals,
or the usual one if the load is burstier. The spike ends when the rate has been below half the spike's height for a
while.

A bet is a prediction of the onset of the next spike, made when a spike ends (`spike_prediction`). A bet is wrong if the
predicted time passes without an onset, or if an onset comes long before that time. If there are no samples at the
predicted time, it is unknown whether the bet was wrong. The bet is then postponed by one interval. Out of scope:
seasons (`seasonality`), and how a bet is used.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from halcyon.scaling.frozen import immutable
from halcyon.scaling.lazy_text import plain
from halcyon.scaling.planner.forecast.spike_prediction import Bet, Spike, predicted, tolerance

BASE_S = 300.0
"""Time constant of the baseline, which is the slow average of the arrival rate, in seconds. The baseline does not
change during a spike."""
FALL_S = 60.0
"""Time constant of the baseline while it falls, in seconds. It is shorter than `BASE_S`, so that a load that has ended
does not affect the baseline of the next load."""
FAST_S = 10.0
"""Time constant, in seconds, of a count of requests in which older requests have less weight. The count reveals spikes
that are too small to be proven by one sample."""
MIN_LEARN_S = 60.0
"""Minimum time, in seconds, over which the baseline of the arrival rate must be averaged before spikes are detected."""
RISE = 2.0
"""Minimum ratio of the arrival rate to its baseline at the onset of a spike. Smaller rises are left to the arrival rate
and the trend."""
SIGMAS = 5.0
"""Minimum rise at the onset of a spike, in standard errors of a Poisson count. The test uses the square root of the
count, because its distribution is close to normal even for small counts. With one test per second, a rise of 5 standard
errors occurs by chance once in 40 days."""
SURPRISE = 16.0
"""Maximum ratio of one sample's contribution to the burstiness of the load to the present burstiness. Without this
limit, the first seconds of a spike would raise the burstiness so much that the rest of the spike would count as usual
noise. The value was chosen among 4, 9, 16, 25 and 40 on synthetic load. With lower values, spikes are detected in
bursty noise. With higher values, small spikes are missed."""
MIN_QUIET_S = 10.0
"""Seconds after which a spike has ended if the rate stays below the midpoint between the baseline and the spike's
height. Shorter gaps are part of the spike."""
MAX_SPIKE_S = 1800.0
"""Maximum length of a spike in seconds. A longer rise counts as a new level of the load."""
MAX_GAP_S = 60.0
"""Maximum time between two samples, in seconds. If they are further apart, the time between them counts as
unobserved."""
MAX_SPIKES = 16
"""Maximum number of past spikes that are stored. Only the newest intervals must agree, so older spikes are not
needed."""
ROW = 3
"""Minimum number of similar spikes that form a known series. Two spikes may be similar by chance."""
ALIKE = 1.25
"""Maximum ratio between the lengths, and between the heights, of the spikes in a known series. When such a spike ends,
its pods are released at once, because the next spike is predicted. Bursts that are similar only in their intervals
don't form a series. In a production trace, the lengths of such bursts differ by a factor of two."""


@immutable(frozen=True, slots=True)
class Expected:
    """Arrival rate that is expected in a time span because of a predicted spike."""

    rate: float
    """Expected rate in requests per second."""
    begin: float
    """Earliest time at which the spike begins. If the spike has already begun, this is the time of its onset."""
    end: float
    """Latest time at which the predicted spike ends."""
    source: str
    """Reason why this rate is expected, as text."""


@immutable(frozen=True, slots=True)
class SpikeMemory:
    """State of the spike detection for one model. `packed` and `unpacked` convert it to JSON and back."""

    at: float = -math.inf
    base: float = 0.0
    """Slow average of the arrival rate outside spikes, in requests per second."""
    learnt_s: float = 0.0
    burstiness: float = 1.0
    """Burstiness: the variance of the counts of requests divided by their mean. It is at least 1, the value for Poisson
    arrivals."""
    count: float = 0.0
    """Number of requests in about the last `FAST_S` seconds, with exponentially decreasing weights. The field `seconds`
    is the observed time with the same weights."""
    seconds: float = 0.0
    onset: float | None = None
    """Time at which the present spike began; None if there is no spike now."""
    low_since: float | None = None
    mass: float = 0.0
    """Integral of the arrival rate over the present spike. The field `square` is the integral of its square."""
    square: float = 0.0
    spikes: tuple[Spike, ...] = ()
    """Past spikes, oldest first; at most `MAX_SPIKES`."""
    bet: Bet | None = None
    wrong_at: float | None = None
    """Time at which a predicted spike (`bet`) last turned out to be wrong; None if no prediction has been wrong."""

    def observed(self, at: float, rate: float) -> SpikeMemory:
        """Return the state updated with `rate`, the mean arrival rate since the last call, in requests per second.

        The update takes about 3 us. Invalid values change nothing.
        """
        step = at - self.at
        if not (step > 0 and 0 <= rate < math.inf and at < math.inf):
            return self if not at < self.at - MAX_GAP_S else SpikeMemory(at=at)
        if step > MAX_GAP_S:
            return _resumed(self, at)
        fade = math.exp(-step / FAST_S)
        count, seconds = fade * self.count + rate * step, fade * self.seconds + step
        if self.onset is not None:
            return _within(self, self.onset, at, rate, count=count, seconds=seconds)
        if self.learnt_s >= MIN_LEARN_S and (
            self._stands_out(rate * step, step) or (count >= 1 and self._stands_out(count, seconds))
        ):
            return _begun(self, at, rate, count, seconds)
        memory_s = BASE_S if rate >= self.base else FALL_S
        share = step / max(memory_s, step) if self.learnt_s >= memory_s else step / (self.learnt_s + step)
        surprise = (rate - self.base) ** 2 * step / max(self.base, 1 / BASE_S)
        surprise = min(surprise, SURPRISE * self.burstiness)
        burstiness = max(self.burstiness + min(share, 0.1) * (surprise - self.burstiness), 1.0)
        base = self.base + share * (rate - self.base)
        bet, wrong_at = self.bet, self.wrong_at
        if bet is not None and at > bet.due + bet.margin_s + MIN_QUIET_S:
            bet, wrong_at = None, at
        learnt = self.learnt_s + step
        if self.learnt_s < MIN_LEARN_S:
            burstiness = 1.0
        return SpikeMemory(
            at, base, learnt, burstiness, count, seconds, None, None, 0.0, 0.0, self.spikes, bet, wrong_at
        )

    def _stands_out(self, count: float, seconds: float) -> bool:
        usual = self.base * seconds
        if count <= RISE * usual:
            return False
        return 2 * (math.sqrt(count + 0.375) - math.sqrt(usual + 0.375)) > SIGMAS * math.sqrt(self.burstiness)

    def packed(self) -> dict[str, Any]:
        """Return the state of the spike detection as JSON values, less than 2 KB."""
        now = [self.at if math.isfinite(self.at) else None, self.base, self.learnt_s, self.burstiness]
        now += [self.count, self.seconds, self.onset, self.low_since, self.mass, self.square, self.wrong_at]
        bet = self.bet
        return {
            "now": now,
            "spikes": [[spike.onset, spike.length_s, spike.height] for spike in self.spikes],
            "bet": bet and [bet.due, bet.margin_s, bet.period_s, bet.height, bet.length_s, bet.seen],
        }

    @classmethod
    def unpacked(cls, packed: dict[str, Any]) -> SpikeMemory:
        """Restore the state of the spike detection from the result of `packed`.

        Raises:
            KeyError, TypeError, ValueError: `packed` has a different format.
        """
        at, base, learnt, burstiness, count, seconds, onset, low_since, mass, square, wrong_at = packed["now"]
        return cls(
            -math.inf if at is None else at,
            base,
            learnt,
            burstiness,
            count,
            seconds,
            onset,
            low_since,
            mass,
            square,
            tuple(Spike(*spike) for spike in packed["spikes"]),
            Bet(*packed["bet"]) if packed["bet"] else None,
            wrong_at,
        )


def expected(memory: SpikeMemory, at: float, lead_s: float) -> Expected | None:
    """Return the arrival rate of a spike that is predicted for the time from `at` to `at + lead_s`.

    Return None if no spike is predicted for this time. A predicted spike that is still going on counts until its
    predicted end.
    """
    bet = memory.bet
    if bet is None:
        return None
    begin, latest = bet.due - bet.margin_s, bet.due + bet.margin_s
    end = latest + bet.length_s
    if memory.onset is not None and _is_in_time(memory.onset, bet):
        begin, end = memory.onset, memory.onset + bet.length_s
        if at > end:
            return None
    elif begin > at + lead_s or at > latest + MIN_QUIET_S:
        return None
    when = f"next in {bet.due - at:.0f} s" if bet.due > at else "due now"
    source = f"a spike of about {plain(bet.height, 3)} req/s every {bet.period_s:,.0f} s, seen {bet.seen} times, {when}"
    return Expected(bet.height, begin, end, source)


def ended(before: SpikeMemory, after: SpikeMemory) -> bool:
    """Return whether a spike of a known series ended between the states `before` and `after`."""
    return _is_row(after) and after.spikes[-1:] != before.spikes[-1:]


def since_end(memory: SpikeMemory, at: float) -> float | None:
    """Return the seconds since the end of the last spike, if it belongs to a known series of similar spikes.

    Return None if it doesn't, during a spike, or once the last spike ended at least `FALL_S` seconds ago.
    """
    if memory.onset is not None or not _is_row(memory):
        return None
    last = memory.spikes[-1]
    seconds = at - last.onset - last.length_s
    return seconds if 0 < seconds < FALL_S else None


def under_way(memory: SpikeMemory) -> bool:
    """Return whether the present spike belongs to a known series of similar spikes and began when it was expected.

    The height of the spike is then known in advance, so its rise must not count as a trend.
    """
    bet, onset = memory.bet, memory.onset
    return onset is not None and bet is not None and _is_in_time(onset, bet) and _is_row(memory)


def _is_in_time(onset: float, bet: Bet) -> bool:
    """Return whether a spike that began at `onset` is the spike that `bet` predicted."""
    return abs(onset - bet.due) <= bet.margin_s + MIN_QUIET_S


def _is_row(memory: SpikeMemory) -> bool:
    """Return whether the last spikes form a known series: they were similar, and the next spike is predicted.

    The end of such a spike is treated as final instead of as a pause.
    """
    if memory.bet is None or memory.bet.seen < ROW:
        return False
    last = memory.spikes[-ROW:]
    return all(
        max(values) <= ALIKE * min(values)
        for values in ([spike.length_s for spike in last], [spike.height for spike in last])
    )


def _begun(memory: SpikeMemory, at: float, rate: float, count: float, seconds: float) -> SpikeMemory:
    """Return the state after the beginning of a spike.

    If the spike begins long before the predicted time, the stored prediction (`bet`) was wrong and is dropped.
    """
    onset = max(memory.at, at - FAST_S)
    bet, wrong_at = memory.bet, memory.wrong_at
    if bet is not None and onset < bet.due - max(bet.margin_s, tolerance(bet.period_s)):
        bet, wrong_at = None, onset
    mass, square = rate * (at - onset), rate * rate * (at - onset)
    begun = replace(memory, at=at, count=count, seconds=seconds, onset=onset, low_since=None)
    return replace(begun, mass=mass, square=square, bet=bet, wrong_at=wrong_at)


def _within(memory: SpikeMemory, onset: float, at: float, rate: float, *, count: float, seconds: float) -> SpikeMemory:
    """Return the state updated with a sample during a spike.

    The spike continues, ends, or turns into a new level of the load.
    """
    if at - onset > MAX_SPIKE_S:
        return replace(memory, at=at, base=rate, onset=None, low_since=None, count=count, seconds=seconds, bet=None)
    low_since = memory.low_since
    height = memory.square / memory.mass if memory.mass > 0 else rate
    if rate >= memory.base + 0.5 * (height - memory.base):
        low_since = None
    elif low_since is None:
        low_since = memory.at
    if low_since is not None and at - low_since >= MIN_QUIET_S:
        spike = Spike(onset, max(low_since - onset, 1.0), height)
        spikes = (*memory.spikes[-(MAX_SPIKES - 1) :], spike)
        bet = predicted(spikes, memory.wrong_at)
        return replace(_without_spike(memory, at, bet), spikes=spikes)
    mass, square = memory.mass, memory.square
    if low_since is None:
        mass += rate * (at - memory.at)
        square += rate * rate * (at - memory.at)
    return replace(memory, at=at, count=count, seconds=seconds, low_since=low_since, mass=mass, square=square)


def _without_spike(memory: SpikeMemory, at: float, bet: Bet | None) -> SpikeMemory:
    """Return the state at the time `at` without a present spike and without recent requests."""
    cleared = replace(memory, at=at, count=0.0, seconds=0.0, onset=None, low_since=None)
    return replace(cleared, mass=0.0, square=0.0, bet=bet)


def _resumed(memory: SpikeMemory, at: float) -> SpikeMemory:
    """Return the state after a period without samples.

    The present spike is dropped. If a predicted spike was due in this period, its prediction is moved to a later time.
    """
    bet = memory.bet
    if bet is not None and bet.due - bet.margin_s <= at:
        missed = math.floor((at - bet.due + bet.margin_s) / bet.period_s) + 1
        margin = bet.margin_s * math.sqrt(1 + missed)
        bet = replace(bet, due=bet.due + missed * bet.period_s, margin_s=margin) if missed <= 3 else None
    return _without_spike(memory, at, bet)
