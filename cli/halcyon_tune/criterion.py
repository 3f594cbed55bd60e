"""Score that a search for the best configuration maximises. Pure.

Both predictions and measurements have a score.
"""

# | minimise | score | load of a measurement |
# | --- | --- | --- |
# | cost | requests per second of one replica within the objective | the largest expected rate within the objective |
# | energy | requests within the objective per joule: the same rate per watt | as for cost |
# | latency | 1 / P99 at the given rate of one replica | the given rate |

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from halcyon_tune.batch_times import Shape
from halcyon_tune.errors import TuneError
from halcyon_tune.estimates import Estimate
from halcyon_tune.points import Configuration, Point, Rate
from halcyon_tune.prediction import Predictor

Minimise = Literal["cost", "energy", "latency"]

_RATE_SHARE = 0.97
"""Share of the largest expected rate at which a configuration is measured. The measurement of an overloaded replica
would show less about its batch times."""
_MIN_ERROR, _MIN_ERROR_WITH_BATCHES = 0.03, 0.015
"""Relative error of batch times estimated from a measurement, caused by the noise of the machine. The first value is
for measurements without batch times of their own, the second for those with batch times."""
_REQUESTS_ERROR = 0.5
"""Relative error of a measurement with one request. With n requests, the error is this value divided by the square root
of n."""
_DISTANCE_ERROR = 0.1
"""Additional error of the estimated batch times if the measured rate differs from the capacity, for each unit of the
logarithm of their ratio. The further a rate is from the capacity, the less it shows about the capacity."""

_MIN_OBJECTIVES, _MAX_MIN_S = 10.0, 15.0
"""Minimum duration of a measurement: this multiple of the latency objective, but at most this many seconds. A shorter
measurement shows too little of how queues grow and shrink."""


@dataclass(frozen=True, kw_only=True)
class Criterion:
    """Definition of the score that a search for the best configuration maximises."""

    predictor: Predictor
    minimise: Minimise = "cost"
    rate_each_rps: float | None = None
    """Rate of one replica that the user has given, in requests per second, for a search that minimises latency."""

    def score(
        self, shape: Shape, configuration: Configuration, log_factor: float = 0.0, power_w: float | None = None
    ) -> float:
        """Return the score of a configuration whose batch times are longer by the factor exp(`log_factor`).

        If no power is given, the score isn't divided by the power, as if all configurations used the same power.
        """
        if self.minimise != "latency":
            return self.predictor.capacity_near(shape, configuration, log_factor) / (power_w or 1.0)
        if not self.rate_each_rps:
            return 0.0
        p99_s = self.predictor.p99_s(shape, configuration, self.rate_each_rps, factor=math.exp(log_factor))
        return 1 / p99_s if p99_s <= self.predictor.objective_s else 0.0

    def load(self, capacity_rps: float) -> Rate:
        """Return the load with which a configuration is measured, given its expected capacity."""
        rate = self.rate_each_rps if self.minimise == "latency" and self.rate_each_rps else _RATE_SHARE * capacity_rps
        min_s = min(_MIN_OBJECTIVES * self.predictor.objective_s, _MAX_MIN_S)
        # If a configuration is expected to keep the objective at no rate, a small rate shows whether that is true.
        return Rate(rate_rps=float(f"{max(rate, 0.5 / self.predictor.objective_s):.4g}"), min_s=min_s)

    def estimate(self, shape: Shape, point: Point, batch_log_factor: float | None = None) -> Estimate:
        """Return the estimate of a configuration from one measurement under random arrivals.

        Raises:
            TuneError: the energy is minimised, but the measurement has no power.
        """
        configuration = point.configuration
        assert isinstance(point.load, Rate)  # noqa: S101  # the search asks for no other load here
        rate = point.load.rate_rps
        factor, is_overloaded = self.predictor.factor(shape, configuration, rate, point)
        capacity = self.predictor.capacity(shape, configuration, factor)
        # Without batch times, the noise of the machine cannot be distinguished from an error of the simulation.
        base_error = _MIN_ERROR if batch_log_factor is None else _MIN_ERROR_WITH_BATCHES
        error = base_error + _REQUESTS_ERROR / math.sqrt(max(point.requests, 100))
        distance_error = _DISTANCE_ERROR * abs(math.log(capacity / rate)) if capacity > 0 and not is_overloaded else 0.0
        score = capacity
        if self.minimise == "latency":
            score = 1 / point.p99_s if 0 < point.p99_s <= self.predictor.objective_s and not is_overloaded else 0.0
        elif self.minimise == "energy":
            if not point.power_w:
                raise TuneError(
                    "the power isn't measured here, so the energy of a request is unknown; Triton reports it for NVIDIA GPUs. "
                    "Minimise the cost instead, which is the same on one GPU at full power: --minimise cost"
                )
            score = capacity / point.power_w
        is_kept = 0 < point.p99_s <= self.predictor.objective_s and not is_overloaded
        kept_score = (
            score if self.minimise == "latency" else rate / (point.power_w or 1.0 if self.minimise == "energy" else 1.0)
        )
        return Estimate(
            log_factor=math.log(factor) - (batch_log_factor or 0.0),
            batch_log_factor=batch_log_factor or 0.0,
            error=math.hypot(error, distance_error),
            score=max(score, kept_score) if is_kept else score,
            capacity_rps=max(capacity, rate) if is_kept else capacity,
            kept=kept_score if is_kept else 0.0,
            kept_rps=rate if is_kept else 0.0,
        )
