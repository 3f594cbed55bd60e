"""The planner without one of its parts: each part matters on some load, and nothing else is changed."""

import numpy as np
import pytest

from halcyon_simulator.benchmark.budgeted import runs
from halcyon_simulator.benchmark.scenarios import LAWS, scenario
from halcyon_simulator.engine.case import Case, SignalFaults
from halcyon_simulator.engine.load import Profile, arrivals
from halcyon_simulator.engine.run import Trajectory, Write, simulate
from halcyon_simulator.policies import ablation
from halcyon_simulator.policies.ablation import NEUTRAL, AblatedPolicy
from halcyon_simulator.policies.halcyon import HalcyonPolicy
from halcyon_simulator.policies.registry import PolicyTextError, parsed

_SHORT = {
    "damping": "S6-azure",
    "headroom": "S1",
    "dispersion": "S1",
    "rejections": "S1",
    "zero": "S7-10m",
    "hold": "S1",
    "patience": "S6-aibrix",
    "spikes": "S7-3m",
}
"""By part: a scenario of the table, of seconds, in which the part matters."""


def _case(name: str) -> Case:
    return scenario(name, law=LAWS["L1"], start_s=60.0, seed=1)


def _run(case: Case, policy: str) -> Trajectory:
    (run,) = runs((case,), parsed(policy))
    return run


def _writes(run: Trajectory) -> list[Write]:
    return list(run.writes)


@pytest.mark.parametrize("part", _SHORT)
def test_a_planner_without_a_part_decides_otherwise(part: str) -> None:
    case = _case(_SHORT[part])
    base = "halcyon+balancer" if part == "rejections" else "halcyon"
    assert _writes(_run(case, base)) != _writes(_run(case, f"{base}:without={part}"))


@pytest.mark.parametrize("faults", [SignalFaults(frozen=((300.0, 700.0),)), SignalFaults(absent=((300.0, 700.0),))])
def test_without_plausibility_lost_signals_change_the_replicas(faults: SignalFaults) -> None:
    case = _generated(Profile.steps((900, 60)), faults)
    assert not [write for write in _run(case, "halcyon").writes if 320 < write.at_s < 700]
    assert [write for write in _run(case, "halcyon:without=plausibility").writes if 320 < write.at_s < 700]


def test_without_a_season_nothing_is_learnt_of_the_time_of_day() -> None:
    case = _generated(Profile.steps((3600, 5)))
    unablated, without = HalcyonPolicy(case), AblatedPolicy(case, "season")
    simulate(case, unablated)
    simulate(case, without)
    assert len(unablated.memory.history.bins) == 11
    assert without.memory.history.bins == ()


def _generated(profile: Profile, faults: SignalFaults | None = None) -> Case:
    law = LAWS["L1"]
    times = arrivals(profile, rng=np.random.Generator(np.random.PCG64(1)), cv=1.0)
    return Case(
        name="made",
        arrivals=times,
        duration_s=profile.duration_s,
        service=law.service,
        slo_s=law.slo_s,
        start_s=60.0,
        seed=1,
        signal_faults=faults or SignalFaults(),
    )


def test_every_part_has_a_case_here() -> None:
    assert {*_SHORT, "plausibility", "season"} == set(NEUTRAL)


def test_the_whole_planner_is_the_unablated_policy_to_the_last_digit(monkeypatch: pytest.MonkeyPatch) -> None:
    """A policy that replaces nothing runs through the same class as those that do."""
    monkeypatch.setitem(ablation.NEUTRAL, "nothing", lambda memory: memory)  # type: ignore[arg-type]  # a dict at run time
    case = _case("S6-aibrix")
    unablated, nothing = simulate(case, HalcyonPolicy(case)), simulate(case, AblatedPolicy(case, "nothing"))
    assert _writes(unablated) == _writes(nothing)
    np.testing.assert_array_equal(unablated.latency_s, nothing.latency_s)


@pytest.mark.parametrize("part", NEUTRAL)
def test_a_neutral_part_replaces_one_part_alone(part: str) -> None:
    before, after = HalcyonPolicy(_case("S1")).memory, AblatedPolicy(_case("S1"), part).memory
    differ = [name for name in before.__slots__ if type(getattr(before, name)) is not type(getattr(after, name))]
    differ += ["arrivals"] * (type(before.arrivals.spread) is not type(after.arrivals.spread))
    assert len(differ) == 1


def test_knobs_are_given_beside_the_part_that_is_off() -> None:
    policy = parsed("halcyon:without=hold,drain_s=20").build(_case("S1"))
    assert isinstance(policy, AblatedPolicy)
    assert policy.objectives.drain_s == 20


def test_a_part_that_does_not_exist_is_refused_with_those_that_do() -> None:
    with pytest.raises(PolicyTextError, match="no part 'luck' that can be off; there are plausibility, damping"):
        parsed("halcyon:without=luck").build(_case("S1"))


def test_peers_have_no_such_knob() -> None:
    assert parsed("kpa:without=hold").without is None
    with pytest.raises(PolicyTextError):
        parsed("kpa:without=hold").build(_case("S1"))
