"""Removal of fields whose type is not the one that this version's schema requires. Pure.

The API server validates an object only when it is written. An object that was written with the schema of another
version, or without validation, may have, for example, a string instead of an object. Code that processes many objects
uses the result of `fitted`, so that one malformed object does not make it fail.

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
_Kind = Literal["object", "array", "string", "int-or-string", "integer", "boolean"]
_KINDS: dict[_Kind, tuple[tuple[type, ...], str]] = {
    "object": ((dict,), 'an object, for example {"name": "a"}'),
    "array": ((list,), 'a list, for example ["a"]'),
    "string": ((str,), 'a string, for example "a"'),
    "int-or-string": ((str, int), 'a string or a whole number, for example "2"'),
    "integer": ((int,), "a whole number, for example 1"),
    "boolean": ((bool,), "true or false"),
}
"""Types of each kind of value, the usual one first, and the words for it in messages."""
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
        object.__setattr__(self, "type", _KINDS[self.kind][0][0])
        object.__setattr__(self, "is_nested", bool(self.fields or self.each))


def fitted(resource: Object) -> tuple[Object, tuple[str, ...]]:
    """Return the ModelDeployment without the fields of a wrong type, and a message for each removed field.

    If no field has to be removed, the same object is returned. A field whose value is null counts as missing, as in the
    API server. An item of a list is removed completely if one of its required fields is missing.
    """
    if _fits(resource, _resource()):
        return resource, ()
    errors: list[str] = []
    repaired = _object(resource, _resource(), "", errors)
    return repaired, tuple(errors)


def _fits(value: Any, form: _Form) -> bool:  # any JSON value
    """Return whether a value, whose type is already known to be correct, also has the required form.

    This is a quick check without paths. If it fails, `_value` finds the errors.
    """
    if isinstance(value, list):
        each = form.each
        return each is None or all(type(below) is each.type and _fits(below, each) for below in value)
    if not isinstance(value, dict):
        return True
    fields, each = form.fields, form.each
    for name, below in value.items():
        inner = fields.get(name, each)
        if inner is not None and (type(below) is not inner.type or (inner.is_nested and not _fits(below, inner))):
            return False
    return not form.required or all(name in value for name in form.required)


def _value(value: Any, form: _Form, path: str, errors: list[str]) -> Any:  # any JSON value
    """Return the value without its parts that have a wrong type.

    Return `_NOTHING` if the value itself has a wrong type.
    """
    if value is None:
        return _NOTHING
    if type(value) not in _KINDS[form.kind][0]:
        errors.append(f"{path} is {_shown(value)}: it must be {_KINDS[form.kind][1]}")
        return _NOTHING
    if isinstance(value, list):
        return value if form.each is None else _list(value, form.each, path, errors)
    if not isinstance(value, dict):
        return value
    repaired = _object(value, form, path, errors)
    if missing := [name for name in form.required if name not in repaired]:
        if not any(f"{path}.{name} is " in error for name in missing for error in errors):
            errors.append(f"{path}.{missing[0]} is missing")
        return _NOTHING
    return repaired


def _shown(value: object) -> str:
    try:
        shown = json.dumps(value, default=str, ensure_ascii=False)
    except RecursionError:
        return "(nested too deeply)"
    return shown if len(shown) <= _MAX_SHOWN else shown[: _MAX_SHOWN - 3] + "..."


def _object(value: Object, form: _Form, path: str, errors: list[str]) -> Object:
    repaired: Object | None = None
    for name, below in value.items():
        inner = form.fields.get(name, form.each)
        if inner is None or (type(below) is inner.type and _fits(below, inner)):
            continue
        fits = _value(below, inner, f"{path}.{name}" if path else name, errors)
        if fits is not below:
            repaired = dict(value) if repaired is None else repaired
            if fits is _NOTHING:
                del repaired[name]
            else:
                repaired[name] = fits
    return value if repaired is None else repaired


def _list(value: list[Any], each: _Form, path: str, errors: list[str]) -> list[Any]:
    items: list[Any] = []
    for index, below in enumerate(value):
        if below is None:
            errors.append(f"{path}[{index}] is null: it must be {_KINDS[each.kind][1]}")
        elif (fits := _value(below, each, f"{path}[{index}]", errors)) is not _NOTHING:
            items.append(fits)
    same = len(items) == len(value) and all(item is original for item, original in zip(items, value, strict=True))
    return value if same else items


@cache
def _resource() -> _Form:
    return _Form("object", {"metadata": _metadata(), "spec": _form(schema(Spec)), "status": _form(schema(Status))})


def _form(schema: JsonSchema, *, is_item: bool = False) -> _Form:
    kind: _Kind = "int-or-string" if schema.get("x-kubernetes-int-or-string") else schema["type"]
    below = {name: _form(entry) for name, entry in schema.get("properties", {}).items()}
    each = schema.get("items") or schema.get("additionalProperties")
    # Only items of lists have required fields here. Other required fields may be newer than the object, so code must not rely on them.
    required = tuple(schema.get("required", ())) if is_item else ()
    return _Form(kind, below, _form(each, is_item="items" in schema) if each else None, required)


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
