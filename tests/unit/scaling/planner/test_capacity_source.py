"""The source of a capacity, from what a bench has measured to what traffic has shown."""

from __future__ import annotations

from dataclasses import replace

import pytest

from halcyon.scaling.planner.answer_evidence import AnswerEvidence
from halcyon.scaling.planner.capacity.replica_capacity import Capacity
from halcyon.scaling.planner.capacity_source import CapacitySource, measured, source
from halcyon.scaling.planner.plan import replica_of
from halcyon.scaling.planner.reading import Objectives

OBJECTIVES = Objectives(low=1, high=10, max_batch=8, latency_s=0.5)
TIMES = {1: 0.086, 8: 0.128}


def of(capacity: Capacity, *, has_traffic: bool = True) -> CapacitySource:
    assert capacity.line is not None
    replica = replica_of(OBJECTIVES, capacity.line, 1.0)
    return source(AnswerEvidence(), replica, capacity=capacity, objectives=OBJECTIVES, has_traffic=has_traffic)


def test_a_measured_line_is_the_source_until_own_batches_weigh_more() -> None:
    taught = Capacity().with_measured(TIMES)
    few = taught.with_batches({8: (1, 0.128)}).with_batches({8: (11, 11 * 0.128)})
    more = few.with_batches({8: (31, 31 * 0.128)})
    assert [of(capacity).name for capacity in (taught, few, more)] == ["Bench", "Bench", "BatchStatistics"]
    assert "as halcyon bench measured it" in of(taught).why


def test_batches_without_traffic_are_a_warm_up() -> None:
    warm = Capacity().with_batches({1: (2, 2 * 0.086), 8: (2, 2 * 0.128)})
    assert (of(warm, has_traffic=False).name, of(warm).name) == ("WarmUp", "BatchStatistics")


def test_sustained_requests_are_those_within_the_objective() -> None:
    taught = of(Capacity().with_measured(TIMES))
    assert taught.rps == pytest.approx(62.5)
    assert taught.sustained_rps is not None
    assert 0.4 * 62.5 < taught.sustained_rps < 0.9 * 62.5


def test_requests_at_once_are_a_source_of_their_own() -> None:
    source = measured(Objectives(low=1, high=10, measured_answers=(32.0, 16.0)))
    assert source is not None
    assert (source.name, source.rps, source.line, source.contradiction) == ("Bench", 2.0, None, None)
    assert source.why == "32 requests at once take 16 s, as halcyon bench measured it"
    assert source.sustained_rps == pytest.approx(1.6)


def test_a_time_that_traffic_has_shown_is_not_attributed_to_the_measurement() -> None:
    seen = replace(AnswerEvidence().with_measured((32.0, 16.0)), seconds=8.0, fastest_s=8.0, rps=4.0)
    assert seen.describe() == "32 requests at once, as halcyon bench measured it, take 8 s in the pods"


def test_a_model_without_a_measurement_has_no_source() -> None:
    assert measured(OBJECTIVES) is None


@pytest.mark.parametrize(
    ("evidence", "text"),
    [
        (
            AnswerEvidence(rps=62.9, at_once=5, seconds=0.218, line_rps=85.92),
            (
                "Triton's batch times promise 85.92 req/s per replica, but requests take 0.218 s in a pod, "
                "and a full pod answers 62.9 req/s with 5 at once"
            ),
        ),
        (
            AnswerEvidence(rps=62.9, at_once=5, line_rps=85.92),
            "Triton's batch times promise 85.92 req/s per replica, but a full pod answers 62.9 req/s with 5 at once",
        ),
        (
            AnswerEvidence(seconds=16.0),
            "Triton reports no batch times, but requests take 16 s in a pod; no pod has been full yet, so replicas are kept",
        ),
        (AnswerEvidence(), "Triton reports no batch times; no pod has been full yet, so replicas are kept"),
    ],
)
def test_the_reason_of_answers_leaves_out_an_unknown_time_in_pods(evidence: AnswerEvidence, text: str) -> None:
    assert evidence.describe() == text
