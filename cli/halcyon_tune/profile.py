"""Steps 1 and 2 of a search: batch times with one instance, then with several instances or other threads. Pure."""

# 1. The number of callers rises on the family with the fewest instances and the largest batch.
#    If it fails, for example without enough memory, the next smaller batch is tried.
# 2. Each further family gets a load that fills its instances, as long as more instances raise the throughput.

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from halcyon_measure.results.number_text import significant
from halcyon_tune.batch_times import BatchTimes, Family
from halcyon_tune.errors import TuneError
from halcyon_tune.points import Callers, Configuration, Point
from halcyon_tune.space import Space

_MIN_THROUGHPUT_RATIO = 0.93
"""Ratio of the throughputs with more and with fewer instances below which more instances are dropped. It is below 1,
because noise can hide a gain, and dropped configurations are never measured again."""
_CALLERS_FACTOR = 4
"""Factor by which the number of callers increases from one measurement to the next."""
_MAX_LATENCY_RATIO = 2.0
"""Ratio of the mean latency to the objective above which no more callers are tried, because their larger batches would
take too long."""
_MAX_CALLERS = 512


@dataclass(frozen=True)
class Profile:
    """Measurements of steps 1 and 2 of a search so far."""

    space: Space
    objective_s: float
    points: tuple[Point, ...] = ()

    def next(self) -> tuple[int, Configuration, Callers] | None:
        """Return the step, the configuration and the load of the next measurement; None if both steps are complete.

        Raises:
            TuneError: no configuration works, or even one row takes longer than the objective.
        """
        return self._next_callers() or self._next_family()

    def after(self, point: Point) -> Profile:
        """Return the profile with a further measurement."""
        return replace(self, points=(*self.points, point))

    @property
    def base(self) -> Family:
        """Instances and threads that are measured in step 1: those with the fewest instances."""
        return self.space.families[0]

    @cached_property
    def times(self) -> BatchTimes:
        """Execution times of batches, from all measurements of both steps."""
        times = BatchTimes()
        for point in self.points:
            times = times.with_point(point)
        return times

    @property
    def single_s(self) -> float | None:
        """Mean latency with a single caller, in seconds; None if it wasn't measured."""
        return next((point.mean_s for point in self._successes() if point.load == Callers(callers=1)), None)

    @property
    def largest(self) -> int | None:
        """Largest value of `max_batch` with which a measurement of step 1 succeeded; None if none did."""
        return max((point.configuration.max_batch for point in self._successes()), default=None)

    def exclusion_reason(self, configuration: Configuration) -> str:
        """Return the reason why a configuration must not be tried; empty if it may be tried."""
        for failed in self.points:
            if failed.rules_out(configuration):
                return f"{failed.configuration.text()}: {failed.why}"
        family = configuration.family
        if family != self.base and not self._successes(family):
            return "fewer instances already answered as much, or it failed with each batch"
        if family in self._pointless_families:
            return "it answered no more than fewer instances"
        return ""

    def throughput_rps(self, family: Family) -> float:
        """Return the highest throughput in steps 1 and 2 with a number of instances and threads; 0 if not measured."""
        return max((point.throughput_rps for point in self._successes(family)), default=0.0)

    def power_w(self, family: Family) -> float | None:
        """Return the power in watts with a number of instances and threads; None if unknown.

        It comes from the last measurement of this family that includes the power.
        """
        return next((point.power_w for point in reversed(self._successes(family)) if point.power_w), None)

    def _next_callers(self) -> tuple[int, Configuration, Callers] | None:
        for batch in self._batches():
            configuration = self._configuration(self.base, batch)
            points = [point for point in self.points if point.configuration == configuration]
            if any(point.failure for point in points):
                continue
            if points and points[0].mean_s > 0 and self.single_s is not None and self.single_s > self.objective_s:
                raise TuneError(self.objective_message(self.single_s))
            if points and points[-1].mean_s > _MAX_LATENCY_RATIO * self.objective_s:
                return None
            callers = _callers(batch, self.base[0])
            return (1, configuration, Callers(callers=callers[len(points)])) if len(points) < len(callers) else None
        why = "; ".join(
            dict.fromkeys(f"{point.configuration.text()}: {point.why}" for point in self.points if point.failure)
        )
        raise TuneError(f"the model works with no configuration that was tried: {why}")

    def objective_message(self, single_s: float) -> str:
        """Return the error message for an objective that is shorter than the execution of one row."""
        least_ms = 1000 * single_s * 1.2
        return (
            f"the objective is {significant(1000 * self.objective_s, 4)} ms, and one row alone takes {significant(1000 * single_s, 4)} ms, S(1): no "
            f"configuration keeps it; the least that can be kept is about {significant(least_ms, 3)} ms, for example --objective {least_ms:.0f}ms"
        )

    def _next_family(self) -> tuple[int, Configuration, Callers] | None:
        largest = self.largest_useful_batch
        for family in self.space.families[1:]:
            if self._successes(family) or self._is_pointless(family):
                continue
            for batch in (size for size in self._batches() if size <= largest):
                configuration = self._configuration(family, batch)
                if not any(point.rules_out(configuration) for point in self.points):
                    return 2, configuration, Callers(callers=min(2 * family[0] * batch, _MAX_CALLERS))
        return None

    @property
    def largest_useful_batch(self) -> int:
        """Largest batch size whose execution time is within the latency objective."""
        line = self.times.line(self._configuration(self.base, self.largest or 1))
        fits = [size for size in self._batches() if line is None or line.seconds(size) <= self.objective_s]
        return max((size for size in fits if size <= (self.largest or size)), default=min(self._batches()))

    def _is_pointless(self, family: Family) -> bool:
        """Return whether more instances aren't worth trying, because fewer instances already brought no improvement."""
        return any(other[1] == family[1] and other[0] < family[0] for other in self._pointless_families)

    @cached_property
    def _pointless_families(self) -> list[Family]:
        """Return the families that are no faster with full batches than one with fewer instances and equal threads.

        A family is a number of instances with a number of threads.
        """
        pointless, times = [], self.times
        for family in self.space.families[1:]:
            points = self._successes(family)
            if not points:
                continue
            fewer = [other for other in self.space.families if other[0] < family[0] and other[1] == family[1]]
            batch = points[0].configuration.max_batch
            peak = max((self._peak(times, other, batch) for other in fewer), default=0.0)
            if self._peak(times, family, batch) < _MIN_THROUGHPUT_RATIO * peak:
                pointless.append(family)
        return pointless

    def _peak(self, times: BatchTimes, family: Family, batch: int) -> float:
        """Return the requests per second that a number of instances and threads answers with full batches.

        The rate is derived from their batch times. If the batch times are unknown, it is the measured throughput.
        """
        if not self._successes(family):
            return 0.0
        shape = times.shape(self._configuration(family, batch)) if family in times.measured else None
        return self.throughput_rps(family) if shape is None else family[0] * batch / max(shape.seconds(batch), 1e-9)

    def _successes(self, family: Family | None = None) -> list[Point]:
        return [
            point
            for point in self.points
            if point.failure is None and point.configuration.family == (family or self.base)
        ]

    def _batches(self) -> Sequence[int]:
        """Return the values of `max_batch` in the search space, in descending order."""
        return self.space.batches[::-1]

    def _configuration(self, family: Family, batch: int) -> Configuration:
        return Configuration(instances=family[0], max_batch=batch, threads=family[1])


def _callers(batch: int, instances: int) -> list[int]:
    """Return the numbers of callers to try, from 1 up to a number with which a full batch is always waiting."""
    most = min(2 * batch * instances, _MAX_CALLERS)
    counts = [1]
    while counts[-1] * _CALLERS_FACTOR < most:
        counts.append(counts[-1] * _CALLERS_FACTOR)
    return [*counts, most]
