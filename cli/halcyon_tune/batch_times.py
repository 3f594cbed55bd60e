"""Time of a batch by its rows, for each family of configurations, and the lines through these times. Pure.

Instances and threads share a device, so each family has its own times. A family of which one size is known has the times of
the first family, scaled to that size.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from halcyon.scaling.planner.capacity.queueing import ServiceLine
from halcyon_tune.points import Configuration, Point

Family = tuple[int, int | None]
"""Instances and threads."""

_LEAST_SHARE = 0.01
"""Share of the executions of a point below which a size is left out: its mean has too few of them."""
_BEND = 0.15
"""Distance of a size from the line, as a ratio, from which the times aren't on a line."""


@dataclass(frozen=True)
class BatchTimes:
    """Executed batches of all points so far."""

    sums: Mapping[Family, Mapping[int, tuple[float, float]]] = field(default_factory=dict)
    """By family and rows: (weight, mean seconds). Points count alike, however many batches they executed."""
    first: Family | None = None
    """Family that was measured first, which has most sizes."""

    def with_point(self, point: Point) -> BatchTimes:
        """Return the times with those of a point. Without batch statistics, one caller gives the time of one request."""
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
        """Return the mean seconds of a batch by its rows, for a measured family."""
        return {rows: mean for rows, (_, mean) in sorted(self.sums.get(family, {}).items())}

    def line(self, configuration: Configuration, rows_per_request: float = 1.0) -> ServiceLine | None:
        """Return the line of a configuration, in requests and not in rows; None if nothing was measured.

        Sizes above the configuration's largest batch don't count: beyond a cliff, the times of smaller batches say nothing.
        Larger sizes weigh more, because near its capacity a replica executes mostly these.
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
        """Return the largest distance of a size from the line through all sizes, as a ratio; 0 with fewer than 3 sizes."""
        means = self.means(family)
        if len(means) < 3:
            return 0.0
        line = _fitted(means, 1.0)
        return max(abs(math.log(seconds / max(line.seconds(rows), 1e-9))) for rows, seconds in means.items())

    def is_bent(self, family: Family) -> bool:
        """Return whether a line describes the times of a family badly."""
        return self.bend(family) > _BEND

    def sharing(self, family: Family) -> float | None:
        """Return how many times as long a batch takes as in the first family; None if it isn't known."""
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
        """Return the times of a family, completed by those of the first one."""
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
        """Return the sharing of an unmeasured family: that of the nearest one, in proportion to the further instances."""
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
    """Return the value at a size: on the straight line between its neighbours, and level beyond the first; beyond the last, that of a line."""
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
    """Return the line with the least squares, large sizes weighing more, neither falling nor below 0 at its start."""
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
