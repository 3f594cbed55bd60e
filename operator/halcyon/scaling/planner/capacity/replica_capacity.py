"""Capacity of a replica, learnt from the batches that the model's own pods execute.

The class `Capacity` also holds the start times of pods, because both are stored as one part of the planner's memory.
The module `start_time` updates and reads them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from halcyon.scaling.frozen import immutable
from halcyon.scaling.planner.capacity.queueing import ServiceLine

_MAX_WEIGHT = 2000.0
"""Maximum total weight of past batches in the fit of batch time to batch size. Older batches lose weight only when new
ones are executed. So the fit follows gradual changes, but forgets nothing while the model is idle."""
_MAX_SAMPLE_BATCHES = 200.0
"""Maximum weight of one sample, in batches. A large fleet may execute many more batches between two samples. With this
maximum, the result depends on at least the last ten samples and their batch sizes."""
_PRIOR_SPREAD = 25.0
"""Weight of the previous slope when a line is fitted to the batch times again. It is in the unit of the spread of the
batch sizes, weight x rows squared. If the spread has this value, the previous and the new slope count equally."""
_MIN_SAMPLES = 20.0
"""Minimum number of batches before a line is fitted to their times, unless their sizes differ enough (`_MIN_SPREAD`).
The first batches are few and small, and run on a cold pod. In one case, a line through two of them gave an eighth of a
replica's real capacity, so that an unnecessary replica was started and kept for three minutes. Under load, 20 batches
take seconds. A warm-up with the smallest and the largest batch provides the line earlier."""
_MIN_SPREAD = 4.0
"""Minimum spread of batch sizes, in rows squared, at which a line is fitted to fewer than `_MIN_SAMPLES` batches. One
batch of 1 row and one of 4 have a spread of 4.5. Two batches of similar sizes have a smaller spread, and the difference
between their times is only noise."""
_OUTLIER = 5.0
"""Ratio of a batch's time to the predicted time, above which the batch is ignored. The usual causes are a pause and a
different choice of GPU kernel."""
_FIRST_BATCHES = 20.0
"""Divisor for the weight of a pod's first report of a batch size. That report includes the first execution of the size,
which takes 3 to 300 times as long as later ones on a GPU. With this divisor, the first executions together cause an
error of 10 % after 100 batches, however many there were."""
_OLD_REVISION = 20.0
"""Maximum weight, in batches, of data from the previous revision. It is a good initial guess if only a label has
changed. If the model has changed, new batches soon outweigh it."""
_MEASURED_BATCHES = 20.0
"""Initial weight of batch times that `halcyon bench` has measured, in batches."""
_OUTWEIGHED = 100.0
"""Number of executed batches after which batch times measured by `halcyon bench` have no weight. The weight falls
linearly to 0, so that wrong measurements are forgotten. With a constant weight of 20 batches, times three times too
long would still cause an error of 33 % after 100 batches."""

_Ran = tuple[int, int, float]
"""Batches of one size since the previous sample: (rows in the batch, number of executions, mean seconds)."""
_Sums = tuple[float, float, float, float, float]
"""Weighted sums over batches: (weight, rows, rows squared, seconds, rows times seconds)."""


@immutable(frozen=True, slots=True)
class Capacity:
    """Learnt capacity of a replica, and recent start times of pods.

    The capacity is a line fitted to batch times (service line). It is stored with the weighted sums for the fit, in
    which older batches have less weight.
    """

    weight: float = 0.0
    rows: float = 0.0
    rows2: float = 0.0
    seconds: float = 0.0
    rows_seconds: float = 0.0
    line: ServiceLine | None = None
    seen: tuple[tuple[int, int, float], ...] = ()
    """Triton's counters by batch size, as last read: (rows in the batch, executions, total seconds)."""
    starts: tuple[float, ...] = ()
    """Recent start times of pods in seconds, oldest first."""
    started: frozenset[str | int] = frozenset()
    """Names of existing pods whose start time is already in `starts`."""
    revision: str = ""
    """Revision that executed the batches; empty if unknown."""
    measured: tuple[tuple[int, float], ...] = ()
    """Batch times that `halcyon bench` measured before any traffic, as (rows in the batch, seconds); empty if there is
    no measurement."""
    batches: float = 0.0
    """Number of batches that the revision has executed, without those in the first report of each batch size. The more
    there are, the less weight the batch times from `halcyon bench` have."""

    @property
    def is_outweighed(self) -> bool:
        """Return whether traffic outweighs the batch times from `halcyon bench`, so that they have no weight."""
        # A memory of an older version contains the weight of the batches, but not their number.
        return max(self.batches, self.weight - _OLD_REVISION) >= _OUTWEIGHED

    @property
    def measured_weight(self) -> float:
        """Return the weight of the batch times measured by `halcyon bench`, in batches.

        The weight is 0 if there are no such times, or if traffic outweighs them.
        """
        if not self.measured or self.is_outweighed:
            return 0.0
        return _MEASURED_BATCHES * (1 - max(self.batches, self.weight - _OLD_REVISION, 0.0) / _OUTWEIGHED)

    def with_prior(self, prior: Mapping[int, float]) -> Capacity:
        """Return the capacity with batch times from a warm-up (seconds by number of rows).

        The capacity is unchanged if a line has already been fitted to batch times.
        """
        if self.line is not None or not prior:
            return self
        each = max(math.ceil(_MIN_SAMPLES / len(prior)), 10)
        return self._with_more([(rows, each, seconds) for rows, seconds in prior.items()], self.seen, (), self.batches)

    def with_measured(self, times: Mapping[int, float] | None) -> Capacity:
        """Return the capacity with batch times that `halcyon bench` measured: seconds by number of rows.

        If `times` is None, an earlier measurement is removed. The times have the weight of `_MEASURED_BATCHES` batches
        at first, and none after `_OUTWEIGHED` batches.
        """
        if not times and not self.measured:
            return self
        pairs = tuple((times or {}).items())
        if pairs == self.measured:
            return self
        was = self.measured_weight
        updated = replace(self, measured=pairs)
        if was <= 0 and updated.measured_weight <= 0:
            return updated
        if pairs and updated.batches <= 0 and updated.weight <= _OLD_REVISION:
            # All other data is from an earlier revision.
            updated = replace(updated, weight=0.0, rows=0.0, rows2=0.0, seconds=0.0, rows_seconds=0.0)
        sums = updated.weight, updated.rows, updated.rows2, updated.seconds, updated.rows_seconds
        return replace(updated, line=_line_with_measured(sums, pairs, updated.measured_weight))

    def of_revision(self, revision: str) -> Capacity:
        """Return the capacity for a revision of the model.

        If the stored data comes from a different revision, its weight is reduced to that of `_OLD_REVISION` batches,
        unless it is already lower.
        """
        if not revision or revision == self.revision:
            return self
        if not self.revision:
            return replace(self, revision=revision)
        unmeasured = self.with_measured(None)
        keep = min(_OLD_REVISION / unmeasured.weight, 1.0) if unmeasured.weight > 0 else 1.0
        return replace(
            unmeasured,
            weight=unmeasured.weight * keep,
            rows=unmeasured.rows * keep,
            rows2=unmeasured.rows2 * keep,
            seconds=unmeasured.seconds * keep,
            rows_seconds=unmeasured.rows_seconds * keep,
            seen=(),
            revision=revision,
            batches=0.0,
        )

    def with_batches(self, batches: Mapping[int, tuple[int, float]]) -> Capacity:
        """Return the capacity updated with new `batch_stats` counters. A counter that fell is treated as reset."""
        if len(batches) == len(self.seen) and not [1 for rows, n, took in self.seen if batches.get(rows) != (n, took)]:
            return self
        before = {rows: (count, seconds) for rows, count, seconds in self.seen}
        first: list[_Ran] = []
        more: list[_Ran] = []
        ran = self.batches
        for rows, (count, seconds) in batches.items():
            count0, seconds0 = before.get(rows, (0, 0.0))
            if count == count0 and seconds == seconds0:
                continue
            before[rows] = (count, seconds)
            if count < count0 or seconds < seconds0:
                count0, seconds0 = 0, 0.0
            new, took = count - count0, seconds - seconds0
            if new <= 0 or took <= 0 or rows <= 0:
                continue
            sample = (rows, new, took / new)
            if count0:
                ran = min(ran + new, _MAX_WEIGHT)
                if new > 1 or self.line is None or took <= _OUTLIER * self.line.seconds(rows):
                    more.append(sample)
            elif self.line is None:
                first.append(sample)
        seen = tuple((rows, count, seconds) for rows, (count, seconds) in before.items())
        if more or first or (self.measured and ran > self.batches):
            return self._with_more(more, seen, first, ran)
        return replace(self, seen=seen, batches=ran)

    def _with_more(
        self, more: Sequence[_Ran], seen: tuple[tuple[int, int, float], ...], first: Sequence[_Ran], ran: float
    ) -> Capacity:
        """Return the capacity with the batches of one sample added and the line fitted to the batch times again.

        `first` contains the batches that include the first execution of their size; `ran` is the new value of
        `batches`.
        """
        clean = [(float(count), rows, mean) for rows, count, mean in more]
        guessed = [(float(count), rows, mean) for rows, count, mean in _without_first(first)]
        sums = self.weight, self.rows, self.rows2, self.seconds, self.rows_seconds
        line = self.line
        if line is not None:
            weighted = _sum(sums, clean)
            updated = Capacity(*weighted, line, seen, self.starts, self.started, self.revision, self.measured, ran)
            if self.measured_weight <= 0:
                return replace(updated, line=_fitted(*weighted, line))
            if updated.measured_weight > 0:
                return replace(updated, line=_line_with_measured(weighted, self.measured, updated.measured_weight))
            return replace(updated, line=_fitted(*weighted, line) if _is_enough(weighted) else None)
        complete = _sum(sums, [*clean, *guessed])
        weighted = _sum(sums, [*clean, *((count / _FIRST_BATCHES, rows, mean) for count, rows, mean in guessed)])
        if _is_enough(complete):
            line = _fitted(*complete, None)
        return Capacity(*weighted, line, seen, self.starts, self.started, self.revision, self.measured, ran)


