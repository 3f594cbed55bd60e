"""The start time, from what pods have shown."""

from halcyon.scaling.planner.capacity.replica_capacity import Capacity
from halcyon.scaling.planner.capacity.start_time import start_s, with_starts


def test_start_times_are_a_quantile_and_each_pod_counts_once() -> None:
    capacity = Capacity()
    assert start_s(capacity, 0.75, 60.0) == 60.0
    for _ in range(3):
        capacity = with_starts(capacity, {"a": 10.0, "b": 20.0, "c": 30.0, "d": 200.0})
    assert capacity.starts == (10.0, 20.0, 30.0, 200.0)
    assert start_s(capacity, 0.75, 60.0) == 200.0
    assert start_s(capacity, 0.5, 60.0) == 30.0
