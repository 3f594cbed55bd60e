"""The reference pages: complete, true, and what the models say."""

from __future__ import annotations

import copy
from enum import StrEnum
from pathlib import Path
from typing import Any

import pytest

from generators import conditions_reference, resource_example, resource_reference
from halcyon.api.conditions import Reason, Type
from halcyon.api.schema import structural_schema
from halcyon.api.spec import Spec
from halcyon.api.spec.parse import parse
from halcyon.render import revision
from tests.unit.render.rendered import SUBJECT
from tests.yaml_text import loaded

DOCS = Path(__file__).parents[4] / "docs" / "reference"
PAGE = resource_reference.resource_page()
FIELDS = list(resource_reference.fields(structural_schema.schema(Spec)))


@pytest.mark.parametrize("name", sorted(resource_reference.PAGES))
def test_the_page_under_docs_equals_the_models(name: str) -> None:
    assert (DOCS / name).read_text() == resource_reference.PAGES[name](), "run `make docs`"


def test_the_example_is_valid() -> None:
    resource = loaded(resource_example.EXAMPLE)

    parse(resource["metadata"]["name"], resource["spec"])


@pytest.mark.parametrize("path", [path for path, _, _ in FIELDS])
def test_every_field_has_an_example_and_a_section(path: str) -> None:
    resource_example.example(path)
    assert f"### `{path}`\n" in PAGE


def test_a_field_missing_from_the_example_is_an_error() -> None:
    with pytest.raises(KeyError, match="the example does not set"):
        resource_example.example("spec.nothing")


def test_a_field_s_section_gives_type_default_bounds_consequence_and_example() -> None:
    section = PAGE.partition("### `spec.traffic.balancerReplicas`\n")[2].partition("###")[0]

    assert section.split("\n\n")[0].strip() == "integer; default `2`; 1 to 10."
    assert "A change does not restart server pods." in section
    assert "balancerReplicas: 3" in section


def _without(spec: dict[str, Any], path: str) -> dict[str, Any] | None:
    """The spec without this optional field, or None where it can't be left out alone."""
    *parents, last = path.split(".")[1:]
    part: Any = spec
    for parent in parents:
        part = part.get(parent) if isinstance(part, dict) else None
    if not isinstance(part, dict) or part.pop(last, None) is None:
        return None
    try:
        parse("digits", spec)
    except ValueError:
        return None
    return spec


def test_a_field_rolls_the_servers_exactly_as_documented() -> None:
    def key(spec: dict[str, Any]) -> str:
        return revision.key(SUBJECT, parse("digits", spec), None)

    base = key(loaded(resource_example.EXAMPLE)["spec"])
    tried = []
    example = loaded(resource_example.EXAMPLE)["spec"]
    for path, schema, _ in FIELDS:
        changed = _without(copy.deepcopy(example), path) if schema["type"] != "object" else None
        if changed is not None:
            tried.append(path)
            assert (key(changed) != base) is resource_reference.rolls(path), path

    assert len(tried) > 25


@pytest.mark.parametrize("kind", [Type, Reason])
def test_every_condition_and_reason_is_documented(kind: type[StrEnum]) -> None:
    texts = conditions_reference.documentation(kind)

    assert list(texts) == list(kind)
    assert all(text.endswith(".") for text in texts.values())


class _Undocumented(StrEnum):
    FIRST = "First"
    """The first."""
    SECOND = "Second"


def test_a_reason_without_documentation_is_an_error() -> None:
    with pytest.raises(KeyError, match="SECOND"):
        conditions_reference.documentation(_Undocumented)
