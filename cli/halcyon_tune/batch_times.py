"""Execution times of batches by their number of rows, and straight lines fitted to these times. Pure.

Each family of configurations has its own times, because instances and threads share a device. If only one batch size of
a family was measured, its other times are those of the first family, scaled by the ratio at this size.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from halcyon.scaling.planner.capacity.queueing import ServiceLine
from halcyon_tune.points import Configuration, Point

Family = tuple[int, int | None]
"""Settings that affect the execution times of batches: the number of instances, and the threads of each instance."""

_LEAST_SHARE = 0.01
"""Share of a measurement's executions below which a batch size is ignored. The mean of so few executions is unreliable.
"""
_BEND = 0.15
"""Relative distance of a batch's execution time from the fitted line above which the line describes the times badly."""


@dataclass(frozen=True)
class BatchTimes:
    """Execution times of all batches that were measured so far."""

    sums: Mapping[Family, Mapping[int, tuple[float, float]]] = field(default_factory=dict)
    """Weight and mean time in seconds of the measured batches, by family and number of rows. Every measurement has the
    same weight, however many batches were executed.
    """
    first: Family | None = None
    """Family of configurations that was measured first. It has times for more batch sizes than the others."""

    def with_point(self, point: Point) -> BatchTimes:
        """Return the times, extended by those of a measured point.

        If the point has no batch statistics, the mean latency of a single caller is the time of one request.
        """
        found = _means(point)
        if not found:
            return self
        family = point.configuration.family
        known = dict(self.sums.get(family, {}))
        for rows, seconds in found.items():
            weight, mean = known.get(rows, (0.0, 0.0))
            known[rows] = weight + 1, (weight * mean + seconds) / (weight + 1)
        return replace(self, sums={**self.sums, family: known}, first=self.first or family)

    def means(self, family: Family) -> dict[int, float]:
        """Return the mean execution time in seconds of a family's batches, by number of rows, as measured."""
        return {rows: mean for rows, (_, mean) in sorted(self.sums.get(family, {}).items())}

    def line(self, configuration: Configuration, rows_per_request: float = 1.0) -> ServiceLine | None:
        """Return the fitted line of batch times for a configuration; None if nothing was measured.

        The slope of the line is per request, not per row. Batch sizes above the configuration's largest batch don't
        count, because the times may have a jump before them. Larger sizes have more weight, because a replica near its
        capacity mostly executes large batches.
        """
        most = configuration.max_batch
        known = self._known(configuration.family)
        sizes = {rows: seconds for rows, seconds in known.items() if rows <= most}
        above = min((rows for rows in known if rows > most), default=None)
        if above is not None and len(sizes) < 2:
            sizes[above] = known[above]
        if not sizes:
            return None
        return _fitted(sizes, rows_per_request)

    def bend(self, family: Family) -> float:
        """Return the largest relative distance of a batch time from the line fitted to all sizes.

        The result is 0 with fewer than 3 sizes.
        """
        means = self.means(family)
        if len(means) < 3:
            return 0.0
        line = _fitted(means, 1.0)
        return max(abs(math.log(seconds / max(line.seconds(rows), 1e-9))) for rows, seconds in means.items())

    def is_bent(self, family: Family) -> bool:
        """Return whether a straight line describes the batch times of a family badly."""
        return self.bend(family) > _BEND

    def sharing(self, family: Family) -> float | None:
        """Return the ratio of a family's batch times to those of the first measured family; None if unknown."""
        if self.first is None:
            return None
        if family == self.first:
            return 1.0
        own, base = self.means(family), self.means(self.first)
        if not own:
            return None
        logs = [rows * math.log(seconds / _interpolated(base, rows)) for rows, seconds in own.items()]
        return math.exp(math.fsum(logs) / math.fsum(own))

    def _known(self, family: Family) -> dict[int, float]:
        """Return the batch times of a family of configurations, by number of rows.

        Sizes that were measured only for the first family have its times, scaled by the ratio of the two families.
        """
        own = self.means(family)
        if self.first is None or family == self.first:
            return own
        base = self.means(self.first)
        if not own:
            factor = self._extrapolated(family)
            return {rows: factor * seconds for rows, seconds in base.items()}
        ratios = {rows: seconds / _interpolated(base, rows) for rows, seconds in own.items()}
        return {rows: seconds * _interpolated(ratios, rows) for rows, seconds in base.items() if rows not in own} | own

    def _extrapolated(self, family: Family) -> float:
        """Return an estimated ratio of an unmeasured family's batch times to those of the first measured family.

        It is the ratio of the nearest measured family, extrapolated linearly in the number of instances.
        """
        if self.first is None:
            return 1.0
        known = {one: self.sharing(one) or 1.0 for one in self.sums if one != self.first}
        if not known:
            return 1.0
        near = min(known, key=lambda one: (one[1] != family[1], abs(one[0] - family[0])))
        more = near[0] - self.first[0]
        slope = (known[near] - 1) / more if more > 0 else 0.0
        return max(1 + slope * (family[0] - self.first[0]), 0.1)


def _means(point: Point) -> dict[int, float]:
    executed = sum(count for count, _ in point.batches.values())
    found = {
        rows: seconds / count
        for rows, (count, seconds) in point.batches.items()
        if rows > 0 and count >= max(_LEAST_SHARE * executed, 1) and seconds > 0
    }
    callers = getattr(point.load, "callers", None)
    if not found and callers == 1 and point.mean_s > 0:
        return {max(round(point.rows_per_request), 1): point.mean_s}
    return found


def _interpolated(values: Mapping[int, float], rows: int) -> float:
    """Return the batch time at a number of rows, interpolated linearly between known sizes.

    Below the smallest and above the largest known size, the result is the time of that size.
    """
    sizes = sorted(values)
    if rows in values:
        return values[rows]
    below = max((size for size in sizes if size < rows), default=None)
    above = min((size for size in sizes if size > rows), default=None)
    if below is None or above is None:
        return values[sizes[0] if below is None else sizes[-1]]
    share = (rows - below) / (above - below)
    return values[below] + share * (values[above] - values[below])


def _fitted(sizes: Mapping[int, float], rows_per_request: float) -> ServiceLine:
    """Return the straight line fitted to batch times by least squares, weighted by the square of the batch size.

    Neither its slope nor its constant is negative.
    """
    rows: Sequence[int] = list(sizes)
    weights = [float(size * size) for size in rows]
    total = math.fsum(weights)
    mean_rows = math.fsum(w * b for w, b in zip(weights, rows, strict=True)) / total
    mean_s = math.fsum(w * sizes[b] for w, b in zip(weights, rows, strict=True)) / total
    spread = math.fsum(w * (b - mean_rows) ** 2 for w, b in zip(weights, rows, strict=True)) / total
    common = math.fsum(w * (b - mean_rows) * (sizes[b] - mean_s) for w, b in zip(weights, rows, strict=True)) / total
    # With one size, half of the time is attributed to the rows, midway between the extremes, as the planner does.
    slope = common / spread if spread > 1e-9 else mean_s / 2 / mean_rows
    slope = min(max(slope, 0.0), mean_s / mean_rows)
    return ServiceLine(max(mean_s - slope * mean_rows, 0.0), slope * rows_per_request)
