"""Builder of the `Picture` of an observation, as the hub would build it from equivalent reports."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import astuple
from math import inf, nan

from halcyon.scaling.observations import BalancerPoint, Observation, PodObservation, PodPoint
from halcyon.signals.store_state import ModelSnapshot, PodFacts, PodSnapshot
from halcyon.signals.time_series import Ring


def ring(points: Sequence[BalancerPoint | PodPoint], width: int) -> Ring:
    series = Ring(width, max_age_s=inf, step_s=0.0)
    for point in points:
        assert series.add([nan if value is None else value for value in astuple(point)])
    return series


def view(pod: PodObservation) -> PodSnapshot:
    table = None if pod.batches is None else array("q", (value for size in pod.batches for value in size))
    return PodSnapshot(pod.name, PodFacts(pod.state), ring(pod.points, 9), table)


def picture(observation: Observation) -> ModelSnapshot:
    return ModelSnapshot(
        observation.at,
        {pod.name: view(pod) for pod in sorted(observation.pods, key=lambda pod: pod.name)},
        tuple((seen.agent, ring(seen.points, 8)) for seen in observation.balancers),
        observation.silent,
    )
