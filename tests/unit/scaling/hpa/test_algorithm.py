"""The Direct actuator's algorithm against the HPA's."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from halcyon.api.spec.defaults import ResolvedTargets
from halcyon.api.spec.scaling import Behavior
from halcyon.scaling.hpa.algorithm import SYNC_INTERVAL_S, desired, milli
from halcyon.scaling.hpa.behavior import HpaMemory
from halcyon.scaling.hpa.metrics import RulesReading
from halcyon.scaling.hpa.recommendation import Recommendation
from halcyon.scaling.observations import Missing, Value

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "hpa_1_35.json").read_text())
TARGETS = ResolvedTargets(queue_depth=10, gpu_utilization=None)
BOTH = ResolvedTargets(queue_depth=10, gpu_utilization=80)


def metric(value: float | None, now: float = 0.0) -> Value | Missing:
    return Missing("silent") if value is None else Value(value, now)


def decide(
    now: float,
    current: int,
    queue: float | None,
    gpu: float | None = None,
    *,
    targets: ResolvedTargets = TARGETS,
    behavior: Behavior | None = None,
    low: int = 1,
    high: int = 100,
    memory: HpaMemory | None = None,
    status: int | None = None,
) -> Recommendation[HpaMemory]:
    reading = RulesReading(now, current if status is None else status, metric(queue), metric(gpu))
    return desired(now, current, reading, targets, behavior, low=low, high=high, memory=memory or HpaMemory())


@pytest.mark.parametrize("case", GOLDEN, ids=range(len(GOLDEN)))
def test_replicas_are_those_of_the_real_hpa(case: dict[str, Any]) -> None:
    behavior = None if case["behavior"] is None else Behavior.model_validate(case["behavior"])
    targets = ResolvedTargets(case["queue_target"], case["gpu_target"])
    now, current, memory, counts = 0.0, case["start"], HpaMemory(), []
    for elapsed, by_hand, lag, queue, gpu, _ in case["syncs"]:
        now += elapsed
        current = current if by_hand is None else by_hand
        decision = decide(
            now,
            current,
            None if queue is None else queue / 1000,
            None if gpu is None else gpu / 1000,
            targets=targets,
            behavior=behavior,
            low=case["min"],
            high=case["max"],
            memory=memory,
            status=max(current - lag, 0),
        )
        current, memory = decision.count, decision.memory
        counts.append(current)
    assert counts == [sync[-1] for sync in case["syncs"]]


@pytest.mark.parametrize(
    ("behavior", "expected"),
    [
        (None, [(300, 4), (315, 8), (330, 10), (1500, 1)]),
        (Behavior(), [(300, 5), (315, 10), (1485, 1)]),
    ],
    ids=["without behavior", "with behavior: {}"],
)
def test_the_step_of_the_facts_gives_their_sequence(behavior: Behavior | None, expected: list[tuple[int, int]]) -> None:
    # facts/autoscaling 7.4: 10 in flight until 300 s, 100 until 1200 s, then 10; target 10; the history before is full of 1
    current, memory, changes = 1, HpaMemory(recommendations=tuple((float(t), 1) for t in range(-600, 0, 15))), []
    for now in range(0, 2000, 15):
        decision = decide(now, current, 100 if 300 <= now < 1200 else 10, behavior=behavior, memory=memory)
        if decision.count != current:
            changes.append((now, decision.count))
        current, memory = decision.count, decision.memory
    assert changes == expected


@pytest.mark.parametrize(
    ("current", "value", "expected"),
    [
        (10, 109.9, 10),
        (10, 110.0, 10),
        (10, 110.1, 12),
        (10, 90.0, 10),
        (1, 10.9, 1),
        (1, 11.1, 2),
        (3, 0.0, 3),
        (10, 0.0, 10),
    ],
)
def test_a_ratio_within_ten_percent_changes_nothing_and_falls_wait(current: int, value: float, expected: int) -> None:
    assert decide(0.0, current, value).count == expected


def test_the_largest_proposal_wins() -> None:
    decision = decide(0.0, 2, 35.0, 200.0, targets=BOTH)
    assert (decision.count, decision.reasons.winner) == (4, "queueDepth")
    decision = decide(0.0, 2, 5.0, 300.0, targets=BOTH)
    assert (decision.count, decision.reasons.winner) == (4, "gpuUtilization")


def test_a_missing_metric_does_not_stop_the_way_up() -> None:
    assert decide(0.0, 2, 40.0, None, targets=BOTH).count == 4


def test_a_missing_metric_stops_the_way_down() -> None:
    decision = decide(1e4, 4, 10.0, None, targets=BOTH, memory=HpaMemory(((0.0, 4),)))
    assert decision.count == 4
    assert [limit.kind for limit in decision.reasons.limits] == ["unknown"]
    assert decision.memory.recommendations == ((0.0, 4),)


def test_replicas_stay_if_every_metric_is_missing() -> None:
    assert decide(0.0, 4, None, None, targets=BOTH).count == 4


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, -1.0])
def test_a_value_that_is_no_number_counts_as_missing(value: float) -> None:
    decision = decide(0.0, 4, value)
    assert decision.count == 4
    assert decision.reasons.proposals[0].proposal is None


def test_replicas_outside_the_bounds_go_to_the_bound_at_once() -> None:
    assert decide(0.0, 20, None, high=8).count == 8
    assert decide(0.0, 1, None, low=3, high=8).count == 3


def test_scaling_is_off_at_zero() -> None:
    assert decide(0.0, 0, 1000.0).count == 0


def test_a_restart_does_not_cause_a_fast_fall() -> None:
    decision = decide(1000.0, 9, 0.0, memory=HpaMemory())
    assert decision.count == 9
    assert decide(1000.0 + 301, 9, 0.0, memory=decision.memory).count == 1


def test_an_unwritten_decision_leaves_no_trace_in_the_pace() -> None:
    behavior = Behavior.model_validate({"scaleUp": {"policies": [{"type": "Pods", "value": 2, "periodSeconds": 60}]}})
    first = decide(0.0, 1, 100.0, behavior=behavior)
    assert first.count == 3
    assert decide(15.0, 1, 100.0, behavior=behavior, memory=first.unwritten).count == 3
    assert decide(15.0, 3, 100.0, behavior=behavior, memory=first.memory).count == 3


def test_the_sentence_has_the_numbers() -> None:
    assert decide(0.0, 2, 78.0, 201.0, targets=BOTH, high=6).describe() == (
        "4 replicas (2 before): queueDepth 78 at 10 per replica needs 8; gpuUtilization 201 at 80 per replica needs 3; "
        "queueDepth decides; the scaling behavior allows 4"
    )
    assert decide(0.0, 1, 10.0).describe() == (
        "1 replica (unchanged): queueDepth 10 at 10 per replica is close enough to 1; no limit applies"
    )
    assert "queueDepth is unknown (silent)" in decide(0.0, 1, None).describe()
    assert decide(0.0, 9, 0.0, high=5).describe() == "5 replicas (9 before): the maximum is 5"


values = st.one_of(st.none(), st.floats(0, 1e7))
rules = st.fixed_dictionaries(
    {},
    optional={
        "stabilizationWindowSeconds": st.integers(0, 600),
        "selectPolicy": st.sampled_from(["Max", "Min", "Disabled"]),
        "policies": st.lists(
            st.fixed_dictionaries(
                {
                    "type": st.sampled_from(["Pods", "Percent"]),
                    "value": st.integers(1, 200),
                    "periodSeconds": st.integers(1, 300),
                }
            ),
            min_size=1,
            max_size=3,
        ),
    },
)
behaviors = st.one_of(
    st.none(),
    st.fixed_dictionaries({}, optional={"scaleUp": rules, "scaleDown": rules}).map(Behavior.model_validate),
)


@given(
    history=st.lists(st.tuples(values, values), min_size=1, max_size=15),
    behavior=behaviors,
    low=st.integers(1, 5),
    spread=st.integers(0, 50),
)
def test_bounds_hold_and_only_known_values_move_the_replicas(
    history: list[tuple[float | None, float | None]], behavior: Behavior | None, low: int, spread: int
) -> None:
    current, memory = low, HpaMemory()
    for step, (queue, gpu) in enumerate(history):
        now = step * SYNC_INTERVAL_S
        arguments = {"targets": BOTH, "behavior": behavior, "low": low, "high": low + spread, "memory": memory}
        decision = decide(now, current, queue, gpu, **arguments)  # type: ignore[arg-type]
        assert decision == decide(now, current, queue, gpu, **arguments)  # type: ignore[arg-type]
        assert low <= decision.count <= low + spread
        if queue is None and gpu is None:
            assert decision.count == current
        if queue is None or gpu is None:
            assert decision.count >= current
        assert decision.describe()
        current, memory = decision.count, decision.memory


@given(
    pair=st.tuples(st.floats(0, 5000), st.floats(0, 5000)).map(sorted),
    gpu=values,
    current=st.integers(1, 60),
    behavior=behaviors,
    recommendations=st.lists(st.integers(1, 60), max_size=5),
)
def test_more_waiting_never_means_fewer_replicas(
    pair: list[float], gpu: float | None, current: int, behavior: Behavior | None, recommendations: list[int]
) -> None:
    memory = HpaMemory(tuple((-15.0 * (n + 1), count) for n, count in enumerate(recommendations)))
    less, more = (
        decide(0.0, current, queue, gpu, targets=BOTH, behavior=behavior, high=60, memory=memory).count
        for queue in pair
    )
    assert less <= more


@pytest.mark.parametrize(
    ("value", "expected"), [(0.0, 0), (0.0001, 1), (1.5, 1500), (0.1 + 0.2, 300), (1e300, 2**63 - 1)]
)
def test_thousandths_are_rounded_up_but_not_noise(value: float, expected: int) -> None:
    assert milli(value) == expected
