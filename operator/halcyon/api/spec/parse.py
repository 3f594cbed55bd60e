"""Conversion of what the API server stores into a `Spec`, or into sentences that name what is wrong."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from halcyon.api.spec import Spec, field_hints
from halcyon.api.spec.field_hints import example_of_object, hint
from halcyon.api.types import EXAMPLES, NAME_MESSAGE, NAME_PATTERN


class SpecError(ValueError):
    """The resource breaks a rule. The text holds one sentence per violation."""

    def __init__(self, *sentences: str) -> None:
        super().__init__("; ".join(sentences))
        self.sentences = sentences
        """One per violation."""


def parse(name: str, spec: Mapping[str, Any]) -> Spec:
    """Return the spec of the ModelDeployment `name`.

    Parsing is strict: a number in quotes is not a number, as in the schema. The API server checks the same rules; this
    check covers objects that were stored before a rule existed.

    Raises:
        SpecError: it names every wrong field, its value and its limit.
    """
    if not re.fullmatch(NAME_PATTERN, name):
        raise SpecError(NAME_MESSAGE % (name, len(name)))
    try:
        text = json.dumps(spec)
    except RecursionError:
        raise SpecError(
            "spec is nested too deeply to be read; spec.model.source.configMap.name is about as deep as "
            "a valid spec gets"
        ) from None
    try:
        return Spec.model_validate_json(text, strict=True)
    except ValidationError as error:
        raise SpecError(*_sentences(error)) from None


def _with_hint(sentence: str, where: str) -> str:
    more = hint(where)
    return f"{sentence}; {more}" if more else sentence


def _sentences(error: ValidationError) -> list[str]:
    sentences = []
    for problem in error.errors(include_url=False):
        context = problem.get("ctx", {})
        path = (part for part in problem["loc"] if part != "[key]")
        where = "spec" + "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
        message = problem["msg"].removeprefix("Value error, ").replace("Tuple", "List").replace(" after validation", "")
        if problem["type"] == "too_short" and len(problem["input"]) >= context["min_length"]:
            continue  # pydantic counts only valid items; each invalid one has a sentence of its own
        if problem["type"] == "extra_forbidden":
            sentences.append(_with_hint(f"{where} is not a field", where))
        elif where == "spec.model.source.uri" and isinstance(problem["input"], dict):
            sentences.append(
                f"{where} is an object, but must be a string, for example uri: s3://models/resnet50; write its former "
                "fields beside it: credentials.secretName, endpoint, region, path, digest, sizeLimit"
            )
        elif (good := example_of_object(where)) and isinstance(problem["input"], str | bool):
            sentences.append(
                f"{where} is {json.dumps(problem['input'])[:80]}, but must be an object, for example {good}"
            )
        elif problem["type"] == "missing":
            sentences.append(f"{where} is missing")
        elif message.startswith(("spec.", "an entry of spec.")):
            sentences.append(message)
        else:
            value = json.dumps(problem["input"], default=str)
            shown = value if len(value) <= 80 else value[:77] + "..."
            example = EXAMPLES.get(context.get("pattern", "")) or field_hints.EXAMPLES.get(where)
            sentences.append(f"{where} is {shown}: {message}" + (f"; write {example}" if example else ""))
    return sentences
