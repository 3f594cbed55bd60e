"""The overlay's document: canonical, complete, and strict about what it reads."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from halcyon.api.documents.model_overlay import Overlay, OverlayError
from tests.unit.model_config.overlay_strategies import OVERLAYS


@given(OVERLAYS)
def test_an_overlay_survives_its_document(overlay: Overlay) -> None:
    assert Overlay.from_json(overlay.to_json()) == overlay


@given(OVERLAYS)
def test_the_document_is_canonical(overlay: Overlay) -> None:
    text = overlay.to_json()
    assert json.dumps(json.loads(text), sort_keys=True, separators=(",", ":")) == text


def test_equal_overlays_are_equal_text_whatever_the_order_of_parameters() -> None:
    overlay = Overlay("m", parameters={"a": "1", "b": "2"})
    other = Overlay("m", parameters={"b": "2", "a": "1"})
    assert overlay.to_json() == other.to_json()


def test_a_field_missing_from_the_document_is_not_set() -> None:
    assert Overlay.from_json('{"version":1,"model_name":"m"}') == Overlay("m")


@given(OVERLAYS)
def test_an_overlay_says_nothing_when_it_has_only_a_name(overlay: Overlay) -> None:
    assert overlay.is_empty == (overlay == Overlay(overlay.model_name))


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"version": 2}, "overlay.version is 2; this fetcher reads version 1"),
        ({"version": None}, "overlay.version is missing"),
        ({"model_name": None}, "overlay.model_name is missing"),
        ({"model_name": "../x"}, 'overlay.model_name is "../x"'),
        ({"model_name": ".."}, "overlay.model_name"),
        ({"model_name": "a/b"}, "overlay.model_name"),
        ({"model_name": "m\n"}, "overlay.model_name"),
        ({"model_name": 3}, "overlay.model_name is 3; it must be a string that matches"),
        ({"max_batch_size": 0}, "overlay.max_batch_size is 0; it must be a whole number from 1"),
        ({"max_batch_size": True}, "overlay.max_batch_size is true"),
        ({"max_batch_size": 2**31}, "overlay.max_batch_size is 2147483648"),
        ({"instances": "2"}, 'overlay.instances is "2"'),
        ({"colour": 1, "age": 2}, "overlay has unknown fields: age, colour"),
        ({"dynamic_batching": []}, "overlay.dynamic_batching is []; it must be an object"),
        (
            {"dynamic_batching": {"preferred_batch_sizes": [4, "x"]}},
            "overlay.dynamic_batching.preferred_batch_sizes[1]",
        ),
        ({"dynamic_batching": {"preserve_ordering": 1}}, "must be true or false"),
        ({"version_policy": {}}, "exactly one of latest, specific and all"),
        ({"version_policy": {"latest": 1, "all": True}}, "exactly one of"),
        ({"backend": "Python"}, "overlay.backend"),
        ({"parameters": {"a": 1}}, "overlay.parameters[a] is 1; it must be text"),
        ({"parameters": ["a"]}, "overlay.parameters"),
        ({"warmup": {"data": "ones"}}, 'overlay.warmup.data is "ones"; it must be one of zero, random'),
        ({"warmup": {"inputs": [{"name": "X", "data_type": "TYPE_FP32", "dims": []}]}}, "inputs[0].data_type"),
        ({"warmup": {"inputs": [{"name": "X", "data_type": "FP32", "dims": [-2]}]}}, "inputs[0].dims[0] is -2"),
        ({"warmup": {"inputs": {}}}, "must be a list"),
    ],
)
def test_a_wrong_field_is_named_with_its_value(change: dict[str, Any], complaint: str) -> None:
    with pytest.raises(OverlayError) as caught:
        Overlay.from_json(json.dumps({"version": 1, "model_name": "m"} | change))
    assert complaint in str(caught.value)


@pytest.mark.parametrize("text", ["", "[]", "null", "7", "{", "[" * 100_000, b"\xff\xfe", '{"version":1'])
def test_a_text_that_is_no_document_is_refused(text: str | bytes) -> None:
    with pytest.raises(OverlayError, match="overlay"):
        Overlay.from_json(text)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(), lambda s: st.lists(s) | st.dictionaries(st.text(), s)
    )
)
def test_json_of_any_shape_is_read_or_refused(raw: object) -> None:
    with pytest.raises(OverlayError):
        Overlay.from_json(json.dumps(raw))


def test_the_module_loads_without_pydantic() -> None:
    code = "import sys, halcyon.api.documents.model_overlay; print([m for m in ('pydantic', 'yaml', 'google') if m in sys.modules])"
    shown = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env={"PYTHONPATH": "operator"}
    )
    assert shown.stdout.strip() == "[]"
