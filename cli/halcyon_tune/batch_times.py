"""Execution times of batches by their number of rows, and lines or curves through these times. Pure.

Each family of configurations (with the same instances and threads) has its own times, because instances and threads
share a device. If only one batch size of a family was measured, its other times are those of the first family, scaled
by the ratio at this size.

The machine is slower in some measurements than in others, equally for all batch sizes. This pace is fitted and removed,
so that the times of different measurements can be compared.

A straight line is the default, because it averages the noise of all sizes. The time of a size that was measured n times
is a weighted mean: n parts of its measured time, and one part of the line. If the times bend or jump, for example at a
size from which the device needs another pass, a curve passes through the mean of each measured size.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from halcyon.scaling.planner.capacity.queueing import ServiceLine
from halcyon_tune.points import Configuration, Point

Family = tuple[int, int | None]
"""Settings that affect the execution times of batches: the number of instances, and the threads of each instance."""

_MIN_SHARE = 0.01
"""Share of a measurement's executions below which a batch size is ignored, because the mean of so few executions is
unreliable.
"""
_PACE_NOISE, _SIZE_NOISE = 0.05, 0.02
"""Standard errors of the logarithm of a measured batch time: from the pace of the machine, which is the same for all
sizes in a measurement, and from the noise of a single size."""
_FIT_ROUNDS = 20
"""Number of rounds in which the times of sizes and the paces of measurements are fitted alternately."""
_MAX_STRAIGHT_DISTANCE = 0.005
"""Relative distance of the batch times from the fitted line up to which the line is used unchanged. If a size is
further off, each size has its own time, between the measured time and the line."""
_MAX_LINE_DISTANCE = 0.15
"""Relative distance of a batch's execution time from the fitted line. Above it, a curve through the measured sizes
replaces the line."""


@dataclass(frozen=True)
class Curve:
    """Execution times of batches that don't grow linearly with their size."""

    times_s: tuple[float, ...]
    """Time of a batch with 1, 2, ... requests, in seconds."""

    def seconds(self, requests: int) -> float:
        """Return the time of a batch with a number of requests, in seconds."""
        return self.times_s[requests - 1]

    @property
    def line(self) -> ServiceLine:
        """Straight line through the times of one request and of a full batch."""
        most, full_s = len(self.times_s), self.times_s[-1]
        slope = (full_s - self.times_s[0]) / (most - 1) if most > 1 else full_s / 2
        slope = min(max(slope, 0.0), full_s / most)
        return ServiceLine(full_s - slope * most, slope)


Shape = ServiceLine | Curve
"""Execution times of batches by number of requests, as a line or a curve."""


