"""One record of a decision, whichever policy made it, and what in it is news."""

from __future__ import annotations

import gc
import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from halcyon.api.conditions import Reason
from halcyon.control.desired.acceptance_result import Acceptance
from halcyon.control.desired.plan import ReconcilePlan as Reconciled
from halcyon.control.objects.actuator import Actuator
from halcyon.control.state.scope import PublishedScaling
from halcyon.control.status import scaling as status_scaling
from halcyon.scaling.hpa.recommendation import Reasons, RecommendationLimit, SignalProposal
from halcyon.scaling.lazy_text import plain
from halcyon.scaling.planner.capacity_source import CapacitySource
from halcyon.scaling.planner.forecast.arrival_rate import ArrivalRate
from halcyon.scaling.planner.forecast.seasonality import History
from halcyon.scaling.planner.outputs import Plan, PlanLimit, PlannerMemory, PlanPart
from halcyon.scaling.planner.plan import plan
from halcyon.scaling.planner.reading import Objectives, PodReading, Reading
from halcyon.scaling.policy.decision import (
    RULES_REASON,
    Change,
    Decision,
    ReplicaLimit,
    Signal,
    changes_from,
    has_changed,
    has_moved,
    limited,
    of_hpa,
    of_plan,
    of_rules,
)
from tests.unit.control.scope_builders import scope_of

SIGNALS = (
    Signal("requestRate", value=412.0, at=9.0),
    Signal("queueDepth", value=120.0, target=16, at=9.0),
    Signal("gpuUtilization", missing="no ready pod reports it"),
)


def planned(*terms: PlanPart, limits: tuple[PlanLimit, ...] = ()) -> Plan:
    return Plan(5, 4, terms, terms[0].name if terms else None, limits, 12.0, PlannerMemory())


def test_a_plan_becomes_a_decision_with_the_replicas_of_each_signal() -> None:
    terms = (PlanPart("rate", 4, "412 req/s needs 4"), PlanPart("backlog", 5, "120 waiting adds 1"))
    decision = of_plan(planned(*terms, limits=(PlanLimit("max", 5, "maxReplicas is 5"),)), at=10.0, signals=SIGNALS)

    assert (decision.policy, decision.current, decision.desired, decision.at, decision.next_decision_at) == (
        "Planner",
        4,
        5,
        10.0,
        12.0,
    )
    assert decision.why == "5 replicas: 412 req/s needs 4; 120 waiting adds 1; maxReplicas is 5"
    assert decision.limited_by == ("max",)
    assert [(part.name, part.replicas) for part in decision.parts] == [("rate", 4), ("backlog", 5)]
    assert [s.proposal for s in decision.signals] == [4, 5, None]
    assert [replace(s, proposal=None) for s in decision.signals] == list(SIGNALS)
    assert decision.unknown == ""


def test_a_stored_decision_keeps_nothing_of_the_planners_memory() -> None:
    aims = Objectives(low=1, high=9, max_batch=8, latency_s=0.5, batch_prior={1: 0.086, 8: 0.128})
    pods = (PodReading("a-0", "ready", 0.0), PodReading("a-1", "starting", 95.0))
    memory, new_plan = PlannerMemory(), planned()
    for second in range(100):
        arrived = 35.0 * min(second, 90) + 210.0 * max(second - 90, 0)
        waiting = 80.0 if second > 90 else 0.0
        read = Reading(float(second), 2, arrived, waiting, waiting + 4, pods=pods)
        new_plan = plan(float(second), aims, read, memory)
        memory = new_plan.memory
    verdict = of_plan(new_plan, at=99.0, signals=SIGNALS)

    assert {part.name for part in verdict.parts} == {"rate", "backlog"}
    assert not [held for held in reached(verdict) if isinstance(held, PlannerMemory | ArrivalRate | History)]
    assert [held for held in reached(new_plan) if isinstance(held, PlannerMemory)]
    assert verdict.why == new_plan.describe()


def reached(value: object) -> list[object]:
    """Everything of Halcyon's that a value leads to."""
    reachable, left = {id(value): value}, [value]
    while left:
        for held in gc.get_referents(left.pop()):
            is_ours = isinstance(held, tuple | list | dict) or type(held).__module__.startswith("halcyon.")
            if is_ours and not isinstance(held, type) and id(held) not in reachable:
                reachable[id(held)] = held
                left.append(held)
    return list(reachable.values())


def test_a_queue_without_backlog_wants_the_replicas_of_its_target() -> None:
    terms = (PlanPart("rate", 4, "r"), PlanPart("queueDepth", 3, "q"), PlanPart("gpuUtilization", 2, "g"))

    assert [s.proposal for s in of_plan(planned(*terms), at=10.0, signals=SIGNALS).signals] == [4, 3, 2]


