"""A full sweep on a real Triton: the largest rate within the objective of each configuration, by up to eight loads. Pure.

Its results are JSON, so that a sweep goes on where an earlier run has ended.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from halcyon_tune.points import Configuration, Point, Rate

MAX_LOADS = 8
"""Maximum number of loads of a configuration, as many as the search of `halcyon bench` has."""
_NARROW = 1.02
"""Ratio of the smallest late rate to the largest kept one at which a configuration is known well enough."""
_RAISED, _LOWERED = 1.15, 0.8
_ANSWERED = 0.93
"""Share of the rate that must be answered, or else the replica was overloaded."""
_LOAD_S = 8.0
_MIN_REQUESTS = 200


@dataclass(frozen=True, kw_only=True)
class SweptLoad:
    """A measured load of a configuration."""

    rate_rps: float
    p99_ms: float
    answered_rps: float

    def is_kept(self, objective_s: float) -> bool:
        """Return whether the objective was kept."""
        return self.p99_ms <= 1000 * objective_s and self.answered_rps >= _ANSWERED * self.rate_rps


@dataclass(frozen=True, kw_only=True)
class SweptConfiguration:
    """The loads of a configuration so far."""

    configuration: Configuration
    guess_rps: float
    """Expected capacity, at which the first load is."""
    loads: tuple[SweptLoad, ...] = ()
    failure: str = ""
    """Reason why the configuration can't be measured; empty if it can be."""

    def next_rate(self, objective_s: float) -> float | None:
        """Return the rate of the next load; None if the configuration is known well enough."""
        if self.failure or len(self.loads) >= MAX_LOADS:
            return None
        kept = [one.rate_rps for one in self.loads if one.is_kept(objective_s)]
        late = [one.rate_rps for one in self.loads if not one.is_kept(objective_s)]
        if not self.loads:
            rate = max(self.guess_rps, 0.5 / objective_s)
        elif not late:
            rate = _RAISED * max(kept)
        elif not kept:
            rate = _LOWERED * min(late)
        elif min(late) <= _NARROW * max(kept):
            return None
        else:
            rate = math.sqrt(min(late) * max(kept))
        return float(f"{rate:.4g}")

    def capacity_rps(self, objective_s: float) -> float:
        """Return the largest rate that kept the objective; 0 if none did, or if a load has failed."""
        return (
            0.0 if self.failure else max((one.rate_rps for one in self.loads if one.is_kept(objective_s)), default=0.0)
        )

    def after(self, point: Point) -> SweptConfiguration:
        """Return the configuration after a further point."""
        if point.failure is not None:
            return SweptConfiguration(
                configuration=self.configuration, guess_rps=self.guess_rps, loads=self.loads, failure=point.why
            )
        assert isinstance(point.load, Rate)  # a sweep has no other loads
        load = SweptLoad(rate_rps=point.load.rate_rps, p99_ms=1000 * point.p99_s, answered_rps=point.throughput_rps)
        return SweptConfiguration(configuration=self.configuration, guess_rps=self.guess_rps, loads=(*self.loads, load))

    def document(self) -> dict[str, Any]:
        """Return the JSON form."""
        return asdict(self)

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> SweptConfiguration:
        """Return what `document` has returned."""
        return cls(
            configuration=configuration(document["configuration"]),
            guess_rps=document["guess_rps"],
            loads=tuple(SweptLoad(**one) for one in document["loads"]),
            failure=document["failure"],
        )


def configuration(document: Mapping[str, Any]) -> Configuration:
    """Return a configuration from its JSON form."""
    return Configuration(**{**document, "preferred": tuple(document["preferred"])})


def load(rate_rps: float) -> Rate:
    """Return the load of a sweep at a rate: eight seconds, or more if there would be fewer than 200 requests."""
    return Rate(rate_rps=rate_rps, min_requests=max(round(_LOAD_S * rate_rps), _MIN_REQUESTS))


def best(found: Sequence[SweptConfiguration], objective_s: float) -> SweptConfiguration:
    """Return the configuration with the largest capacity; of equal ones the first."""
    return max(found, key=lambda one: one.capacity_rps(objective_s))
