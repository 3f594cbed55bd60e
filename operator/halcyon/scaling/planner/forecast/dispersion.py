"""Dispersion of arrivals: the variance of the number of arrivals in a block of time, divided by the mean.

The dispersion of Poisson arrivals is 1.

There are two estimates. `value`, which changes slowly, is used to size queues. `doubt`, which is available within
seconds, is used to separate noise from real changes: if a noisy load were treated as Poisson arrivals, nonexistent
steps would be detected.
"""

from __future__ import annotations

import math
from dataclasses import replace

from halcyon.scaling.frozen import immutable

_SPAN_S = 300.0
"""Time constant of the estimated dispersion, in seconds. It is long enough to describe the traffic in general instead
of a single moment."""
_MAX_INDEX = 200.0
"""Maximum dispersion. The burstiest known trace has a dispersion of 13. With a higher dispersion, no change could be
distinguished from noise."""
_UNSEEN = 13.0
"""Dispersion assumed before the first sample. It is the dispersion of the burstiest known trace."""
_MIN_DIFFERENCES = 5
"""Minimum number of differences between neighbouring blocks for an estimate of the dispersion. With a minimum of 8, the
results for the first hours of constant loads are the same."""
_FIRST = 31
"""Number of differences between neighbouring blocks whose median is the first estimate. With blocks of one second,
collecting them takes half a minute. The error of the estimate is then 50 %, and 25 % one minute later."""
_MEDIAN_WORTH = 12
"""Weight of the first estimate of the dispersion (a median) when later differences are averaged with it, as a number of
differences. The relative standard error of the median of 31 differences is 0.37, which is also the error of the mean of
this many differences."""
_MIN_QUIET_S = 10.0
"""Minimum pause, in seconds, after which new arrivals count as a step instead of noise. It is twice the longest
interval between reports of an agent."""
_MIN_QUIET_BLOCKS = 3
"""Minimum pause, in blocks of time, after which new arrivals count as a step instead of noise. It applies in addition
to `_MIN_QUIET_S`, because blocks are long and may be empty by chance if the latency objective is several minutes."""
_EDGE = 2
"""Number of differences between neighbouring blocks that one step of the load affects. A step occurs within a block and
thus changes two differences."""
_NEAR = 1.2
"""Maximum ratio of `doubt` to `value` at which the estimate `value` counts as learnt. Values of 1.05 and 1.5 give the
same planned replicas."""
_MEDIAN = 0.455
"""Median of the square of a normally distributed value whose mean square is 1."""


@immutable(frozen=True, slots=True)
class Dispersion:
    """Estimates of the dispersion of arrivals, with the counts of the present and the previous block of time.

    The counts are needed for the next update.
    """

    value: float = 1.0
    """Estimate of the dispersion over some minutes; at least 1."""
    noise: float = _UNSEEN
    """Quick estimate of the dispersion, used until `value` is learnt.

    At first it is the median of the first differences between blocks, which one burst does not change. Later
    differences are then averaged with the median, each with less weight than the previous one, until their weight is
    the same as in `value`. If the load starts with empty blocks, the noise is assumed to be Poisson noise, and the
    arrivals after these blocks count as a step.

    The differences that a step after a pause causes are left out. Otherwise, for short loads with pauses, the median
    would describe only the steps.
    """
    first: tuple[float, ...] = ()
    """The first squared differences between neighbouring blocks of time, normalised, in order; at most `_FIRST`. Pairs
    of empty blocks are left out."""
    later: int = 0
    """Number of differences between neighbouring blocks that came after those in `first`."""
    begin: float | None = None
    """Time when the block of time that is being counted began."""
    count: float = 0.0
    """Value of the arrival counter at the start of the block of time that is being counted."""
    before: float | None = None
    """Number of arrivals in the previous block of time; None if there was no previous block."""
    before_s: float = 0.0
    """Length of the previous block of time in seconds; 0 if there was no previous block."""
    quiet_s: float = 0.0
    """Seconds since the last request, counted in whole blocks."""
    edge: int = 0
    """Number of further differences between blocks to ignore, because they are due to a step after a pause."""

    @property
    def doubt(self) -> float:
        """Return the highest plausible dispersion of the load: the highest of the estimates and 1."""
        return max(self.value, self.noise, 1.0)

    @property
    def is_learnt(self) -> bool:
        """Return whether `value` is close enough to `doubt` to count as learnt."""
        return self.doubt <= _NEAR * max(self.value, 1.0)

    @property
    def is_seen(self) -> bool:
        """Return whether enough blocks have been counted for a first estimate of the noise."""
        return len(self.first) >= _MIN_DIFFERENCES

    @property
    def is_known(self) -> bool:
        """Return whether enough blocks have been counted for a reliable median.

        The median of only a few differences between blocks may be a tenth of the actual noise.
        """
        return len(self.first) >= _FIRST

    def error(self) -> float:
        """Return the relative standard error of the estimated dispersion once it is learnt.

        The error follows from three facts:

            - The square of a normally distributed value has a variance of twice its squared mean.
            - Neighbouring differences share a block, which makes the variance of their mean 1.5 times as large.
            - An exponential moving average with time constant T is as precise as a mean over 2 T, which is 2 T / block
              differences.

        The squared error is therefore 2 x 1.5 / (2 T / block).
        """
        return math.sqrt(1.5 * min(self.before_s / _SPAN_S, 1.0))

    def beginning(self, at: float) -> Dispersion:
        """Return a copy that keeps the learnt estimates and resets the counts.

        It is used after the arrival counter has restarted at 0.
        """
        return replace(self, begin=at, count=0.0, before=None, before_s=0.0, quiet_s=0.0, edge=0)

    def with_count(self, at: float, total: float, block_s: float) -> Dispersion:
        """Return the estimates updated with the arrival counter `total` at time `at`.

        A block of time ends with the first sample that comes at least `block_s` seconds after its beginning.
        """
        begin = self.begin if self.begin is not None else at
        length = at - begin
        if length < block_s:
            return self if begin is self.begin else replace(self, begin=at, count=total)
        count = total - self.count
        value, noise, first, later = self.value, self.noise, self.first, self.later
        edge = _EDGE if count > 0 and self.quiet_s >= max(_MIN_QUIET_S, _MIN_QUIET_BLOCKS * block_s) else self.edge
        if self.before is not None and self.before_s > 0:
            # Differences of neighbouring blocks are used, so that neither a trend nor a step counts as noise for long.
            # Blocks end with a sample and differ in length. The squared difference is normalised so that its mean is 1
            # for Poisson arrivals.
            pair_count = count + self.before
            if pair_count > 0:
                square = (count * self.before_s - self.before * length) ** 2 / (self.before_s * length * pair_count)
                weight = 1 - math.exp(-min(length, self.before_s) / _SPAN_S)
                value = _moved(value, square, weight)
                if edge > 0:
                    edge -= 1
                elif len(first) >= _FIRST:
                    later += 1
                    noise = _moved(noise, square, max(weight, 1 / (_MEDIAN_WORTH + later)))
                else:
                    first = (*first, square)
                    noise = min(_median(first) / _MEDIAN, _MAX_INDEX) if len(first) >= _MIN_DIFFERENCES else noise
            elif not first:
                noise = 1.0
        quiet_s = self.quiet_s + length if count == 0 else 0.0
        return Dispersion(value, noise, first, later, at, total, count, length, quiet_s, edge)


def _moved(value: float, seen: float, weight: float) -> float:
    return min(value + weight * (min(seen, 4 * value + 12) - value), _MAX_INDEX)


def _median(values: tuple[float, ...]) -> float:
    ordered = sorted(values)
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2
