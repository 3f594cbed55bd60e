"""The whole plan: what must hold for every load, and what each outage must not do."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from halcyon.scaling.planner.capacity.bounded_queue import RejectionBound
from halcyon.scaling.planner.clock_shift import shifted
from halcyon.scaling.planner.forecast.seasonality import BIN_S, History
from halcyon.scaling.planner.outputs import Plan, PlannerMemory
from halcyon.scaling.planner.plan import plan
from halcyon.scaling.planner.reading import Objectives, OpenWindow, PodReading, Reading
from tests.simulator.planner.driver import EPOCH, OBJECTIVES, Distortion, Driven, turns

DAY_S = 86_400.0
OFTEN = max(settings().max_examples // 10, 1)
"""1, and 100 in `make properties`."""
RATES = st.lists(st.floats(0, 500), min_size=1, max_size=30)


def terms_of(planned: Plan) -> set[str]:
    return {term.name for term in planned.parts}


def noisy(rate: float, seconds: int, seed: int, noise: float = 0.2) -> list[float]:
    drawn = random.Random(seed)
    return [max(drawn.gauss(rate, noise * rate), 0.0) for _ in range(seconds)]


@given(RATES, st.integers(0, 20), st.integers(0, 80))
def test_replicas_lie_within_the_limits_for_any_readings(rates: list[float], low: int, more: int) -> None:
    objectives = replace(OBJECTIVES, low=low, high=low + more, idle_after_s=60.0)
    counts = Driven(objectives, replicas=low).run(rates)
    assert all(low <= count <= low + more for count in counts)


@given(RATES, st.floats(0, 500), st.floats(0, 500), st.floats(0, 2000), st.floats(0, 2000))
@settings(max_examples=60 * OFTEN)
def test_more_load_or_backlog_never_means_fewer_replicas_for_a_fixed_memory(
    rates: list[float], rate: float, more: float, waiting: float, longer: float
) -> None:
    driven = Driven()
    driven.run(rates)
    base = replace(driven.reading(), at=driven.now + 1)
    less = replace(base, arrived=driven.arrived + rate, waiting=waiting, inflight=waiting + 5)
    much = replace(base, arrived=driven.arrived + rate + more, waiting=waiting + longer, inflight=waiting + longer + 5)
    counts = [plan(driven.now + 1, driven.objectives, r, driven.memory).count for r in (less, much)]
    assert counts[0] <= counts[1]


BATCHED = Objectives(low=1, high=100, max_batch=16, latency_s=0.5, start_s=60.0, batch_prior={1: 0.088, 16: 0.208})
"""77 requests per second of a replica at most."""


@pytest.mark.parametrize(
    ("objectives", "peak_rps", "rate"),
    [
        *((OBJECTIVES, 10.0, rate) for rate in (3.0, 15.0, 60.0, 200.0)),
        *((BATCHED, 77.0, rate) for rate in (30.0, 460.0, 1500.0)),
    ],
    ids=lambda value: f"{value:g}" if isinstance(value, float) else f"{value.latency_s} s",
)
@pytest.mark.parametrize("seed", range(2))
def test_replicas_never_turn_around_at_constant_noisy_load(
    objectives: Objectives, peak_rps: float, rate: float, seed: int
) -> None:
    driven = Driven(objectives=objectives, replicas=max(round(rate / peak_rps / 0.8), 1), peak_rps=peak_rps)
    assert turns(driven.run(noisy(rate, 3600, seed))) == 0, "from nothing known"
    counts = driven.run(noisy(rate, 3600, seed + 100))  # the first margin was unlearnt
    assert turns(counts) == 0
    assert max(counts) - min(counts) <= 1 + 0.05 * max(counts)


def test_only_certain_rates_raise_replicas_in_the_first_minute_of_a_load() -> None:
    driven = Driven(replicas=25)
    drawn = np.random.Generator(np.random.PCG64(1)).poisson(240, 70).astype(float).tolist()
    early = driven.run(drawn[:3])
    first = driven.plans[2]
    needed = next(term.replicas for term in first.parts if term.name == "rate")
    assert early[-1] < needed
    assert [limit.name for limit in first.limits] == ["learning"]
    assert "req/s are certain after 2 s" in first.describe()
    late = driven.run(drawn[3:])
    assert late[-1] >= next(term.replicas for term in driven.plans[-1].parts if term.name == "rate")
    assert "learning" not in [limit.name for limit in driven.plans[-1].limits]


@given(st.integers(0, 2**32))
@settings(max_examples=5 * max(OFTEN // 10, 1))
def test_a_jumping_load_turns_the_replicas_a_bounded_number_of_times(seed: int) -> None:
    drawn = random.Random(seed)
    rates: list[float] = []
    while len(rates) < 3600:
        rates += [drawn.choice([5.0, 30.0, 80.0])] * drawn.randint(5, 120)
    counts = Driven().run(rates[:3600])
    # log2(1800 / 60) doublings, two more an hour at full patience, each a fall and a rise; the backlog's own moves on top.
    assert turns(counts) <= 2 * (math.log2(30) + 3) + 24


@given(RATES)
@settings(max_examples=20 * OFTEN)
def test_the_same_input_gives_the_same_plan_and_leaves_its_memory_alone(rates: list[float]) -> None:
    driven = Driven()
    driven.run(rates)
    before, reading = repr(driven.memory), driven.reading()
    first = plan(driven.now + 1, driven.objectives, reading, driven.memory)
    assert plan(driven.now + 1, driven.objectives, reading, driven.memory) == first
    assert repr(driven.memory) == before


def test_a_step_is_answered_in_two_seconds_for_rate_and_backlog() -> None:
    driven = Driven()
    driven.run([20.0] * 300)
    counts = driven.run([200.0] * 5)
    assert counts[1] > 20
    assert {"rate", "backlog"} <= terms_of(driven.plans[-1])
    assert "waiting to drain in 10 s" in driven.plans[-1].describe()


def test_pods_for_the_backlog_are_released_after_the_drain_and_others_stay() -> None:
    driven = Driven()
    driven.run([20.0] * 300)
    counts = driven.run([250.0] * 150)
    assert max(counts) == 100
    assert 25 <= counts[-1] <= 35


def test_pods_for_the_backlog_stay_until_the_others_suffice_in_time() -> None:
    driven = Driven()
    driven.run([20.0] * 300)
    left = []
    for _ in range(150):
        before = driven.plans[-1].count
        (count,) = driven.run([250.0])
        if before == 100 > count:
            left.append((driven.waiting, count))
    assert len(left) == 1
    waiting, count = left[0]
    assert waiting <= count * (driven.peak_rps * driven.objectives.latency_s / 2 + driven.objectives.max_batch)


def test_pods_started_for_a_backlog_are_kept_a_while_after_it() -> None:
    driven = Driven()
    driven.run([20.0] * 300)
    driven.run([60.0, 60.0, 60.0])
    seconds = int(driven.objectives.drain_s)
    counts = driven.run([20.0] * 3 * seconds)
    ended = next(n for n, planned in enumerate(driven.plans) if n > 300 and "backlog" not in terms_of(planned))
    needed = [max((t.replicas for t in planned.parts if t.name == "backlog"), default=0) for planned in driven.plans]
    for number in range(ended, ended + seconds - 2):
        assert driven.plans[number].count == max(needed[number - seconds + 1 : number + 1]) > 10
    assert f"within the last {seconds} s" in driven.plans[ended].describe()
    assert counts[-1] < min(filter(None, needed))


def test_a_ramp_is_answered_ahead() -> None:
    driven = Driven()
    driven.run([50.0] * 300)
    driven.run([50.0 + 0.5 * second for second in range(300)])
    ready = sum(pod.phase == "ready" for pod in driven.pods)
    assert ready * driven.peak_rps > 200
    assert driven.plans[-1].count * driven.peak_rps > 215
    assert driven.waiting == 0


SPOILT: dict[str, Distortion] = {
    "nothing heard": lambda r: replace(r, at=None),
    "stale": lambda r: replace(r, at=(r.at or 0) - 60),
    "arrived missing": lambda r: replace(r, arrived=None),
    "waiting missing": lambda r: replace(r, waiting=None),
    "inflight missing": lambda r: replace(r, inflight=None),
    **{
        f"{name} {value}": (lambda r, name=name, value=value: replace(r, **{name: value}))
        for name in ("arrived", "waiting", "inflight")
        for value in (math.nan, math.inf, -math.inf, -1.0)
    },
    "arrived absurd": lambda r: replace(r, arrived=(r.arrived or 0) + 1e12),
    "waiting absurd": lambda r: replace(r, waiting=1e12),
}


@pytest.mark.parametrize("replicas", [3, 30])
@pytest.mark.parametrize("kind", SPOILT)
def test_implausible_signals_change_nothing_and_are_reported_at_once(kind: str, replicas: int) -> None:
    driven = Driven(replicas=replicas)
    good = driven.run([replicas * 7.0] * 400)[-1]
    counts = driven.run([replicas * 7.0] * 300, SPOILT[kind])
    assert set(counts) == {good}
    assert driven.plans[-299].limits[0].name == "unknown"
    assert "the last valid number of replicas is kept" in driven.plans[-1].describe()
    after = driven.run([replicas * 7.0] * 100)
    # What was learnt in calm may release one at last.
    assert set(after) <= {good, good - 1}, "recovery is no jump"


def test_a_flood_during_a_silence_of_minutes_is_no_fault() -> None:
    # A request takes 10 s. Clients repeat those that are rejected, 150 in a second.
    driven = Driven(replace(OBJECTIVES, max_batch=1, high=4, latency_s=None, batch_prior={1: 10.0}), replicas=4)
    rejecting: Distortion = lambda r: replace(r, waiting=5.0, inflight=9.0, rejected=max((r.arrived or 0) - 9, 0))  # noqa: E731
    driven.run([150.0] * 100, rejecting)
    driven.run([150.0] * 600, lambda r: replace(r, arrived=None, waiting=None, inflight=None, rejected=None))
    driven.run([150.0] * 10, rejecting)

    assert "unknown" not in [limit.name for limit in driven.plans[-1].limits], driven.plans[-1].describe()


@pytest.mark.parametrize("rate", [15.0, 60.0, 300.0])
def test_frozen_signals_are_distinguished_from_a_load_that_ended(rate: float) -> None:
    driven = Driven(replicas=round(rate / 7))
    good = driven.run([rate] * 400)[-1]
    still = driven.reading()
    frozen = driven.run([rate] * 300, lambda r: replace(still, at=r.at, replicas=r.replicas, pods=r.pods))
    assert set(frozen) == {good}
    assert "frozen" in driven.plans[-1].describe()
    ended = driven.run([0.0] * 600, lambda r: replace(r, inflight=0.0))
    assert ended[-1] == 1


def test_counters_that_restart_are_no_fall_and_no_flood() -> None:
    driven = Driven()
    good = driven.run([20.0] * 400)[-1]
    driven.arrived = 0.0
    assert set(driven.run([20.0] * 200)) == {good}


def test_present_replicas_are_the_floor_after_a_restart() -> None:
    driven = Driven(replicas=40)
    assert set(driven.run([20.0] * 60)) == {40}, "a minute tells what the load is, where it comes evenly"
    assert driven.run([20.0] * 900)[-1] == 3


def test_the_planner_has_no_opinion_before_the_first_batch() -> None:
    driven = Driven(replace(OBJECTIVES, batch_prior=None), replicas=7)
    assert driven.run([100.0])[-1] == 7
    assert driven.plans[-1].limits[0].name == "learning"


def test_a_broken_pod_is_no_capacity() -> None:
    driven = Driven(replicas=10)
    driven.run([92.0] * 300)
    reading = replace(driven.reading(), at=driven.now + 1, arrived=driven.arrived + 92)
    broken = (replace(reading.pods[0], phase="broken"), replace(reading.pods[1], phase="broken"), *reading.pods[2:])
    terms = [
        {term.name for term in plan(driven.now + 1, driven.objectives, variant, driven.memory).parts}
        for variant in (reading, replace(reading, pods=broken))
    ]
    assert "backlog" not in terms[0]
    assert "backlog" in terms[1]


@pytest.mark.parametrize("start_s", [60.0, 300.0])
def test_pods_that_load_slowly_are_ordered_once(start_s: float) -> None:
    driven = Driven(replace(OBJECTIVES, start_s=start_s))
    driven.run([20.0] * 600)
    counts = driven.run([60.0] * int(start_s))
    assert counts[-1] > 6
    assert max(counts[15:]) == max(counts[:15])
    assert turns(counts) == 0


@pytest.mark.parametrize("phase", ["broken", "starting", "unschedulable"])
def test_pods_of_a_revision_that_never_serves_change_no_replicas(phase: Any) -> None:
    driven = Driven(replicas=4)
    before = driven.run([25.0] * 600)[-1]
    failed = PodReading(1000, phase, driven.now)
    assert set(driven.run([25.0] * 900, lambda reading: replace(reading, pods=(*reading.pods, failed)))) == {before}


def test_pods_without_a_node_are_not_under_way() -> None:
    stuck = tuple(PodReading(i, "unschedulable", EPOCH) for i in range(20))
    driven = Driven()
    driven.run([20.0] * 120)
    driven.run([100.0] * 20)
    reading = replace(
        driven.reading(), at=driven.now + 1, waiting=3000.0, inflight=3010.0, arrived=driven.arrived + 100
    )
    ready = tuple(pod for pod in reading.pods if pod.phase == "ready")
    coming = tuple(PodReading(100 + i, "starting", driven.now - 50) for i in range(20))
    counts = [
        plan(driven.now + 1, driven.objectives, replace(reading, pods=ready + pods, replicas=23), driven.memory).count
        for pods in (stuck, coming)
    ]
    assert counts[0] > counts[1]


def test_zero_after_idleness_and_back_with_the_first_request() -> None:
    driven = Driven(replace(OBJECTIVES, low=0, idle_after_s=60.0), replicas=2)
    driven.run([5.0] * 100)
    quiet: Distortion = lambda r: replace(r, inflight=r.waiting)  # noqa: E731  # a name for what the planner receives
    counts = driven.run([0.0] * 70, quiet)
    assert counts[50] > 0
    assert counts[-1] == 0
    assert "no request for" in driven.plans[-1].describe()
    assert driven.run([1.0], quiet) != [0]


def test_schedules_move_the_limits_and_the_sentence_names_them() -> None:
    driven = Driven(replace(OBJECTIVES, windows=(OpenWindow("office", low=9), OpenWindow("cap", high=12))))
    assert driven.run([20.0] * 10)[-1] == 9
    assert "minReplicas is 9" in driven.plans[-1].describe()
    assert driven.run([500.0] * 60)[-1] == 12


def test_a_users_gpu_target_and_queue_target_are_objectives() -> None:
    objectives = replace(OBJECTIVES, gpu_utilization=50.0)
    driven = Driven(objectives)
    assert driven.run([20.0] * 30, lambda r: replace(r, gpu=300.0))[-1] == 6
    # As busy as they can be, so that the depth alone asks for more.
    tight = Driven(replace(OBJECTIVES, queue_depth=0.5, latency_s=None, utilization=0.99))
    loose = Driven(replace(OBJECTIVES, queue_depth=100.0, latency_s=None, utilization=0.99))
    drawn = np.random.Generator(np.random.PCG64(1)).poisson(100, 240).astype(float).tolist()
    assert tight.run(drawn)[-1] > loose.run(drawn)[-1]


def test_a_gpu_target_lowers_no_replicas_while_the_utilisation_is_missing() -> None:
    driven = Driven(replace(OBJECTIVES, gpu_utilization=50.0))
    assert driven.run([20.0] * 30, lambda r: replace(r, gpu=300.0))[-1] == 6
    assert driven.run([20.0] * 600)[-1] == 6
    assert "the GPU utilisation is missing" in driven.plans[-1].describe()
    # Other targets still add replicas, and a utilisation that is known again removes them.
    assert driven.run([500.0] * 60)[-1] > 6
    assert driven.run([20.0] * 900, lambda r: replace(r, gpu=60.0))[-1] < 6


@pytest.mark.parametrize("target", [{"metric": 10.0}, {"gpu_utilization": 50.0}])
def test_a_refuted_measurement_lowers_no_replicas_while_a_value_is_missing(target: dict[str, float]) -> None:
    # `halcyon bench` has measured 8 s for a full batch. The traffic then shows 0.05 s.
    measured = {1: 1.0, 4: 4.0, 8: 8.0}
    objectives = replace(OBJECTIVES, latency_s=None, max_batch=8, batch_prior=None, measured_batches=measured)
    driven = Driven(replace(objectives, **target))  # type: ignore[arg-type]
    assert driven.run([1.0] * 30, lambda r: replace(r, metric=60.0, gpu=300.0))[-1] == 6

    began = driven.now

    def fast(reading: Reading) -> Reading:
        elapsed_s = driven.now - began
        return replace(reading, batches=dict.fromkeys((1, 8), (5 * int(elapsed_s), 0.25 * elapsed_s)))

    counts = driven.run([1.0] * 120, fast)

    assert driven.memory.capacity.measured_weight == 0
    assert set(counts) == {6}


def test_gpus_that_are_full_against_expectation_veto_the_way_down() -> None:
    driven = Driven(replicas=10)
    full: Distortion = lambda r: replace(r, gpu=100.0 * len(r.pods))  # noqa: E731
    assert driven.run([5.0] * 900, full)[-1] == 10
    assert any(limit.name == "veto" for limit in driven.plans[-1].limits)


def test_a_spike_that_repeats_is_expected_from_the_third_on() -> None:
    driven = Driven(replace(OBJECTIVES, latency_s=2.4))
    cycle = [20.0] * 570 + [300.0] * 60 + [20.0] * 570
    driven.run(cycle * 2)
    driven.run(cycle[:569])
    assert sum(pod.phase == "ready" for pod in driven.pods) >= 30
    assert "every" in driven.plans[-1].describe()


def test_pods_of_a_known_spike_are_released_right_after_it() -> None:
    driven = Driven(replace(OBJECTIVES, latency_s=2.4))
    cycle = [20.0] * 570 + [300.0] * 60 + [20.0] * 570
    driven.run(cycle * 4)
    counts = driven.run(cycle)
    assert min(counts[571:630]) >= 30
    # 10 s tell that it has ended; after the first spikes the minute of the rate and a hold of a minute came on top.
    assert max(counts[650:]) <= 6


def test_pods_of_an_unknown_burst_stay_a_while_after_it() -> None:
    driven = Driven(replace(OBJECTIVES, latency_s=2.4))
    driven.run([20.0] * 570 + [300.0] * 120)
    assert min(driven.run([20.0] * 60)) >= 30


def test_a_burst_that_ends_while_no_pod_serves_counts_as_ended() -> None:
    driven = Driven(replace(OBJECTIVES, low=0, idle_after_s=60.0, start_s=300.0), replicas=0)
    driven.run([0.0] * 60 + [20.0] * 60)
    driven.run([0.0] * 120)
    assert all(limit.name != "unknown" for planned in driven.plans[-119:] for limit in planned.limits)
    assert driven.plans[-1].memory.arrivals.rate() == 0.0


def days(count: int, at_noon: float, at_night: float) -> History:
    """What was learnt of days that are a cosine, the last of them up to `EPOCH`."""
    history = History()
    first = EPOCH - count * DAY_S
    for number in range(1, int(count * DAY_S / BIN_S) + 1):
        at = first + number * BIN_S
        rate = (at_noon + at_night) / 2 - (at_noon - at_night) / 2 * math.cos(2 * math.pi * at / DAY_S)
        history = history.with_sample(at, requests=rate * BIN_S, seconds=BIN_S)
    return history


@pytest.mark.parametrize("rate", [5.0, 60.0, 400.0])
def test_the_usual_load_of_the_day_only_ever_raises(rate: float) -> None:
    history = days(9, at_noon=200.0, at_night=10.0)
    driven = Driven(replicas=40)
    driven.run([rate] * 300)
    raised = 0
    for hour in range(24):
        # The same moment of the model's life, at another hour of the day.
        began = EPOCH + hour * 3600.0
        known = history
        for number in range(hour * 12):
            at = EPOCH + (number + 1) * BIN_S
            usual = 105.0 - 95.0 * math.cos(2 * math.pi * at / DAY_S)
            known = known.with_sample(at, requests=usual * BIN_S, seconds=BIN_S)
        memory = shifted(driven.memory, began - EPOCH)
        reading = replace(driven.reading(), at=driven.now + 1 + began - EPOCH, arrived=driven.arrived + rate)
        reading = replace(
            reading, pods=tuple(replace(pod, created_at=pod.created_at + began - EPOCH) for pod in reading.pods)
        )
        without, with_it = (
            plan(reading.at, driven.objectives, reading, memory.with_changes(history=past))
            for past in (History(), known)
        )
        assert with_it.count >= without.count
        assert ("season" in terms_of(with_it)) >= (with_it.count > without.count)
        raised += with_it.count > without.count
    # At 400 requests a second no hour of the usual day needs more; at 5 most of them do.
    assert raised == 0 if rate > 200 else raised > 0


def test_requests_that_were_refused_are_demand() -> None:
    """A balancer with room for ten: what waits says nothing of a load of five times what is served; what came does."""
    driven = Driven(replace(OBJECTIVES, queue_limit=10))
    driven.run([20.0] * 300)
    full: Distortion = lambda r: replace(r, waiting=min(r.waiting, 10.0), inflight=min(r.inflight, 40.0))  # noqa: E731
    served: Distortion = lambda r: replace(full(r), arrived=20.0 * 300 + 30.0 * (r.at - EPOCH - 300))  # noqa: E731
    blind = Driven(replace(OBJECTIVES, queue_limit=10))
    blind.run([20.0] * 300)
    assert driven.run([150.0] * 30, full)[-1] >= 15
    assert blind.run([150.0] * 30, served)[-1] < 10


def test_a_queue_that_balancers_keep_short_is_not_extrapolated() -> None:
    def final_plan(*, reports_rejections: bool) -> Plan:
        driven = Driven(replace(OBJECTIVES, start_s=180.0), replicas=9)
        refused = 0.0

        def kept_short(reading: Reading) -> Reading:
            nonlocal refused
            refused += max(driven.waiting - 40.0, 0.0)
            driven.waiting = min(driven.waiting, 40.0)
            count = refused if reports_rejections else None
            return replace(reading, waiting=driven.waiting, inflight=driven.waiting + 18, rejected=count)

        driven.run([60.0] * 300 + [130.0] * 20, kept_short)
        return driven.plans[-1]

    rate = next(term.replicas for term in final_plan(reports_rejections=True).parts if term.name == "rate")
    assert rate <= final_plan(reports_rejections=True).count <= rate + 3
    assert final_plan(reports_rejections=False).count >= 2 * rate


@pytest.mark.parametrize("by_s", [-7200.0, 7200.0])
def test_a_clock_step_neither_ends_nor_prolongs_a_time_of_rejections(by_s: float) -> None:
    refusals = RejectionBound(counted=7.0, at=EPOCH, waiting=90.0)
    moved = shifted(replace(PlannerMemory(), rejections=refusals), by_s).rejections
    assert moved == replace(refusals, at=EPOCH + by_s)


def test_memory_begins_empty() -> None:
    first = plan(
        EPOCH, OBJECTIVES, Reading(at=EPOCH, replicas=5, arrived=0.0, waiting=0.0, inflight=0.0), PlannerMemory()
    )
    assert first.count == 5


def test_limits_of_objectives_are_defaults_of_an_expert() -> None:
    assert Objectives(1, 2).utilization == pytest.approx(0.8)


def waves(count: int) -> list[float]:
    """Up by 100 a second within a minute, down again in four."""
    return [
        rate
        for _ in range(count)
        for rate in (
            *(50 + 100 * second / 60 for second in range(60)),
            *(150 - 100 * second / 240 for second in range(240)),
        )
    ]


def test_waves_that_turn_lower_the_expected_trend_each_time() -> None:
    driven = Driven()
    driven.run([50.0] * 300)
    driven.run(waves(6))
    most = [
        max((term.replicas for plan in driven.plans[begin : begin + 300] for term in plan.parts if term.name == "trend"), default=0)
        for begin in (300, 300 + 5 * 300)
    ]  # fmt: skip
    assert most[0] > 25  # 150 a second need 16 replicas, and the first wave might have gone on
    assert most[1] <= 20
    assert driven.waiting == 0


def alone(reading: Reading) -> Reading:
    """Nobody is in the system but who waits."""
    return replace(reading, inflight=reading.waiting)


@pytest.mark.parametrize("by_s", [-7200.0, 86_400.0])
def test_a_clock_that_was_set_changes_no_decision(by_s: float) -> None:
    objectives = replace(OBJECTIVES, low=0, idle_after_s=60.0)
    usual = Driven(objectives)
    usual.run([20.0] * 120 + [0.0] * 70 + waves(1)[:55], alone)
    moved = replace(usual, memory=shifted(usual.memory, by_s), now=usual.now + by_s, plans=[], pods=[
        replace(pod, created_at=pod.created_at + by_s, ready_at=None if pod.ready_at is None else pod.ready_at + by_s)
        for pod in usual.pods
    ])  # fmt: skip
    assert usual.memory.damping.due
    assert usual.memory.zero.back is not None
    rest = waves(1)[55:] + [0.0] * 400
    assert moved.run(rest, alone) == usual.run(rest, alone)
    back = shifted(moved.memory, -by_s)
    for part in ("arrivals", "hold", "drain", "headroom", "damping", "zero", "rejections"):
        assert getattr(back, part) == getattr(usual.memory, part)
