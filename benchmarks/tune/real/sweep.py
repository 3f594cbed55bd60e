"""The largest rate within the objective of a configuration on a real Triton, by up to eight loads. Pure.

A full sweep is a search for each configuration. Its results are JSON, so that it goes on where an earlier run has ended.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from halcyon_tune.points import Configuration, Point, Rate

MAX_LOADS = 8
"""Maximum number of loads of a configuration, as many as the search of `halcyon bench` has."""
_NARROW = 1.015
"""Ratio of the smallest late rate to the largest kept one at which a capacity in a turn is known well enough. A full sweep
uses all its loads.
"""
_RAISED, _LOWERED = 1.15, 0.8
_NEAR_RAISED, _NEAR_LOWERED = 1.05, 0.95
"""The same factors for a configuration whose capacity was measured before."""
_NEVER_MS = 1e9
"""Latency of a load whose failed requests are more than one in a hundred."""
_ANSWERED = 0.93
"""Share of the requests that were due that must be answered, or else the replica was overloaded."""
_LOAD_S = 8.0
_MIN_REQUESTS, _TURN_REQUESTS = 200, 1500


@dataclass(frozen=True, kw_only=True)
class SweptLoad:
    """A measured load of a configuration."""

    rate_rps: float
    p99_ms: float
    answered_rps: float
    late_ms: float = 0.0
    """99th percentile of the time by which the client sent a request after it was due, in milliseconds."""
    excess: float | None = None
    """Share by which executions took longer than the law says; None if unknown."""
    offered_rps: float = 0.0
    """Rate of the requests that were due, which differs from the mean rate by chance; 0 if unknown."""

    def is_kept(self, objective_s: float) -> bool:
        """Return whether the objective was kept."""
        offered_rps = self.offered_rps or self.rate_rps
        return self.p99_ms <= 1000 * objective_s and self.answered_rps >= _ANSWERED * offered_rps


@dataclass(frozen=True, kw_only=True)
class SweptConfiguration:
    """The loads of a configuration so far."""

    configuration: Configuration
    guess_rps: float
    """Expected capacity, at which the first load is."""
    loads: tuple[SweptLoad, ...] = ()
    failure: str = ""
    """Reason why the configuration can't be measured; empty if it can be."""
    is_near: bool = False
    """Whether the expected capacity was measured before, so that the capacity is near it."""

    def next_rate(self, objective_s: float) -> float | None:
        """Return the rate of the next load; None after the last one."""
        if self.failure or len(self.loads) >= MAX_LOADS:
            return None
        raised, lowered = (_NEAR_RAISED, _NEAR_LOWERED) if self.is_near else (_RAISED, _LOWERED)
        kept = [load.rate_rps for load in self.loads if load.is_kept(objective_s)]
        late = [load.rate_rps for load in self.loads if not load.is_kept(objective_s)]
        if not self.loads:
            rate = max(self.guess_rps, 0.5 / objective_s)
        elif not late:
            rate = raised * max(kept)
        elif not kept:
            rate = lowered * min(late)
        elif self.is_near and min(late) <= _NARROW * max(kept):
            return None
        else:
            rate = math.sqrt(min(late) * max(kept))
        return float(f"{rate:.4g}")

    def capacity_rps(self, objective_s: float) -> float:
        """Return the largest rate that kept the objective; 0 if none did, or if a load has failed."""
        return (
            0.0
            if self.failure
            else max((load.rate_rps for load in self.loads if load.is_kept(objective_s)), default=0.0)
        )

    def after(self, point: Point, excess: float | None = None) -> SweptConfiguration:
        """Return the configuration after a further point, with the excess of its execution times."""
        if point.failure is not None:
            return replace(self, failure=point.why)
        assert isinstance(point.load, Rate)  # a sweep has no other loads
        load = SweptLoad(
            rate_rps=point.load.rate_rps,
            p99_ms=round(1000 * point.p99_s, 1) if math.isfinite(point.p99_s) else _NEVER_MS,
            answered_rps=round(point.throughput_rps, 2),
            late_ms=round(1000 * point.late_p99_s, 1),
            excess=None if excess is None else round(excess, 4),
            offered_rps=round(point.offered_rps, 2),
        )
        return replace(self, loads=(*self.loads, load))

    def document(self) -> dict[str, Any]:
        """Return the JSON form, in which a load is a list of its fields."""
        return asdict(self) | {"loads": [list(asdict(load).values()) for load in self.loads]}

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> SweptConfiguration:
        """Return the configuration from its JSON form."""
        names = [field.name for field in fields(SweptLoad)]
        loads = (dict(zip(names, values, strict=True)) for values in document["loads"])
        return cls(**{
            **document,
            "configuration": configuration(document["configuration"]),
            "loads": tuple(SweptLoad(**load) for load in loads),
        })  # fmt: skip


def configuration(document: Mapping[str, Any]) -> Configuration:
    """Return a configuration from its JSON form."""
    return Configuration(**{**document, "preferred": tuple(document["preferred"])})


def load(rate_rps: float) -> Rate:
    """Return the load of a sweep at a rate: eight seconds, or more if there would be fewer than 200 requests."""
    return Rate(rate_rps=rate_rps, min_requests=max(round(_LOAD_S * rate_rps), _MIN_REQUESTS))


def turn_load(rate_rps: float) -> Rate:
    """Return the load of a turn at a rate, which has more requests than that of a sweep."""
    return Rate(rate_rps=rate_rps, min_requests=_TURN_REQUESTS)


def best(configurations: Sequence[SweptConfiguration], objective_s: float) -> SweptConfiguration:
    """Return the configuration with the largest capacity; of equal ones the first."""
    return max(configurations, key=lambda configuration: configuration.capacity_rps(objective_s))
