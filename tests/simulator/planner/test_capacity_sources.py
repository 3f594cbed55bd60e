"""The planner in the closed loop of the simulator, for models whose batch times say little about what more pods can do."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest
from typing_extensions import override

from halcyon.scaling.planner.capacity_source import CapacitySource, source
from halcyon.scaling.planner.plan import replica_of
from halcyon_simulator.engine.case import Case, Drift, ServiceLaw
from halcyon_simulator.engine.load import Profile, arrivals
from halcyon_simulator.engine.policy_view import PolicyView
from halcyon_simulator.engine.run import Trajectory, simulate
from halcyon_simulator.policies.halcyon import HalcyonPolicy

START_S = 10.0


@dataclass
class Loop:
    """One run of the planner, with the source of capacity at each decision."""

    case: Case
    trajectory: Trajectory = field(init=False)
    sources: list[tuple[float, CapacitySource]] = field(default_factory=list)

    def __post_init__(self) -> None:
        loop = self

        class Policy(HalcyonPolicy):
            @override
            def desired(self, view: PolicyView) -> int:
                count = super().desired(view)
                line = self.memory.capacity.line
                replica = None if line is None else replica_of(self.objectives, line, 1.0)
                loop.sources.append((view.now, source(self.memory.evidence, replica)))
                return count

        self.trajectory = simulate(self.case, Policy(self.case))

    def counts(self, begin: float, end: float) -> set[int]:
        """Return the replicas in force from `begin` to `end`, in seconds."""
        return set(self.trajectory.written[int(begin) : int(end) + 1].tolist())


def loop(service: ServiceLaw, *pieces: tuple[float, float], **changes: object) -> Loop:
    """Run the planner on Poisson arrivals; pieces are (seconds, requests per second)."""
    profile = Profile.steps(*pieces)
    times = arrivals(profile, rng=np.random.Generator(np.random.PCG64(1)))
    given: dict[str, object] = {"slo_s": 60.0, "start_s": START_S, "high": 10, "first": 1} | changes
    return Loop(Case("case", times, profile.duration_s, service, **given))  # type: ignore[arg-type]  # by name


@pytest.mark.parametrize("lock_reported", [True, False], ids=["in batch times", "beside them"])
@pytest.mark.parametrize(
    ("t0_s", "a_s", "batch"), [(0.08, 0.006, 8), (0.02, 0.002, 32), (5.0, 0.0, 1)], ids=["80+6b", "20+2b", "5s"]
)
def test_replicas_stop_at_one_more_than_a_lock_of_all_pods_allows(
    t0_s: float, a_s: float, batch: int, lock_reported: bool
) -> None:
    """Two pods answer as much as ten, from 0.5 to 4 times what one can answer."""
    law = ServiceLaw(t0_s, a_s, batch, lock=2, lock_reported=lock_reported)
    each = batch / law.seconds(batch)
    run = loop(law, (60, each / 2), (900, 4 * each), queue_limit=400)

    assert run.counts(220, 900) == {3}
    assert {found.contradiction for at, found in run.sources if at > 220} == {"SharedLimit"}


@pytest.mark.parametrize("rate", [1.5, 6.0])
def test_independent_pods_are_not_taken_for_limited_ones(rate: float) -> None:
    """Overload without a lock: the replicas reach what the load needs, or the maximum."""
    law = ServiceLaw(0.08, 0.006, 8)
    each = 8 / law.seconds(8)
    run = loop(law, (60, each / 2), (400, 2 * rate * each), queue_limit=400)

    assert min(run.counts(120, 400)) >= min(2 * rate, 10)


def test_requests_that_become_heavier_while_pods_are_added_are_no_shared_limit() -> None:
    """A batch takes three times as long from the moment on at which the load quadruples, so more pods do help."""
    law = ServiceLaw(0.08, 0.006, 8)
    each = 8 / law.seconds(8)
    run = loop(law, (60, each / 2), (900, 4 * each), queue_limit=400, drift=Drift(60.0, 65.0, 3.0))

    assert min(run.counts(400, 900)) >= 10
