"""Sentences about every field of a ModelDeployment and a BatchInference, for each kind of invalid value."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from pydantic import BaseModel
from pydantic_core._pydantic_core import list_all_errors

from halcyon.api.batch_inference import BatchInferenceSpec
from halcyon.api.schema.expected import at
from halcyon.api.schema.structural_schema import JsonSchema, schema
from halcyon.api.spec import Spec
from halcyon.api.spec.field_hints import EXAMPLES, example
from halcyon.api.spec.parse import SpecError, Violation, parse_as
from tests.unit.api.spec_cases import document

Path = tuple[str | int, ...]
BATCH = {"modelDeployment": "digits", "input": {"uri": "s3://sets/a.npz"}, "output": {"uri": "s3://sets/out"}}
BASES: dict[type[BaseModel], dict[str, Any]] = {Spec: document(), BatchInferenceSpec: BATCH}
_WORDS_OF_PYDANTIC = {
    part.strip()
    for kind in list_all_errors()
    for part in re.split(r"\{[^}]*\}", kind["message_template_python"])
    if len(part.strip()) >= 12
} | {"Value error", "Input should", "Field required", "permitted"}


def _fields(fields: JsonSchema, path: Path = ()) -> Iterator[tuple[Path, JsonSchema]]:
    if path:
        yield path, fields
    for name, below in fields.get("properties", {}).items():
        yield from _fields(below, (*path, name))
    for step, key in ((0, "items"), ("pool", "additionalProperties")):
        if isinstance(fields.get(key), dict):
            yield from _fields(fields[key], (*path, step))


SCHEMAS = {model: schema(model) for model in BASES}
FIELDS = {
    model: [(path, below) for path, below in _fields(SCHEMAS[model]) if "podAffinity" not in path]  # as podAntiAffinity
    for model in BASES
}


def _merged(base: Any, path: Path, value: Any) -> Any:
    """Return `base` with the value at a path; a list on the way becomes a list of one item."""
    if not path:
        return value
    step, *below = path
    if isinstance(step, int):
        return [_merged(None, tuple(below), value)]
    fields = base if isinstance(base, dict) else {}
    return {**fields, step: _merged(fields.get(step), tuple(below), value)}


def _violations(model: type[BaseModel], path: Path, value: Any) -> list[Violation]:
    """Return the violations of the field at a path, or below it."""
    try:
        parse_as(model, "digits", _merged(BASES[model], path, value))
    except SpecError as error:
        return [each for each in error.violations if each.field[: len(path) + 1] == ("spec", *path)]
    return []


def _name(path: Path) -> str:
    return "spec" + "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)


def _invalid(fields: JsonSchema) -> Iterator[Any]:
    """Yield values of another type, out of bounds, without content, and that match no pattern."""
    kind = fields["type"]
    if kind == "string":
        yield from (7, 1.5, True, ["a"], {"a": "b"}, "", "a b!", "é", "a" * (fields.get("maxLength", 5000) + 1))
    elif kind == "integer":
        yield from ("3", "x", "", 1.5, True, [1], {}, fields["minimum"] - 1, fields["maximum"] + 1, 10**30)
    elif kind == "boolean":
        yield from ("true", "", 1, [], {})
    elif kind == "array":
        yield from ({"a": 1}, "x", "", 3, *([[]] if fields.get("minItems") else ()))
    else:
        yield from ([], "x", "", 3, True)


@pytest.mark.parametrize("model", BASES)
def test_a_sentence_names_field_value_limit_and_example(model: type[BaseModel]) -> None:
    sentences: set[str] = set()
    incomplete: list[str] = []
    for path, fields in FIELDS[model]:
        for value in _invalid(fields):
            for text in (each.text for each in _violations(model, path, value) if each.field == ("spec", *path)):
                sentences.add(text)
                shows_limit = re.search(
                    r"must be .*\d|must be true|must be [A-Z]\w+|must have |quote it|listed more", text
                )
                good = "for example" in text or any(each in text for each in EXAMPLES.values()) or shows_limit
                if not (text.startswith(f"{_name(path)} is ") and good):
                    incomplete.append(text)

    assert incomplete == []
    assert len(sentences) > {Spec: 1000, BatchInferenceSpec: 250}[model]
    assert [text for text in sentences if any(words in text for words in _WORDS_OF_PYDANTIC)] == []


@pytest.mark.parametrize("model", BASES)
def test_the_example_in_a_sentence_is_a_valid_value(model: type[BaseModel]) -> None:
    invalid: list[tuple[str, str]] = []
    for path, _ in FIELDS[model]:
        in_map = "additionalProperties" in at(SCHEMAS[model], path[:-1])
        shown, text = path[:-1] if in_map or isinstance(path[-1], int) else path, example(path, SCHEMAS[model])
        if text not in EXAMPLES.values():
            ((name, value),) = yaml.safe_load(text.removeprefix("for example ")).items()
            value = str(value).replace("+00:00", "Z").replace(" ", "T") if name == "deadline" else value
            assert name == shown[-1]
            invalid += [(text, each.text) for each in _violations(model, shown, value)]
    assert invalid == []


@pytest.mark.parametrize("model", BASES)
def test_a_missing_field_is_named_with_an_example(model: type[BaseModel]) -> None:
    for path, fields in FIELDS[model]:
        if fields["type"] == "object" and "properties" in fields:
            missing = {each.text.split(" is missing; ")[0]: each for each in _violations(model, path, {})}
            for name in fields.get("required", ()):
                assert "for example " in missing[f"{_name(path)}.{name}"].text


@pytest.mark.parametrize("model", BASES)
def test_an_unknown_field_is_named_with_the_existing_ones(model: type[BaseModel]) -> None:
    for path, fields in FIELDS[model]:
        if fields["type"] == "object" and "properties" in fields:
            texts = [each.text for each in _violations(model, path, {"bogus": 1}) if each.kind == "unknown-field"]
            assert texts == [f"{_name(path)}.bogus is not a field; the fields are {', '.join(fields['properties'])}"]


@pytest.mark.parametrize("model", BASES)
def test_a_null_field_is_not_set(model: type[BaseModel]) -> None:
    for path, _ in FIELDS[model]:
        if isinstance(path[-1], str):
            kinds = {each.kind for each in _violations(model, path, None)}
            assert kinds <= {"missing-field"}, path


@pytest.mark.parametrize("model", BASES)
def test_an_unknown_field_that_is_null_is_named(model: type[BaseModel]) -> None:
    """The API server, too, rejects it: `kubectl apply` validates fields strictly."""
    for path, fields in FIELDS[model]:
        if fields["type"] == "object" and "properties" in fields:
            texts = [each.text for each in _violations(model, path, {"bogus": None}) if each.kind == "unknown-field"]
            assert [text.partition(" is ")[0] for text in texts] == [f"{_name(path)}.bogus"]


@pytest.mark.parametrize("key", ["app.kubernetes.io/name", "a"])
def test_a_value_of_a_map_is_described_for_keys_with_dots(key: str) -> None:
    (number,) = _violations(Spec, ("runtime", "podLabels", key), 7)
    (spaced,) = _violations(Spec, ("runtime", "podLabels", key), "a b")

    assert number.text == f"spec.runtime.podLabels.{key} is 7: must be a string; quote it: '7'"
    assert spaced.text.startswith(f'spec.runtime.podLabels.{key} is "a b": must match ')
    assert spaced.text.endswith("; write for example podLabels: {team: vision}")


def test_a_number_is_quoted_only_if_it_is_then_valid() -> None:
    (backend,) = _violations(Spec, ("model", "backend"), 7)

    assert backend.text == "spec.model.backend is 7: must be a string; write for example backend: onnxruntime"


def test_an_object_at_two_paths_is_named_by_its_path() -> None:
    texts = {
        side: [each.text for each in _violations(BatchInferenceSpec, (side, "credentials"), {})]
        for side in ("input", "output")
    }

    assert [texts[side][0].partition(": ")[0] for side in texts] == [
        "spec.input.credentials",
        "spec.output.credentials",
    ]
