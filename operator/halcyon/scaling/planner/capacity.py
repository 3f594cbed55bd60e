"""What a replica can do and how long it takes to start, learnt from the model's own pods."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from halcyon.scaling.planner.queueing import ServiceLine

_KEPT_BATCHES = 2000.0
"""Weight of what was seen, in batches; older ones fade as new ones come, so that a drift is followed and idleness is not."""
_PRIOR_SPREAD = 25.0
"""How much spread of batch sizes (weight x rows squared) counts as much as the slope known before."""
_OUTLIER = 5.0
"""A single batch that took so many times what the line says is left out: the first execution of a model is one."""
_KEPT_STARTS = 20


@dataclass(frozen=True, slots=True)
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

    def with_prior(self, prior: Mapping[int, float]) -> Capacity:
        """With seconds by batch size from a warm-up, where nothing is known yet."""
        if self.line is not None or not prior:
            return self
        memory = self
        for rows, seconds in prior.items():
            memory = memory.with_more(rows, 10, 10 * seconds)
        return memory.fitted()

    def with_batches(self, batches: Mapping[int, tuple[int, float]]) -> Capacity:
        """With the counters of `batch_stats` as they are now; a counter that fell was started anew."""
        before = {rows: (count, seconds) for rows, count, seconds in self.seen}
        memory, grown = self, False
        for rows, (count, seconds) in batches.items():
            count0, seconds0 = before.get(rows, (0, 0.0))
            if count < count0 or seconds < seconds0:
                count0, seconds0 = 0, 0.0
            more, took = count - count0, seconds - seconds0
            if more <= 0 or took <= 0 or rows <= 0:
                continue
            known = self.line
            if more == 1 and known is not None and took > _OUTLIER * known.seconds(rows):
                continue
            memory, grown = memory.with_more(rows, more, took), True
        seen = tuple((rows, count, seconds) for rows, (count, seconds) in batches.items())
        return replace(memory.fitted() if grown else memory, seen=seen)

    def with_more(self, rows: int, count: int, seconds: float) -> Capacity:
        """With `count` batches of `rows` that took `seconds` together."""
        weight = float(min(count, _KEPT_BATCHES))
        mean = seconds / count
        keep = min(1.0, (_KEPT_BATCHES - weight) / self.weight) if self.weight > 0 else 1.0
        return replace(
            self,
            weight=self.weight * keep + weight,
            rows=self.rows * keep + weight * rows,
            rows2=self.rows2 * keep + weight * rows * rows,
            seconds=self.seconds * keep + weight * mean,
            rows_seconds=self.rows_seconds * keep + weight * rows * mean,
        )

    def fitted(self) -> Capacity:
        """With the line of least squares, drawn to the shape known before where the batch sizes differ too little.

        Both parts of it are >= 0: a batch is never quicker for being larger.
        """
        if self.weight <= 0:
            return self
        mean_rows, mean_seconds = self.rows / self.weight, self.seconds / self.weight
        spread = max(self.rows2 - self.rows * mean_rows, 0.0)
        common = self.rows_seconds - self.rows * mean_seconds
        if self.line is None:
            # One size tells one point of the line; half of its time for the rows is between the two extremes.
            prior = mean_seconds / 2 / mean_rows if spread < 1.0 else common / spread
        else:
            prior = self.line.row_s * mean_seconds / max(self.line.seconds(mean_rows), 1e-9)
        slope = (common + _PRIOR_SPREAD * prior) / (spread + _PRIOR_SPREAD)
        slope = min(max(slope, 0.0), mean_seconds / mean_rows)
        return replace(self, line=ServiceLine(max(mean_seconds - slope * mean_rows, 0.0), slope))

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
