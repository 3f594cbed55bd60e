"""Whether what is there already is what is wanted."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from halcyon.kube.apply_diff import DIGEST, holds, with_digest

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
)
DEPLOYMENT: dict[str, Any] = {"kind": "Deployment", "metadata": {"name": "a"}, "spec": {"replicas": 1}}


@pytest.mark.parametrize(
    ("live", "desired"),
    [
        ({"a": 1, "b": 2}, {"a": 1}),
        ({"a": {"b": 1, "c": 2}}, {"a": {}}),
        ([{"a": 1, "default": 2}], [{"a": 1}]),
        ({"name": "A"}, {"name": "A", "value": ""}),
        ("1", "1000m"),
        ("500m", "0.5"),
        ("1536Mi", "1.5Gi"),
        ("1P", "1000T"),
        ("1u", "0.001m"),
        ("163490668m", "163490.66730"),
    ],
)
def test_defaults_and_formats_of_the_api_server_are_no_difference(live: Any, desired: Any) -> None:
    assert holds(live, desired)


@pytest.mark.parametrize(
    ("live", "desired"),
    [
        ({}, {"a": 1}),
        ({}, {"a": 0}),
        ({"a": "b"}, {"a": ""}),
        ({"a": 2}, {"a": 1}),
        ([1, 2], [1]),
        ([1], [1, 2]),
        ([2, 1], [1, 2]),
        ({"a": 1}, [1]),
        ([1], {"a": 1}),
        (None, "1"),
        ("1Gi", "1G"),
        ("1001m", "1"),
        ("v1", "v2"),
        ("1.2.3", "1.2.4"),
        ("1 x", "1"),
        ("0e1234", "0e9999"),
        ("1e3", "1000"),
        ("9" * 40, "8" * 40),
        (1, "1"),
    ],
)
def test_a_real_change_is_a_difference(live: Any, desired: Any) -> None:
    assert not holds(live, desired)


@given(JSON)
def test_an_object_always_holds_itself(value: Any) -> None:
    assert holds(value, value)


@given(st.dictionaries(st.text(max_size=5), JSON, max_size=3), st.dictionaries(st.text(max_size=5), JSON, max_size=3))
def test_fields_of_others_are_no_difference(ours: dict[str, Any], theirs: dict[str, Any]) -> None:
    assert holds(theirs | ours, ours)


def test_the_digest_is_kept_beside_other_annotations_and_changes_nothing_else() -> None:
    obj = DEPLOYMENT | {"metadata": {"name": "a", "annotations": {"x": "y"}}}
    marked = with_digest(obj)

    assert holds(marked, obj)
    assert set(marked["metadata"]["annotations"]) == {"x", DIGEST}
    assert DIGEST not in obj["metadata"]["annotations"]


def test_a_field_that_is_left_out_is_noticed_by_the_digest() -> None:
    fuller = with_digest(DEPLOYMENT | {"spec": {"replicas": 1, "paused": True}})
    leaner = with_digest(DEPLOYMENT)

    assert holds(fuller, DEPLOYMENT)
    assert not holds(fuller, leaner)


@given(st.dictionaries(st.text(max_size=5), JSON, max_size=4))
def test_the_digest_does_not_depend_on_the_order_of_keys(spec: dict[str, Any]) -> None:
    turned = dict(reversed(spec.items()))

    assert with_digest(DEPLOYMENT | {"spec": spec}) == with_digest(DEPLOYMENT | {"spec": turned})