def test_a_queue_requires_the_larger_of_target_and_backlog() -> None:
    terms = (PlanPart("rate", 4, "r"), PlanPart("queueDepth", 6, "q"), PlanPart("backlog", 5, "b"))

    assert [s.proposal for s in of_plan(planned(*terms), at=10.0, signals=SIGNALS).signals] == [4, 6, None]


def test_an_empty_plan_names_the_unknown_signals() -> None:
    decision = of_plan(planned(limits=(PlanLimit("unknown", 4, "`waiting` is missing"),)), at=10.0, signals=SIGNALS)

    assert (decision.unknown, decision.limited_by, decision.parts) == ("`waiting` is missing", ("unknown",), ())


QUEUE = SignalProposal("queueDepth", 16, 120.0, 1.9, 8)
NO_GPU = SignalProposal("gpuUtilization", 80, missing="no ready pod reports it")


def test_the_rules_recommendation_becomes_a_decision() -> None:
    reasons = Reasons(4, 8, (QUEUE, NO_GPU), "queueDepth", (RecommendationLimit("max", 6),))
    decision = of_rules(6, reasons, "so", at=10.0, policy="Rules", signals=SIGNALS[1:])

    assert (decision.policy, decision.current, decision.desired, decision.why) == ("Rules", 4, 6, "so")
    assert decision.limited_by == ("max",)
    assert [(part.name, part.replicas, part.why) for part in decision.parts] == [("queueDepth", 8, QUEUE.describe())]
    assert [s.proposal for s in decision.signals] == [8, None]
    assert decision.next_decision_at == math.inf


def test_a_missing_signal_is_no_obstacle_to_proof_of_the_others() -> None:
    rises = Reasons(4, 8, (QUEUE, NO_GPU), "queueDepth")
    holds = Reasons(9, None, (QUEUE, NO_GPU), None, (RecommendationLimit("unknown", 9),))

    assert of_rules(8, rises, "so", at=10.0, policy="Rules", signals=()).unknown == ""
    assert of_rules(9, holds, "so", at=10.0, policy="Rules", signals=()).unknown == NO_GPU.describe()


@pytest.mark.parametrize(("current", "is_kept"), [(4, False), (8, False), (9, True)])
def test_a_missing_signal_stops_an_hpa_only_below_the_present_replicas(current: int, is_kept: bool) -> None:
    decision = of_hpa(current, (QUEUE, NO_GPU), at=10.0, signals=SIGNALS[1:], has_reports=True)

    assert decision.unknown == ("gpuUtilization: no ready pod reports it" if is_kept else "")


def test_a_substitute_of_the_planner_says_so() -> None:
    decision = of_rules(8, Reasons(4, 8, (QUEUE,), "queueDepth"), "so", at=10.0, policy="Planner", signals=())

    assert (decision.policy, decision.why) == ("Planner", f"so; {RULES_REASON}")


def test_the_lowest_limit_counts_and_names_the_desired_replicas() -> None:
    decision = Decision(10.0, "Planner", 4, 8, "800 req/s needs 8", ("veto",))
    quota, budget = ReplicaLimit("quota", 5, "team is full"), ReplicaLimit("budget", 6, "all 6 are taken")
    held = limited(decision, [budget, quota])

    assert (held.desired, held.limited_by) == (5, ("veto", "quota"))
    assert held.why == "5 replicas, although 8 replicas are desired: team is full. 800 req/s needs 8"
    assert limited(decision, [ReplicaLimit("quota", 8, "just enough")]) is decision
    assert limited(decision, []) is decision


def test_decisions_of_an_hpa_are_not_limited_here() -> None:
    decision = Decision(10.0, "Rules", 4, None)

    assert limited(decision, [ReplicaLimit("quota", 1, "full")]) is decision


@pytest.mark.parametrize(
    ("before", "now", "slight", "moved"),
    [
        (None, None, 0.1, False),
        (None, 0.0, 0.1, True),
        (0.0, None, 0.1, True),
        (100.0, 119.0, 0.2, False),
        (100.0, 126.0, 0.2, True),
        (100.0, 79.0, 0.2, True),
        (126.0, 100.0, 0.2, True),
        (0.0, 0.1, 0.2, False),
        (0.0, 0.3, 0.2, True),
        (1.0, 2.0, 2.0, False),
        (1.0, 4.0, 2.0, True),
    ],
)
def test_a_value_has_moved_by_the_table(before: float | None, now: float | None, slight: float, moved: bool) -> None:
    assert has_moved(before, now, slight=slight) is moved


SHOWN = Decision(10.0, "Planner", 4, 5, "so", ("hold",), signals=SIGNALS)


