"""Dispersion of arrivals: variance over mean of their number in a block, 1 for Poisson arrivals.

Its two uses err in opposite ways. Queues are sized for `value`, which a few seconds move little. `doubt` separates chance from
proof and must be known within seconds: if noise is taken for Poisson arrivals, steps are detected where there are none.
"""

from __future__ import annotations

import math
from dataclasses import replace

from halcyon.scaling.frozen import immutable

_SPAN_S = 300.0
"""Time constant of the dispersion: long enough to describe the traffic, not the moment."""
_MAX_INDEX = 200.0
"""Maximum dispersion (the burstiest known trace has 13). Beyond it nothing could be distinguished from noise."""
_UNSEEN = 13.0
"""Dispersion assumed before any sample: that of the burstiest known trace."""
_MIN_DIFFERENCES = 5
"""Minimum number of block differences for an estimate. With 8 the first hours of constant loads are the same."""
_FIRST = 31
"""Number of differences for the first median: half a minute with blocks of a second. Its error is 50 %, and 25 % a minute
later."""
_MEDIAN_WORTH = 12
"""Weight of that median as a number of differences: it is as certain as the mean of so many (0.37 of 31). The next ones are
averaged with it."""
_MIN_QUIET_S = 10.0
"""Minimum pause in seconds after which a returning load is a step and no noise: twice the longest silence of an agent."""
_MIN_QUIET_BLOCKS = 3
"""Minimum pause in blocks, in addition: with an objective of minutes, one empty block may be chance."""
_EDGE = 2
"""Number of differences that a step affects: it occurs within a block."""
_NEAR = 1.2
"""Ratio of doubt to the learnt value up to which the value counts as learnt. With 1.05 and 1.5 the replicas are the same."""
_MEDIAN = 0.455
"""Median of the square of a normal value whose mean square is 1."""


@immutable(frozen=True, slots=True)
class Dispersion:
    """Memory of the dispersion, and the open block."""

    value: float = 1.0
    """Learnt over minutes, from 1 upwards."""
    noise: float = _UNSEEN
    """Estimate of the noise: first the median of the first differences, which a burst among them doesn't move, then their mean
    with those that follow, until it is learnt like `value`. A load that is quiet at first has no noise: what follows is a step.
    The way back from quiet is excluded too. Short loads with pauses are mostly edges, and the median would be that of the
    steps."""
    first: tuple[float, ...] = ()
    """First differences between blocks that weren't both empty, in order, up to `_FIRST` of them."""
    later: int = 0
    """Number of differences after those."""
    begin: float | None = None
    """Start of the open block."""
    count: float = 0.0
    """Counter at that time."""
    before: float | None = None
    """Arrivals in the block before; None if there was none, or its length isn't known."""
    before_s: float = 0.0
    """Length of the block before in seconds; 0 if there was none."""
    quiet_s: float = 0.0
    """Time without a request, in whole blocks."""
    edge: int = 0
    """Remaining differences that belong to a step out of quiet."""

    @property
    def doubt(self) -> float:
        """Return the dispersion that must be assumed possible by chance alone."""
        return max(self.value, self.noise, 1.0)

    @property
    def is_learnt(self) -> bool:
        """Return whether `value` has come near `doubt`."""
        return self.doubt <= _NEAR * max(self.value, 1.0)

    @property
    def is_seen(self) -> bool:
        """Return whether the differences say anything about the noise yet."""
        return len(self.first) >= _MIN_DIFFERENCES

    @property
    def is_known(self) -> bool:
        """Return whether there are enough differences to trust their median: that of a few may be a tenth of the noise."""
        return len(self.first) >= _FIRST

    def error(self) -> float:
        """Return the relative standard error once the dispersion is known.

        The square of a normal value varies by twice its squared mean. Neighbouring differences share a block, which makes that
        1.5 times as much. An exponential mean weighs like twice as many blocks as fit into its time constant: 2 x 1.5 / (2 T /
        block).
        """
        return math.sqrt(1.5 * min(self.before_s / _SPAN_S, 1.0))

    def beginning(self, at: float) -> Dispersion:
        """Return the learnt values for a counter that restarts at 0."""
        return replace(self, begin=at, count=0.0, before=None, before_s=0.0, quiet_s=0.0, edge=0)

    def with_count(self, at: float, total: float, block_s: float) -> Dispersion:
        """Return the memory with the counter at a time; the open block ends once it is at least `block_s` long."""
        begin = self.begin if self.begin is not None else at
        length = at - begin
        if length < block_s:
            return self if begin is self.begin else replace(self, begin=at, count=total)
        count = total - self.count
        value, noise, first, later = self.value, self.noise, self.first, self.later
        edge = _EDGE if count > 0 and self.quiet_s >= max(_MIN_QUIET_S, _MIN_QUIET_BLOCKS * block_s) else self.edge
        if self.before is not None and self.before_s > 0:
            # Differences of neighbours, so that neither a trend nor a step within the span counts as noise for long. Blocks end
            # with a sample, so their lengths differ: for two rates of Poisson arrivals this has the mean 1.
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
                    noise = min(_median(first) / _MEDIAN, _MAX_INDEX) if len(first) >= _MIN_DIFFERENCES else noise
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
