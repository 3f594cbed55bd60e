"""The resource BatchInference: a data set that goes through a served model beside its users.

Out of scope: when a condition is true (`halcyon.batch.status`, with a truth table).
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, ClassVar, Literal

from pydantic import ConfigDict, Field, StringConstraints, ValidationError

from halcyon.api.status import ConditionStatus
from halcyon.api.types import (
    ApiModel,
    DnsName,
    Documented,
    ListMap,
    RelativePath,
    Rule,
    Short,
    Time,
    quantity_field,
)

_FUNCTION = r"^[-._a-zA-Z0-9]+\.py:[A-Za-z_][A-Za-z0-9_]*$"
_FIXED = ("modelDeployment", "input", "output", "hooks")
Function = Annotated[str, StringConstraints(pattern=_FUNCTION, min_length=1, max_length=253)]
RowCount = Annotated[int, Field(ge=0, le=10**12)]


class BatchVolume(Documented):
    """A place on a PersistentVolumeClaim in the same namespace."""

    claim_name: DnsName
    """Name of the PersistentVolumeClaim."""
    path: RelativePath
    """Path in the volume, for example `sets/2026/images.npz`."""


class BatchInput(Documented):
    """The data set."""

    persistent_volume_claim: BatchVolume
    """A file or a folder on a volume, mounted read-only."""
    format: Literal["Npz", "Jsonl", "Folder"] | None = None
    """Format. Npz: arrays by input, whose first dimension is the rows. Jsonl: a JSON value in each line: an object with values
    by input, or the values of the only input. Folder: each file is a row, in order of the paths. Default: that of the name."""


class BatchOutput(Documented):
    """Place of the results."""

    persistent_volume_claim: BatchVolume
    """A folder on a volume, which is made. It must be empty, or have the results of this BatchInference."""
    format: Literal["Npz", "Jsonl"] | None = None
    """Format of the results. Default: Npz if the input is Npz, else Jsonl."""


class BatchHooks(Documented):
    """Functions that prepare rows and finish outputs, as those of `halcyon bench`."""

    config_map: DnsName
    """Name of the ConfigMap with the files, in the same namespace."""
    prepare: Function | None = None
    """Function that gets a row (the path of a file, arrays by name, or the JSON value of a line) and returns an array, or
    arrays by input: FILE.py:FUNCTION, for example `hooks.py:prepare`. Default: none; the row has the inputs."""
    finish: Function | None = None
    """Function that gets the outputs of one row by name, and returns what is stored. Default: none; the outputs are stored."""


class BatchInferenceSpec(Documented):
    """What is computed, and how much of the model it may use."""

    model_deployment: DnsName
    """Name of the ModelDeployment, in the same namespace. It must have balancers (`traffic.mode: Balancer`)."""
    input: BatchInput
    """The data set. A change of its content ends the batch."""
    output: BatchOutput
    """Place of the results: parts with the rows in order, and a file with the rows that have no result."""
    hooks: BatchHooks | None = None
    """Functions that prepare rows and finish outputs. Default: none."""
    rows_per_request: Annotated[int, Field(ge=1, le=4096)] | None = None
    """Rows of a request. Default: chosen from the execution times of the first requests."""
    max_failures: Annotated[int, Field(ge=0, le=10**9)] = 100
    """Number of rows without a result with which the batch goes on. One more ends it; a larger number resumes it."""
    deadline: Time | None = None
    """Time by which it should be complete, for example `2026-12-01T06:00:00Z`. The autoscaler may add replicas for it, after
    those that users need and within the budget. Default: none."""
    max_replicas: Annotated[int, Field(ge=0, le=1000)] | None = None
    """Maximum number of replicas that the autoscaler may add for it. Default: none without `deadline`; with it, the model's
    maximum."""
    at_zero: Literal["Wait", "Wake"] = "Wait"
    """What happens while the model has 0 replicas. Wait: until users start it. Wake: the autoscaler starts a replica."""
    gentle: bool = False
    """Whether it sends only so much that the latency of users hardly changes. Otherwise it uses all that they leave."""
    suspend: bool = False
    """Whether it is paused, as in a Job. Rows of parts that are not written yet are computed again after it is resumed."""
    workers: Annotated[int, Field(ge=1, le=64)] = 1
    """Number of processes for the functions of `hooks`."""
    cpu: quantity_field("10m", "256") = "500m"  # type: ignore[valid-type]
    """CPU that the runner's pod requests, 10m to 256 cores. More workers need more. Default: 500m."""
    memory: quantity_field("256Mi", "1Ti") = "1Gi"  # type: ignore[valid-type]
    """Memory that the runner's pod requests, and its limit, 256Mi to 1Ti. Default: 1Gi."""

    rules: ClassVar = (
        Rule(
            cel="!has(self.hooks) || has(self.hooks.prepare) || has(self.hooks.finish)",
            check=lambda m: m.hooks is None or m.hooks.prepare is not None or m.hooks.finish is not None,
            message=(
                "spec.hooks has neither prepare nor finish; set one, for example hooks: {{configMap: digits-hooks, prepare: "
                "'hooks.py:prepare'}}"
            ),
        ),
        *(
            # A rule on two states, which only the API server knows.
            Rule(
                cel=f"has(self.{name}) == has(oldSelf.{name}) && (!has(self.{name}) || self.{name} == oldSelf.{name})",
                check=lambda _: True,
                message=f"spec.{name} can't be changed, because results exist; make a new BatchInference with a new output",
            )
            for name in _FIXED
        ),
    )


