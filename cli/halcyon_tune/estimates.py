"""Estimates of a configuration's performance, from one measurement, or from its prediction and all measurements."""

from __future__ import annotations

from dataclasses import dataclass

_MIN_UPPER_RATIO = 1.1
"""Ratio of a configuration's upper score to its score above which the configuration is measured again, at a higher rate."""


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """Estimate of a configuration's performance from one measurement under random arrivals."""

    log_factor: float
    """Logarithm of the factor by which requests take longer than the measurement's own batch times explain.

    With these batch times, multiplied by this factor, a simulation has the measured result.
    """
    error: float
    """Standard error of the estimated `log_factor`."""
    batch_log_factor: float = 0.0
    """Logarithm of the ratio of the measurement's batch times to the predicted ones, mostly noise of the machine; 0 if
    unknown.
    """
    score: float
    """Score of the configuration by this measurement alone; 0 if the configuration keeps the objective at no rate."""
    capacity_rps: float
    """Largest rate within the objective in requests per second, by this measurement alone."""
    kept: float = 0.0
    """Score at the measured rate; 0 if the latency exceeded the objective."""
    kept_rps: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Opinion:
    """Combined estimate of a configuration's performance, from its prediction and its measurements."""

    score: float
    """Estimated score of the configuration; 0 if the configuration keeps the objective at no rate."""
    upper: float
    """Score of the configuration if its batch times are shorter than estimated by their standard error."""
    capacity_rps: float
    upper_rps: float
    """Largest rate within the objective if batch times are shorter than estimated by their standard error, in requests
    per second.
    """
    points: int
    """Number of measurements of the configuration."""

    @property
    def hides_more(self) -> bool:
        """Whether a measurement at a higher rate could show a much better score."""
        return self.upper > _MIN_UPPER_RATIO * self.score > 0
