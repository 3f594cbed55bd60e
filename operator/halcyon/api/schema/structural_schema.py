"""Conversion of a pydantic model to a structural schema, as required in a CustomResourceDefinition.

The JSON schema of pydantic is converted: references are inlined, optional fields are not nullable, and list types and CEL rules are added.
Types that a structural schema cannot express (a union, an unbounded list) raise an error, so that the API server does not have to reject
them. Source of the rules: Kubernetes documentation, "Extend the Kubernetes API with CustomResourceDefinitions".
"""

from __future__ import annotations

import types
import typing
from collections.abc import Callable, Mapping
from typing import Any, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from halcyon.api.types import INT_OR_STRING, ApiModel, AtomicMap, ListMap, ListSet, Rule, StringRules, cel_string

JsonSchema = dict[str, Any]
Descriptions = Callable[[type[BaseModel]], Mapping[str, str]]
"""Function that returns the descriptions of a model's fields, by name."""


class SchemaError(TypeError):
    """The pydantic model cannot be expressed as a structural schema."""


def schema(model: type[BaseModel], *, descriptions: Descriptions | None = None) -> JsonSchema:
    """Return the structural schema of a pydantic model, with field descriptions if a function for them is given."""
    properties: dict[str, JsonSchema] = {}
    required: list[str] = []
    # Resolve the annotations again: pydantic removes the markers in Annotated from FieldInfo.annotation and keeps them in
    # FieldInfo.metadata, but not those inside a union with None.
    hints = typing.get_type_hints(model, include_extras=True)
    texts = descriptions(model) if descriptions else {}
    for name, info in model.model_fields.items():
        alias = info.alias or name
        field = _of_type(hints[name], path=f"{model.__name__}.{alias}", descriptions=descriptions)
        if name in texts:
            field.pop("description", None)  # the description of the type, which several fields may share
            field = {"description": texts[name], **field}
        if info.is_required():
            required.append(alias)
        elif info.default is not None:
            field["default"] = _default(info)
        properties[alias] = field
    result: JsonSchema = {"type": "object", "properties": properties}
    if descriptions and model.__doc__:
        result = {"description": " ".join(model.__doc__.split()), **result}
    if required:
        result["required"] = required
    rules = model.rules if issubclass(model, ApiModel) else ()
    if rules:
        result["x-kubernetes-validations"] = [_validation(rule) for rule in rules]
    return result


def _default(info: FieldInfo) -> Any:  # any JSON value
    # Return the complete default of an object, because the API server evaluates the rules on it before it adds the defaults below it.
    return info.default.to_dict() if isinstance(info.default, ApiModel) else info.default


def _validation(rule: Rule) -> JsonSchema:
    written: JsonSchema = {"rule": rule.cel}
    paths = [path for _, path in rule.parts() if path]
    static = rule.static or "".join(text + (path and f"<{path}>") for text, path in rule.parts())
    if paths:
        written["messageExpression"] = rule.message_cel()
    written["message"] = static
    written["reason"] = rule.reason
    return written


def _key_rule(key: JsonSchema) -> JsonSchema:
    # A structural schema cannot have propertyNames, so a CEL rule checks the keys of a map.
    pattern, longest = key["pattern"], key["maxLength"]
    good = f"k.matches({cel_string(pattern)}) && k.size() <= {longest}"
    limit = f"every key must match {pattern} and have at most {longest} characters"
    message = cel_string(limit.replace("%", "%%") + "; invalid keys: %s")
    return {
        "rule": f"self.all(k, {good})",
        "messageExpression": f"{message}.format([self.filter(k, !({good}))])",
        "message": limit,
        "reason": "FieldValueInvalid",
    }


_SCALARS: dict[Any, JsonSchema] = {
    str: {"type": "string"},
    int: {"type": "integer", "format": "int64"},
    bool: {"type": "boolean"},
}


def _of_type(
    hint: Any, *, path: str, descriptions: Descriptions | None
) -> JsonSchema:  # a type expression; one return per kind of it
    origin = get_origin(hint)
    if origin is typing.Annotated:
        inner, *marks = get_args(hint)
        return _marked(_of_type(inner, path=path, descriptions=descriptions), marks, path=path)
    if origin in (typing.Union, types.UnionType):
        options = [arg for arg in get_args(hint) if arg is not types.NoneType]
        if len(options) != 1:
            raise SchemaError(f"{path}: a union of {options} is not structural")
        return _of_type(options[0], path=path, descriptions=descriptions)
    if origin is typing.Literal:
        values = list(get_args(hint))
        return {**_SCALARS[type(values[0])], "enum": values}
    if origin is tuple:
        item, *others = get_args(hint)
        if others != [Ellipsis]:
            raise SchemaError(f"{path}: only homogeneous tuples are lists")
        return {"type": "array", "items": _of_type(item, path=f"{path}[]", descriptions=descriptions)}
    if origin is dict:
        key, value = get_args(hint)
        return {
            "type": "object",
            "additionalProperties": _of_type(value, path=f"{path}{{}}", descriptions=descriptions),
            "x-kubernetes-validations": [_key_rule(_of_type(key, path=f"{path} key", descriptions=descriptions))],
        }
    if isinstance(hint, type) and issubclass(hint, BaseModel):
        return schema(hint, descriptions=descriptions)
    if hint in _SCALARS:
        return dict(_SCALARS[hint])
    raise SchemaError(f"{path}: {hint!r} is not structural")


_BOUNDS = {
    "string": {"min_length": "minLength", "max_length": "maxLength", "pattern": "pattern"},
    "array": {"min_length": "minItems", "max_length": "maxItems"},
    "object": {"min_length": "minProperties", "max_length": "maxProperties"},
    "integer": {"ge": "minimum", "le": "maximum"},
    "boolean": {},
}


def _marked(result: JsonSchema, marks: list[Any], *, path: str) -> JsonSchema:
    if result["type"] == "array":
        result["x-kubernetes-list-type"] = "atomic"
    for mark in marks:
        if isinstance(mark, ListMap):
            result["x-kubernetes-list-type"] = "map"
            result["x-kubernetes-list-map-keys"] = list(mark.keys)
        elif isinstance(mark, ListSet):
            result["x-kubernetes-list-type"] = "set"
        elif isinstance(mark, AtomicMap):
            result["x-kubernetes-map-type"] = "atomic"
        elif mark is INT_OR_STRING:
            result["x-kubernetes-int-or-string"] = True
        elif isinstance(mark, StringRules):
            result["x-kubernetes-validations"] = [_validation(rule) for rule in mark.rules]
        else:
            _bound(result, mark, path=path)
    return result


def _bound(result: JsonSchema, mark: Any, *, path: str) -> None:  # FieldInfo or one of annotated_types
    names = _BOUNDS[result["type"]]
    for source in (mark, *getattr(mark, "metadata", ())):
        for attribute, keyword in names.items():
            value = getattr(source, attribute, None)
            if value is not None:
                result[keyword] = value
    if isinstance(mark, FieldInfo) and isinstance(mark.json_schema_extra, dict):
        result.update(mark.json_schema_extra)
    unknown = [m for m in getattr(mark, "metadata", ()) if not any(hasattr(m, a) for a in names)]
    if unknown:
        raise SchemaError(f"{path}: {unknown} cannot be expressed in a structural schema")
