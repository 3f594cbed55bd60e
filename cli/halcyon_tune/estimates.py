"""Estimates of a configuration: from one point, and from its prediction with all points."""

from __future__ import annotations

from dataclasses import dataclass

_HIDDEN = 1.1
"""Ratio of a configuration's upper score to its score from which a point at a higher rate could show much more."""


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """Estimate of a configuration from one point under random arrivals."""

    log_factor: float
    """Logarithm of the factor by which batch times are multiplied so that the simulator's result matches the point."""
    error: float
    """Standard error of `log_factor`."""
    score: float
    """Score by this point alone; 0 if the configuration keeps the objective at no rate."""
    capacity_rps: float
    """Largest rate within the objective, by this point alone."""
    kept: float = 0.0
    """Score at the point's own rate if the point kept the objective, else 0."""
    kept_rps: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Opinion:
    """Combined estimate of a configuration, from its prediction and its points."""

    score: float
    """Score; 0 if the configuration keeps the objective at no rate."""
    upper: float
    """Score if batch times are shorter by their standard error."""
    capacity_rps: float
    upper_rps: float
    """Largest rate within the objective if batch times are shorter by their standard error."""
    points: int
    """Number of points of this configuration."""

    @property
    def hides_more(self) -> bool:
        """Whether a point at a higher rate could show a much better score."""
        return self.upper > _HIDDEN * self.score > 0
