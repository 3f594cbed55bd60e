"""Conversion of the spec that the API server stores into a `Spec`, or into sentences that describe its errors."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from halcyon.api.batch_inference import BatchInferenceSpec
from halcyon.api.schema.expected import JsonSchema, at, expected, needs_example
from halcyon.api.schema.structural_schema import schema
from halcyon.api.spec import Spec
from halcyon.api.spec.field_hints import URI_SCHEMES, example, example_of_object, hint, listed_value
from halcyon.api.timestamps import is_date_time
from halcyon.api.types import NAME_MESSAGE, NAME_PATTERN, BrokenRulesError

Model = TypeVar("Model", bound=BaseModel)
_URI = ("model", "source", "uri")
_MAX_PATTERN = 80
"""Maximum length of a pattern in an error message, in characters."""
_MAX_LAYERS = 4
"""Maximum number of times that a spec is checked again without its invalid fields, which can hide other violations."""


@dataclass(frozen=True)
class Violation:
    """Violation of one rule by one or several fields of a spec."""

    kind: Literal["name", "unknown-field", "missing-field", "invalid-value", "conflicting-fields"]
    text: str
    """Description of the violation in one sentence."""
    field: tuple[int | str, ...] = ("metadata", "name")
    """Path of the field, or of the object with conflicting fields; empty if `text` names the fields of several objects."""
    reads: frozenset[str] = frozenset()
    """Names of the conflicting fields, and other words of the rule."""


_TOO_DEEP = Violation(
    "invalid-value",
    "spec is nested too deeply to be read; valid specs have few levels, for example spec.model.source.configMap.name",
    ("spec",),
)


class SpecError(ValueError):
    """A ModelDeployment breaks rules. The text of the error has one sentence for each violation."""

    def __init__(self, *violations: Violation) -> None:
        super().__init__("; ".join(violation.text for violation in violations))
        self.violations = violations

    @property
    def sentences(self) -> tuple[str, ...]:
        """Sentences that describe the violations, one for each."""
        return tuple(violation.text for violation in self.violations)


def parse(name: str, spec: Mapping[str, Any]) -> Spec:
    """Return the spec of the ModelDeployment `name`.

    Raises:
        SpecError: the spec breaks rules. The error names every wrong field, its value and its limit.
    """
    return parse_as(Spec, name, spec)


def parse_batch(spec: object, name: str = "batch") -> BatchInferenceSpec:
    """Return the spec of the BatchInference `name`.

    Raises:
        SpecError: the spec breaks rules. The API server enforces the same rules, but an object can be older than a rule.
    """
    parsed = parse_as(BatchInferenceSpec, name, spec)
    if parsed.deadline is not None and not is_date_time(parsed.deadline):
        text = f"spec.deadline is {parsed.deadline!r}; it must be a time, for example 2026-12-01T06:00:00Z"
        raise SpecError(Violation("invalid-value", text, ("spec", "deadline")))
    return parsed


def parse_as(model: type[Model], name: str, spec: object) -> Model:
    """Return the spec of the object `name` as an instance of `model`.

    Parsing is as strict as the schema; for example, a number in quotes is not accepted as a number. The API server
    checks the same rules; this check covers objects that were stored before a rule existed. As in the API server, a
    field that is null is not set.

    Raises:
        SpecError: the spec breaks rules. The error names every wrong field, its value and its limit.
    """
    wrong = () if re.fullmatch(NAME_PATTERN, name) else (Violation("name", NAME_MESSAGE % (name, len(name))),)
    try:
        text = json.dumps(spec)
        try:
            parsed = model.model_validate_json(text, strict=True)
        except ValidationError:
            text = json.dumps(_without_nulls(json.loads(text), _schema(model)))
            parsed = model.model_validate_json(text, strict=True)
    except RecursionError:
        raise SpecError(*wrong, _TOO_DEEP) from None
    except ValidationError as error:
        raise SpecError(*wrong, *_violations(model, error), *_hidden(model, json.loads(text), error)) from None
    if wrong:
        raise SpecError(*wrong)
    return parsed


def _without_nulls(value: Any, schema: JsonSchema) -> Any:  # any JSON value
    """Return a value without its null fields. As in the API server, an unknown field stays, and an item of a list."""
    if isinstance(value, dict):
        below = {key: at(schema, (key,)) for key in value}
        return {k: _without_nulls(v, below[k]) for k, v in value.items() if v is not None or not below[k]}
    return [_without_nulls(item, at(schema, (0,))) for item in value] if isinstance(value, list) else value


def _violations(model: type[BaseModel], error: ValidationError) -> Iterator[Violation]:
    for problem in error.errors(include_url=False):
        yield from _violations_of(model, problem)


def _violations_of(model: type[BaseModel], problem: ErrorDetails) -> list[Violation]:
    """Return the violations that pydantic reports as one problem."""
    path = tuple(part for part in problem["loc"] if part != "[key]")
    field = "spec" + "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    root, context, at_field = _schema(model), problem.get("ctx", {}), ("spec", *path)
    match problem["type"]:
        case "too_short" if len(problem["input"]) >= context["min_length"]:
            return []  # pydantic counts only valid items; each invalid one has a sentence of its own
        case "json_invalid":
            return [_TOO_DEEP]  # its parser counts levels itself, and allows fewer of them than Python's
        case "extra_forbidden":
            more = _hint(model, tuple(0 if isinstance(part, int) else part for part in path))
            return [Violation("unknown-field", f"{field} is not a field" + (f"; {more}" if more else ""), at_field)]
        case "missing":
            return [Violation("missing-field", f"{field} is missing; {example(path, root)}", at_field)]
        case "value_error" if isinstance(context["error"], BrokenRulesError):
            return _conflicts(context["error"], field, at_field)
    return [Violation("invalid-value", f"{field} is {_requirement(root, path, problem)}", at_field)]


def _conflicts(error: BrokenRulesError, field: str, at_field: tuple[int | str, ...]) -> list[Violation]:
    """Return a violation for each broken rule. The sentences of some rules name their fields with their whole paths."""
    prefix, place = ("", ()) if error.names_path else (f"{field}: ", at_field)
    return [Violation("conflicting-fields", prefix + sentence, place, words) for sentence, words in error.broken]


def _requirement(root: JsonSchema, path: tuple[int | str, ...], problem: ErrorDetails) -> str:
    """Return the invalid value at a path and what is wrong with it. The text contains no text from pydantic."""
    context, value = problem.get("ctx", {}), problem["input"]
    if path == _URI and isinstance(value, dict):
        return (
            "an object, but must be a string, for example uri: s3://models/resnet50; write its former "
            "fields beside it: credentials.secretName, endpoint, region, path, digest, sizeLimit"
        )
    if path == _URI and (other := URI_SCHEMES.get(str(value).partition("://")[0])):
        return f"{_shown(value)}: this form is not valid; {other}"
    if (good := example_of_object(path)) and not isinstance(value, dict):
        return f"{_shown(value)}, but must be an object, for example {good}"
    if problem["type"] == "value_error":
        return f"{_shown(value)}: {context['error']}"
    if "[key]" in problem["loc"][-1:]:
        pattern = context.get("pattern") or "the pattern of names"
        return f"{_shown(value)}: the name must match {pattern}; write {example(path, root)}"
    field, text, write = at(root, path), expected(at(root, path), value), ""
    if needs_example(field, value) or (field["type"] == "integer" and listed_value(path)):
        write = f"; write {example(path, root)}"
    if problem["type"] == "string_pattern_mismatch" and write and len(field["pattern"]) > _MAX_PATTERN:
        text = "this form is not valid"  # the pattern is long, and the example says more
    return f"{_shown(value)}: {text}{write}"


@lru_cache(maxsize=256)
def _hint(model: type[BaseModel], path: tuple[int | str, ...]) -> str:
    """Return the hint for an unknown field. It takes milliseconds, and is the same for each item of a list."""
    return hint(path, _schema(model), of_model=model is Spec)


@cache
def _schema(model: type[BaseModel]) -> JsonSchema:
    return schema(model)


def _shown(value: object) -> str:
    text = json.dumps(value, default=str)
    return text if len(text) <= 80 else text[:77] + "..."


def _hidden(model: type[BaseModel], spec: dict[str, Any], error: ValidationError) -> list[Violation]:
    """Return the violations of rules that were not checked because a field is invalid. Change `spec`.

    A rule over several fields is only checked if all fields are valid, so the invalid fields are removed from `spec`. A
    violation of a rule that reads a removed field is dropped, because it may be a result of the removal.
    """
    removed: set[str] = set()
    violations: list[Violation] = []
    for _ in range(_MAX_LAYERS):
        for problem in error.errors():
            path = problem["loc"][:-1] if problem["type"] == "missing" else problem["loc"]
            path = tuple(part for part in path if part != "[key]")
            if not path:
                return violations
            _remove(spec, path)
            removed.add(next(str(part) for part in reversed(path) if isinstance(part, str)))
        try:
            model.model_validate_json(json.dumps(spec), strict=True)
        except ValidationError as later:
            error = later
        else:
            break
        rules = [violation for violation in _violations(model, error) if violation.kind == "conflicting-fields"]
        violations += [v for v in rules if v not in violations and removed.isdisjoint(v.reads)]
    return violations


def _remove(spec: Any, path: tuple[int | str, ...]) -> None:  # any JSON value
    """Remove the field at `path` if it still exists.

    If it is an item of a list, also remove all items after it, so that the indexes of the others do not change.
    """
    *parents, last = path
    for part in parents:
        if isinstance(spec, dict):
            spec = spec.get(part)
        elif isinstance(spec, list) and isinstance(part, int) and part < len(spec):
            spec = spec[part]
    if isinstance(spec, dict):
        spec.pop(last, None)
    elif isinstance(spec, list) and isinstance(last, int):
        del spec[last:]
