"""Every field of the resource against the Kubernetes API conventions, as far as rules over the schema can check them.

python -m benchmarks.adoption.api_review            # records the row
python -m benchmarks.adoption.api_review --table    # prints what breaks a rule, with the reason if it is argued

The rules follow contributors/devel/sig-architecture/api-conventions.md. Decision 0044 has the comparison of shapes, which no rule can check.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import yaml

from benchmarks.quality.rows import ROOT, Row, record

CRD = ROOT / "crds" / "modeldeployments.serving.halcyon.dev.yaml"
Schema = dict[str, Any]
_NAME = re.compile(r"[a-z][A-Za-z0-9]*")
_VALUE = re.compile(r"[A-Z][A-Za-z0-9]*")
_INITIALISM = re.compile(r"(Url|Id|Uri|Arn|Gpu|Cpu|Ca|Http|Tls|Api|Os)(?=[A-Z]|$)")
_BOOLEANS = frozenset({"on", "off", "yes", "no", "true", "false", "y", "n"})
_UNIT_IN_NAME = re.compile(r"(?i)(seconds|percent|bytes|count|number|replicas|generation|version)s?$")
_UNIT_IN_TEXT = re.compile(
    r"(?i)\b(rows?|requests?|percent|seconds?|number|replicas|pods|devices|instances|points|times|versions?|port|priority|"
    r"executions|levels?|iterations|weight|GPUs|shape|generation|servers|group|size|result|change)\b|%"
)
_ABSENT = re.compile(
    r"Default\b|Only (if|with|for)\b|[Rr]equired (if|for)\b|Absent|None if|not set|[Ee]xactly one|0 (if|until)"
)


@dataclass(frozen=True)
class Deviation:
    """A field that breaks a rule."""

    field: str
    rule: str
    value: str
    """Text that breaks the rule."""
    argument: str
    """Reason why it stays; empty if the row is open."""


ARGUED = (
    (r".*\.ephemeral-storage", "names", "the name of the resource in core/v1"),
    (r"status\.conditions\[\]\.status", "enums", "the values of metav1.Condition"),
    (r".*\.optional", "booleans", "the field of core/v1"),
    (
        r"spec\.model\.versions\.all",
        "booleans",
        "a member of a union that only true can select, as in Triton's version_policy",
    ),
    (r"spec\.batching\.preserveOrdering", "booleans", "a switch of Triton's configuration, with its name"),
    (
        r"spec\.batching\.queuePolicy\.allowTimeoutOverride",
        "booleans",
        "a switch of Triton's configuration, with its name",
    ),
    (r"status\.rollout\.canary\.paused", "booleans", "an observation, which clients may ignore"),
)
"""Patterns of fields, the rule and the reason."""


def fields(
    path: str, schema: Schema, parent: Schema, *, is_required: bool
) -> Iterator[tuple[str, Schema, Schema, bool]]:
    """Yield path, schema, parent's schema and whether it is required, for a field and all below it."""
    yield path, schema, parent, is_required
    for name, child in schema.get("properties", {}).items():
        yield from fields(f"{path}.{name}", child, schema, is_required=name in schema.get("required", ()))
    if "items" in schema:
        yield from fields(f"{path}[]", schema["items"], schema, is_required=True)


def breaches(path: str, schema: Schema, parent: Schema, *, is_required: bool) -> Iterator[tuple[str, str]]:
    """Yield the rules that a field breaks, each with the text that breaks it."""
    name = path.rpartition(".")[2]
    yield from _values(schema)
    if name.endswith("[]"):
        return
    if not _NAME.fullmatch(name) or _INITIALISM.search(name):
        yield "names", name
    text = schema.get("description", "")
    if not text.endswith((".", "`", ")")):
        yield "descriptions", text[-40:] or "none"
    if schema.get("type") == "integer" and not _UNIT_IN_NAME.search(name) and not _UNIT_IN_TEXT.search(text):
        yield "units", "neither the name nor the description has the unit"
    if is_required and "default" in schema:
        yield "optional fields", "required, and with a default"
    if path.startswith("spec.") and not is_required and "default" not in schema:
        rules = parent.get("x-kubernetes-validations", ())
        if not _ABSENT.search(text) and not any("exactly one of" in rule.get("message", "") for rule in rules):
            yield "optional fields", "the description doesn't say what the absence means"


def _values(schema: Schema) -> Iterator[tuple[str, str]]:
    """Yield the rules that the type and the values of a field break."""
    texts = [value for value in schema.get("enum", ()) if isinstance(value, str)]
    for value in texts:
        if not _VALUE.fullmatch(value) or value.lower() in _BOOLEANS:
            yield "enums", value
    if schema.get("type") == "number":
        yield "numbers", "a floating-point number"
    if schema.get("type") == "boolean":
        yield "booleans", "a field that can never have a third value"
    if schema.get("type") == "array" and "x-kubernetes-list-type" not in schema:
        yield "lists", "no list type"
    if schema.get("x-kubernetes-list-type") == "map" and not schema.get("x-kubernetes-list-map-keys"):
        yield "lists", "no keys"


def review(definition: Schema) -> tuple[int, list[Deviation]]:
    """Return the number of fields, and those that break a rule."""
    root = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    count, deviations = 0, []
    for top in ("spec", "status"):
        for path, schema, parent, is_required in fields(top, root["properties"][top], root, is_required=False):
            count += 1
            for rule, detail in breaches(path, schema, parent, is_required=is_required):
                reasons = (
                    reason
                    for pattern, argued_rule, reason in ARGUED
                    if argued_rule == rule and re.fullmatch(pattern, path)
                )
                deviations.append(Deviation(path, rule, detail, next(reasons, "")))
    return count, deviations


def main(argv: list[str]) -> int:
    """Record the row, or print the table."""
    count, deviations = review(yaml.safe_load(CRD.read_text()))
    if argv == ["--table"]:
        for deviation in deviations:
            print(f"{deviation.field}\t{deviation.rule}\t{deviation.value}\t{deviation.argument or 'OPEN'}")
        return 0
    open_ = [deviation for deviation in deviations if not deviation.argument]
    record(
        "adoption",
        [
            Row(
                id="5",
                what="fields against the API conventions: names, enums, lists, units, descriptions, optional fields",
                value={"fields": count, "argued rows": len(deviations) - len(open_), "open rows": len(open_)},
                target="0 open rows",
                limits=[("open rows", 0, "==")],
                command="python -m benchmarks.adoption.api_review",
                why="; ".join(f"{deviation.field}: {deviation.value}" for deviation in open_),
                n=count,
                raw=[
                    {"found" if key == "value" else key: text for key, text in vars(deviation).items()}
                    for deviation in deviations
                ],
            )
        ],
    )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
