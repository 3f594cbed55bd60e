"""What is optimised, as one number that is the larger the better: of a prediction, and of a measured point. Pure.

| minimise | the number | load of a point |
| --- | --- | --- |
| cost | requests per second of one replica within the objective | the rate that is expected to be the largest |
| energy | the same, per watt: requests within the objective per joule | the same |
| latency | 1 / P99 at the rate of one replica | that rate |
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from halcyon.scaling.planner.capacity.queueing import ServiceLine
from halcyon_tune.errors import TuneError
from halcyon_tune.estimates import Estimate
from halcyon_tune.points import Configuration, Point, Rate
from halcyon_tune.prediction import Predictor

Minimise = Literal["cost", "energy", "latency"]

_CAUTIOUS = 0.97
"""Share of the expected rate at which it is measured, because an overloaded replica shows less."""
_LEAST_ERROR = 0.03
_REQUESTS_ERROR = 0.5
"""Error of a point of one request, as a ratio; that of n requests is the square root of n times smaller."""
_FAR = 0.1
"""Error of batch times from a point at another rate than the largest one, as a share of the logarithm of the rates' ratio."""


@dataclass(frozen=True, kw_only=True)
class Criterion:
    """The number that is optimised."""

    predictor: Predictor
    minimise: Minimise = "cost"
    rate_each_rps: float | None = None
    """Rate of one replica, for `latency`."""

    def score(
        self, line: ServiceLine, configuration: Configuration, log_factor: float = 0.0, power_w: float | None = None
    ) -> float:
        """Return the number for batch times that are longer by a factor. Without a power, all configurations count as equal in it."""
        if self.minimise != "latency":
            return self.predictor.capacity_near(line, configuration, log_factor) / (power_w or 1.0)
        if not self.rate_each_rps:
            return 0.0
        p99_s = self.predictor.p99_s(line, configuration, self.rate_each_rps, factor=math.exp(log_factor))
        return 1 / p99_s if p99_s <= self.predictor.objective_s else 0.0

    def load(self, capacity_rps: float) -> Rate:
        """Return the load at which a configuration with this expected capacity is measured."""
        rate = self.rate_each_rps if self.minimise == "latency" and self.rate_each_rps else _CAUTIOUS * capacity_rps
        # Of settings that are expected to keep the objective at no rate, a small rate shows whether they do.
        return Rate(rate_rps=float(f"{max(rate, 0.5 / self.predictor.objective_s):.4g}"))

    def estimate(self, line: ServiceLine, point: Point) -> Estimate:
        """Return what a point at a rate shows.

        Raises:
            TuneError: the energy is to be minimised, and the point has no power.
        """
        configuration = point.configuration
        assert isinstance(point.load, Rate)  # noqa: S101  # the search asks for no other load here
        rate = point.load.rate_rps
        factor, is_overloaded = self.predictor.factor(line, configuration, rate, point)
        capacity = self.predictor.capacity(line, configuration, factor)
        error = _LEAST_ERROR + _REQUESTS_ERROR / math.sqrt(max(point.requests, 100))
        far = _FAR * abs(math.log(capacity / rate)) if capacity > 0 and not is_overloaded else 0.0
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
        kept = (
            score if self.minimise == "latency" else rate / (point.power_w or 1.0 if self.minimise == "energy" else 1.0)
        )
        return Estimate(
            log_factor=math.log(factor),
            error=math.hypot(error, far),
            score=max(score, kept) if is_kept else score,
            capacity_rps=max(capacity, rate) if is_kept else capacity,
            kept=kept if is_kept else 0.0,
            kept_rps=rate if is_kept else 0.0,
        )
