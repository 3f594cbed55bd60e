"""Descriptions of the values that a structural schema allows, for error messages."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from halcyon.api.string_forms import DURATION, FORMS, QUANTITY, Form, alternatives
from halcyon.api.types import LIMITS, duration_us, quantity

JsonSchema = Mapping[str, Any]
_BOOLEAN_WORDS = "YAML reads the words On and Yes as true, and Off and No as false; quote such a word"
_MEASURES: Mapping[Form, Callable[[str], Any]] = {FORMS[DURATION]: duration_us, FORMS[QUANTITY]: quantity}
"""Function that returns the size of a string of a form, by form."""


def at(schema: JsonSchema, path: Iterable[int | str]) -> JsonSchema:
    """Return the schema of the field at a path such as `("runtime", "env", 0, "name")`; empty if no such field exists."""
    for step in path:
        below = schema.get("items") if isinstance(step, int) else schema.get("properties", {}).get(step)
        schema = below or schema.get("additionalProperties", {})
    return schema


def expected(schema: JsonSchema, value: object) -> str:
    """Return the requirement of the schema that `value` does not meet, for example `must be true or false`."""
    if values := schema.get("enum"):
        words = [str(each).lower() if isinstance(each, bool) else str(each) for each in values]
        return _with_hint(f"must be {alternatives(words)}", schema, value)
    described = {"integer": _integer, "string": _string, "array": _array, "object": _object}.get(schema.get("type", ""))
    if described is not None:
        return _with_hint(described(schema, value), schema, value)
    return "must be true or false, without quotes" if isinstance(value, str) else "must be true or false"


def form_of(schema: JsonSchema) -> Form | None:
    """Return the form of the strings that the schema allows; None if it has no name."""
    return FORMS.get(schema.get("pattern", ""))


def examples(schema: JsonSchema, form: Form) -> tuple[str, ...]:
    """Return strings of a form that the schema allows."""
    low, high = _limits(schema)
    measure = _MEASURES.get(form)
    if measure is None or not low:
        return form.examples
    return tuple(text for text in form.examples if measure(low) <= measure(text) <= measure(high)) or (high,)


def can_be_quoted(schema: JsonSchema, value: object) -> bool:
    """Return whether a number is valid if it is written in quotes."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and re.search(schema.get("pattern", ""), str(value)) is not None


def needs_example(schema: JsonSchema, value: object) -> bool:
    """Return whether `expected` doesn't show which values are valid: its text has no limits and no alternatives."""
    kind = schema.get("type")
    if kind in {"array", "object"}:
        return not isinstance(value, list if kind == "array" else Mapping)
    if kind != "string" or "enum" in schema or form_of(schema):
        return False
    is_short = isinstance(value, str) and len(value) <= schema.get("maxLength", len(value))
    return is_short or not (isinstance(value, str) or can_be_quoted(schema, value))


def _limits(schema: JsonSchema) -> tuple[str, str]:
    rules = (rule["rule"] for rule in schema.get("x-kubernetes-validations", ()))
    return next((LIMITS[rule] for rule in rules if rule in LIMITS), ("", ""))


def _with_hint(text: str, schema: JsonSchema, value: object) -> str:
    return f"{text}; {_BOOLEAN_WORDS}" if isinstance(value, bool) and schema.get("type") == "string" else text


def _range(low: object, high: object, unit: str = "") -> str:
    if low is None and high is None:
        return ""
    if low is not None and high is not None:
        return f"{low} to {high}{unit}"
    return f"at least {low}{unit}" if high is None else f"at most {high}{unit}"


def _integer(schema: JsonSchema, value: object) -> str:
    limits = _range(schema.get("minimum"), schema.get("maximum"))
    between = f" {'from' if ' to ' in limits else 'of'} {limits}" if limits else ""
    return f"must be a whole number{between}" + (", without quotes" if isinstance(value, str) else "")


def _string(schema: JsonSchema, value: object) -> str:
    if form := form_of(schema):
        (low, high), good = _limits(schema), f"for example {alternatives(examples(schema, form))}"
        if form is FORMS[DURATION] and isinstance(value, int) and re.fullmatch(r"\d{1,6}", str(value)):
            durations = (f"{value}{unit}" for unit in ("us", "ms", "s", "m"))
            allowed = [text for text in durations if duration_us(low) <= duration_us(text) <= duration_us(high)]
            good = f"for example {alternatives(allowed[:2])}" if allowed else good
        if form is FORMS[QUANTITY] and isinstance(value, float):
            good = f"and in quotes if it isn't a whole number, for example '{value:g}'"
        return f"must be {form.kind}{f' between {low} and {high}' if low else ''}, {good}"
    if not isinstance(value, str):
        return "must be a string" + (f"; quote it: '{value}'" if can_be_quoted(schema, value) else "")
    least, most = schema.get("minLength"), schema.get("maxLength")
    if len(value) < (least or 0) or len(value) > (most or len(value)):
        return f"must have {_range(least, most, ' characters')}; it has {len(value)}"
    return f"must match {schema['pattern']}" if "pattern" in schema else "must be a string"


def _array(schema: JsonSchema, value: object) -> str:
    if not isinstance(value, list):
        return "must be a list"
    return f"must have {_range(schema.get('minItems'), schema.get('maxItems'), ' items')}; it has {len(value)}"


def _object(schema: JsonSchema, value: object) -> str:
    if isinstance(value, Mapping):
        return f"must have {_range(schema.get('minProperties'), schema.get('maxProperties'), ' entries')}; it has {len(value)}"
    names = ", ".join(schema.get("properties", {}))
    return f"must be an object with fields of {names}" if names else "must be an object of names and values"
