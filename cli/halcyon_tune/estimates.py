"""Estimates of a configuration's performance, from one measurement, or from its prediction and all measurements."""

from __future__ import annotations

from dataclasses import dataclass

_MIN_UPPER_RATIO = 1.1
"""Ratio of a configuration's upper score to its estimated score above which it is measured again, at a higher rate."""


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """Estimate of a configuration's performance from one measurement under random arrivals."""

    log_factor: float
    """Logarithm of the factor by which requests take longer than expected from the measurement's own batch times.

    A simulation with these batch times, multiplied by this factor, gives the measured result.
    """
    error: float
    """Standard error of the estimated `log_factor`."""
    batch_log_factor: float = 0.0
    """Logarithm of the ratio of measured to predicted batch times, which is mostly noise of the machine; 0 if
    unknown."""
    score: float
    """Score of the configuration by this measurement alone; 0 if the objective can't be met at any rate."""
    capacity_rps: float
    """Highest rate within the objective by this measurement alone, in requests per second."""
    kept: float = 0.0
    """Score at the measured rate; 0 if the latency exceeded the objective."""
    kept_rps: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Opinion:
    """Combined estimate of a configuration's performance, from its prediction and its measurements."""

    score: float
    """Estimated score of the configuration; 0 if the objective can't be met at any rate."""
    upper: float
    """Score of the configuration if its batch times are one standard error shorter than estimated."""
    capacity_rps: float
    upper_rps: float
    """Highest rate within the objective if batch times are one standard error shorter than estimated, in requests per
    second."""
    points: int
    """Number of measurements of the configuration."""

    @property
    def hides_more(self) -> bool:
        """Whether a measurement at a higher rate could show a much better score."""
        return self.upper > _MIN_UPPER_RATIO * self.score > 0
