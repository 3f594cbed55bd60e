"""Signals of some minutes become means, and what is unknown stays unknown."""

from __future__ import annotations

from dataclasses import replace

import pytest

from halcyon.api.spec.parse import parse
from halcyon.control.advice.evidence import ModelEvidence, Window, executed, is_measured, with_learnt
from halcyon.scaling.planner.capacity.queueing import Replica, ServiceLine
from halcyon.scaling.planner.capacity.replica_capacity import Capacity
from halcyon.scaling.planner.forecast.season_models import DAY
from halcyon.scaling.planner.forecast.seasonality import History
from halcyon.scaling.planner.outputs import PlannerMemory
from halcyon.scaling.planner.reading import Objectives
from halcyon.scaling.planner.whatif import Known

SPEC = parse(
    "digits",
    {
        "model": {"source": {"persistentVolumeClaim": {"claimName": "models"}}},
        "runtime": {"gpu": {"count": 1}, "instancesPerGPU": 2},
        "scaling": {"minReplicas": 1, "maxReplicas": 8},
    },
)
REPLICA = Replica(ServiceLine(0.080, 0.006), 8)
KNOWN = Known(Objectives(low=4, high=8, max_batch=8), REPLICA, 1.0, 0.0)


def add(window: Window, number: int, *, at: float | None = None, executed_at: float | None = None) -> None:
    """Two replicas: 10 executions of 4 rows and 100 ms each second, one row per request."""
    now = 30.0 * number
    ran = round(now if executed_at is None else executed_at)
    window.add(now if at is None else at, 2, 6.0, 0.5, 40.0, 2.0, (10 * ran, 40 * ran, 1.0 * ran))


def test_means_are_per_replica_instance_and_request() -> None:
    window = Window()
    for number in range(11):
        add(window, number)
    evidence = window.evidence(SPEC)
    assert (evidence.replicas, evidence.rate, evidence.waiting, evidence.gpu) == (2.0, 20.0, 3.0, 0.5)
    assert (evidence.batch_rows, evidence.request_rows, evidence.wait_s) == (4.0, 1.0, 0.05)
    assert evidence.busy == pytest.approx(1.0 / 2 / 2)
    add(window, 11)
    assert window.evidence(SPEC) == ModelEvidence(SPEC), "five samples are needed"


def test_a_canary_whose_batches_are_not_counted_makes_no_instance_seem_idle() -> None:
    window = Window()
    for number in range(11):
        now = 30.0 * number
        ran = round(now)
        window.add(now, 2, 6.0, 0.5, 40.0, 2.0, (10 * ran, 20 * ran, 1.0 * ran), counted=1)
    evidence = window.evidence(SPEC)
    assert (evidence.replicas, evidence.request_rows) == (2.0, 1.0)
    assert evidence.busy == pytest.approx(1.0 / 2)


def test_counters_that_fell_or_are_far_apart_do_not_count() -> None:
    falling, rare = Window(), Window()
    for number in range(10):
        add(falling, number, executed_at=30.0 * (10 - number))
        add(rare, number, at=100.0 * number)
    for evidence in (falling.evidence(SPEC), rare.evidence(SPEC)):
        assert (evidence.busy, evidence.batch_rows, evidence.rate) == (None, None, 20.0)


def test_a_model_at_rest_is_idle_and_its_batches_are_unknown() -> None:
    window = Window()
    for number in range(11):
        window.add(30.0 * number, 1, 0.0, None, 0.0, 0.0, (10, 40, 1.0))
    evidence = window.evidence(SPEC)
    assert (evidence.busy, evidence.waiting) == (0.0, 0.0)
    assert (evidence.batch_rows, evidence.request_rows, evidence.wait_s, evidence.rate) == (None, None, None, None)


def test_unknown_signals_are_not_zero() -> None:
    window = Window()
    for number in range(11):
        window.add(30.0 * number, 1, None, None, None, None, None)
    assert window.evidence(SPEC) == ModelEvidence(SPEC, replicas=1.0)


def test_a_line_counts_only_if_batches_have_shown_its_slope() -> None:
    batches = {8: (400, 51.2)}
    memory = PlannerMemory(capacity=Capacity().with_batches(batches))
    assert memory.capacity.line is not None
    assert not is_measured(memory)
    assert with_learnt(ModelEvidence(SPEC), memory, None, measured=False).line is None
    capacity = memory.capacity
    for count in (1, 201):
        capacity = capacity.with_batches(batches | {1: (count, 0.086 * count)})
    more = memory.with_changes(capacity=capacity)
    assert is_measured(more)
    evidence = with_learnt(ModelEvidence(SPEC), more, None, measured=True)
    assert (evidence.line, evidence.largest_rows) == (more.capacity.line, 8)
    assert executed(more) == pytest.approx((601, 3401, 68.486))
    assert executed(PlannerMemory()) is None


def test_a_model_without_batches_has_the_time_of_one_row() -> None:
    memory = PlannerMemory(capacity=Capacity().with_batches({1: (400, 20.0)}))
    evidence = with_learnt(ModelEvidence(SPEC), memory, None, measured=False)
    assert evidence.line is not None
    assert evidence.line.t0_s == pytest.approx(0.05)
    assert evidence.line.row_s == 0.0


def day(rate: float, bins: int = DAY) -> PlannerMemory:
    return PlannerMemory(history=replace(History(), bins=(rate,) * bins))


def test_the_replicas_of_a_day_are_those_of_its_busiest_minutes() -> None:
    def peak(memory: PlannerMemory, known: Known | None = KNOWN) -> int | None:
        return with_learnt(ModelEvidence(SPEC), memory, known, measured=False).peak_replicas

    assert peak(day(5.0)) == 1, "less than the minimum of the objectives"
    assert peak(day(120.0)) == 3
    assert peak(day(5.0, 200)) is None
    assert peak(day(0.0), None) == 0
    assert peak(day(5.0), None) is None
