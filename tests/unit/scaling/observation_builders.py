"""Short builders for observations."""

from __future__ import annotations

from typing import Any

from halcyon.scaling.observations import (
    BalancerObservation,
    BalancerPoint,
    Observation,
    PodObservation,
    PodPoint,
)

NOW = 1000.0
EVERY_SECOND = tuple(NOW - age for age in range(20, -1, -1))


def balancer(
    queued: float = 0.0, *, agent: str = "b-0", refused_per_s: float = 0.0, times: tuple[float, ...] = EVERY_SECOND
) -> BalancerObservation:
    return BalancerObservation(
        agent,
        tuple(
            BalancerPoint(t, queued, 0.0, 50 * (t - times[0]), refused_per_s * (t - times[0]), 0.0, t) for t in times
        ),
    )


def pod(
    name: str = "p-0", state: Any = "ready", *, times: tuple[float, ...] = EVERY_SECOND, **values: Any
) -> PodObservation:
    return PodObservation(name, state, tuple(PodPoint(t, **{"pending": 0.0, "gpu": 50.0, **values}) for t in times))


def model(*parts: PodObservation | BalancerObservation, at: float = NOW, **rest: Any) -> Observation:
    return Observation(
        at,
        tuple(part for part in parts if isinstance(part, PodObservation)),
        tuple(part for part in parts if isinstance(part, BalancerObservation)),
        **rest,
    )