@pytest.mark.parametrize(
    ("change", "news"),
    [
        ({}, False),
        ({"at": 99.0, "text": "otherwise", "next_decision_at": 101.0}, False),
        ({"next_decision_at": 11.0}, True),
        ({"current": 5}, True),
        ({"desired": 6}, True),
        ({"desired": None}, True),
        ({"policy": "Rules"}, True),
        ({"limited_by": ("max",)}, True),
        ({"limited_by": ()}, True),
        ({"unknown": "silence"}, True),
        ({"capacity": CapacitySource("BatchStatistics", 10.0, "batches")}, True),
        ({"signals": SIGNALS[:2]}, True),
        ({"signals": (replace(SIGNALS[0], value=420.0), *SIGNALS[1:])}, False),
        ({"signals": (replace(SIGNALS[0], value=600.0), *SIGNALS[1:])}, True),
        ({"signals": (replace(SIGNALS[0], at=99.0, proposal=9), *SIGNALS[1:])}, False),
        ({"signals": (replace(SIGNALS[0], value=None, missing="x"), *SIGNALS[1:])}, True),
        ({"signals": (*SIGNALS[:2], replace(SIGNALS[2], missing="for another reason"))}, True),
        ({"parts": (PlanPart("rate", 5, "x"),)}, False),
        ({"parts": (PlanPart("rate", 4, "x"), PlanPart("batch", 5, "nightly: 9 rows"))}, True),
        ({"signals": (SIGNALS[0], replace(SIGNALS[1], target=8), SIGNALS[2])}, True),
        ({"signals": (replace(SIGNALS[0], source="prometheus"), *SIGNALS[1:])}, True),
        ({"signals": (SIGNALS[1], SIGNALS[0], SIGNALS[2])}, True),
    ],
)
def test_news_follows_the_table(change: dict[str, Any], news: bool) -> None:
    assert has_changed(SHOWN, replace(SHOWN, **change)) is news


def test_the_first_decision_is_news() -> None:
    assert has_changed(None, SHOWN)


def test_the_seconds_that_a_silence_lasts_are_no_news() -> None:
    silent = replace(SHOWN, unknown="b-0 reported last 11 s ago")

    assert not has_changed(silent, replace(silent, unknown="b-0 reported last 12 s ago"))
    assert has_changed(silent, replace(silent, unknown="b-1 reported last 11 s ago"))


@pytest.mark.parametrize(
    ("value", "digits", "text"),
    [
        (412.4, 4, "412.4"),
        (20_000.0, 4, "20000"),
        (23_456.7, 4, "23460"),
        (1.157e-5, 2, "0.000012"),
        (5e9, 15, "5000000000"),
        (0.0, 4, "0"),
        (math.inf, 4, "inf"),
    ],
)
def test_a_figure_has_no_exponent(value: float, digits: int, text: str) -> None:
    assert plain(value, digits) == text


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("requestRate", 0.0, "0.0"),
        ("requestRate", 0.0167, "0.017"),
        ("requestRate", 0.3, "0.3"),
        ("requestRate", 20_000.0, "20000"),
        ("queueDepth", 0.0167, "0.0"),
    ],
)
def test_a_rare_request_is_not_shown_as_none(name: str, value: float, text: str) -> None:
    assert status_scaling._signal(Signal(name, value))["value"] == text


CHANGES = st.lists(
    st.builds(
        Change,
        at=st.integers(0, 2**32).map(float),
        before=st.integers(0, 1000),
        after=st.integers(0, 1000),
        why=st.text(st.characters(exclude_categories=["Cs"]), max_size=80),
    ),
    max_size=10,
)


@given(CHANGES)
def test_changes_are_read_from_the_status_as_they_were_written_there(changes: list[Change]) -> None:
    reconciled = Reconciled(Acceptance(accepted=True, reason=Reason.ACCEPTED, message=""), actuator=Actuator.HPA)
    written = status_scaling.make(scope_of(scaling=PublishedScaling(changes=tuple(changes))), reconciled)

    assert changes_from(written.get("decisions")) == changes


GOOD = {"time": "2026-01-01T00:00:00Z", "before": 1, "after": 2, "why": "so"}


@pytest.mark.parametrize(
    ("decisions", "count"),
    [
        (None, 0),
        ("text", 0),
        ({}, 0),
        ([], 0),
        ([GOOD], 1),
        ([GOOD, {"time": "yesterday"}, GOOD], 2),
        ([GOOD | {"time": "yesterday"}], 0),
        ([GOOD | {"time": None}], 0),
        ([GOOD | {"before": "many"}], 0),
        ([GOOD | {"after": None}], 0),
        ([None, 3, [], GOOD], 1),
    ],
)
def test_changes_that_cannot_be_read_are_left_out(decisions: object, count: int) -> None:
    assert len(changes_from(decisions)) == count
