"""Removal of fields whose type is not the one that this version's schema requires. Pure.

The API server validates an object only when it is written. An object that was written with the schema of another
version, or without validation, may have, for example, a string instead of an object. Code that processes many objects
uses the result of `fitted`, so that a malformed object does not make it fail.

Out of scope: bounds, patterns and rules (`parse`), because violations of these do not make code fail.
"""

from __future__ import annotations

import builtins
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
_EXPECTED: dict[_Kind, str] = {
    "object": 'an object, for example {"name": "a"}',
    "array": 'a list, for example ["a"]',
    "string": 'a string, for example "a"',
    "integer": "a whole number, for example 1",
    "boolean": "true or false",
}
_TYPES: dict[_Kind, type] = {"object": dict, "array": list, "string": str, "integer": int, "boolean": bool}
_MAX_SHOWN = 80
"""Maximum number of characters of a value that a message shows."""
_NOTHING = object()


@dataclass(frozen=True)
class _Form:
    """Schema of a value, for example an object with certain fields."""

    kind: _Kind
    fields: Mapping[str, _Form] = field(default_factory=dict)
    each: _Form | None = None
    """Schema of the items of a list, or of the values of a map."""
    required: tuple[str, ...] = ()
    """Required fields of a list's item; an item without one of them is removed."""
    type: builtins.type = field(init=False)
    is_nested: bool = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "type", _TYPES[self.kind])
        object.__setattr__(self, "is_nested", bool(self.fields or self.each))


def fitted(resource: Object) -> tuple[Object, tuple[str, ...]]:
    """Return the ModelDeployment without the fields of a wrong type, and a message for each removed field.

    If no field has to be removed, the same object is returned. A field with null counts as missing, as in the API server. An item of a list
    is removed as a whole if one of its required fields is missing.
    """
    if _fits(resource, _resource()):
        return resource, ()
    errors: list[str] = []
    found = _object(resource, _resource(), "", errors)
    return found, tuple(errors)


def _fits(value: Any, form: _Form) -> bool:  # any JSON value
    """Return whether a value, whose type is already correct, also has the required form.

    This is a quick check without paths. If it fails, `_value` finds the errors.
    """
    if isinstance(value, list):
        each = form.each
        return each is None or all(type(below) is each.type and _fits(below, each) for below in value)
    if not isinstance(value, dict):
        return True
    fields, each = form.fields, form.each
    for name, below in value.items():
        known = fields.get(name, each)
        if known is not None and (type(below) is not known.type or (known.is_nested and not _fits(below, known))):
            return False
    return not form.required or all(name in value for name in form.required)


def _value(value: Any, form: _Form, path: str, errors: list[str]) -> Any:  # any JSON value
    """Return the value without those parts that have a wrong type.

    Return `_NOTHING` if the value itself has a wrong type.
    """
    if value is None:
        return _NOTHING
    if not isinstance(value, _TYPES[form.kind]) or (form.kind == "integer" and isinstance(value, bool)):
        errors.append(f"{path} is {_shown(value)}: it must be {_EXPECTED[form.kind]}")
        return _NOTHING
    if isinstance(value, list):
        return value if form.each is None else _list(value, form.each, path, errors)
    if not isinstance(value, dict):
        return value
    found = _object(value, form, path, errors)
    if missing := [name for name in form.required if name not in found]:
        if not any(f"{path}.{name} is " in said for name in missing for said in errors):
            errors.append(f"{path}.{missing[0]} is missing")
        return _NOTHING
    return found


def _shown(value: object) -> str:
    try:
        shown = json.dumps(value, default=str, ensure_ascii=False)
    except RecursionError:
        return "(nested too deeply)"
    return shown if len(shown) <= _MAX_SHOWN else shown[: _MAX_SHOWN - 3] + "..."


def _object(value: Object, form: _Form, path: str, errors: list[str]) -> Object:
    found: Object | None = None
    for name, below in value.items():
        known = form.fields.get(name, form.each)
        if known is None or (type(below) is known.type and _fits(below, known)):
            continue
        fits = _value(below, known, f"{path}.{name}" if path else name, errors)
        if fits is not below:
            found = dict(value) if found is None else found
            if fits is _NOTHING:
                del found[name]
            else:
                found[name] = fits
    return value if found is None else found


def _list(value: list[Any], each: _Form, path: str, errors: list[str]) -> list[Any]:
    found: list[Any] = []
    for index, below in enumerate(value):
        if below is None:
            errors.append(f"{path}[{index}] is null: it must be {_EXPECTED[each.kind]}")
        elif (fits := _value(below, each, f"{path}[{index}]", errors)) is not _NOTHING:
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
    # Only items of lists have required fields here. Other required fields may be newer than the object, so code must not rely on them.
    required = tuple(asked.get("required", ())) if is_item else ()
    return _Form(kind, below, _form(each, is_item="items" in asked) if each else None, required)


def _metadata() -> _Form:
    """Return the required form of the metadata fields that the operator reads.

    The API server always enforces their types.
    """
    text, number, texts = _Form("string"), _Form("integer"), _Form("object", each=_Form("string"))
    owner = _Form(
        "object", dict.fromkeys(("apiVersion", "kind", "name", "uid"), text) | {"controller": _Form("boolean")}
    )
    # Of the fields in managedFields, only spec.replicas is read.
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
