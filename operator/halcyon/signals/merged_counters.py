"""Sums of counters over several processes. A sum never falls, even if processes start, stop or restart.

If a known value grows, the growth is added. A value that is reported for the first time, or that fell because its
process restarted, adds nothing to a `MergedCounter`.

So the load does not appear to jump when an agent resumes its reports. A pod's first report of a batch size includes the
first execution, which on a GPU took 3 to 300 times as long as later ones (docs/benchmarks/gpu.md). With ten pods that
start together, the model would appear twice as slow, and the planner would add replicas. A first report is therefore
used only if there is no other data about the batch size.

`time_series.Counters` handles restarts of a balancer's counter before this module. The values are immutable. Out of
scope: which values are recent enough to use (`planner_reading`).
"""

# | state of a process             | effect on `MergedCounter`           | effect on `MergedBatches`                               |
# | ------------------------------ | ----------------------------------- | ------------------------------------------------------- |
# | value grew                     | adds its growth                     | adds its growth, by batch size                          |
# | reported for the first time    | none: when it grew is unknown       | none, except for sizes that no other pod has reported   |
# | value fell                     | none: it restarted                  | as if reported for the first time                       |
# | new batch size                 | -                                   | as if reported for the first time                       |
# | not reported                   | its last value is dropped           | its last values are kept while the pod exists           |

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import field

from halcyon.api.documents.observation_report import MAX_SIZES, Batches
from halcyon.scaling.frozen import immutable

MAX_MERGED = 256
"""Maximum number of batch sizes counted for one model. Further sizes are ignored."""

_Table = Mapping[int, tuple[int, int]]


@immutable(frozen=True, slots=True)
class MergedCounter:
    """Total growth of one counter over several processes, for example over all balancers of a model."""

    total: float = 0.0
    last: Mapping[str, float] = field(default_factory=dict)
    """Last value of the counter in each process, by name of the process."""

    def with_values(self, values: Mapping[str, float]) -> MergedCounter:
        """Return the counter updated with `values`, the present values in all known processes.

        The result keeps this mapping, so the caller must not change it later.
        """
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
    """Number of batches and microseconds spent in them, by number of rows in the batch.

    The values are sums over all pods of a model, including deleted pods.
    """

    table: _Table = field(default_factory=dict)
    last: Mapping[str, _Table] = field(default_factory=dict)
    """Last batch counters of each pod, by number of rows in the batch."""

    def with_tables(self, tables: Mapping[str, Batches], *, exist: AbstractSet[str]) -> MergedBatches:
        """Return the totals updated with `tables`, the pods' present counters by batch size.

        A pod whose counters have not changed may be left out. Pods that are neither in `exist` nor in `tables` are
        dropped.
        """
        if not tables and self.last.keys() <= exist:
            return self
        table = dict(self.table)
        last = {pod: counters for pod, counters in self.last.items() if pod in exist or pod in tables}
        for pod, sizes in tables.items():
            before = last.get(pod)
            now = {rows: (count, spent_us) for rows, count, spent_us in sizes}
            if now == before:
                continue
            if before is None or _fell(before, now):
                before = {}
            for rows, (count, spent_us) in now.items():
                # The pod's table is full: the size may have been executed before without being in it.
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
    """Return whether a pod's counters have been reset.

    This is the case if a counter fell, or if a batch size is missing although the pod's table is not full.
    """
    if len(now) < MAX_SIZES and not before.keys() <= now.keys():
        return True
    return any(count < before[rows][0] or us < before[rows][1] for rows, (count, us) in now.items() if rows in before)