@dataclass(frozen=True)
class BatchTimes:
    """Execution times of all batches that were measured so far."""

    measured: Mapping[Family, tuple[Mapping[int, float], ...]] = field(default_factory=dict)
    """Mean times in seconds by number of rows, for each family: one mapping for each measurement."""
    first: Family | None = None
    """Family of configurations that was measured first. It has times for more batch sizes than the others."""
    _shapes: dict[tuple[Family, int, float, bool], Shape | None] = field(
        default_factory=dict, compare=False, repr=False
    )
    """Cache of the results of `shape`."""

    def with_point(self, point: Point) -> BatchTimes:
        """Return the times, extended by those of a measured point.

        If the point has no batch statistics, the mean latency of a single caller is the time of one request.
        """
        means = _means(point)
        if not means:
            return self
        family = point.configuration.family
        measurements = (*self.measured.get(family, ()), means)
        return BatchTimes(measured={**self.measured, family: measurements}, first=self.first or family)

    def means(self, family: Family) -> dict[int, float]:
        """Return the mean execution time in seconds of a family's batches, by number of rows.

        The pace of each measurement is removed, because the machine is slower in some of them, equally for all sizes.
        """
        return dict(self._means.get(family, {}))

    @cached_property
    def _means(self) -> Mapping[Family, Mapping[int, float]]:
        return {family: _times_without_pace(measurements) for family, measurements in self.measured.items()}

    def line(self, configuration: Configuration, rows_per_request: float = 1.0) -> ServiceLine | None:
        """Return the fitted line of batch times for a configuration; None if nothing was measured.

        The slope of the line is per request, not per row. Batch sizes above the configuration's largest batch are
        ignored, because the times may have a jump before them. Larger sizes have more weight, because a replica near
        its capacity mostly executes large batches.
        """
        most = configuration.max_batch
        times = self._family_times(configuration.family)
        sizes = {rows: seconds for rows, seconds in times.items() if rows <= most}
        above = min((rows for rows in times if rows > most), default=None)
        if above is not None and len(sizes) < 2:
            sizes[above] = times[above]
        if not sizes:
            return None
        return _fitted(sizes, rows_per_request)

    def shape(
        self, configuration: Configuration, rows_per_request: float = 1.0, *, is_hopeful: bool = False
    ) -> Shape | None:
        """Return the batch times of a configuration: the fitted line, or a curve if a line doesn't fit well.

        The result is None if nothing was measured. If `is_hopeful` is true, the curve has the shortest likely times: a
        jump between two measured sizes is placed just before the larger one.
        """
        key = configuration.family, configuration.max_batch, rows_per_request, is_hopeful
        if key not in self._shapes:
            self._shapes[key] = self._shape(configuration, rows_per_request, is_hopeful=is_hopeful)
        return self._shapes[key]

    def _shape(self, configuration: Configuration, rows_per_request: float, *, is_hopeful: bool) -> Shape | None:
        line = self.line(configuration, rows_per_request)
        if line is None:
            return None
        requests = max(int(configuration.max_batch / rows_per_request), 1)
        sizes = [rows_per_request * count for count in range(1, requests + 1)]
        if self.is_curved:
            times = self.pooled(configuration.family)
            return Curve(tuple(_along(times, rows, is_hopeful=is_hopeful) for rows in sizes))
        distances = self._distances(configuration)
        if max((abs(distance) for distance in distances.values()), default=0.0) < _MAX_STRAIGHT_DISTANCE:
            return line
        factors = [math.exp(_interpolated(distances, rows)) for rows in sizes]
        return Curve(tuple(line.seconds(count) * factor for count, factor in enumerate(factors, start=1)))

    def _distances(self, configuration: Configuration) -> dict[int, float]:
        """Return the distance of each measured batch size of a configuration from its line, as a logarithm.

        The distance is reduced for sizes with few measurements: after n measurements, it is the fraction n / (n + 1) of
        the measured distance.
        """
        line, family = self.line(configuration), configuration.family
        if line is None:
            return {}
        distances = {}
        for rows, seconds in self._family_times(family).items():
            own_count, first_count = (
                sum(rows in means for means in self.measured.get(source, ()))
                for source in (family, self.first or family)
            )
            count = own_count or first_count
            if rows <= configuration.max_batch:
                distances[rows] = count / (count + 1) * math.log(seconds / max(line.seconds(rows), 1e-9))
        return distances

    @cached_property
    def is_curved(self) -> bool:
        """Whether the batch times of any family deviate clearly from a straight line."""
        return any(self.is_bent(family) for family in self.measured)

    def excess(self, point: Point) -> float | None:
        """Return the logarithm of a point's measured total execution time divided by the time by these batch times.

        The result is None if either is unknown. It includes the noise of the measurement, in which the machine may have
        been slower or faster than usual.
        """
        shape = self.shape(point.configuration)
        if shape is None:
            return None
        executed = [
            (count, seconds, rows)
            for rows, (count, seconds) in point.batches.items()
            if 0 < rows <= point.configuration.max_batch
        ]
        measured = math.fsum(seconds for _, seconds, _ in executed)
        expected = math.fsum(count * shape.seconds(rows) for count, _, rows in executed)
        return math.log(measured / expected) if measured > 0 and expected > 0 else None

    def bend(self, family: Family) -> float:
        """Return the largest relative distance of a family's batch times from the line fitted to all its batch sizes.

        The result is 0 with fewer than 3 sizes.
        """
        means = self.means(family)
        if len(means) < 3:
            return 0.0
        line = _fitted(means, 1.0)
        return max(abs(math.log(seconds / max(line.seconds(rows), 1e-9))) for rows, seconds in means.items())

    def is_bent(self, family: Family) -> bool:
        """Return whether the batch times of a family deviate clearly from a straight line."""
        return self.bend(family) > _MAX_LINE_DISTANCE

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

    def _family_times(self, family: Family) -> dict[int, float]:
        """Return the batch times of a family of configurations, by number of rows.

        For sizes that were measured only in the first family, its times are used, scaled by the ratio of the two
        families.
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

    def pooled(self, family: Family) -> dict[int, float]:
        """Return the batch times of a family by number of rows, including sizes that only other families have.

        The times of another family are scaled by the ratio at the sizes that were measured in both. Families with more
        sizes are used first.
        """
        times = self._family_times(family)
        for other in sorted(self.measured, key=lambda key: (-len(self.means(key)), key[0], key[1] or 0)):
            means = self.means(other)
            common = {rows: times[rows] / seconds for rows, seconds in means.items() if rows in times}
            if common:
                times = {rows: seconds * _interpolated(common, rows) for rows, seconds in means.items()} | times
        return times

    def _extrapolated(self, family: Family) -> float:
        """Return an estimated ratio of an unmeasured family's batch times to those of the first measured family.

        It is extrapolated linearly in the number of instances from the ratio of the nearest measured family.
        """
        if self.first is None:
            return 1.0
        ratios = {other: self.sharing(other) or 1.0 for other in self.measured if other != self.first}
        if not ratios:
            return 1.0
        nearest = min(ratios, key=lambda other: (other[1] != family[1], abs(other[0] - family[0])))
        added_instances = nearest[0] - self.first[0]
        slope = (ratios[nearest] - 1) / added_instances if added_instances > 0 else 0.0
        return max(1 + slope * (family[0] - self.first[0]), 0.1)


def _means(point: Point) -> dict[int, float]:
    executed = sum(count for count, _ in point.batches.values())
    means = {
        rows: seconds / count
        for rows, (count, seconds) in point.batches.items()
        if rows > 0 and count >= max(_MIN_SHARE * executed, 1) and seconds > 0
    }
    callers = getattr(point.load, "callers", None)
    if not means and callers == 1 and point.mean_s > 0:
        return {max(round(point.rows_per_request), 1): point.mean_s}
    return means


def _times_without_pace(measurements: Sequence[Mapping[int, float]]) -> dict[int, float]:
    """Return the mean time of each batch size over all measurements, without the pace of each measurement.

    A measured time is the time of its size multiplied by the pace of its measurement. Both are fitted alternately to
    the logarithms of the times by least squares.
    """
    sizes = sorted({rows for means in measurements for rows in means})
    prior_weight = (_SIZE_NOISE / _PACE_NOISE) ** 2
    paces = [0.0] * len(measurements)
    times = dict[int, float]()
    for _ in range(_FIT_ROUNDS):
        paired = list(zip(measurements, paces, strict=True))
        for rows in sizes:
            samples = [means[rows] * math.exp(-pace) for means, pace in paired if rows in means]
            times[rows] = math.fsum(samples) / len(samples)
        paces = [
            math.fsum(math.log(seconds / times[rows]) for rows, seconds in means.items()) / (len(means) + prior_weight)
            for means in measurements
        ]
    return times


def _interpolated(values: Mapping[int, float], rows: float) -> float:
    """Return the value at a number of rows, interpolated linearly between known sizes.

    Below the smallest and above the largest known size, the result is the value of that size.
    """
    sizes = sorted(values)
    index = bisect_left(sizes, rows)
    if index == len(sizes) or index == 0 or sizes[index] == rows:
        return values[sizes[min(index, len(sizes) - 1)]]
    below, above = sizes[index - 1], sizes[index]
    share = (rows - below) / (above - below)
    return values[below] + share * (values[above] - values[below])


def _along(times: Mapping[int, float], rows: float, *, is_hopeful: bool = False) -> float:
    """Return the batch time at a number of rows, which may be a fraction, on the curve through the known sizes.

    Beyond the known sizes, the curve is extended with the slope between the two nearest sizes, but never below zero. If
    `is_hopeful` is true, the time between two known sizes grows with the slope before them.
    """
    sizes = sorted(times)
    if len(sizes) == 1:
        return times[sizes[0]]
    above = min(max(bisect_left(sizes, rows), 1), len(sizes) - 1)
    low, high = sizes[above - 1], sizes[above]
    slope = (times[high] - times[low]) / (high - low)
    if is_hopeful and above > 1 and rows < high:
        previous = sizes[above - 2]
        slope = min(slope, max((times[low] - times[previous]) / (low - previous), 0.0))
    return max(times[low] + slope * (rows - low), min(times[low], times[high]) / 10)


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