def _line_with_measured(sums: _Sums, times: tuple[tuple[int, float], ...], weight: float) -> ServiceLine | None:
    """Return a line (service line) fitted to the sums and to batch times that `halcyon bench` measured.

    `times` are (rows in the batch, seconds) pairs, which together have the weight of `weight` batches. Return None if
    there is too little data.
    """
    if weight <= 0:
        return _fitted(*sums, None) if _is_enough(sums) else None
    measured = _sum((0.0, 0.0, 0.0, 0.0, 0.0), [(weight / len(times), rows, seconds) for rows, seconds in times])
    total, rows, rows2, seconds, rows_seconds = (own + more for own, more in zip(sums, measured, strict=True))
    return _fitted(total, rows, rows2, seconds, rows_seconds, _fitted(*measured, None))


def _is_enough(sums: _Sums) -> bool:
    """Return whether there are enough batches, or batches of enough sizes, to fit a line to their times."""
    weight, rows, rows2 = sums[:3]
    return weight >= _MIN_SAMPLES or (weight > 0 and rows2 - rows * rows / weight >= _MIN_SPREAD)


def _sum(before: _Sums, sample: Sequence[tuple[float, int, float]]) -> _Sums:
    """Return the sums with one sample added and the weight of older ones reduced.

    Each entry of `sample` is (weight, rows, mean seconds).
    """
    total = before[0]
    new = sum(weight for weight, _, _ in sample)
    share = min(1.0, _MAX_SAMPLE_BATCHES / new) if new > 0 else 0.0
    keep = min(1.0, (_MAX_WEIGHT - share * new) / total) if total > 0 else 1.0
    total, rows, rows2, seconds, rows_seconds = (value * keep for value in before)
    for each, size, mean in sample:
        weight = share * each
        total += weight
        rows += weight * size
        rows2 += weight * size * size
        seconds += weight * mean
        rows_seconds += weight * size * mean
    return total, rows, rows2, seconds, rows_seconds


