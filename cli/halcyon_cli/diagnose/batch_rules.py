"""Rules of `halcyon diagnose` for the batches of a model. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from halcyon.api.batch_inference import BatchReason
from halcyon_cli.diagnose.facts import Cause, ConditionIndex, Facts
from halcyon_cli.kube import batches, fields


def batch_failed(facts: Facts, index: ConditionIndex) -> Iterator[Cause]:
    """Detect batches that have failed."""
    for batch in facts.batches:
        if why := batches.failure(batch):
            name = fields.mapping(batch.get("metadata")).get("name")
            yield Cause(
                35,
                f"a batch of {index.name} has failed ({why})",
                (f"batchinference {name}: {batches.state(batch)[1]}",),
                f"correct the field that the message names: kubectl edit batchinference {name} -n {index.namespace}"
                if why == BatchReason.INVALID
                else f"remove the cause, then halcyon batch resume {name} -n {index.namespace}",
            )
