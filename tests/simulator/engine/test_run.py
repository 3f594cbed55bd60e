from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from halcyon_simulator.engine.case import SignalFaults, StartFaults
from halcyon_simulator.engine.policy_view import PolicyView, SampleColumn
from halcyon_simulator.engine.run import Write, first_count, simulate
from tests.simulator.case_builders import LINEAR, Plan, case, poisson, run


def test_a_new_pod_is_ready_after_its_start_and_billed_from_creation() -> None:
    done = run(case([]), {2.0: 2})
    assert list(done.ready[5:9]) == [1, 1, 2, 2]
    assert done.writes == (Write(2.0, 1, 2),)
    assert list(done.written[1:4]) == [1, 2, 2]
    assert done.gpu_seconds == 20 + 18


def test_replicas_take_effect_after_the_actuation_delay() -> None:
    done = run(case([], actuation_delay_s=1.5), {2.0: 2})
    assert done.pods.created_s[1] == 3.5
    assert done.gpu_seconds == 20 + 16.5


def test_a_draining_pod_finishes_what_it_holds_and_takes_nothing_new() -> None:
    done = run(case([1.5, 3.0], replace(LINEAR, t0_s=2.5), low=0), {2.0: 0})
    assert done.latency_s == pytest.approx([3.0, math.inf])
    assert done.gpu_seconds == 4.5
    assert list(done.existing[3:6]) == [1, 1, 0]
    assert done.inflight[-1] == 1


def test_at_zero_replicas_requests_are_held_for_the_next_pod() -> None:
    done = run(case([1.0, 1.5], LINEAR, low=0, first=0, refuse_late=True), {2.0: 1})
    # Ready at 7; both in one batch of 2 s.
    assert done.latency_s == pytest.approx([8.0, 7.5])


def test_pods_that_become_ready_together_share_the_queue() -> None:
    done = run(case([1.0, 1.1, 1.2, 1.3], LINEAR, low=0, first=0), {2.0: 2})
    assert done.latency_s == pytest.approx([8.0, 7.9, 7.8, 7.7])


def test_the_newest_starting_pods_go_first_at_once_then_the_least_loaded() -> None:
    seen: dict[float, list[tuple[int, str]]] = {}

    def look(view: PolicyView) -> None:
        seen[view.now] = [(pod.name, pod.phase) for pod in view.pods]

    # Two busy pods of three: the idle one goes, though it isn't the newest.
    busy = replace(LINEAR, t0_s=10.0)
    done = run(case([7.5, 7.6, 7.7, 8.5], busy, first=3), {2.0: 5, 4.0: 4, 8.0: 2}, seen=look)
    assert seen[3.0] == [(0, "ready"), (1, "ready"), (2, "ready"), (3, "starting"), (4, "starting")]
    assert seen[5.0] == [(0, "ready"), (1, "ready"), (2, "ready"), (3, "starting")]
    assert seen[8.0] == [(0, "ready"), (1, "ready"), (2, "ready"), (3, "ready")]
    assert [phase for _, phase in seen[9.0]] == ["ready", "ready", "draining"]
    assert done.gpu_seconds == pytest.approx(3 * 20 + (4 - 2) + (8 - 2) - (20 - 7.7 - 10.5))


@pytest.mark.parametrize(
    ("faults", "ready_s"), [(StartFaults(crash_share=1.0), 12.0), (StartFaults(slow_share=1.0, slow_factor=3.0), 17.0)]
)
def test_slow_and_crashing_starts_take_longer(faults: StartFaults, ready_s: float) -> None:
    done = run(case([], start_faults=faults), {2.0: 2})
    assert done.pods.ready_s[1] == ready_s
    assert done.gpu_seconds == 38


def test_an_unschedulable_pod_is_not_billed_and_starts_when_there_is_capacity() -> None:
    phases: list[str] = []
    of = case([], start_faults=StartFaults(no_capacity=((1.0, 6.5),)))
    done = run(of, {2.0: 2}, seen=lambda view: phases.append(view.pods[-1].phase))
    assert phases[3:14] == ["unschedulable"] * 4 + ["starting"] * 5 + ["ready"] * 2
    assert done.gpu_seconds == 20 + 13.5
    assert run(of, {2.0: 2, 4.0: 1}).gpu_seconds == 20


def test_many_short_lived_pods_find_slots() -> None:
    counts = {float(second): 40 if second % 2 else 1 for second in range(1, 60)}
    load = case(poisson(20, 60), replace(LINEAR, t0_s=30.0), duration_s=60.0, high=40, start_s=0.5)
    done = run(load, counts)
    assert len(done.pods.created_s) > 1000
    assert np.array_equal(done.arrived, done.answered + done.refused + done.inflight)
    assert done.existing.max() > 4 * 40 + 64


def test_the_first_replicas_are_the_first_minutes_need_at_70_percent() -> None:
    of = case(poisson(20, 120), replace(LINEAR, t0_s=0.4, a_s=0.0), first=None, duration_s=120.0)
    assert first_count(of) == math.ceil(np.sum(of.arrivals < 60) / 60 / 7)


