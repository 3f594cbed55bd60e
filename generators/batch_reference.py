"""Generator of docs/reference/batchinference.md, the page on the resource BatchInference, from `halcyon.api.batch_inference`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from generators.conditions_reference import documentation
from generators.field_descriptions import described_schema
from halcyon.api.batch_inference import (
    BatchConditionType,
    BatchInferenceSpec,
    BatchInferenceStatus,
    BatchReason,
)
from halcyon.api.types import API_VERSION
from halcyon.api.types import BATCH_KIND as KIND

EXAMPLE = """\
apiVersion: serving.halcyon.dev/v1alpha1
kind: BatchInference
metadata:
  name: night
  namespace: team
spec:
  modelDeployment: digits
  input:
    uri: s3://sets/2026/images.npz
    endpoint: https://minio.storage.svc:9000
    region: us-east-1
    credentials: {secretName: sets-s3}
    sizeLimit: 20Gi
    format: Npz
  output:
    uri: s3://results/night
    endpoint: https://minio.storage.svc:9000
    region: us-east-1
    credentials:
      identity:
        aws: {roleARN: "arn:aws:iam::123456789012:role/batches"}
        endpoint: https://sts.storage.svc:9000
    format: Jsonl
  hooks:
    configMap: night-hooks
    prepare: hooks.py:prepare
    finish: hooks.py:finish
  rowsPerRequest: 8
  maxFailures: 20
  deadline: "2026-12-01T06:00:00Z"
  maxReplicas: 4
  atZero: Wake
  gentle: true
  suspend: false
  workers: 2
  serviceAccountName: batches
  cpu: "2"
  memory: 2Gi
"""
VOLUMES = """\
spec:
  input:
    persistentVolumeClaim: {claimName: sets, path: 2026/images.npz}
  output:
    persistentVolumeClaim: {claimName: results, path: night}
"""


def batch_page() -> str:
    """Return the text of docs/reference/batchinference.md."""
    spec = described_schema(BatchInferenceSpec)
    rules = [*_rules(spec)]
    parts = [
        f"# {KIND}",
        (
            f"`apiVersion: {API_VERSION}`, `kind: {KIND}`, short name `batchinf`. `make docs` generates this page "
            "from `operator/halcyon/api/batch_inference.py`; do not edit it. For a guide, see [Batch inference](../guides/batch.md)."
        ),
        "## Example with every field",
        f"```yaml\n{EXAMPLE}```",
        "The input and the output can also be on a volume instead of in a bucket:",
        f"```yaml\n{VOLUMES}```",
        "## Fields of spec",
        _table(spec, "spec"),
        "The API server also rejects:",
        "\n".join(f"- `{rule}`" for rule in rules),
        "## Fields of status",
        _table(described_schema(BatchInferenceStatus), "status"),
        "## Conditions",
        _members("type", BatchConditionType),
        "## Reasons",
        _members("reason", BatchReason),
    ]
    return "\n\n".join(parts) + "\n"


def _table(schema: dict[str, Any], path: str) -> str:
    rows = [f"| `{name}` | {kind} | {text} |" for name, kind, text in _fields(schema, path)]
    return "\n".join(["| field | type | meaning |", "| --- | --- | --- |", *rows])


def _fields(schema: dict[str, Any], path: str) -> Iterator[tuple[str, str, str]]:
    for name, field in schema["properties"].items():
        kind = " or ".join(f"`{choice}`" for choice in field["enum"]) if "enum" in field else field["type"]
        kind = "string or integer" if field.get("x-kubernetes-int-or-string") else kind
        if name in schema.get("required", ()):
            kind += ", required" if path.startswith("spec") else ""
        yield f"{path}.{name}", kind, field["description"]
        nested = field["items"] if field["type"] == "array" else field
        if "properties" in nested:
            yield from _fields(nested, f"{path}.{name}" + ("[]" if field["type"] == "array" else ""))


def _rules(schema: dict[str, Any]) -> Iterator[str]:
    """Return the messages of the rules of an object and of its nested objects, without duplicates."""
    messages = dict.fromkeys(rule["message"] for rule in schema.get("x-kubernetes-validations", ()))
    for field in schema["properties"].values():
        messages |= dict.fromkeys(_rules(field) if "properties" in field else ())
    yield from messages


def _members(head: str, kind: type[BatchConditionType | BatchReason]) -> str:
    rows = [f"| `{member.value}` | {text} |" for member, text in documentation(kind).items()]
    return "\n".join([f"| {head} | meaning |", "| --- | --- |", *rows])
