"""The review of the API: rules over the schema of the resource."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.adoption.api_review import ARGUED, CRD, review
from tests.yaml_text import loaded


def definition(field: dict[str, Any], name: str = "good", *, required: bool = False) -> dict[str, Any]:
    spec = {"type": "object", "description": "S.", "properties": {name: field}} | (
        {"required": [name]} if required else {}
    )
    root = {"properties": {"spec": spec, "status": {"type": "object", "description": "S."}}}
    return {"spec": {"versions": [{"schema": {"openAPIV3Schema": root}}]}}


def test_no_field_breaks_a_convention_without_an_argument() -> None:
    count, findings = review(loaded(CRD.read_text()))
    assert count > 400
    assert [finding for finding in findings if not finding.argument] == []
    assert {finding.argument for finding in findings} == {why for _, _, why in ARGUED}


@pytest.mark.parametrize(
    ("name", "field", "rule"),
    [
        ("bad_name", {"type": "string", "description": "D. Default: none."}, "names"),
        ("baseUrl", {"type": "string", "description": "D. Default: none."}, "names"),
        ("mode", {"type": "string", "enum": ["off"], "description": "D. Default: none."}, "enums"),
        ("mode", {"type": "string", "enum": ["On"], "description": "D. Default: none."}, "enums"),
        ("share", {"type": "number", "description": "D. Default: none."}, "numbers"),
        ("enabled", {"type": "boolean", "description": "D. Default: none."}, "booleans"),
        ("items", {"type": "array", "items": {"type": "string"}, "description": "D. Default: none."}, "lists"),
        ("text", {"type": "string", "default": "a"}, "descriptions"),
        ("text", {"type": "string", "description": "D."}, "optional fields"),
        ("delay", {"type": "integer", "description": "D. Default: none."}, "units"),
    ],
)
def test_a_field_that_breaks_a_convention_is_found(name: str, field: dict[str, Any], rule: str) -> None:
    assert [finding.rule for finding in review(definition(field, name))[1]] == [rule]


def test_a_required_field_with_a_default_is_found() -> None:
    field = {"type": "string", "description": "D.", "default": "a"}
    assert [finding.rule for finding in review(definition(field, required=True))[1]] == ["optional fields"]
    assert review(definition(field))[1] == []
