"""What a model's own pods teach and what of them is under way, in closed loop."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

import numpy as np
import pytest

from halcyon.scaling.planner.outputs import Plan
from halcyon.scaling.planner.plan import plan
from halcyon.scaling.planner.reading import PodReading
from tests.simulator.planner.driver import OBJECTIVES, Driven


@dataclass
class Slow(Driven):
    """Pods that take their own time, whatever the objectives say."""

    takes_s: tuple[float, ...] = (180.0,)
    """Of one pod after the other, and again from the first."""

    def _grown(self, pod: PodReading) -> PodReading:
        takes_s = self.takes_s[int(pod.name) % len(self.takes_s)]
        if pod.phase == "starting" and self.now - pod.created_at >= takes_s:
            return replace(pod, phase="ready", ready_at=self.now)
        return pod


def trends(plans: list[Plan]) -> list[float]:
    """For how many seconds ahead each rise was foreseen."""
    matches = (re.search(r"rising to \S+ req/s in (\d+) s", term.why) for planned in plans for term in planned.parts)
    return [float(match[1]) for match in matches if match]


def ramp(driven: Driven, begin: float, end: float) -> list[Plan]:
    first = len(driven.plans)
    driven.run(np.linspace(begin, end, 700).tolist())
    return driven.plans[first:]


@pytest.mark.parametrize(
    ("takes_s", "learnt_s"),
    [
        ((60.0,), 60.0),
        ((180.0,), 180.0),
        ((20.0,), 20.0),
        ((120.0, 180.0, 180.0, 120.0, 120.0), 180.0),  # the slow ones are two of five
        (
            (120.0, 120.0, 120.0, 120.0, 180.0, 120.0, 120.0, 120.0, 120.0, 400.0),
            120.0,
        ),  # the one that hangs is no rule
    ],
    ids=str,
)
def test_the_planned_start_is_a_quantile_of_the_models_own_starts(takes_s: tuple[float, ...], learnt_s: float) -> None:
    driven = Slow(takes_s=takes_s)
    driven.run([20.0] * 300)
    before = ramp(driven, 20.0, 300.0)
    assert trends(before)[0] == driven.objectives.start_s == 60.0
    driven.run([300.0] * 500)
    assert len(driven.memory.capacity.starts) == 20
    driven.run([300.0] * 700)
    after = ramp(driven, 300.0, 600.0)
    assert trends(after)[0] == learnt_s


def test_a_need_is_held_for_as_long_as_the_pods_have_taken() -> None:
    held_s = []
    for takes_s in (60.0, 180.0):
        driven = Slow(takes_s=(takes_s,))
        driven.run([20.0] * 300 + [100.0] * 600)
        many = driven.replicas
        counts = driven.run([20.0] * 600)
        held_s.append(next(second for second, count in enumerate(counts) if count < many))
        description = next(
            planned.describe() for planned in driven.plans[-600:] if "were needed within" in planned.describe()
        )
        assert f"within the last {takes_s:.0f} s" in description
    assert held_s[1] - held_s[0] == pytest.approx(120.0, abs=2.0)


def grouped(rate: float, seconds: int, group: float, seed: int = 1) -> list[float]:
    """Requests that come in groups: a dispersion of `group`."""
    return (group * np.random.Generator(np.random.PCG64(seed)).poisson(rate / group, seconds)).astype(float).tolist()


@pytest.mark.parametrize("takes_s", [60.0, 180.0])
def test_the_backlog_part_of_a_bursty_load_is_ordered_once(takes_s: float) -> None:
    driven = Slow(replace(OBJECTIVES, high=1000), takes_s=(takes_s,))
    driven.run([*grouped(20.0, 300, 4.0), *grouped(60.0, 300, 4.0), *grouped(20.0, 900, 4.0)])
    spread = driven.memory.arrivals.spread
    assert spread.is_learnt
    assert 3 < spread.value < 5.5
    assert driven.memory.capacity.starts[-1] == takes_s
    before, ordered = driven.replicas, 0
    for rate in grouped(200.0, 20, 4.0):
        under_way = sum(pod.phase != "ready" for pod in driven.pods)
        ready = len(driven.pods) - under_way
        driven.run([rate])
        planned = driven.plans[-1]
        waits = next(term for term in planned.parts if term.name == "backlog")
        match = re.search(r"(\d+) \((\d+) new\)$", waits.why)
        assert match
        total, new = int(match[1]), int(match[2])
        assert planned.count == waits.replicas == total == ready + under_way + new
        ordered += new
        again = plan(driven.now, driven.objectives, driven.reading(), driven.memory)
        assert again.count == planned.count
        assert "(0 new)" in again.describe()
    assert ordered == driven.replicas - before > 10
    assert "(0 new)" in driven.plans[-1].describe()
