"""The JSON codec that reports and plans share."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from halcyon.api.documents import codec
from halcyon.api.documents.codec import NOT_A_DOCUMENT, UnknownVersionError


@dataclass(frozen=True)
class Part:
    name: str
    sizes: tuple[int, ...] = ()


@dataclass(frozen=True)
class Assembly:
    parts: tuple[Part, ...]
    main: Part | None = None
    share: float = 1.0


PARTS = st.builds(Part, st.text(), st.lists(st.integers(), max_size=3).map(tuple))
ASSEMBLIES = st.builds(Assembly, st.lists(PARTS, max_size=3).map(tuple), st.none() | PARTS, st.floats(allow_nan=False))


@given(ASSEMBLIES)
def test_a_document_is_its_dataclass_with_a_version(assembly: Assembly) -> None:
    plain = json.dumps({"version": 3, **asdict(assembly)}, separators=(",", ":"))
    assert codec.encoded(assembly, 3) == plain
    assert codec.fields_of(plain, 3) == json.loads(json.dumps(asdict(assembly)))


def test_keys_are_sorted_in_nested_objects_too() -> None:
    text = codec.encoded(Assembly((Part("b"),), Part("a")), 1, sort_keys=True, leave_out=frozenset({"share"}))
    assert text == '{"main":{"name":"a","sizes":[]},"parts":[{"name":"b","sizes":[]}],"version":1}'


def test_another_version_is_named() -> None:
    with pytest.raises(UnknownVersionError, match="version 2") as error:
        codec.fields_of('{"version":2}', 1)
    assert error.value.version == 2


@pytest.mark.parametrize("text", ["", "null", "[]", "{}", "[" * 100_000, b"\xff", "9" * 5000])
def test_other_texts_are_no_documents(text: str | bytes) -> None:
    with pytest.raises(NOT_A_DOCUMENT):
        codec.fields_of(text, 1)


def test_unknown_fields_are_ignored_and_missing_ones_are_not() -> None:
    assert codec.decoded(Part, {"name": "a", "surplus": 1}) == Part("a")
    with pytest.raises(TypeError):
        codec.decoded(Part, {"surplus": 1})
