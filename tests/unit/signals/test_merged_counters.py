"""Counters of processes that come, go and begin anew."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from halcyon.api.documents.observation_report import MAX_SIZES, Batches
from halcyon.signals.merged_counters import MAX_MERGED, MergedBatches, MergedCounter


def test_growth_of_all_is_added_up() -> None:
    merged = MergedCounter().with_values({"a": 100.0, "b": 7.0})
    assert merged.total == 0
    merged = merged.with_values({"a": 103.0, "b": 8.0})
    assert merged.total == 4


def test_a_new_or_restarted_counter_adds_its_later_growth() -> None:
    merged = MergedCounter().with_values({"a": 100.0})
    merged = merged.with_values({"a": 101.0, "b": 1e6})
    assert merged.total == 1
    merged = merged.with_values({"a": 3.0, "b": 1e6 + 1})
    assert merged.total == 2
    merged = merged.with_values({"a": 5.0, "b": 1e6 + 1})
    assert merged.total == 4


def test_an_absent_counter_adds_nothing_of_that_time() -> None:
    merged = MergedCounter().with_values({"a": 10.0, "b": 10.0}).with_values({"a": 11.0})
    assert merged.with_values({"a": 12.0, "b": 9000.0}).total == 2


VALUES = st.dictionaries(st.sampled_from("abc"), st.floats(0, 1e9), max_size=3)


@given(st.lists(VALUES, max_size=12))
def test_the_merged_counter_never_falls_and_is_bounded_by_its_parts(steps: list[dict[str, float]]) -> None:
    merged = MergedCounter()
    for before, step in pairwise([{}, *steps]):
        grown = sum(max(step[name] - before[name], 0.0) for name in step.keys() & before.keys())
        after = merged.with_values(step)
        assert merged.total <= after.total <= merged.total + grown * (1 + 1e-9) + 1e-3
        merged = after


def merged(*steps: dict[str, Batches], exist: str = "ab") -> MergedBatches:
    batches = MergedBatches()
    for step in steps:
        batches = batches.with_tables(step, exist=set(exist))
    return batches


def test_a_sizes_first_pod_counts_at_once_and_others_by_later_growth() -> None:
    first: dict[str, Batches] = {"a": ((1, 3, 89_000), (16, 3, 44_000))}
    then: dict[str, Batches] = {"a": ((1, 3, 89_000), (4, 1, 7_000), (16, 5, 70_000)), "b": ((16, 2, 900_000),)}
    later: dict[str, Batches] = {"b": ((4, 2, 700_000), (16, 4, 926_000))}
    assert merged(first).table == {1: (3, 89_000), 16: (3, 44_000)}
    assert merged(first, then).table == {1: (3, 89_000), 4: (1, 7_000), 16: (5, 70_000)}
    assert merged(first, then, then).table == merged(first, then).table
    assert merged(first, then, later).table == {1: (3, 89_000), 4: (1, 7_000), 16: (7, 96_000)}


def test_a_restarted_pod_counts_as_a_new_one() -> None:
    steps: list[dict[str, Batches]] = [{"a": ((16, 100, 1_000_000),)}, {"a": ((16, 3, 944_000),)}]
    assert merged(*steps).table == {16: (100, 1_000_000)}
    assert merged(*steps, {"a": ((16, 5, 964_000),)}).table == {16: (102, 1_020_000)}
    assert merged({"a": ((1, 3, 90), (16, 9, 99))}, {"a": ((1, 4, 95),)}).table == {1: (3, 90), 16: (9, 99)}


def test_a_pod_unread_for_a_while_adds_its_work_of_that_time() -> None:
    steps: list[dict[str, Batches]] = [{"a": ((16, 100, 1_000_000),)}, {}, {"a": ((16, 103, 1_039_000),)}]
    assert merged(*steps).table == {16: (103, 1_039_000)}


def test_a_pod_that_is_gone_leaves_its_counts_and_no_memory() -> None:
    batches = merged({"a": ((16, 100, 1_000_000),)}).with_tables({}, exist=set())
    assert batches.table == {16: (100, 1_000_000)}
    assert not batches.last


def test_a_size_that_a_full_table_lacked_is_not_counted_from_zero() -> None:
    full = tuple((rows, 10, 10) for rows in range(1, MAX_SIZES + 1))
    other = (*full[1:], (1000, 500, 500))
    table = merged({"a": full}, {"a": other}).table
    assert 1000 not in table
    assert merged({"a": full}, {"a": other}, {"a": (*full[1:], (1000, 501, 501))}).table[1000] == (1, 1)


def test_the_table_is_bounded_for_any_reports_of_pods() -> None:
    batches = MergedBatches()
    for n in range(40):
        sizes = tuple((1 + 64 * n + i, 5, 5) for i in range(MAX_SIZES))
        batches = batches.with_tables({"a": sizes, f"b-{n}": sizes}, exist={"a"})
    assert len(batches.table) == MAX_MERGED
    assert len(batches.last["a"]) <= 3 * MAX_SIZES
    assert len(batches.last) == 2


SIZES = st.dictionaries(st.integers(1, 4), st.tuples(st.integers(0, 50), st.integers(0, 50)), max_size=3)


@given(st.lists(st.dictionaries(st.sampled_from("ab"), SIZES, max_size=2), max_size=10))
def test_the_merged_table_never_falls(steps: list[dict[str, dict[int, tuple[int, int]]]]) -> None:
    batches = MergedBatches()
    for step in steps:
        tables = {pod: tuple((rows, *counts) for rows, counts in sizes.items()) for pod, sizes in step.items()}
        after = batches.with_tables(tables, exist=set(step))
        for rows, (count, us) in batches.table.items():
            assert after.table[rows][0] >= count
            assert after.table[rows][1] >= us
        batches = after
