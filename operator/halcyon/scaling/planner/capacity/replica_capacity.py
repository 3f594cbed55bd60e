"""Capacity of a replica, learnt from the batches of the model's own pods.

The start times are fields of it, too, since both are one part of the stored memory; `start_time` learns and reads them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from halcyon.scaling.frozen import immutable
from halcyon.scaling.planner.capacity.queueing import ServiceLine

_MAX_WEIGHT = 2000.0
"""Weight of past observations, in batches. Older ones fade as new ones come, so that drift is followed and idle time erases
nothing."""
_MAX_SAMPLE_BATCHES = 200.0
"""Maximum weight of one sample, however many batches a large fleet has run since the last. At least ten samples are thus
remembered, with the other batch sizes in them."""
_PRIOR_SPREAD = 25.0
"""Spread of batch sizes (weight x rows squared) that counts as much as the slope known before."""
_MIN_SAMPLES = 20.0
"""Minimum batches before a line is fitted, if their sizes show no slope (`_MIN_SPREAD`). The first ones are few, small, and run
on a cold pod. A line through two of them gave an eighth of a replica's real capacity, and the replica started for it stayed for
three minutes. Under load 20 batches take seconds; a warm-up of the smallest and the largest batch gives the line earlier."""
_MIN_SPREAD = 4.0
"""Spread of batch sizes that shows a slope: one batch of 1 row and one of 4 have 4.5. Neighbouring sizes only show noise."""
_OUTLIER = 5.0
"""Factor over the line from which a single batch is ignored: a pause, or another kernel choice."""
_FIRST_BATCHES = 20.0
"""Divisor of the weight of a pod's first report of a batch size. That report includes the size's first execution, which on a
GPU takes 3 to 300 times as long as others. With it, the first executions of a model distort by 10 % after 100 batches, however
many of them there were."""
_OLD_REVISION = 20.0
"""Weight of the previous revision's data, in batches: a good guess if only a label has changed, and soon outweighed if the
model has."""

_Ran = tuple[int, int, float]
"""Rows in the batch, executions, mean seconds."""
_Sums = tuple[float, float, float, float, float]
"""Sums of weight, rows, rows squared, seconds, and rows times seconds."""


@immutable(frozen=True, slots=True)
class Capacity:
    """Service line as faded sums over batches (weight, rows, seconds), and the last start times."""

    weight: float = 0.0
    rows: float = 0.0
    rows2: float = 0.0
    seconds: float = 0.0
    rows_seconds: float = 0.0
    line: ServiceLine | None = None
    seen: tuple[tuple[int, int, float], ...] = ()
    """(rows in the batch, executions, seconds): the counters as read last."""
    starts: tuple[float, ...] = ()
    """Last start times of pods in seconds, oldest first."""
    started: frozenset[str | int] = frozenset()
    """Existing pods whose start time is already in `starts`."""
    revision: str = ""
    """Revision that the batches belong to; empty if unknown."""

    def with_prior(self, prior: Mapping[int, float]) -> Capacity:
        """Add the seconds by batch size from a warm-up, if nothing is known yet."""
        if self.line is not None or not prior:
            return self
        each = max(math.ceil(_MIN_SAMPLES / len(prior)), 10)
        return self._with_more([(rows, each, seconds) for rows, seconds in prior.items()], self.seen)

    def of_revision(self, revision: str) -> Capacity:
        """Reduce the weight of data from another revision."""
        if not revision or revision == self.revision:
            return self
        if not self.revision or self.weight <= _OLD_REVISION:
            return replace(self, revision=revision, seen=() if self.revision else self.seen)
        keep = _OLD_REVISION / self.weight
        return replace(
            self,
            weight=self.weight * keep,
            rows=self.rows * keep,
            rows2=self.rows2 * keep,
            seconds=self.seconds * keep,
            rows_seconds=self.rows_seconds * keep,
            seen=(),
            revision=revision,
        )

    def with_batches(self, batches: Mapping[int, tuple[int, float]]) -> Capacity:
        """Add the present counters of `batch_stats`; a counter that fell was reset."""
        if len(batches) == len(self.seen) and not [1 for rows, n, took in self.seen if batches.get(rows) != (n, took)]:
            return self
        before = {rows: (count, seconds) for rows, count, seconds in self.seen}
        first: list[_Ran] = []
        more: list[_Ran] = []
        for rows, (count, seconds) in batches.items():
            count0, seconds0 = before.get(rows, (0, 0.0))
            if count == count0 and seconds == seconds0:
                continue
            if count < count0 or seconds < seconds0:
                count0, seconds0 = 0, 0.0
            new, took = count - count0, seconds - seconds0
            before[rows] = (count, seconds)
            if new <= 0 or took <= 0 or rows <= 0:
                continue
            if count0 == 0:
                first.append((rows, new, took / new))
            elif new > 1 or self.line is None or took <= _OUTLIER * self.line.seconds(rows):
                more.append((rows, new, took / new))
        seen = tuple((rows, count, seconds) for rows, (count, seconds) in before.items())
        if self.line is not None:
            first = []
        return self._with_more(more, seen, first) if more or first else replace(self, seen=seen)

    def _with_more(
        self, more: Sequence[_Ran], seen: tuple[tuple[int, int, float], ...], first: Sequence[_Ran] = ()
    ) -> Capacity:
        """Add the batches of one sample and refit the line; `first` are those with the first execution of their size."""
        clean = [(float(count), rows, mean) for rows, count, mean in more]
        guessed = [(float(count), rows, mean) for rows, count, mean in _without_first(first)]
        sums = self.weight, self.rows, self.rows2, self.seconds, self.rows_seconds
        line = self.line
        if line is not None:
            kept = _sum(sums, clean)
            line = _fitted(*kept, line)
        else:
            whole = _sum(sums, [*clean, *guessed])
            kept = _sum(sums, [*clean, *((count / _FIRST_BATCHES, rows, mean) for count, rows, mean in guessed)])
            if whole[0] >= _MIN_SAMPLES or whole[2] - whole[1] * whole[1] / whole[0] >= _MIN_SPREAD:
                line = _fitted(*whole, None)
        return Capacity(*kept, line, seen, self.starts, self.started, self.revision)


def _sum(before: _Sums, sample: Sequence[tuple[float, int, float]]) -> _Sums:
    """Return the faded sums with the (weight, rows, mean seconds) of one sample added."""
    total, rows, rows2, seconds, rows_seconds = before
    new = sum(weight for weight, _, _ in sample)
    share = min(1.0, _MAX_SAMPLE_BATCHES / new) if new > 0 else 0.0
    keep = min(1.0, (_MAX_WEIGHT - share * new) / total) if total > 0 else 1.0
    total, rows, rows2, seconds, rows_seconds = (
        total * keep,
        rows * keep,
        rows2 * keep,
        seconds * keep,
        rows_seconds * keep,
    )
    for each, size, mean in sample:
        weight = share * each
        total += weight
        rows += weight * size
        rows2 += weight * size * size
        seconds += weight * mean
        rows_seconds += weight * size * mean
    return total, rows, rows2, seconds, rows_seconds


def _without_first(first: Iterable[_Ran]) -> list[_Ran]:
    """Return those batches without the extra time of the very first execution.

    It belongs to a small size, mostly of one row, and takes as long as hundreds of others. No batch is faster for being larger.
    So if a size has a higher mean than a larger one that ran at least as often, the excess is that extra time.
    """
    capped: list[_Ran] = []
    for rows, count, took in sorted(first, reverse=True):
        capped.append((rows, count, min([took, *(mean for _, n, mean in capped if n >= count)])))
    return capped


def _fitted(  # noqa: PLR0917  # the five sums of a weighted line
    weight: float, rows: float, rows2: float, seconds: float, rows_seconds: float, known: ServiceLine | None
) -> ServiceLine | None:
    """Fit a least-squares line, drawn towards the former shape if the batch sizes differ too little.

    Both parts of it are >= 0: a batch is never faster for being larger.
    """
    if weight <= 0:
        return known
    mean_rows, mean_seconds = rows / weight, seconds / weight
    spread = max(rows2 - rows * mean_rows, 0.0)
    common = rows_seconds - rows * mean_seconds
    if known is None:
        # One size determines one point of the line; attributing half of its time to the rows is between the two extremes.
        prior = mean_seconds / 2 / mean_rows if spread < 1.0 else common / spread
    else:
        prior = known.row_s * mean_seconds / max(known.seconds(mean_rows), 1e-9)
    slope = (common + _PRIOR_SPREAD * prior) / (spread + _PRIOR_SPREAD)
    slope = min(max(slope, 0.0), mean_seconds / mean_rows)
    return ServiceLine(max(mean_seconds - slope * mean_rows, 0.0), slope)
