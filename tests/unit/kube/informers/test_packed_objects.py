"""Objects as compressed JSON: what goes in comes out, at a fraction of the size."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from halcyon.kube.informers.packed_objects import PackedObjects
from halcyon.kube.kinds import Key

_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=20,
)


def deployment(name: str, version: str = "1") -> dict[str, Any]:
    """Return an object of the usual form."""
    container = {"name": "agent", "image": "registry.example/halcyon:1", "args": ["--model", name], "env": []}
    return {
        "metadata": {"name": name, "namespace": "team", "resourceVersion": version, "labels": {"app": "halcyon"}},
        "spec": {"replicas": 2, "template": {"spec": {"containers": [container], "restartPolicy": "Always"}}},
    }


@given(st.lists(st.dictionaries(st.text(max_size=8), _JSON, max_size=4), max_size=6))
def test_objects_are_read_as_they_were_stored(bodies: list[dict[str, Any]]) -> None:
    packed = PackedObjects()
    stored = [body | {"metadata": {"resourceVersion": str(number)}} for number, body in enumerate(bodies)]
    for number, obj in enumerate(stored):
        packed[Key("team", str(number))] = obj
    assert [packed[key] for key in packed] == stored
    assert [packed.version(key) for key in packed] == [str(number) for number in range(len(stored))]


def test_a_replaced_object_is_read_in_its_newest_form() -> None:
    packed, key = PackedObjects(), Key("team", "a")
    packed[key] = deployment("a")
    packed[Key("team", "b")] = deployment("b")
    packed[key] = deployment("a", "2") | {"spec": {}}
    assert packed[key] == deployment("a", "2") | {"spec": {}}
    assert packed[Key("team", "b")] == deployment("b")
    assert packed.version(key) == "2"


def test_objects_are_readable_after_all_earlier_ones_were_deleted() -> None:
    packed = PackedObjects()
    packed[Key("team", "a")] = deployment("a")
    del packed[Key("team", "a")]
    packed[Key("team", "b")] = other = {"metadata": {"resourceVersion": "7"}, "data": {"x": "y" * 100}}
    assert dict(packed) == {Key("team", "b"): other}
    assert packed.version(Key("team", "a")) is None


def test_similar_objects_take_a_fifth_of_their_json() -> None:
    packed = PackedObjects()
    for number in range(100):
        packed[Key("team", f"m{number}")] = deployment(f"m{number}")
    size = sum(len(text) for text in packed._texts.values())
    assert size < 100 * len(json.dumps(deployment("m10"))) / 5


def test_a_reader_may_change_its_copy() -> None:
    packed, key = PackedObjects(), Key("team", "a")
    packed[key] = deployment("a")
    packed[key]["metadata"]["name"] = "another"
    assert packed[key] == deployment("a")


def test_an_object_that_is_nested_too_deeply_fails_the_check() -> None:
    nested: dict[str, Any] = {}
    for _ in range(500):
        nested = {"data": nested}
    with pytest.raises(TypeError):
        PackedObjects.check(nested)
