"""Rules of `halcyon diagnose` for the batches of a model. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from halcyon_cli.diagnose.facts import Cause, ConditionIndex, Facts
from halcyon_cli.kube import batches, fields


def batch_failed(facts: Facts, index: ConditionIndex) -> Iterator[Cause]:
    """Detect batches that have failed."""
    for batch in facts.batches:
        reason, message = batches.state(batch)
        if reason == "Failed":
            name = fields.mapping(batch.get("metadata")).get("name")
            why = next(
                (
                    str(condition.get("reason"))
                    for condition in fields.mappings(fields.mapping(batch.get("status")).get("conditions"))
                    if condition.get("type") == "Failed"
                ),
                "Failed",
            )
            yield Cause(
                35,
                f"a batch of {index.name} has failed ({why})",
                (f"batchinference {name}: {message}",),
                f"remove the cause, then halcyon batch resume {name}",
            )
