"""What a model reads from the BatchInferences that run: the lower class of its balancers, and their demand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from halcyon.batch.running_batch import RunningBatch
from halcyon.control.runtime.batch_inference import class_of, demand
from halcyon.scaling.policy.batch_demand import BatchDemand

RUNNING = RunningBatch("nightly", rows_left=500, deadline=1000.0, max_replicas=3, may_wake=True, gentle=False)
GENTLE = replace(RUNNING, name="weekly", gentle=True)


@pytest.mark.parametrize(
    ("batches", "lower_class"),
    [((), "None"), ((RUNNING,), "Fill"), ((GENTLE,), "Gentle"), ((GENTLE, RUNNING), "Fill")],
)
def test_the_class_is_gentle_only_if_all_batches_are(batches: tuple[RunningBatch, ...], lower_class: str) -> None:
    assert class_of(batches) == lower_class


def test_the_demand_of_a_batch_is_what_it_has_left() -> None:
    assert demand(RUNNING) == BatchDemand("nightly", 500.0, 1000.0, 3, may_wake=True)


def test_before_the_input_is_read_only_a_first_replica_is_asked_for() -> None:
    assert demand(replace(RUNNING, rows_left=None)) == BatchDemand("nightly", 1.0, None, 3, may_wake=True)
