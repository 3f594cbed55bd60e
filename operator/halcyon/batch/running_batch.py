"""Remaining work of a BatchInference, from its spec and its status, for the balancers and the autoscaler. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from halcyon.api.batch_inference import BatchReason
from halcyon.api.timestamps import epoch_seconds
from halcyon.kube.kinds import Object

WITHOUT_RUNNER = frozenset(
    (BatchReason.MODEL_UNSUITABLE, BatchReason.POLICY_DENIED, BatchReason.RUNNER_UNKNOWN, BatchReason.NAME_CONFLICT)
)
"""Reasons of the Complete condition with which no runner may run, although the model exists."""


@dataclass(frozen=True)
class RunningBatch:
    """Remaining work and requirements of a BatchInference that isn't paused, complete or failed."""

    name: str
    rows_left: int | None
    """Number of rows that are neither done nor failed; None until the runner has read the input."""
    deadline: float | None
    """Time by which the BatchInference should be complete, in seconds since the epoch; None if it has no deadline."""
    max_replicas: int | None
    may_wake: bool
    """Whether the batch may start the model's first replica; False for a batch whose runner can't use one yet."""
    gentle: bool


def final_conditions(obj: Object | None) -> set[str]:
    """Return the types of the final conditions (Complete, Failed) that are true for a BatchInference or a Job."""
    conditions = ((obj or {}).get("status") or {}).get("conditions") or ()
    return {str(c.get("type")) for c in conditions if c.get("status") == "True"} & {"Complete", "Failed"}


def remaining(batch: Object, *, has_runner: bool = True) -> RunningBatch | None:
    """Return the remaining work of a BatchInference; None if it is paused, complete, failed or being deleted.

    `has_runner` is whether its runner's pod runs. A runner that has never run, for example because its volume doesn't
    exist, must not start a replica for nothing.
    """
    spec, written = batch.get("spec") or {}, batch.get("status") or {}
    if spec.get("suspend") or final_conditions(batch) or batch["metadata"].get("deletionTimestamp"):
        return None
    rows = written.get("rows")
    reasons = {c.get("reason") for c in written.get("conditions") or () if c.get("type") == "Complete"}
    return RunningBatch(
        name=batch["metadata"]["name"],
        rows_left=rows["total"] - rows["done"] - rows["failed"] if rows else None,
        deadline=epoch_seconds(spec.get("deadline")),
        max_replicas=spec.get("maxReplicas"),
        may_wake=spec.get("atZero") == "Wake" and bool(has_runner or rows) and reasons.isdisjoint(WITHOUT_RUNNER),
        gentle=bool(spec.get("gentle")),
    )
