"""BatchInferences of a model, for commands other than `halcyon batch`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from halcyon.kube.kinds import BATCH_INFERENCE
from halcyon_cli.errors import ClusterError
from halcyon_cli.kube import fields
from halcyon_cli.kube.client import Cluster

Json = Mapping[str, Any]


def of_model(cluster: Cluster, model: str) -> list[Json]:
    """Return the BatchInferences of a model; empty if the cluster doesn't have this kind.

    Raises:
        ClusterError: they can't be read.
    """
    batches = cluster.items(BATCH_INFERENCE) or []
    return [batch for batch in batches if fields.mapping(batch.get("spec")).get("modelDeployment") == model]


def unended_of_model(cluster: Cluster, model: str) -> list[tuple[str, str]]:
    """Return (reason, sentence) for each batch of a model that hasn't ended; empty if the user may not read batches."""
    try:
        return unended(of_model(cluster, model))
    except ClusterError:
        return []


def unended(batches: Sequence[Json]) -> list[tuple[str, str]]:
    """Return (reason, sentence) for each batch that hasn't ended. Pure."""
    states = []
    for batch in batches:
        reason, message = state(batch)
        if reason not in {"Completed", "Failed"}:
            states.append((reason, _sentence(batch, reason, message)))
    return states


def state(batch: Json) -> tuple[str, str]:
    """Return Failed with the message of the failure, or else the reason and the message of the condition Complete."""
    condition = deciding_condition(batch)
    # The spec of a batch that has failed may be invalid, which is then the reason of both conditions.
    reason = "Failed" if failure(batch) else fields.text(condition.get("reason")) or "Pending"
    return reason, fields.text(condition.get("message")) or ""


def failure(batch: Json) -> str:
    """Return the reason why a batch has failed; empty if it hasn't."""
    condition = deciding_condition(batch)
    return (fields.text(condition.get("reason")) or "Failed") if condition.get("type") == "Failed" else ""


def deciding_condition(batch: Json) -> Json:
    """Return the condition Failed if it is true, or else the condition Complete; empty if there is neither.

    Conditions can be in any order, and others can add some.
    """
    conditions = fields.mappings(fields.mapping(batch.get("status")).get("conditions"))
    by_type = {condition.get("type"): condition for condition in conditions}
    failed = by_type.get("Failed", {})
    return failed if failed.get("status") == "True" else by_type.get("Complete", {})


def _sentence(batch: Json, reason: str, message: str) -> str:
    status = fields.mapping(batch.get("status"))
    failed, progress = fields.mapping(status.get("rows")).get("failed"), fields.text(status.get("progress"))
    rate, end = fields.text(status.get("rate")), fields.text(status.get("eta"))
    words = [f"batch {fields.mapping(batch.get('metadata')).get('name')} is {reason}"]
    words += [f"{progress} rows"] if progress else []
    words += [f"{failed} without a result"] if failed else []
    words += [f"{rate} rows/s"] if rate else []
    words += [f"expected end {end}"] if end else []
    return ", ".join(words) + (f": {message}" if message and reason != "Running" else "")
