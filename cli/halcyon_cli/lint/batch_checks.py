"""Validation of the name and the spec of a BatchInference. Pure.

Types are checked as strictly as by the API server, which doesn't accept a text in place of a number.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from halcyon.api import batch_inference
from halcyon.api.batch_inference import BatchInferenceSpec
from halcyon.api.schema.expected import at, expected
from halcyon.api.schema.structural_schema import schema
from halcyon.api.types import NAME_MESSAGE, NAME_PATTERN, BrokenRulesError


def problems(name: str, spec_fields: Any) -> Iterator[tuple[str, str]]:
    """Yield (rule, message) for each error in the name and in the spec of a BatchInference."""
    if not re.fullmatch(NAME_PATTERN, name):
        yield "name", NAME_MESSAGE % (name, len(name))
    try:
        BatchInferenceSpec.model_validate_json(json.dumps(spec_fields), strict=True)
    except ValidationError as error:
        yield from (_problem(detail) for detail in error.errors(include_url=False))
        return
    try:
        batch_inference.parse(spec_fields)  # checks the deadline, too
    except ValueError as error:
        yield "invalid-value", str(error)


def _problem(error: Mapping[str, Any]) -> tuple[str, str]:
    location = error["loc"]
    path = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in ("spec", *location))[1:]
    if error["type"] == "extra_forbidden":
        names = _fields(location[:-1])
        close_matches = get_close_matches(str(location[-1]), names, 1)
        hint = f"did you mean {close_matches[0]}?" if close_matches else f"the fields are {', '.join(names)}"
        return "unknown-field", f"{path} is not a field; {hint}"
    if error["type"] == "missing":
        return "missing-field", f"{path} is missing"
    cause = error.get("ctx", {}).get("error")
    if isinstance(cause, BrokenRulesError):
        return "conflicting-fields", str(cause)
    message = (
        str(cause) if cause else expected(at(schema(BatchInferenceSpec), path.removeprefix("spec.")), error["input"])
    )
    value_text = json.dumps(error["input"])
    value_text = value_text if len(value_text) <= 60 else f"{value_text[:57]}..."
    return "invalid-value", f"{path} is {value_text}: {message}"


def _fields(location: tuple[int | str, ...]) -> tuple[str, ...]:
    """Return the names of the fields of the object at a path in the spec."""
    model: type[BaseModel] = BatchInferenceSpec
    for part in location:
        field = next((info for key, info in model.model_fields.items() if part in {key, info.alias}), None)
        kinds = () if field is None else (field.annotation, *get_args(field.annotation))
        model = next((kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseModel)), model)
    return tuple(info.alias or key for key, info in model.model_fields.items())
