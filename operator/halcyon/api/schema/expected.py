"""Descriptions of the values that a structural schema allows, for error messages."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from halcyon.api.types import EXAMPLES, duration_us

JsonSchema = Mapping[str, Any]
_STEP = re.compile(r"[^.\[\]]+|\[\d+\]")
_KINDS = (("us", "a duration"), ("Gi", "a quantity"), ("/", "a range of IP addresses"))
"""Words for each kind of string, such as `a duration`, by a substring that only the examples of this kind contain."""
_BOOLEAN_WORDS = "YAML reads the words On and Yes as true, and Off and No as false; quote such a word"


def at(schema: JsonSchema, path: str) -> JsonSchema:
    """Return the schema of the field at a path such as `runtime.env[0].name`; empty if no such field exists."""
    for step in _STEP.findall(path):
        if step.startswith("["):
            schema = schema.get("items", {})
        else:
            schema = schema.get("properties", {}).get(step) or schema.get("additionalProperties", {})
    return schema


def expected(schema: JsonSchema, value: object) -> str:
    """Return the requirement of the schema that `value` does not meet, for example `must be true or false`."""
    if values := schema.get("enum"):
        words = [str(each).lower() if isinstance(each, bool) else str(each) for each in values]
        return _with_hint(f"must be {_alternatives(words)}", schema, value)
    described = {"integer": _integer, "string": _string, "array": _array, "object": _object}.get(schema.get("type", ""))
    if described is not None:
        return _with_hint(described(schema, value), schema, value)
    return "must be true or false, without quotes" if isinstance(value, str) else "must be true or false"


def _with_hint(text: str, schema: JsonSchema, value: object) -> str:
    return f"{text}; {_BOOLEAN_WORDS}" if isinstance(value, bool) and schema.get("type") == "string" else text


def _alternatives(words: list[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"


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
    pattern = schema.get("pattern", "")
    if example := EXAMPLES.get(pattern):
        kind = next(name for unit, name in _KINDS if unit in example)
        messages = (rule["message"] for rule in schema.get("x-kubernetes-validations", ()))
        limits = next((text.removeprefix("must be") for text in messages if text.startswith("must be between")), "")
        if kind == "a duration" and isinstance(value, int) and re.fullmatch(r"\d{1,6}", str(value)):
            shortest, longest = map(duration_us, limits.split()[1::2])
            durations = (f"{value}{unit}" for unit in ("us", "ms", "s", "m"))
            allowed = [duration for duration in durations if shortest <= duration_us(duration) <= longest]
            example = f"for example {' or '.join(allowed[:2])}" if allowed else example
        if kind == "a quantity" and isinstance(value, float):
            example = f"and in quotes if it isn't a whole number, for example '{value:g}'"
        return f"must be {kind}{limits}, {example}"
    if not isinstance(value, str):
        return "must be a string" + (f"; quote it: '{value}'" if isinstance(value, int | float) and not isinstance(value, bool) else "")  # fmt: skip
    low, high = schema.get("minLength"), schema.get("maxLength")
    if len(value) < (low or 0) or len(value) > (high or len(value)):
        return f"must have {_range(low, high, ' characters')}; it has {len(value)}"
    return f"must match {pattern}" if pattern else "must be a string"


def _array(schema: JsonSchema, value: object) -> str:
    if not isinstance(value, list):
        return "must be a list"
    return f"must have {_range(schema.get('minItems'), schema.get('maxItems'), ' items')}; it has {len(value)}"


def _object(schema: JsonSchema, value: object) -> str:
    if isinstance(value, Mapping):
        return f"must have {_range(schema.get('minProperties'), schema.get('maxProperties'), ' entries')}; it has {len(value)}"
    names = ", ".join(schema.get("properties", {}))
    return f"must be an object with fields of {names}" if names else "must be an object of names and values"
