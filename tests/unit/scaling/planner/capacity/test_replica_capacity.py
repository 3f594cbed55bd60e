"""The service line, from what pods have shown."""

import random
from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from halcyon.scaling.planner.capacity.replica_capacity import Capacity

Table = dict[int, tuple[int, float]]


def ran(table: Mapping[int, tuple[int, float]], sizes: list[int], t0: float, row: float) -> Table:
    grown = dict(table)
    for size in sizes:
        count, seconds = grown.get(size, (0, 0.0))
        grown[size] = (count + 1, seconds + t0 + row * size)
    return grown


@given(st.floats(0.001, 1.0), st.floats(0.0, 0.1), st.integers(0, 2**16))
def test_the_line_is_found_from_mixed_batches(t0: float, row: float, seed: int) -> None:
    drawn = random.Random(seed)
    capacity, table = Capacity(), Table()
    for _ in range(20):
        table = ran(table, [drawn.randint(1, 16) for _ in range(50)], t0, row)
        capacity = capacity.with_batches(table)
    assert capacity.line is not None
    for size in (1, 8, 16):
        assert capacity.line.seconds(size) == pytest.approx(t0 + row * size, rel=0.02)


def test_a_warm_up_of_one_and_the_largest_is_enough() -> None:
    line = Capacity().with_prior({1: 0.088, 16: 0.208}).line
    assert line is not None
    assert (line.t0_s, line.row_s) == (pytest.approx(0.08), pytest.approx(0.008))


def test_a_line_from_one_size_is_exact_there_and_cautious_elsewhere() -> None:
    line = Capacity().with_batches({4: (100, 40.0)}).line
    assert line is not None
    assert line.seconds(4) == pytest.approx(0.4)
    assert 0.4 < line.seconds(8) < 0.8


def test_the_first_few_batches_of_a_cold_pod_are_no_line() -> None:
    # As they were read in the first second of a load, each of them of a true 80 + 6 b ms: 500 ms would have been thought of 8 rows.
    few = Capacity().with_batches({1: (2, 0.212)})
    assert few.line is None
    more = few.with_batches({1: (8, 0.750), 2: (20, 1.900), 3: (4, 0.395)})
    assert more.line is not None
    assert more.line.seconds(8) < 0.25


def test_a_warm_up_as_triton_runs_it_is_a_line_at_once() -> None:
    line = Capacity().with_batches({1: (1, 0.088), 16: (1, 0.208)}).line
    assert line is not None
    assert line.seconds(8) == pytest.approx(0.144, rel=0.1)


def test_the_first_execution_is_an_outlier_once_the_line_is_known() -> None:
    known = Capacity().with_prior({1: 0.1, 8: 0.1})
    assert known.with_batches({1: (1, 30.0)}).line == known.line


@pytest.mark.parametrize("first_s", [0.1, 1.0, 30.0])
@pytest.mark.parametrize("times", [2, 5])
def test_a_warm_ups_first_execution_is_no_part_of_its_line(first_s: float, times: int) -> None:
    """As Triton tells of a warm-up on a cold GPU: 20 + 2 b ms, but for the first execution."""
    ran = {1: (times, (times - 1) * 0.022 + first_s), 8: (times, times * 0.036)}
    line = Capacity().with_batches(ran).line
    assert line is not None
    assert line.seconds(8) == pytest.approx(0.036, rel=0.01)
    assert line.seconds(1) <= 0.036


def test_a_larger_size_that_ran_less_often_caps_nothing() -> None:
    line = Capacity().with_batches({1: (100, 10.0), 8: (1, 0.09)}).line
    assert line is not None
    assert line.seconds(1) == pytest.approx(0.1, rel=0.01)


def test_the_first_report_of_a_size_is_soon_outweighed() -> None:
    """On a GPU the first execution of a size takes as much as many others, whichever size it is."""
    capacity = Capacity().with_batches({1: (2, 0.7 + 0.005), 8: (2, 0.12 + 0.005)})
    capacity = capacity.with_batches({1: (22, 0.7 + 21 * 0.005), 8: (82, 0.12 + 81 * 0.005)})
    assert capacity.line is not None
    for size in (1, 8):
        assert 0.005 < capacity.line.seconds(size) < 0.008


def test_a_sizes_first_report_is_only_the_start_of_its_counter() -> None:
    known = Capacity().with_prior({1: 0.005, 8: 0.005})
    first = known.with_batches({4: (3, 0.12 + 2 * 0.005)})
    assert first.line == known.line
    then = first.with_batches({4: (103, 0.12 + 102 * 0.005)})
    assert then.line is not None
    assert then.line.seconds(4) == pytest.approx(0.005)


