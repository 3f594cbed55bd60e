"""What a replica can do and how long it takes to start, learnt from the model's own pods."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from halcyon.scaling.frozen import immutable
from halcyon.scaling.planner.capacity.queueing import ServiceLine

_KEPT_BATCHES = 2000.0
"""Weight of what was seen, in batches; older ones fade as new ones come, so that a drift is followed and idleness is not."""
_LOOK_BATCHES = 200.0
"""Most that one look weighs, however many batches a large fleet has run since the last: at least ten of them are remembered, and so
are the batches of other sizes that they had."""
_PRIOR_SPREAD = 25.0
"""How much spread of batch sizes (weight x rows squared) counts as much as the slope known before."""
_MIN_SAMPLES = 20.0
"""Batches until a line is drawn, where their sizes tell no slope (`_MIN_SPREAD`): the first ones are few, small, and run on a pod
that is cold. A line through two of them has promised an eighth of what a replica could do, and the replica that was started for it
stayed for three minutes. Where there is load, 20 take seconds; a warm-up of the smallest and the largest batch tells it before."""
_MIN_SPREAD = 4.0
"""Spread of batch sizes that tells a slope: one batch of 1 row and one of 4 have 4.5. Sizes next to each other tell noise."""
_OUTLIER = 5.0
"""A single batch that took so many times what the line says is left out: a pause, or a kernel that is chosen anew."""
_FIRST_BATCHES = 20.0
"""What pods tell of a size first has its first execution in it, which on a GPU took as much as 3 to 300 others: so many of them count
as one. Then the first ones of a model mislead by a tenth after 100 batches, however many of them there were."""
_OLD_REVISION = 20.0
"""Weight of what was seen of the revision before, in batches: a good guess where only a label has changed, soon outweighed
where the model has."""
_KEPT_STARTS = 20
"""Starts that are remembered: enough for a quantile, few enough to follow a faster image."""

_Ran = tuple[int, int, float]
"""Rows in the batch, executions, mean seconds."""
_Sums = tuple[float, float, float, float, float]
"""Of weight, rows, rows squared, seconds, and rows times seconds."""


@immutable(frozen=True, slots=True)
class Capacity:
    """The service line as faded sums over batches (weight, rows, seconds), and the last start times."""

    weight: float = 0.0
    rows: float = 0.0
    rows2: float = 0.0
    seconds: float = 0.0
    rows_seconds: float = 0.0
    line: ServiceLine | None = None
    seen: tuple[tuple[int, int, float], ...] = ()
    """(rows in the batch, executions, seconds): the counters as they were read last."""
    starts: tuple[float, ...] = ()
    """Last start times of pods, oldest first."""
    started: frozenset[str | int] = frozenset()
    """Pods whose start time is in `starts` already, of those that exist."""
    revision: str = ""
    """The revision that batches are of; empty where it isn't known."""

    def with_prior(self, prior: Mapping[int, float]) -> Capacity:
        """With seconds by batch size from a warm-up, where nothing is known yet."""
        if self.line is not None or not prior:
            return self
        each = max(math.ceil(_MIN_SAMPLES / len(prior)), 10)
        return self._with_more([(rows, each, seconds) for rows, seconds in prior.items()], self.seen)

    def of_revision(self, revision: str) -> Capacity:
        """With what was seen of another revision counting for little."""
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
        """With the counters of `batch_stats` as they are now; a counter that fell was started anew."""
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
        """With batches of one look on top, and the line fitted anew; `first` are those with the first execution of their size."""
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

    def with_starts(self, pods: Mapping[str | int, float]) -> Capacity:
        """With the start times (s) of the pods that have become ready, by name; each counts once."""
        new = [name for name in pods if name not in self.started]
        if not new and len(self.started) <= 2 * len(pods):
            return self
        starts = (*self.starts, *(pods[name] for name in new))[-_KEPT_STARTS:]
        return replace(self, starts=starts, started=frozenset(pods))

    def start_s(self, share: float, default: float) -> float:
        """The time within which `share` of the last starts were ready; `default` where none was seen."""
        if not self.starts:
            return default
        ordered = sorted(self.starts)
        return ordered[min(int(share * len(ordered)), len(ordered) - 1)]


def _sum(before: _Sums, look: Sequence[tuple[float, int, float]]) -> _Sums:
    """The sums with one look's (weight, rows, mean seconds) on top of those before, which fade."""
    total, rows, rows2, seconds, rows_seconds = before
    new = sum(weight for weight, _, _ in look)
    share = min(1.0, _LOOK_BATCHES / new) if new > 0 else 0.0
    keep = min(1.0, (_KEPT_BATCHES - share * new) / total) if total > 0 else 1.0
    total, rows, rows2, seconds, rows_seconds = (
        total * keep,
        rows * keep,
        rows2 * keep,
        seconds * keep,
        rows_seconds * keep,
    )
    for each, size, mean in look:
        weight = share * each
        total += weight
        rows += weight * size
        rows2 += weight * size * size
        seconds += weight * mean
        rows_seconds += weight * size * mean
    return total, rows, rows2, seconds, rows_seconds


def _without_first(first: Iterable[_Ran]) -> list[_Ran]:
    """Those batches without what the very first execution of all took beyond the others.

    It is one of a small size, mostly of one row, and takes as much as hundreds of others. No batch takes less for being larger, so what
    a size's mean has above that of a larger one, which ran no less often, is that.
    """
    capped: list[_Ran] = []
    for rows, count, took in sorted(first, reverse=True):
        capped.append((rows, count, min([took, *(mean for _, n, mean in capped if n >= count)])))
    return capped


def _fitted(  # noqa: PLR0917  # the five sums of a weighted line
    weight: float, rows: float, rows2: float, seconds: float, rows_seconds: float, known: ServiceLine | None
) -> ServiceLine | None:
    """The line of least squares, drawn to the shape known before where the batch sizes differ too little.

    Both parts of it are >= 0: a batch is never quicker for being larger.
    """
    if weight <= 0:
        return known
    mean_rows, mean_seconds = rows / weight, seconds / weight
    spread = max(rows2 - rows * mean_rows, 0.0)
    common = rows_seconds - rows * mean_seconds
    if known is None:
        # One size tells one point of the line; half of its time for the rows is between the two extremes.
        prior = mean_seconds / 2 / mean_rows if spread < 1.0 else common / spread
    else:
        prior = known.row_s * mean_seconds / max(known.seconds(mean_rows), 1e-9)
    slope = (common + _PRIOR_SPREAD * prior) / (spread + _PRIOR_SPREAD)
    slope = min(max(slope, 0.0), mean_seconds / mean_rows)
    return ServiceLine(max(mean_seconds - slope * mean_rows, 0.0), slope)
