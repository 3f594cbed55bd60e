"""The two documents that cross a process boundary as JSON: the accepted plan and the record."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from halcyon.api.documents.balancer_plan import BalancerPlan, CollectorAddress, PlanError, Slot
from halcyon.api.documents.observation_report import AgentReport, BalancerSample, PodSample, ReportError, SlotLatency

COUNTS = st.integers(0, 2**53)
PLANS = st.builds(
    BalancerPlan,
    namespace=st.text(),
    name=st.text(),
    model=st.text(),
    slots=st.lists(st.builds(Slot, st.text(), st.text(), st.integers(0, 256), COUNTS), max_size=3).map(tuple),
    max_connections=COUNTS,
    queue_limit=COUNTS,
    queue_timeout_ms=COUNTS,
    response_timeout_ms=COUNTS,
    drain_ms=COUNTS,
    objective_ms=COUNTS,
    max_batch=COUNTS,
    instances=COUNTS,
    balancers=COUNTS,
    collector=st.none() | st.builds(CollectorAddress, st.text(), st.integers(1, 65535), st.text(), st.text()),
)
TIMES = st.floats(0, 4e9, allow_nan=False)
PODS = st.builds(
    PodSample,
    name=st.text(),
    state=st.sampled_from(["starting", "ready", "draining", "maintenance", "unreachable"]),
    at=TIMES,
    pending=st.none() | COUNTS,
    backend_failed=st.none() | COUNTS,
    gpu=st.none() | st.floats(0, 1),
    load_error=st.none() | st.text(),
    versions=st.lists(st.text(), max_size=3).map(tuple),
)
LATENCY = st.lists(
    st.builds(SlotLatency, st.text(), st.lists(COUNTS, max_size=3).map(tuple), st.lists(COUNTS, max_size=3).map(tuple)),
    max_size=2,
).map(tuple)
RECORDS = st.builds(
    AgentReport,
    namespace=st.text(),
    name=st.text(),
    agent=st.text(),
    at=TIMES,
    balancer=st.none() | st.builds(BalancerSample, COUNTS, COUNTS, COUNTS, COUNTS, COUNTS, latency=LATENCY),
    pods=st.lists(PODS, max_size=3).map(tuple),
)
PLAN = BalancerPlan("ns", "m", "m", (Slot("a", "m-server-a", 100, 8),), 8, 200, 60000, 60000, 30000, None)
RECORD = AgentReport("ns", "m", "m-balancer-x", 1.5, BalancerSample(1, 2, 3, 4, 5), (PodSample("p", "ready", 1.0),))
ELSE = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=5), inner, max_size=2),
)


@given(PLANS)
def test_a_plan_is_read_back_as_it_was_written(plan: BalancerPlan) -> None:
    assert BalancerPlan.from_json(plan.to_json()) == plan


@given(RECORDS)
def test_a_record_is_read_back_as_it_was_written(record: AgentReport) -> None:
    assert AgentReport.from_json(record.to_json()) == record
    assert AgentReport.from_json(record.to_json().encode()) == record
    assert "\n" not in record.to_json()


def test_a_plans_text_does_not_depend_on_the_order_of_its_keys() -> None:
    keys = list(json.loads(PLAN.to_json()))

    assert keys == sorted(keys)


BROKEN = [
    "",
    "{",
    "null",
    "[]",
    "7",
    '"x"',
    "{}",
    "[" * 100_000,
]


@pytest.mark.parametrize("text", BROKEN)
def test_a_text_that_is_no_document_is_refused(text: str) -> None:
    with pytest.raises(PlanError):
        BalancerPlan.from_json(text)
    with pytest.raises(ReportError):
        AgentReport.from_json(text)


def test_bytes_that_are_no_text_are_refused() -> None:
    with pytest.raises(ReportError):
        AgentReport.from_json(b'{"version": "\xff"}')


@given(ELSE)
def test_json_of_any_other_shape_is_refused(value: Any) -> None:
    with pytest.raises(PlanError):
        BalancerPlan.from_json(json.dumps(value))
    with pytest.raises(ReportError):
        AgentReport.from_json(json.dumps(value))


@pytest.mark.parametrize("change", [{"slots": 3}, {"slots": [{}]}, {"collector": {"host": "x"}}])
def test_a_plan_of_another_shape_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(PlanError, match="not a valid balancer plan"):
        BalancerPlan.from_json(json.dumps(json.loads(PLAN.to_json()) | change))


def test_fields_of_a_later_version_are_dropped_from_plan_and_report() -> None:
    plan = json.loads(PLAN.to_json()) | {"surplus": 1}
    plan["slots"] = [slot | {"surplus": 1} for slot in plan["slots"]]
    assert BalancerPlan.from_json(json.dumps(plan)) == PLAN

    raw = json.loads(RECORD.to_json()) | {"surplus": 1}
    raw["balancer"] |= {"surplus": 1}
    raw["pods"] = [pod | {"surplus": 1} for pod in raw["pods"]]

    assert AgentReport.from_json(json.dumps(raw)) == RECORD


@pytest.mark.parametrize(
    "change", [{"pods": 3}, {"pods": [{}]}, {"pods": [3]}, {"balancer": {"queued": 1}}, {"balancer": 3}]
)
def test_a_record_of_another_shape_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(ReportError, match="not a valid report"):
        AgentReport.from_json(json.dumps(json.loads(RECORD.to_json()) | change))


@pytest.mark.parametrize("field", sorted(set(json.loads(PLAN.to_json()))))
def test_a_plan_with_a_field_too_few_is_refused(field: str) -> None:
    raw = json.loads(PLAN.to_json())
    del raw[field]

    with pytest.raises(PlanError):
        BalancerPlan.from_json(json.dumps(raw))


def test_another_version_is_refused_by_its_number() -> None:
    with pytest.raises(PlanError, match="plan has version 3; this agent reads version 2"):
        BalancerPlan.from_json(json.dumps(json.loads(PLAN.to_json()) | {"version": 3}))
    with pytest.raises(ReportError, match="report has version 2; this operator reads version 1"):
        AgentReport.from_json(json.dumps(json.loads(RECORD.to_json()) | {"version": 2}))
