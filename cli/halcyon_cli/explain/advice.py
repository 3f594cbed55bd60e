"""Advice in a model's status, and the patches that apply it. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from halcyon.control.advice.rules import RULES
from halcyon_cli.kube import fields, merge_patch

_NUMBERS = frozenset(rule.field for rule in RULES if rule.is_number)
_FIELD = re.compile(r"spec(\.[A-Za-z]+)+")


@dataclass(frozen=True)
class ShownAdvice:
    """Entry of `status.advice`."""

    rule: str
    field: str
    current_value: str | None
    """Current value of the field in the spec; None if it isn't set."""
    value: str
    """Value that is recommended for the field."""
    evidence: str
    gain: str
    gain_percent: int | None
    since: datetime | None
    patch: Mapping[str, Any]
    """Merge patch of the ModelDeployment that applies the advice, as an argument of `kubectl patch --type merge -p`."""


def read(status: Mapping[str, Any]) -> tuple[ShownAdvice, ...]:
    """Return the advice in a status, in the order of the status. Entries without a field or a value are left out."""
    advice = []
    for entry in fields.mappings(status.get("advice")):
        field, value = fields.text(entry.get("field")), fields.text(entry.get("value"))
        if field is None or value is None or not _FIELD.fullmatch(field):
            continue
        advice.append(
            ShownAdvice(
                rule=str(entry.get("rule")),
                field=field,
                current_value=fields.text(entry.get("currentValue")),
                value=value,
                evidence=fields.text(entry.get("evidence")) or "",
                gain=fields.text(entry.get("gain")) or "",
                gain_percent=fields.count(entry.get("gainPercent")),
                since=fields.time(entry.get("since")),
                patch=merge_patch.of_field(field, _json_value(field, value)),
            )
        )
    return tuple(advice)


def _json_value(field: str, value: str) -> int | str:
    """Return a recommended value with the type that the field has in JSON."""
    return int(value) if field in _NUMBERS and value.isdigit() else value
