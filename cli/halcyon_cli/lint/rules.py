"""Rules of `halcyon lint`, each with an ID, a level and a description. IDs are stable across versions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

Level = Literal["error", "warning"]


@dataclass(frozen=True)
class LintRule:
    """One rule of `halcyon lint`."""

    level: Level
    text: str
    """Requirement that the rule checks, in one sentence."""


RULES: Final[Mapping[str, LintRule]] = {
    "invalid-yaml": LintRule("error", "A file must be YAML or JSON."),
    "api-version": LintRule("error", "apiVersion must be the version that this halcyon knows."),
    "kind": LintRule("error", "kind must be ModelDeployment or BatchInference."),
    "name": LintRule("error", "metadata.name must be short enough for the names of the model's objects."),
    "missing-field": LintRule("error", "A required field must be set."),
    "unknown-field": LintRule("error", "Only fields of the API may be set."),
    "duplicate-field": LintRule("error", "A field must not be set twice."),
    "duplicate-object": LintRule("error", "A file must not have an object twice."),
    "unquoted-value": LintRule("error", "A value that YAML doesn't read as a string must be quoted."),
    "invalid-value": LintRule("error", "A value must have the type and the limits of its field."),
    "conflicting-fields": LintRule("error", "Fields must be consistent with each other."),
    "invalid-schedule": LintRule("error", "A schedule must be valid: its cron expression, its time zone and its duration."),
    "model-config": LintRule("error", "A config.pbtxt in a ConfigMap must be valid, and must fit the spec."),
    "unknown-config-field": LintRule("warning", "A config.pbtxt should have only fields that Triton knows."),
    "unchecked-config": LintRule("warning", "A config.pbtxt in a ConfigMap should be checked before a pod starts."),
    "ignored-status": LintRule("warning", "status is written by the operator, and shouldn't be in a file."),
    "ignored-field": LintRule("warning", "A field should have an effect."),
    "mismatched-timeouts": LintRule("warning", "Time-outs and limits should fit each other."),
    "risky-value": LintRule("warning", "A value shouldn't risk requests, or GPUs that aren't needed."),
    "unmeasured-gpu": LintRule("warning", "A target for GPU utilization should be for a whole GPU."),
    "missing-gpu": LintRule("warning", "A model that a config.pbtxt places on a GPU should have one."),
    "image-mismatch": LintRule("warning", "The server's image should fit the model and its GPUs."),
    "outdated-image": LintRule("warning", "The release of Triton should have no known vulnerability."),
}  # fmt: skip