class BatchConditionType(StrEnum):
    """Types of conditions. The text below each one is its entry in the reference."""

    COMPLETE = "Complete"
    """All rows have a result, or are in the file of failures. While it is false, the reason is what the batch does."""
    FAILED = "Failed"
    """It can't go on unless you change something; the message names it. Present only while true."""
    SUSPENDED = "Suspended"
    """`spec.suspend` is true. Present only while true."""
    ON_TIME = "OnTime"
    """At the present rate it is complete before `spec.deadline`. Present only with a deadline, once the rate is known or the time has passed."""


class BatchReason(StrEnum):
    """Reasons of conditions, besides those of a runner that has failed."""

    COMPLETED = "Completed"
    """All rows have an outcome."""
    RUNNING = "Running"
    """Rows are being computed."""
    PENDING = "Pending"
    """The runner's pod doesn't run yet. The message has the reason."""
    WAITING = "Waiting"
    """The runner waits, for example until a server is ready. The message has the last answer of the model."""
    SUSPENDED = "Suspended"
    """`spec.suspend` is true."""
    FAILED = "Failed"
    """The condition Failed has the reason."""
    MODEL_NOT_FOUND = "ModelNotFound"
    """The namespace has no such ModelDeployment."""
    MODEL_UNSUITABLE = "ModelUnsuitable"
    """The model has no balancers, which let users go first, or serves TLS only."""
    MODEL_STOPPED = "ModelStopped"
    """The model has 0 replicas, and nothing may start one."""
    RUNNER_UNKNOWN = "RunnerUnknown"
    """The operator has no image for the runner."""
    NAME_CONFLICT = "NameConflict"
    """A Job of another owner has the name that the runner needs."""
    RUNNER_FAILED = "RunnerFailed"
    """The runner's pod has failed too often. The message has its last end."""
    INVALID = "Invalid"
    """The spec breaks a rule."""
    DEADLINE_TOO_CLOSE = "DeadlineTooClose"
    """It ends after the deadline at the present rate. The message has the rate that is needed."""
    DEADLINE_MISSED = "DeadlineMissed"
    """The deadline has passed."""
    IN_TIME = "InTime"
    """It ends before the deadline at the present rate."""


class RowsStatus(ApiModel):
    """Rows by their state."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    total: RowCount
    """Rows of the input."""
    done: RowCount
    """Rows whose result is written."""
    failed: RowCount
    """Rows without a result, which are in the file of failures."""


class BatchInferenceStatus(ApiModel):
    """Observed state of a BatchInference."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    observed_generation: int | None = None
    """Generation of the spec that this status refers to; 0 until the operator has seen the object."""
    conditions: Annotated[tuple[ConditionStatus, ...], Field(max_length=8), ListMap(("type",))] | None = None
    """Conditions. Complete is always present; others only while they apply."""
    rows: RowsStatus | None = None
    """Rows by their state; absent until the input is read."""
    progress: Short | None = None
    """Rows with an outcome and all rows, for example `61000/200000`."""
    rate: Short | None = None
    """Rows per second, over two minutes; absent if unknown."""
    eta: Time | None = None
    """Time at which it will be complete at this rate; absent if unknown."""
    rows_per_request: Annotated[int, Field(ge=1, le=4096)] | None = None
    """Rows of a request; absent until they are chosen."""
    completion_time: Time | None = None
    """Time at which it was complete."""


def parse(spec: object) -> BatchInferenceSpec:
    """Return the spec of a BatchInference.

    Raises:
        ValueError: it breaks a rule, which the API server holds too, except for objects that are older than the rule.
    """
    try:
        return BatchInferenceSpec.model_validate(spec, strict=False)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise ValueError(f"spec.{where}: {first['msg']}") from None
