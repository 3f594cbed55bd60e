"""Merge patches: what one makes of a value is what it was made for."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from halcyon_cli.kube.merge_patch import SAME, applied, difference, of_field

VALUES: st.SearchStrategy[Any] = st.recursive(
    st.one_of(st.booleans(), st.integers(0, 3), st.sampled_from(["", "a"]), st.lists(st.integers(0, 3), max_size=2)),
    lambda below: st.dictionaries(st.sampled_from("abc"), below, min_size=1, max_size=3),
)
"""JSON without null, which a merge patch can't set, and without empty objects, which are the same as none to it."""


@given(VALUES, VALUES)
def test_a_difference_applied_gives_the_other_value(now: Any, desired: Any) -> None:
    patch = difference(now, desired)
    assert (patch is SAME) == (now == desired)
    assert patch is SAME or applied(now, patch) == desired


@pytest.mark.parametrize(
    ("value", "patch", "result"),
    [
        ({"a": 1, "b": {"c": 2, "d": 3}}, {"b": {"c": None}}, {"a": 1, "b": {"d": 3}}),
        ({"a": [1, 2]}, {"a": [3]}, {"a": [3]}),
        ("x", {"a": {"b": None, "c": 1}}, {"a": {"c": 1}}),
    ],
)
def test_a_patch_removes_by_null_and_replaces_lists_whole(value: Any, patch: Any, result: Any) -> None:
    assert applied(value, patch) == result


def test_a_patch_of_a_field_sets_it_alone() -> None:
    patch = of_field("spec.batching.maxBatchSize", 8)
    assert patch == {"spec": {"batching": {"maxBatchSize": 8}}}
    assert applied({"spec": {"replicas": 2}}, patch) == {"spec": {"replicas": 2, "batching": {"maxBatchSize": 8}}}
