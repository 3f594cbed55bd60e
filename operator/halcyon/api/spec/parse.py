"""Conversion of the spec that the API server stores into a `Spec`, or into sentences that describe its errors."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from halcyon.api.schema.expected import JsonSchema, at, expected
from halcyon.api.schema.structural_schema import schema
from halcyon.api.spec import Spec
from halcyon.api.spec.field_hints import URI_SCHEMES, example, example_of_object, hint
from halcyon.api.types import NAME_MESSAGE, NAME_PATTERN, BrokenRulesError

_WORD = re.compile(r"[A-Za-z0-9]+")
_MAX_LAYERS = 4
"""Maximum number of times that a spec is checked again without its invalid fields, which can hide other violations."""


@dataclass(frozen=True)
class Violation:
    """Violation of one rule by one or several fields of a spec."""

    kind: Literal["name", "unknown-field", "missing-field", "invalid-value", "conflicting-fields"]
    text: str
    """Description of the violation in one sentence."""


_TOO_DEEP = Violation(
    "invalid-value",
    "spec is nested too deeply to be read; valid specs have few levels, for example spec.model.source.configMap.name",
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

    Parsing is as strict as the schema; for example, a number in quotes is not accepted as a number. The API server
    checks the same rules; this check covers objects that were stored before a rule existed.

    Raises:
        SpecError: the spec breaks rules. The error names every wrong field, its value and its limit.
    """
    wrong = () if re.fullmatch(NAME_PATTERN, name) else (Violation("name", NAME_MESSAGE % (name, len(name))),)
    try:
        text = json.dumps(spec)
    except RecursionError:
        raise SpecError(*wrong, _TOO_DEEP) from None
    try:
        parsed = Spec.model_validate_json(text, strict=True)
    except ValidationError as error:
        raise SpecError(*wrong, *_violations(error), *_hidden(json.loads(text), error)) from None
    if wrong:
        raise SpecError(*wrong)
    return parsed


def _violations(error: ValidationError) -> Iterator[Violation]:
    for problem in error.errors(include_url=False):
        path = [part for part in problem["loc"] if part != "[key]"]
        field = "spec" + "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
        context, kind = problem.get("ctx", {}), problem["type"]
        if kind == "too_short" and len(problem["input"]) >= context["min_length"]:
            continue  # pydantic counts only valid items; each invalid one has a sentence of its own
        if kind == "json_invalid":
            yield _TOO_DEEP  # its parser counts levels itself, and allows fewer of them than Python's
        elif kind == "extra_forbidden":
            yield Violation("unknown-field", f"{field} is not a field" + (f"; {more}" if (more := hint(field)) else ""))
        elif kind == "missing":
            yield Violation("missing-field", f"{field} is missing" + (f"; {good}" if (good := example(field)) else ""))
        elif kind == "value_error" and isinstance(context["error"], BrokenRulesError):
            yield from (Violation("conflicting-fields", sentence) for sentence in context["error"].sentences)
        else:
            yield Violation("invalid-value", _invalid_value(field, problem))


def _invalid_value(field: str, problem: ErrorDetails) -> str:
    """Return the sentence for an invalid value at the path `field`. It contains no text from pydantic."""
    context, value = problem.get("ctx", {}), problem["input"]
    if field == "spec.model.source.uri" and isinstance(value, dict):
        return (
            f"{field} is an object, but must be a string, for example uri: s3://models/resnet50; write its former "
            "fields beside it: credentials.secretName, endpoint, region, path, digest, sizeLimit"
        )
    if field == "spec.model.source.uri" and (other := URI_SCHEMES.get(str(value).partition("://")[0])):
        return f"{field} is {_shown(value)}: this form is not valid; {other}"
    if (good := example_of_object(field)) and not isinstance(value, dict):
        return f"{field} is {_shown(value)}, but must be an object, for example {good}"
    if problem["type"] == "value_error":
        text = str(context["error"])
    elif "[key]" in problem["loc"][-1:]:
        text = f"the name must match {context.get('pattern') or 'the pattern of names'}"
    else:
        text = expected(at(_schema(), field.partition(".")[2]), value)
    write = example(field)
    if write and text.startswith("must match "):
        text = "this form is not valid"  # the pattern is long, and the example says more
    return f"{field} is {_shown(value)}: {text}" + (f"; write {write}" if write else "")


@cache
def _schema() -> JsonSchema:
    return schema(Spec)


def _shown(value: object) -> str:
    text = json.dumps(value, default=str)
    return text if len(text) <= 80 else text[:77] + "..."


def _hidden(spec: dict[str, Any], error: ValidationError) -> list[Violation]:
    """Return the violations of rules that were not checked because a field is invalid. Change `spec`.

    A rule over several fields is only checked if all fields are valid, so the invalid fields are removed from `spec`. A
    violation that names a removed field is dropped, because it may be a result of the removal.
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
            Spec.model_validate_json(json.dumps(spec), strict=True)
        except ValidationError as later:
            error = later
        else:
            break
        rules = [violation for violation in _violations(error) if violation.kind == "conflicting-fields"]
        violations += [v for v in rules if v not in violations and removed.isdisjoint(_WORD.findall(v.text))]
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
