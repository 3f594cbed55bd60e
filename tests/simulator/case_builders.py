"""Policies and cases for the tests of the engine."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from halcyon_simulator.engine.case import Case, ServiceLaw, Times
from halcyon_simulator.engine.policy_view import PolicyView
from halcyon_simulator.engine.run import Trajectory, simulate

LINEAR = ServiceLaw(t0_s=1.0, a_s=0.5, max_batch=4)
"""A law with which batches of 1 to 4 take 1.5, 2, 2.5 and 3 s."""
SECOND = ServiceLaw(t0_s=1.0, a_s=0.0, max_batch=1)
"""A law with one request per second."""


@dataclass
class Plan:
    """A policy that writes given replicas from given times on, and calls `seen` at each tick."""

    counts: Mapping[float, int] = field(default_factory=dict)
    period_s: float = 1.0
    seen: Callable[[PolicyView], None] | None = None

    def desired(self, view: PolicyView) -> int:
        if self.seen is not None:
            self.seen(view)
        due = [count for at_s, count in sorted(self.counts.items()) if at_s <= view.now]
        return due[-1] if due else view.replicas


def case(arrivals: Sequence[float] | Times, service: ServiceLaw = SECOND, **fields: Any) -> Case:
    """Return a case of 20 s with one pod and an SLO of 5 s, unless overridden."""
    plain = Case("test", np.array(arrivals, dtype=np.float64), 20.0, service, slo_s=5.0, start_s=5.0, first=1)
    return replace(plain, **fields)


def run(of: Case, counts: Mapping[float, int] | None = None, **fields: Any) -> Trajectory:
    """Return the trajectory of a case under a `Plan`."""
    return simulate(of, Plan(counts or {}, **fields))


def poisson(rate: float, duration_s: float, seed: int = 0) -> Times:
    """Return arrival times with a constant rate."""
    rng = np.random.default_rng(seed)
    return np.sort(rng.random(rng.poisson(rate * duration_s)) * duration_s)