def test_replicas_are_clamped_and_ticks_come_at_multiples_of_the_period() -> None:
    ticks: list[float] = []
    done = run(case([], high=3), {0.0: 9}, period_s=2.5, seen=lambda view: ticks.append(view.now))
    assert done.written[-1] == 3
    assert ticks == [0.0, 2.5, 5.0, 7.5, 10.0, 12.5, 15.0, 17.5]


def test_a_policy_may_put_off_its_next_tick() -> None:
    ticks: list[float] = []
    plan = Plan(period_s=2.0, seen=lambda view: ticks.append(view.now))
    plan.next_look_s = 9.0  # type: ignore[attr-defined]  # not every policy has it
    simulate(case([]), plan)
    assert ticks == [0.0, 10.0, 12.0, 14.0, 16.0, 18.0]


def test_the_same_seed_gives_the_same_run() -> None:
    faults = {"start_faults": StartFaults(slow_share=0.3, crash_share=0.3), "signal_faults": SignalFaults(noise=0.2)}
    of = case(poisson(10, 60), LINEAR, duration_s=60.0, **faults)

    class Follow(Plan):
        def desired(self, view: PolicyView) -> int:
            return math.ceil((view.value(SampleColumn.INFLIGHT) or 0) / 4)

    first, second = simulate(of, Follow()), simulate(of, Follow())
    assert first.writes == second.writes
    assert np.array_equal(first.latency_s, second.latency_s)
    assert simulate(replace(of, seed=1), Follow()).writes != first.writes


@pytest.mark.parametrize("fields", [{"low": 3, "high": 2}, {"slots": 0}, {"duration_s": 0.0}])
def test_a_case_that_cannot_run_is_an_error(fields: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"case test.* for example"):
        run(case([], **fields))
    with pytest.raises(ValueError, match=r"arrivals have to ascend .* for example"):
        run(case([2.0, 1.0]))


def _looked(at_s: float, load: float = 10.0, **fields: Any) -> dict[str, object]:
    """What a policy sees at a time; the load is even, so that every value can be told."""
    seen: dict[str, object] = {}

    def look(view: PolicyView) -> None:
        if view.now == at_s:
            seen.update(
                arrived=view.value(SampleColumn.ARRIVED),
                rate=view.rate(SampleColumn.ARRIVED, 10),
                ready=view.mean(SampleColumn.READY, 4),
                inflight=view.mean(SampleColumn.INFLIGHT, 30),
                sampled=view.sampled_at(),
            )

    run(case((np.arange(60 * load) + 0.5) / load, duration_s=60.0, first=20, **fields), seen=look)
    return seen


def test_samples_are_late_by_the_observation_lag() -> None:
    assert _looked(30.0) == {"arrived": 300, "rate": 10, "ready": 20, "inflight": 10, "sampled": 30}
    assert _looked(30.0, observation_lag_s=7.0) == {
        "arrived": 230,
        "rate": 10,
        "ready": 20,
        "inflight": 10,
        "sampled": 23,
    }


def test_the_first_load_precedes_time_0() -> None:
    assert _looked(0.0) == {"arrived": 0, "rate": 10, "ready": 20, "inflight": 10, "sampled": 0}
    assert _looked(3.0, observation_lag_s=7.0)["rate"] == 10


def test_absent_samples_are_none_and_the_last_one_is_dated() -> None:
    absent = SignalFaults(absent=((15.0, 31.0),))
    assert _looked(30.0, signal_faults=absent) == {
        "arrived": None,
        "rate": None,
        "ready": None,
        "inflight": 10,
        "sampled": 14,
    }
    assert _looked(32.0, signal_faults=absent) == {
        "arrived": 320,
        "rate": 10,
        "ready": 20,
        "inflight": 10,
        "sampled": 32,
    }


def test_a_frozen_source_repeats_its_last_sample_with_a_new_time() -> None:
    seen = _looked(30.0, signal_faults=SignalFaults(frozen=((15.0, 40.0),)))
    assert (seen["arrived"], seen["rate"], seen["sampled"]) == (140, 0, 30)
    assert _looked(50.0, signal_faults=SignalFaults(frozen=((15.0, 40.0),)))["arrived"] == 500


def test_noise_keeps_counters_rising_and_means_right_and_leaves_ready_alone() -> None:
    seen: list[tuple[float, float, float]] = []

    def look(view: PolicyView) -> None:
        values = (view.value(SampleColumn.ARRIVED), view.value(SampleColumn.INFLIGHT), view.value(SampleColumn.READY))
        seen.append(tuple(value if value is not None else math.nan for value in values))  # type: ignore[arg-type]  # three of them

    noise = SignalFaults(noise=0.2, missing_share=0.05)
    run(case((np.arange(20_000) + 0.5) / 10, duration_s=2000.0, first=20, signal_faults=noise), seen=look)
    table = np.array(seen)
    assert 0.03 < np.isnan(table[:, 0]).mean() < 0.07
    known = table[~np.isnan(table[:, 0])]
    assert np.all(np.diff(known[:, 0]) >= 0)
    assert known[-1, 0] == pytest.approx(20_000, rel=0.02)
    assert known[:, 1].std() == pytest.approx(2, rel=0.1)
    assert set(known[:, 2]) == {20}
