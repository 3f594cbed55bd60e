"""Counters of several processes merged into one that only rises, even if processes come, go or restart.

| a process                  | in a `MergedCounter` adds        | in `MergedBatches` adds                                |
| -------------------------- | -------------------------------- | ------------------------------------------------------ |
| continues                  | its growth                       | its growth, by size                                    |
| is seen for the first time | nothing: its count is past       | nothing, except for sizes that no other pod reported   |
| has a lower value          | nothing: it restarted            | as for a new process                                   |
| has a size for the first   |                                  | as for a new process                                   |
| is not in the values       | forgotten                        | kept while it exists                                   |

Demand thus never jumps because an agent comes back. A pod's first report of a size includes its first execution, which on a GPU
took 3 to 300 times as long as others (docs/benchmarks/gpu.md). Ten pods that start at once would make the model look twice as
slow, and so ask for more replicas. Such a report is only used if nothing else is known of the size.

Restarts of a balancer's own counter are bridged before (`time_series.Counters`). These are immutable values; the caller keeps
them. Out of scope: which values are fresh enough to use (`planner_reading`).
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import field

from halcyon.api.documents.observation_report import MAX_SIZES, Batches
from halcyon.scaling.frozen import immutable

MAX_MERGED = 256
"""Maximum sizes in one model's table; further sizes aren't counted."""

_Table = Mapping[int, tuple[int, int]]


@immutable(frozen=True, slots=True)
class MergedCounter:
    """Sum of the growth of several counters."""

    total: float = 0.0
    last: Mapping[str, float] = field(default_factory=dict)
    """Values by process, as read last."""

    def with_values(self, values: Mapping[str, float]) -> MergedCounter:
        """Return the counter with the values of all processes known now. Keeps `values`: the caller must not change it later."""
        if values == self.last:
            return self
        grown = 0.0
        for name, value in values.items():
            before = self.last.get(name)
            if before is not None and value > before:
                grown += value - before
        return MergedCounter(self.total + grown, values)


@immutable(frozen=True, slots=True)
class MergedBatches:
    """Executions and microseconds by rows in the batch, over all pods that ever existed, as in the table above."""

    table: _Table = field(default_factory=dict)
    last: Mapping[str, _Table] = field(default_factory=dict)
    """Tables by pod, as read last."""

    def with_tables(self, tables: Mapping[str, Batches], *, exist: AbstractSet[str]) -> MergedBatches:
        """Return the counters with the tables of pods known now; pods that don't `exist` any more are forgotten.

        A table that is the same as at the last call may be left out: it changes nothing.
        """
        if not tables and self.last.keys() <= exist:
            return self
        table = dict(self.table)
        last = {pod: known for pod, known in self.last.items() if pod in exist or pod in tables}
        for pod, sizes in tables.items():
            before = last.get(pod)
            now = {rows: (count, spent_us) for rows, count, spent_us in sizes}
            if now == before:
                continue
            if before is None or _fell(before, now):
                before = {}
            for rows, (count, spent_us) in now.items():
                # A full table did not have this size, but it may have run.
                if rows not in before and before and len(sizes) >= MAX_SIZES:
                    continue
                if rows not in table and len(table) >= MAX_MERGED:
                    continue
                count0, spent0_us = before.get(rows, (0, 0))
                total, total_us = table.get(rows, (0, 0))
                if count0 == 0 and total > 0:
                    continue
                table[rows] = (total + count - count0, total_us + spent_us - spent0_us)
            last[pod] = {**before, **now} if len(before) < 2 * MAX_SIZES else now
        return MergedBatches(table, last)


def _fell(before: _Table, now: _Table) -> bool:
    """Return whether a counter fell, or a size is gone although the table has space for it."""
    if len(now) < MAX_SIZES and not before.keys() <= now.keys():
        return True
    return any(count < before[rows][0] or us < before[rows][1] for rows, (count, us) in now.items() if rows in before)
