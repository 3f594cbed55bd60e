"""YAML that commands print: kubectl reads each text and each number in it as what it was."""

from __future__ import annotations

import json

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from halcyon_cli.manifest_loader import documents
from halcyon_cli.output.plain_yaml import PlainDumper

TEXTS = [
    "y",
    "N",
    "on",
    "1e3",
    "12345e7",
    "0o10",
    "08",
    "8:30",
    "2026-01-01",
    "-.5",
    "1.e5",
    "0X1f",
    "=",
    "<<",
    "~",
    "",
]


@pytest.mark.parametrize("text", TEXTS)
def test_a_text_of_an_object_stays_a_text_for_kubectl(text: str) -> None:
    value = {"labels": {text: text}, "list": [text]}
    assert list(documents(yaml.dump(value, Dumper=PlainDumper))) == [value]


@given(
    st.recursive(
        st.none()
        | st.booleans()
        | st.integers(-(2**63), 2**63)
        | st.text(st.characters(codec="ascii", exclude_categories=["Cc"])),
        lambda inner: st.lists(inner) | st.dictionaries(st.text("aby01e:.-+_x", max_size=4), inner),
        max_leaves=8,
    )
)
def test_values_of_json_are_the_same_after_a_round_trip(value: object) -> None:
    (parsed,) = documents(yaml.dump(value, Dumper=PlainDumper, allow_unicode=True, width=120))
    assert json.dumps(parsed, sort_keys=True) == json.dumps(value, sort_keys=True)


def test_a_repeated_value_has_no_anchor() -> None:
    shared = {"a": 1}
    assert yaml.dump({"x": shared, "y": shared}, Dumper=PlainDumper) == "x:\n  a: 1\n'y':\n  a: 1\n"
