"""What a point shows of a configuration, and what is thought of it after all points."""

from __future__ import annotations

from dataclasses import dataclass

_HIDDEN = 1.1
"""Upper end of a configuration over its score from which a point at a higher rate could show much more."""


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """What a point at a rate shows."""

    log_factor: float
    """Logarithm of the factor of the batch times with which the simulator agrees with the point."""
    error: float
    """Standard error of it."""
    score: float
    """The number that is optimised, by this point alone; 0 if the objective is kept at no rate."""
    capacity_rps: float
    """Largest rate within the objective, by this point alone."""
    kept: float = 0.0
    """The number that is optimised, at the rate of the point, if that kept the objective; else 0."""
    kept_rps: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Opinion:
    """What is thought of a configuration, from its prediction and its points."""

    score: float
    """The number that is optimised; 0 if the objective is kept at no rate."""
    upper: float
    """The same if batch times are shorter by their standard error."""
    capacity_rps: float
    upper_rps: float
    """Capacity if batch times are shorter by their standard error."""
    points: int
    """Points of its own."""

    @property
    def hides_more(self) -> bool:
        """Whether a point at a higher rate could show much more."""
        return self.upper > _HIDDEN * self.score > 0
