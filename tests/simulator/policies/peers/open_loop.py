"""A policy view without a simulation: signals are functions of time, pods are ready at once, and there is no lag.

`replay` calls a policy at each of its ticks and applies the result. The load doesn't depend on the replicas.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from halcyon_simulator.engine.case import Case, ServiceLaw
from halcyon_simulator.engine.policy_view import Policy, PolicyPod, SampleColumn

Shape = Callable[[float], float | None]
"""Function from a time to a gauge's value, or a counter's increase, in the second that ends then; None if it is
missing."""


def constant(value: float | None) -> Shape:
    return lambda _: value


def steps(points: Sequence[tuple[float, float]]) -> Shape:
    """Return a function with the value of the last point at or before a time, or of the first point."""

    def shape(t: float) -> float:
        return next((value for begin, value in reversed(points) if begin <= t), points[0][1])

    return shape


def case(*, low: int = 1, high: int = 100, max_batch: int = 10) -> Case:
    """Return a case in which a replica computes `max_batch` requests at once in 1 s: `max_batch` per second."""
    return Case(
        name="open-loop",
        arrivals=np.arange(0.0, 600.0, 0.1),
        duration_s=600.0,
        service=ServiceLaw(t0_s=1.0, a_s=0.0, max_batch=max_batch),
        slo_s=2.0,
        start_s=60.0,
        low=low,
        high=high,
    )


@dataclass
class OpenLoop:
    """The view at one time. `pods` are as many ready pods as `replicas`, unless given."""

    signals: Mapping[SampleColumn, Shape]
    now: float = 0.0
    replicas: int = 1
    phases: tuple[str, ...] | None = None

    @property
    def pods(self) -> tuple[PolicyPod, ...]:
        phases = ("ready",) * self.replicas if self.phases is None else self.phases
        return tuple(PolicyPod(name=i, phase=phase, created_s=0.0) for i, phase in enumerate(phases))

    def value(self, signal: SampleColumn) -> float | None:
        return self.signals[signal](math.floor(self.now))

    def mean(self, signal: SampleColumn, window_s: float) -> float | None:
        known = self._known(signal, window_s)
        return sum(known) / len(known) if known else None

    def rate(self, signal: SampleColumn, window_s: float) -> float | None:
        return self.mean(signal, window_s)

    def sampled_at(self) -> float | None:
        return math.floor(self.now)

    def batches(self) -> Mapping[int, tuple[int, float]]:
        return {}

    def _known(self, signal: SampleColumn, window_s: float) -> list[float]:
        """Return the samples in (now - window, now]."""
        shape, times = self.signals[signal], range(math.floor(self.now - window_s) + 1, math.floor(self.now) + 1)
        return [value for value in map(shape, times) if value is not None]


Changes = list[tuple[float, int]]


def replay(
    policy: Policy,
    signals: Mapping[SampleColumn, Shape],
    *,
    until_s: float,
    first: int = 1,
    low: int = 1,
    high: int = 100,
) -> Changes:
    """Return (time, replicas) of every change up to and including `until_s`. Pods are ready at once."""
    view = OpenLoop({signal: functools.cache(shape) for signal, shape in signals.items()}, replicas=first)
    changes: Changes = []
    for tick in range(math.floor(until_s / policy.period_s) + 1):
        view.now = tick * policy.period_s
        count = min(max(policy.desired(view), low), high)
        if count != view.replicas:
            changes.append((view.now, count))
            view.replicas = count
    return changes
