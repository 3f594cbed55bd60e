"""How much more arrivals spread than by chance alone: variance over mean of their number in a block, 1 for Poisson arrivals.

It is asked for by two who err in opposite ways. Queues are sized for `value`, which a few seconds move little. What may be
chance is told from what is proven by `doubt`, which has to be known within seconds: whoever takes noise for Poisson arrivals
finds steps where there are none.
"""

from __future__ import annotations

import math
from dataclasses import replace

from halcyon.scaling.frozen import immutable

_SPAN_S = 300.0
"""Time constant of the dispersion: long enough to be a property of the traffic, not of the moment."""
_MAX_INDEX = 200.0
"""Beyond it (the burstiest trace known has 13) nothing could be told from noise any more."""
_UNSEEN = 13.0
"""What is doubted before anything was seen: as with the burstiest trace known."""
_FEW = 5
"""Fewer differences of blocks tell nothing. With 8 the first hours of constant loads are the same."""
_FIRST = 31
"""So many give the first median, half a minute where blocks are of a second. It is off by a half, and by a quarter a minute later."""
_MEDIAN_WORTH = 12
"""Their median is as certain as the mean of so many (0.37 of 31), which is what the next ones are averaged with."""
_QUIET_S = 10.0
"""A load that was away for as long comes back by a step and is no noise: twice as long as an agent is silent at most,"""
_QUIET_BLOCKS = 3
"""and so many blocks at least: where the objective is of minutes, one that is empty may be chance."""
_EDGE = 2
"""Differences that a step takes: it comes within a block."""
_NEAR = 1.2
"""Times that what is learnt may be doubted. With 1.05 and 1.5 the count goes the same way."""
_MEDIAN = 0.455
"""Of the square of a normal value, where its mean is 1."""


@immutable(frozen=True, slots=True)
class Dispersion:
    """What is remembered of it, and the open block."""

    value: float = 1.0
    """Learnt from 1 up, over minutes."""
    noise: float = _UNSEEN
    """The median of the first differences, which a burst among them doesn't move; then their mean with those that follow, until it is
    learnt as `value` is. Who is quiet at first has none: what comes then is a step. Nor is the way back out of the quiet any: short
    loads with rests between them are mostly edges, and the median would be that of the steps."""
    first: tuple[float, ...] = ()
    """The first differences of blocks that weren't both empty, in the order they were seen, until there are `_FIRST`."""
    later: int = 0
    """Differences after those."""
    begin: float | None = None
    """Of the open block."""
    count: float = 0.0
    """The counter then."""
    before: float | None = None
    """Arrivals in the block before; None where there was none, or where its length isn't known."""
    before_s: float = 0.0
    """Its length in seconds; 0 where there was none."""
    quiet_s: float = 0.0
    """How long no request has come, in whole blocks."""
    edge: int = 0
    """Differences to come that belong to a step out of the quiet."""

    @property
    def doubt(self) -> float:
        """What chance has to be thought capable of."""
        return max(self.value, self.noise, 1.0)

    @property
    def is_learnt(self) -> bool:
        """Whether `value` has come near what is doubted."""
        return self.doubt <= _NEAR * max(self.value, 1.0)

    @property
    def is_seen(self) -> bool:
        """Whether differences tell anything of the noise yet."""
        return len(self.first) >= _FEW

    @property
    def is_known(self) -> bool:
        """Whether there are so many differences that their median can be trusted: that of a few may be a tenth of the noise."""
        return len(self.first) >= _FIRST

    def error(self) -> float:
        """Relative standard error, once it is known: a share of it.

        A square of a normal value varies by twice its squared mean; neighbouring differences share a block, which makes it half as
        much again; and an exponential mean weighs like as many blocks as fit twice into its time constant: 2 x 1.5 / (2 T / block).
        """
        return math.sqrt(1.5 * min(self.before_s / _SPAN_S, 1.0))

    def beginning(self, at: float) -> Dispersion:
        """What was learnt, for a counter that begins anew with 0."""
        return replace(self, begin=at, count=0.0, before=None, before_s=0.0, quiet_s=0.0, edge=0)

    def with_count(self, at: float, total: float, block_s: float) -> Dispersion:
        """With the counter at a time; the open block ends where it is at least `block_s` long."""
        begin = self.begin if self.begin is not None else at
        length = at - begin
        if length < block_s:
            return self if begin is self.begin else replace(self, begin=at, count=total)
        count = total - self.count
        value, noise, first, later = self.value, self.noise, self.first, self.later
        edge = _EDGE if count > 0 and self.quiet_s >= max(_QUIET_S, _QUIET_BLOCKS * block_s) else self.edge
        if self.before is not None and self.before_s > 0:
            # Differences of neighbours, so that neither a trend nor a step within the span counts as noise for long. Blocks end
            # with a sample, so their lengths differ: of two rates of Poisson arrivals this has the mean 1.
            both = count + self.before
            if both > 0:
                seen = (count * self.before_s - self.before * length) ** 2 / (self.before_s * length * both)
                weight = 1 - math.exp(-min(length, self.before_s) / _SPAN_S)
                value = _moved(value, seen, weight)
                if edge > 0:
                    edge -= 1
                elif len(first) >= _FIRST:
                    later += 1
                    noise = _moved(noise, seen, max(weight, 1 / (_MEDIAN_WORTH + later)))
                else:
                    first = (*first, seen)
                    noise = min(_median(first) / _MEDIAN, _MAX_INDEX) if len(first) >= _FEW else noise
            elif not first:
                noise = 1.0
        quiet_s = self.quiet_s + length if count == 0 else 0.0
        return Dispersion(value, noise, first, later, at, total, count, length, quiet_s, edge)


def _moved(value: float, seen: float, weight: float) -> float:
    return min(value + weight * (min(seen, 4 * value + 12) - value), _MAX_INDEX)


def _median(values: tuple[float, ...]) -> float:
    known = sorted(values)
    half = len(known) // 2
    return known[half] if len(known) % 2 else (known[half - 1] + known[half]) / 2
