"""Long-run share of late requests, estimated from one run, with a confidence interval over blocks of time.

Single requests aren't independent: in a queue, one late request delays the next ones. Therefore the interval is
computed over blocks of time that are longer than the queue's memory.

The arrivals of a run are random. A queueing law gives the effect of chance: the late share under the law with these
arrivals, minus the late share under the law in the long run. This difference is subtracted from the measured share. The
result is unbiased for any law, because the law's long-run share is exact. If the law fits the server, the interval
becomes narrower; otherwise nothing is subtracted.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from halcyon_measure.results.columns import Floats
from halcyon_measure.stats.student import quantile

MIN_BLOCKS = 5
_MAX_AUTOCORRELATION = 0.4
"""Maximum autocorrelation of successive blocks of time. Above it, the blocks are too short, and their length is
doubled."""
_MIN_BLOCK_S = 1.0
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class LateShare:
    """Estimate of the long-run share of requests that fail or miss the objective."""

    share: float
    error: float
    """Standard error of `share`."""
    blocks: int
    block_s: float
    autocorrelation: float | None
    requests: int
    """Number of requests in the blocks of time."""
    luck_removed: bool
    """Whether the effect of chance in the arrivals was subtracted (see the module)."""

    def interval(self, confidence: float = 0.95) -> tuple[float, float]:
        """Return the confidence interval of `share`."""
        half_width = quantile((1 + confidence) / 2, max(self.blocks - 1, 1)) * self.error
        return max(self.share - half_width, 0.0), min(self.share + half_width, 1.0)

    def kept(self, limit: float, confidence: float = 0.95) -> bool | None:
        """Return whether the share is at most `limit`.

        The result is None if `limit` is within the confidence interval, or if there are too few blocks.
        """
        if self.blocks < MIN_BLOCKS:
            return None
        low, high = self.interval(confidence)
        return True if high <= limit else False if low > limit else None


def block_s(*, rate_rps: float, saturation_rps: float, execution_s: float, longest_s: float) -> float:
    """Return the length of a block in seconds: three times the queue's memory, from `_MIN_BLOCK_S` to `longest_s`.

    The queue's memory, the time for which a delay affects later requests, is about rate / (saturation - rate)^2 plus
    the longest execution. For a server with one request at a time, the first term is S rho / (1 - rho)^2.
    """
    free_rps = max(saturation_rps - rate_rps, 0.01 * saturation_rps)
    memory = rate_rps / free_rps**2 + execution_s
    return min(max(3 * memory, _MIN_BLOCK_S), longest_s)


def estimate(
    at_s: Floats,
    late: Bools,
    expected: tuple[Floats, Bools, float] | None,
    *,
    length_s: float,
    block_s: float,
    limit: float,
) -> LateShare | None:
    """Return the late share of a run; None if it has fewer than two blocks.

    Args:
        at_s: time of each request in seconds since the beginning of the run, in any order.
        late: whether each request failed or missed the objective.
        expected: times and lateness under the law with the same arrivals, and the law's late share in the long run.
        length_s: length of the run in seconds.
        block_s: length of a block in seconds. The first block is omitted, because the law begins with an empty queue.
        limit: maximum share of late requests for which the objective is met.
    """
    late_share = _estimate(at_s, late, expected, length_s=length_s, block_s=block_s, limit=limit)
    if (
        late_share is not None
        and late_share.autocorrelation is not None
        and late_share.autocorrelation > _MAX_AUTOCORRELATION
    ):
        longer = _estimate(at_s, late, expected, length_s=length_s, block_s=2 * block_s, limit=limit)
        if longer is not None and longer.blocks >= MIN_BLOCKS:
            return longer
    return late_share


def _estimate(
    at_s: Floats,
    late: Bools,
    expected: tuple[Floats, Bools, float] | None,
    *,
    length_s: float,
    block_s: float,
    limit: float,
) -> LateShare | None:
    count = int(length_s / block_s + 1e-9) - 1
    if count < 2:  # a variance needs two values
        return None
    # The last block ends with the run.
    begin = length_s - count * block_s
    total = _counts(at_s, begin, block_s, count)
    requests = float(total.sum())
    if requests == 0:
        return None
    per_block = requests / count
    raw = _counts(at_s[late], begin, block_s, count) / per_block
    # Late requests come in clusters, so a few blocks without late requests don't show that there are none.
    share, error = float(raw.mean()), max(_error(raw), 2 * limit / math.sqrt(count))
    values, removed = raw, False
    if expected is not None:
        times, model_late, long_run = expected
        difference = raw - _counts(times[model_late], begin, block_s, count) / per_block
        own_error = max(_error(difference), limit / count)
        if own_error < error:
            share, error = float(difference.mean()) + long_run, own_error
            values, removed = difference, True
    return LateShare(
        share=max(share, 0.0),
        error=error,
        blocks=count,
        block_s=block_s,
        autocorrelation=_autocorrelation(values),
        requests=int(requests),
        luck_removed=removed,
    )


def _counts(times: Floats, begin: float, block_s: float, count: int) -> Floats:
    index = np.floor((times - begin) / block_s).astype(np.int64)
    inside = (index >= 0) & (index < count)
    return np.bincount(index[inside], minlength=count).astype(np.float64)


def _error(values: Floats) -> float:
    return float(values.std(ddof=1) / math.sqrt(len(values)))


def _autocorrelation(values: Floats) -> float | None:
    """Return the correlation between successive blocks of time; None if there are few blocks, or if all are equal."""
    deviations = values - values.mean()
    spread = float(np.dot(deviations, deviations))
    if len(values) < MIN_BLOCKS or spread <= 0:
        return None
    return float(np.dot(deviations[1:], deviations[:-1]) / spread)
