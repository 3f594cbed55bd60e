"""Counters of several processes as one that only rises, whoever comes, goes or begins anew.

| a process                  | of a `MergedCounter`             | of `MergedBatches`                                     |
| -------------------------- | -------------------------------- | ------------------------------------------------------ |
| goes on                    | its growth                       | its growth, by size                                    |
| is seen for the first time | nothing: what it counted is past | nothing, except of sizes that no other pod has told of |
| shows less than before     | nothing: it begins anew          | the same as of one that is new                         |
| has a size for the first   |                                  | the same as of one that is new                         |
| is not in the values       | forgotten                        | kept while it exists                                   |

So demand never jumps for an agent's coming back. What a pod tells of a size first has the first execution in it, and that is no
batch as others: on a GPU it took 3 to 300 times as much (docs/benchmarks/gpu.md). Ten pods that come at once would make the model
look twice as slow, and so ask for more. Only where nothing else is known of a size is it worth telling. Restarts of a
balancer's own counter are bridged before (`series.Counters`). Values, not processes' state: the caller keeps them. Not here:
which values are fresh enough to be taken (`reading`).
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import field

from halcyon.api.documents.observation_report import MAX_SIZES, Batches
from halcyon.scaling.frozen import immutable

MAX_MERGED = 256
"""Sizes in one model's table; a size that comes when it is full isn't counted."""

_Table = Mapping[int, tuple[int, int]]


@immutable(frozen=True, slots=True)
class MergedCounter:
    """The sum of what several counters grew by."""

    total: float = 0.0
    last: Mapping[str, float] = field(default_factory=dict)
    """By process, as read last."""

    def with_values(self, values: Mapping[str, float]) -> MergedCounter:
        """With the counters of all processes that are known now. Keeps `values`: the caller changes it no more."""
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
    """Executions and microseconds by rows in the batch, of all pods that ever were; see the table above for which of them."""

    table: _Table = field(default_factory=dict)
    last: Mapping[str, _Table] = field(default_factory=dict)
    """By pod, as read last."""

    def with_tables(self, tables: Mapping[str, Batches], *, exist: AbstractSet[str]) -> MergedBatches:
        """With the tables of pods that are known now; of pods that don't `exist` any more nothing is remembered.

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
                # A table that is full lacked this size, and perhaps not because it had not run.
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
    """A counter is lower, or a size is gone that a table with room for it would tell."""
    if len(now) < MAX_SIZES and not before.keys() <= now.keys():
        return True
    return any(count < before[rows][0] or us < before[rows][1] for rows, (count, us) in now.items() if rows in before)