def test_an_excluded_long_batch_does_not_return_with_the_next() -> None:
    known = Capacity().with_batches({4: (100, 0.5)})
    paused = known.with_batches({4: (101, 0.5 + 3.0)})
    assert paused.line == known.line
    then = paused.with_batches({4: (103, 0.5 + 3.0 + 0.01)})
    assert then.line is not None
    assert then.line.seconds(4) == pytest.approx(0.005)


def test_restarted_counters_are_those_of_another_first_execution() -> None:
    capacity = Capacity().with_batches({4: (1000, 400.0)})
    anew = capacity.with_batches({4: (10, 34.0)})
    assert anew.line == capacity.line
    then = anew.with_batches({4: (20, 38.0)})
    assert then.weight == pytest.approx(capacity.weight + 10)
    assert then.line is not None
    assert then.line.seconds(4) == pytest.approx(0.4)


def test_a_large_fleet_forgets_no_size_in_one_sample() -> None:
    """Its looks have thousands of batches, mostly of a few sizes: the line keeps its slope."""
    capacity = Capacity().with_batches({1: (20, 20 * 0.012), 16: (20, 20 * 0.042)})
    capacity = capacity.with_batches({1: (120, 120 * 0.012), 16: (120, 120 * 0.042)})
    for look in range(1, 6):
        capacity = capacity.with_batches({1: (5000 * look, 5000 * look * 0.012), 16: (120, 120 * 0.042)})
    assert capacity.line is not None
    assert capacity.line.seconds(16) == pytest.approx(0.042, rel=0.02)


def test_idleness_changes_nothing_and_costs_nothing() -> None:
    capacity = Capacity().with_batches({4: (1000, 400.0)})
    assert capacity.with_batches({4: (1000, 400.0)}) is capacity


def test_a_drift_is_followed_with_the_batches_that_show_it() -> None:
    capacity, table = Capacity(), Table()
    for step in range(200):
        table = ran(table, [1, 4, 4, 4] * 10, 0.4 * (1 + step / 200), 0.0)
        capacity = capacity.with_batches(table)
    assert capacity.line is not None
    assert capacity.line.seconds(4) == pytest.approx(0.8, rel=0.15)


MEASURED = {1: 0.086, 8: 0.128}
"""Seconds of 80 + 6 b ms."""


def served(capacity: Capacity, batches: int, table: Table | None = None) -> tuple[Capacity, Table]:
    """The capacity after so many batches of 80 + 6 b ms and 1 to 8 rows, ten at a time, each size reported before."""
    sizes = [8, 8, 1, 8, 4, 8, 6, 8, 8, 2]
    table = ran({}, sorted({*sizes}), 0.08, 0.006) if table is None else table
    capacity = capacity.with_batches(table)
    for _ in range(batches // len(sizes)):
        table = ran(table, sizes, 0.08, 0.006)
        capacity = capacity.with_batches(table)
    return capacity, table


def test_measured_batch_times_are_the_line_before_any_traffic() -> None:
    line = Capacity().of_revision("a").with_measured(MEASURED).line
    assert line is not None
    assert (line.t0_s, line.row_s) == (pytest.approx(0.08), pytest.approx(0.006))


@pytest.mark.parametrize("factor", [0.1, 0.3, 1.0, 3.0, 10.0])
def test_measured_batch_times_are_forgotten_after_100_batches(factor: float) -> None:
    wrong = Capacity().with_measured({rows: factor * seconds for rows, seconds in MEASURED.items()})
    half, table = served(wrong, 50)
    full, _ = served(half, 50, table)
    assert half.measured_weight == pytest.approx(10.0)
    assert full.measured_weight == 0
    assert full.line is not None
    assert full.line.seconds(8) == pytest.approx(0.128, rel=0.01)


def test_withdrawn_batch_times_leave_what_traffic_showed() -> None:
    capacity, _ = served(Capacity().with_measured({1: 0.3, 8: 0.3}), 50)
    line = capacity.with_measured(None).line
    assert line is not None
    assert line.seconds(8) == pytest.approx(0.128, rel=0.01)
    assert Capacity().with_measured(MEASURED).with_measured(None).line is None


def test_measured_batch_times_do_not_survive_their_revision() -> None:
    assert Capacity().of_revision("a").with_measured(MEASURED).of_revision("b").line is None


def test_measured_batch_times_replace_those_of_the_revision_before() -> None:
    before, _ = served(Capacity().of_revision("a"), 1000)
    line = before.of_revision("b").with_measured({1: 0.01, 8: 0.02}).line
    assert line is not None
    assert line.seconds(8) == pytest.approx(0.02)


def test_a_memory_without_a_count_of_batches_has_outweighed_them() -> None:
    """As an older version has saved it."""
    before, _ = served(Capacity(), 1000)
    old = replace(before, batches=0.0)
    assert old.with_measured({1: 1.0, 8: 1.0}).line == before.line
