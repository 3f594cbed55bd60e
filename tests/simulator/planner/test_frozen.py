"""A counter and a queue that stand still while the pods go on reporting."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest

from halcyon.scaling.planner.plausibility import MAX_AGE_S
from halcyon.scaling.planner.reading import Reading
from tests.simulator.planner.driver import EPOCH, Driven


@dataclass
class Agent:
    """Tells what it sees each so many seconds; once `frozen`, the figures of the look before."""

    every_s: int
    reported: Reading | None = None
    frozen: bool = False

    def __call__(self, reading: Reading) -> Reading:
        last = self.reported
        if last is None or ((reading.at or 0.0) - EPOCH) % self.every_s == 0:
            new = replace(last, at=reading.at) if last is not None and self.frozen else reading
            self.reported = last = new
        return replace(last, replicas=reading.replicas, pods=reading.pods)


def grouped(rate: float, group: float) -> list[float]:
    drawn = np.random.Generator(np.random.PCG64(5)).poisson(rate / group, 400)
    return (group * drawn).astype(float).tolist()


@pytest.mark.parametrize("every_s", [1, 5])
@pytest.mark.parametrize("group", [0.0, 1.0, 4.0, 13.0])
@pytest.mark.parametrize("rate", [15.0, 60.0, 300.0])
def test_frozen_signals_are_reported_within_two_readings_and_replicas_stay(
    rate: float, group: float, every_s: int
) -> None:
    """Looks are a second apart, and 5 s at most. As bursty as the burstiest trace known (13), 15 req/s may rest for seconds."""
    driven, agent = Driven(replicas=round(rate / 6)), Agent(every_s)
    driven.run(grouped(rate, group) if group else [rate] * 400, agent)
    # A reading without a request in progress is that of an idle model, also if it is frozen.
    while agent.reported is not None and not agent.reported.inflight:
        driven.run([rate], agent)
    good, agent.frozen, before = driven.replicas, True, len(driven.plans)
    counts = driven.run([rate] * 300, agent)
    unknown = [bool(planned.limits) and planned.limits[0].name == "unknown" for planned in driven.plans[before:]]
    first = unknown.index(True) + 1
    assert first <= (2 * every_s if group < 13.0 else MAX_AGE_S)
    assert all(unknown[first - 1 :])
    assert "frozen" in driven.plans[-1].describe()
    assert set(counts) == {good}


@pytest.mark.parametrize("rate", [0.2, 1.0])
def test_a_load_that_pauses_while_a_request_is_served_is_not_frozen(rate: float) -> None:
    driven = Driven()
    served = np.random.Generator(np.random.PCG64(5)).poisson(rate, 1200).astype(float).tolist()
    driven.run(served, lambda reading: replace(reading, inflight=1.0))
    assert not any(limit.name == "unknown" for planned in driven.plans for limit in planned.limits)
