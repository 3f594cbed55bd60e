"""Checks whether the fields of an object have the types of this version's schema, and removes those that have not. Pure.

The API server validates objects against the schema at the time of writing. An object written under another version's
schema, or past admission, may have a string where an object belongs. Code that iterates over many objects reads the
result of `fitted`, so that no malformed object stops it.

Out of scope: bounds, patterns and rules (`parse`), which do not break readers.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, Literal

from halcyon.api.schema.structural_schema import JsonSchema, schema
from halcyon.api.spec import Spec
from halcyon.api.status import Status

Object = dict[str, Any]
_Kind = Literal["object", "array", "string", "integer", "boolean"]
_SAID: dict[_Kind, str] = {
    "object": 'an object, for example {"name": "a"}',
    "array": 'a list, for example ["a"]',
    "string": 'a string, for example "a"',
    "integer": "a whole number, for example 1",
    "boolean": "true or false",
}
_TYPES: dict[_Kind, type] = {"object": dict, "array": list, "string": str, "integer": int, "boolean": bool}
_SHOWN = 80
"""Maximum number of characters of a value in a message."""
_NOTHING = object()


@dataclass(frozen=True)
class _Form:
    """Types that a place of an object may hold."""

    kind: _Kind
    fields: Mapping[str, _Form] = field(default_factory=dict)
    each: _Form | None = None
    """Form of a list's items, or of a map's values."""
    required: tuple[str, ...] = ()
    """Fields without which an item of a list is left out."""


def fitted(resource: Object) -> tuple[Object, tuple[str, ...]]:
    """Return the ModelDeployment with only those fields that have their type, and a sentence for each field that was left out.

    It is the same object if nothing had to be left out. A null counts as an absent field, as in the API server. An item
    of a list is left out as a whole if a required field of it is missing.
    """
    wrong: list[str] = []
    found = _object(resource, _resource(), "", wrong)
    return found, tuple(wrong)


def _value(value: Any, form: _Form, path: str, wrong: list[str]) -> Any:  # any JSON value
    """Return the value, or the part of it that fits; `_NOTHING` if no part does."""
    if value is None:
        return _NOTHING
    if not isinstance(value, _TYPES[form.kind]) or (form.kind == "integer" and isinstance(value, bool)):
        wrong.append(f"{path} is {_shown(value)}: it must be {_SAID[form.kind]}")
        return _NOTHING
    if isinstance(value, list):
        return value if form.each is None else _list(value, form.each, path, wrong)
    if not isinstance(value, dict):
        return value
    found = _object(value, form, path, wrong)
    if lacking := [name for name in form.required if name not in found]:
        if not any(f"{path}.{name} is " in said for name in lacking for said in wrong):
            wrong.append(f"{path}.{lacking[0]} is missing")
        return _NOTHING
    return found


def _shown(value: object) -> str:
    try:
        shown = json.dumps(value, default=str, ensure_ascii=False)
    except RecursionError:
        return "(nested too deeply)"
    return shown if len(shown) <= _SHOWN else shown[: _SHOWN - 3] + "..."


def _object(value: Object, form: _Form, path: str, wrong: list[str]) -> Object:
    found: Object | None = None
    for name, below in value.items():
        known = form.fields.get(name, form.each)
        if known is None:
            continue
        fits = _value(below, known, f"{path}.{name}" if path else name, wrong)
        if fits is not below:
            found = dict(value) if found is None else found
            if fits is _NOTHING:
                del found[name]
            else:
                found[name] = fits
    return value if found is None else found


def _list(value: list[Any], each: _Form, path: str, wrong: list[str]) -> list[Any]:
    found: list[Any] = []
    for index, below in enumerate(value):
        if below is None:
            wrong.append(f"{path}[{index}] is null: it must be {_SAID[each.kind]}")
        elif (fits := _value(below, each, f"{path}[{index}]", wrong)) is not _NOTHING:
            found.append(fits)
    same = len(found) == len(value) and all(one is other for one, other in zip(found, value, strict=True))
    return value if same else found


@cache
def _resource() -> _Form:
    return _Form("object", {"metadata": _metadata(), "spec": _form(schema(Spec)), "status": _form(schema(Status))})


def _form(asked: JsonSchema, *, is_item: bool = False) -> _Form:
    kind: _Kind = asked["type"]
    below = {name: _form(one) for name, one in asked.get("properties", {}).items()}
    each = asked.get("items") or asked.get("additionalProperties")
    # Elsewhere a required field may be newer than the object, and readers do not rely on it.
    required = tuple(asked.get("required", ())) if is_item else ()
    return _Form(kind, below, _form(each, is_item="items" in asked) if each else None, required)


def _metadata() -> _Form:
    """Return the form of the metadata fields that are read. The API server enforces these types whatever the schema says."""
    text, number, texts = _Form("string"), _Form("integer"), _Form("object", each=_Form("string"))
    owner = _Form(
        "object", dict.fromkeys(("apiVersion", "kind", "name", "uid"), text) | {"controller": _Form("boolean")}
    )
    # Of the fields that a manager has set, only this one is read.
    spec = _Form("object", {"f:replicas": _Form("object")})
    entry = _Form("object", {"manager": text, "time": text, "fieldsV1": _Form("object", {"f:spec": spec})})
    names = ("namespace", "name", "uid", "resourceVersion", "creationTimestamp", "deletionTimestamp")
    return _Form(
        "object",
        dict.fromkeys(names, text)
        | {"generation": number, "labels": texts, "annotations": texts}
        | {"ownerReferences": _Form("array", each=owner), "finalizers": _Form("array", each=text)}
        | {"managedFields": _Form("array", each=replace(entry, required=("manager",)))},
    )
