"""Predicted performance of a configuration within a latency objective, from a simulation with its batch times.

Out of scope: errors of predictions (`verification`), and the number of replicas for a rate (`replica_count`).
"""

from __future__ import annotations

import math

import numpy as np

from halcyon.scaling.planner.capacity.queueing import Replica, ServiceLine
from halcyon_simulator.bounds.replica_capacity import capacity_rps, latencies
from halcyon_simulator.engine.case import ServiceLaw
from halcyon_tune.batch_times import Shape
from halcyon_tune.points import Configuration, Point

_REQUESTS, _UNBATCHED_REQUESTS = 6_000, 24_000
"""Number of requests in a simulation, with batching and without. Without batching, waiting times are correlated for
longer, so more requests are needed.
"""
_MIN_REQUESTS = 1_000
_FACTORS = (0.25, 4.0)
"""Smallest and largest factor of the batch times in the search for the factor that explains a measured P99."""
_STEPS = 9
_LOG_FACTOR_STEP = 0.06
"""Step between the simulated factors of batch times, as a logarithm."""
_MIN_THROUGHPUT_RATIO = 0.93
"""Ratio of the answered to the arriving requests per second below which a replica counts as overloaded."""


class Predictor:
    """Predictor of performance for one latency objective. It caches the simulated capacities."""

    def __init__(self, objective_s: float, *, rows_per_request: float = 1.0) -> None:
        self.objective_s = objective_s
        self._rows = max(rows_per_request, 1.0)
        self._capacities: dict[ServiceLaw, float] = {}
        self._unit = np.cumsum(np.random.Generator(np.random.PCG64(0)).standard_exponential(_REQUESTS))

    def replica(self, shape: Shape, configuration: Configuration, factor: float = 1.0) -> Replica:
        """Return the planner's model of a replica with a configuration whose batch times are scaled by a factor."""
        line = _line(shape)
        scaled = ServiceLine(line.t0_s * factor, line.row_s * factor)
        return Replica(scaled, self._requests(configuration), configuration.instances)

    def law(self, shape: Shape, configuration: Configuration, factor: float = 1.0) -> ServiceLaw:
        """Return the simulator's model of a replica with a configuration whose batch times are scaled by a factor."""
        line = _line(shape)
        return ServiceLaw(
            line.t0_s * factor,
            line.row_s * factor,
            self._requests(configuration),
            configuration.instances,
            configuration.delay_s,
            times_s=() if isinstance(shape, ServiceLine) else tuple(factor * seconds for seconds in shape.times_s),
        )

    def peak_rps(self, shape: Shape, configuration: Configuration) -> float:
        """Return the requests per second of a replica if every batch is full.

        This rate is an upper bound for any latency objective.
        """
        return self.law(shape, configuration).peak_rps

    def capacity(self, shape: Shape, configuration: Configuration, factor: float = 1.0) -> float:
        """Return the highest rate of one replica within the objective, in requests per second.

        The result is 0 if the replica can't meet the objective at any rate.
        """
        law = self.law(shape, configuration, factor)
        capacity = self._capacities.get(law)
        if capacity is None:
            try:
                capacity = capacity_rps(law, self.objective_s, _REQUESTS if law.max_batch > 1 else _UNBATCHED_REQUESTS)
            except ValueError:
                capacity = 0.0
            self._capacities[law] = capacity
        return capacity

    def capacity_near(self, shape: Shape, configuration: Configuration, log_factor: float) -> float:
        """Return the capacity if batch times are longer by a factor.

        It is interpolated between the capacities of the two nearest simulated factors.
        """
        lower = math.floor(log_factor / _LOG_FACTOR_STEP)
        share = log_factor / _LOG_FACTOR_STEP - lower
        below = self.capacity(shape, configuration, math.exp(lower * _LOG_FACTOR_STEP))
        if share < 1e-9:
            return below
        above = self.capacity(shape, configuration, math.exp((lower + 1) * _LOG_FACTOR_STEP))
        return below + share * (above - below)

    def p99_s(
        self,
        shape: Shape,
        configuration: Configuration,
        rate_rps: float,
        *,
        factor: float = 1.0,
        requests: int = _REQUESTS,
    ) -> float:
        """Return the P99 latency in seconds of simulated requests at a rate.

        The result is infinite if the rate is at least the peak rate.
        """
        law = self.law(shape, configuration, factor)
        if rate_rps >= law.peak_rps:
            return math.inf
        count = min(max(requests, _MIN_REQUESTS), _REQUESTS)
        latencies_s = latencies(law, self._unit[:count] / rate_rps)[count // 20 :]
        return float(np.quantile(latencies_s, 0.99))

    def factor(self, shape: Shape, configuration: Configuration, rate_rps: float, point: Point) -> tuple[float, bool]:
        """Return the factor of the batch times that explains a measurement, and whether the replica was overloaded.

        An overloaded replica answers with full batches, so the factor is derived from its throughput. Otherwise the
        factor is chosen so that the simulated P99 at the rate equals the measured P99. In a short measurement, the
        number of requests often differs from its mean by 5 % by chance, which doesn't count as overload.
        """
        if point.throughput_rps < _MIN_THROUGHPUT_RATIO * (point.offered_rps or rate_rps):
            return self.law(shape, configuration).peak_rps / max(point.throughput_rps, 1e-9), True
        low, high = (math.log(factor) for factor in _FACTORS)
        for _ in range(_STEPS):
            middle = (low + high) / 2
            p99_s = self.p99_s(shape, configuration, rate_rps, factor=math.exp(middle), requests=point.requests)
            if p99_s < point.p99_s:
                low = middle
            else:
                high = middle
        return math.exp((low + high) / 2), False

    def _requests(self, configuration: Configuration) -> int:
        """Return the number of requests in a full batch."""
        return max(int(configuration.max_batch / self._rows), 1)


def _line(shape: Shape) -> ServiceLine:
    return shape if isinstance(shape, ServiceLine) else shape.line