def _without_first(first: Iterable[_Ran]) -> list[_Ran]:
    """Return the first report of each batch size, less the extra time of the model's very first execution.

    The very first execution takes as long as hundreds of others, and usually has only a few rows. A larger batch is
    never faster than a smaller one. So if a size takes longer on average than a larger size that ran at least as often,
    the difference is this extra time and is subtracted from the size's mean time.
    """
    capped: list[_Ran] = []
    for rows, count, took in sorted(first, reverse=True):
        capped.append((rows, count, min([took, *(mean for _, n, mean in capped if n >= count)])))
    return capped


def _fitted(  # noqa: PLR0917  # the five sums of a weighted line
    weight: float, rows: float, rows2: float, seconds: float, rows_seconds: float, previous: ServiceLine | None
) -> ServiceLine | None:
    """Return the line fitted to the batch times by weighted least squares, with the previous slope as a prior.

    The previous slope decides if the batch sizes differ too little. Neither the constant nor the slope of the result is
    negative, because a larger batch is never faster.
    """
    if weight <= 0:
        return previous
    mean_rows, mean_seconds = rows / weight, seconds / weight
    spread = max(rows2 - rows * mean_rows, 0.0)
    common = rows_seconds - rows * mean_seconds
    if previous is None:
        # With batches of one size only one point of the line is known. Half of the time is attributed to the rows,
        # midway between the extremes.
        prior = mean_seconds / 2 / mean_rows if spread < 1.0 else common / spread
    else:
        prior = previous.row_s * mean_seconds / max(previous.seconds(mean_rows), 1e-9)
    slope = (common + _PRIOR_SPREAD * prior) / (spread + _PRIOR_SPREAD)
    slope = min(max(slope, 0.0), mean_seconds / mean_rows)
    return ServiceLine(max(mean_seconds - slope * mean_rows, 0.0), slope)
