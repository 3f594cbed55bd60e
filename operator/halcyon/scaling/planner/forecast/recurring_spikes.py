"""Spikes that come again: their times, heights and lengths, and when the next one is due.

Sees the rate every 1 to 10 s. A spike begins where the rate is above twice the slow base and no Poisson (or, where the load
is burstier than that, no usual) fluctuation reaches so far; it ends when the rate stayed below half its height.

    spikes seen                               bet on the next one
    one                                       none
    two, never wrong so far                   last onset + interval
    more, the newest intervals agree          last onset + mean of the intervals that agree
    a bet was wrong                           none until two intervals that ended after it agree

A bet is wrong when its time passes without an onset, or when one comes long before it. A time that nobody watched proves
nothing: the bet moves on by one interval. Not here: seasons (`season`), what a bet is used for.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from halcyon.scaling.frozen import immutable

BASE_S = 300.0
"""Memory of the base. It stands still during a spike."""
FALL_S = 60.0
"""The base falls quicker than it rises: a load that has ended is no base for the next one."""
FAST_S = 10.0
"""Memory of the fast count, which sees spikes whose single seconds prove nothing."""
LEARN_S = 60.0
"""Seconds of base before anything can be a spike."""
RISE = 2.0
"""Times the base from which on a rise is a spike, and half of which ends it: what is less is for the rate and the trend."""
SIGMAS = 5.0
"""Of a Poisson count after the square-root transform, which is close to normal down to small counts: once in 40 days of
seconds by chance."""
SURPRISE = 16.0
"""One sample counts for the burstiness as no more than this many times what is known: the first seconds of a spike must not
hide the rest of it. Chosen among 4, 9, 16, 25 and 40 on synthetic load: less sees spikes in bursty noise, more misses small
spikes."""
QUIET_S = 10.0
"""A spike has ended when the rate was below half its height this long. Shorter gaps belong to it."""
MAX_SPIKE_S = 1800.0
"""What lasts longer is a new level, no spike."""
GAP_S = 60.0
"""Longer silence means that nobody watched."""
KEEP = 16
"""Spikes that are remembered: the intervals that agree are among the newest."""
MIN_PERIOD_S = 120.0
"""Spikes that come more often are the load itself: their pods are held from one to the next anyway."""
MAX_PERIOD_S = 86_400.0
"""Beyond a day the season knows."""
AGREE = 0.1
"""Intervals agree within this share of their length: timers, cron jobs and people with a habit do; exponential intervals do in one pair
of 20. A twentieth was tried first, and lost spikes with 30 s of jitter."""
AGREE_S = 15.0
"""Least difference within which they agree, whatever their length."""
AGREE_MOST_S = 600.0
"""Most difference: ten minutes early is a quarter of an hour of pods for nothing."""
MARGIN_S = 8.0
"""Least margin on both sides of a due time: detection takes a few seconds, and jobs start a few seconds apart."""
ROW = 3
"""Spikes that make a row: two can be alike by chance."""
ALIKE = 1.25
"""Spikes that differ by no more than this in length and height are a row: what comes after the end of one is foreseen, and
nothing is kept for it. Bursts that only come at like intervals are not (in a production trace lengths differ twofold)."""
FIRST_MARGIN = 0.02
"""Margin of a bet on one interval, as a share of it: how far it jitters is not known yet."""
FIRST_MARGIN_MOST_S = 60.0
"""The same in seconds, at most."""


@immutable(frozen=True, slots=True)
class Spike:
    """One that has ended."""

    onset: float
    length_s: float
    height: float
    """Requests per second: the mean weighted by the rate itself, so of a ramp it is two thirds of the top."""


@immutable(frozen=True, slots=True)
class Bet:
    """When the next one is due. Made once per spike."""

    due: float
    margin_s: float
    period_s: float
    height: float
    length_s: float
    seen: int
    """Spikes that stand behind it."""


@immutable(frozen=True, slots=True)
class Expected:
    """A rate that is expected within a time."""

    rate: float
    """Requests per second."""
    begin: float
    """Earliest onset; the time itself where the spike has begun."""
    end: float
    """Latest end."""
    source: str
    """In words."""


@immutable(frozen=True, slots=True)
class SpikeMemory:
    """What is remembered of one model's rate. `packed` and `unpacked` make JSON of it and back."""

    at: float = -math.inf
    base: float = 0.0
    """Requests per second."""
    learnt_s: float = 0.0
    burstiness: float = 1.0
    """Variance of the counts over their mean; 1 is Poisson, never less."""
    count: float = 0.0
    """Faded count and seconds, `FAST_S`."""
    seconds: float = 0.0
    onset: float | None = None
    """Of the spike that goes on now."""
    low_since: float | None = None
    mass: float = 0.0
    """Of the spike that goes on: integral of the rate, and of its square."""
    square: float = 0.0
    spikes: tuple[Spike, ...] = ()
    """At most `KEEP`, oldest first."""
    bet: Bet | None = None
    wrong_at: float | None = None
    """When a bet was last wrong."""

    def observed(self, at: float, rate: float) -> SpikeMemory:
        """This memory and the mean `rate` (requests/s) since the last call. About 3 us; nonsense changes nothing."""
        step = at - self.at
        if not (step > 0 and 0 <= rate < math.inf and at < math.inf):
            return self if not at < self.at - GAP_S else SpikeMemory(at=at)
        if step > GAP_S:
            return _resumed(self, at)
        fade = math.exp(-step / FAST_S)
        count, seconds = fade * self.count + rate * step, fade * self.seconds + step
        if self.onset is not None:
            return _within(self, self.onset, at, rate, count=count, seconds=seconds)
        if self.learnt_s >= LEARN_S and (
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
        if bet is not None and at > bet.due + bet.margin_s + QUIET_S:
            bet, wrong_at = None, at
        learnt = self.learnt_s + step
        if self.learnt_s < LEARN_S:
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
        """JSON values, under 2 KB."""
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
        """What `packed` made. KeyError, TypeError or ValueError where it is something else."""
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
    """The rate of a spike expected within [at, at + lead_s]; None where there is no bet, or it is due later.

    During a spike that was bet on, the rest of it is expected.
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
    elif begin > at + lead_s or at > latest + QUIET_S:
        return None
    when = f"next in {bet.due - at:.0f} s" if bet.due > at else "due now"
    source = f"a spike of about {bet.height:.3g} req/s every {bet.period_s:,.0f} s, seen {bet.seen} times, {when}"
    return Expected(bet.height, begin, end, source)


def ended(before: SpikeMemory, after: SpikeMemory) -> bool:
    """Whether a spike of a known row has just ended: `after` knows one more than `before`, and the next one."""
    return _is_row(after) and after.spikes[-1:] != before.spikes[-1:]


def since_end(memory: SpikeMemory, at: float) -> float | None:
    """Seconds since the last spike of a known row ended; None during one, where no row is known, and long after."""
    if memory.onset is not None or not _is_row(memory):
        return None
    last = memory.spikes[-1]
    seconds = at - last.onset - last.length_s
    return seconds if 0 < seconds < FALL_S else None


def under_way(memory: SpikeMemory) -> bool:
    """Whether a spike of a known row has begun when it was due: how high it goes is known, so its rise is no trend."""
    bet, onset = memory.bet, memory.onset
    return onset is not None and bet is not None and _is_in_time(onset, bet) and _is_row(memory)


def _is_in_time(onset: float, bet: Bet) -> bool:
    """Whether a spike that began then is the one that was bet on."""
    return abs(onset - bet.due) <= bet.margin_s + QUIET_S


def _is_row(memory: SpikeMemory) -> bool:
    """Whether the last spikes were alike, and the next one is due: then the end of one is an end, not a pause."""
    if memory.bet is None or memory.bet.seen < ROW:
        return False
    last = memory.spikes[-ROW:]
    return all(
        max(values) <= ALIKE * min(values)
        for values in ([spike.length_s for spike in last], [spike.height for spike in last])
    )


def _begun(memory: SpikeMemory, at: float, rate: float, count: float, seconds: float) -> SpikeMemory:
    """A spike begins. The bet stays while it is in time; it is wrong where the spike comes long before."""
    onset = max(memory.at, at - FAST_S)
    bet, wrong_at = memory.bet, memory.wrong_at
    if bet is not None and onset < bet.due - max(bet.margin_s, _tolerance(bet.period_s)):
        bet, wrong_at = None, onset
    mass, square = rate * (at - onset), rate * rate * (at - onset)
    return SpikeMemory(
        at,
        memory.base,
        memory.learnt_s,
        memory.burstiness,
        count,
        seconds,
        onset,
        None,
        mass,
        square,
        memory.spikes,
        bet,
        wrong_at,
    )


def _within(memory: SpikeMemory, onset: float, at: float, rate: float, *, count: float, seconds: float) -> SpikeMemory:
    """A spike goes on, ends, or turns out to be a new level."""
    if at - onset > MAX_SPIKE_S:
        return replace(memory, at=at, base=rate, onset=None, low_since=None, count=count, seconds=seconds, bet=None)
    low_since = memory.low_since
    height = memory.square / memory.mass if memory.mass > 0 else rate
    if rate >= memory.base + 0.5 * (height - memory.base):
        low_since = None
    elif low_since is None:
        low_since = memory.at
    if low_since is not None and at - low_since >= QUIET_S:
        spike = Spike(onset, max(low_since - onset, 1.0), height)
        spikes = (*memory.spikes[-(KEEP - 1) :], spike)
        bet = _bet(spikes, memory.wrong_at)
        return replace(
            memory,
            at=at,
            count=0.0,
            seconds=0.0,
            onset=None,
            low_since=None,
            mass=0.0,
            square=0.0,
            spikes=spikes,
            bet=bet,
        )
    mass, square = memory.mass, memory.square
    if low_since is None:
        mass += rate * (at - memory.at)
        square += rate * rate * (at - memory.at)
    return SpikeMemory(
        at,
        memory.base,
        memory.learnt_s,
        memory.burstiness,
        count,
        seconds,
        onset,
        low_since,
        mass,
        square,
        memory.spikes,
        memory.bet,
        memory.wrong_at,
    )


def _resumed(memory: SpikeMemory, at: float) -> SpikeMemory:
    """After a time that nobody watched: what was going on is dropped, a bet that fell into it moves on."""
    bet = memory.bet
    if bet is not None and bet.due - bet.margin_s <= at:
        missed = math.floor((at - bet.due + bet.margin_s) / bet.period_s) + 1
        margin = bet.margin_s * math.sqrt(1 + missed)
        bet = replace(bet, due=bet.due + missed * bet.period_s, margin_s=margin) if missed <= 3 else None
    return replace(memory, at=at, count=0.0, seconds=0.0, onset=None, low_since=None, mass=0.0, square=0.0, bet=bet)


def _bet(spikes: tuple[Spike, ...], wrong_at: float | None) -> Bet | None:
    """The bet after the last of `spikes` has ended; None where too little speaks for one."""
    if len(spikes) < 2:
        return None
    last = spikes[-1].onset
    newest = last - spikes[-2].onset
    agreeing: list[float] = []
    for later, earlier in zip(reversed(spikes), reversed(spikes[:-1]), strict=False):
        interval = later.onset - earlier.onset
        if abs(interval - newest) > _tolerance(newest) or (wrong_at is not None and later.onset < wrong_at):
            break
        agreeing.append(interval)
    if len(agreeing) < (1 if wrong_at is None else 2):
        return None
    period = sum(agreeing) / len(agreeing)
    if not MIN_PERIOD_S * (1 - AGREE) <= period <= MAX_PERIOD_S * (1 + AGREE):
        return None
    margin = min(FIRST_MARGIN * period, FIRST_MARGIN_MOST_S)
    if len(agreeing) > 1:
        margin = 2 * max(abs(interval - period) for interval in agreeing)
    behind = spikes[-min(len(agreeing) + 1, 5) :]
    heights, lengths = sorted(spike.height for spike in behind), sorted(spike.length_s for spike in behind)
    return Bet(
        due=last + period,
        margin_s=min(max(margin, MARGIN_S), _tolerance(period)),
        period_s=period,
        height=heights[-1],
        length_s=lengths[len(lengths) // 2],
        seen=len(agreeing) + 1,
    )


def _tolerance(interval_s: float) -> float:
    return min(max(AGREE_S, AGREE * interval_s), AGREE_MOST_S)
