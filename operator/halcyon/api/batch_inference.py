"""API of the resource BatchInference, which runs a data set through a model while the model also serves users.

Out of scope: the rules by which conditions become true. `halcyon.batch.status` has them, with a truth table.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, ClassVar, Literal

from pydantic import Field, StringConstraints

from halcyon.api.batch_bucket import BatchCredentials, BucketUri, bucket_rules
from halcyon.api.credentials import StoreEndpoint, StoreRegion
from halcyon.api.status import ConditionStatus
from halcyon.api.string_forms import TIME
from halcyon.api.types import ApiModel, DnsName, ListMap, RelativePath, Rule, Short, Time, quantity_field

_FUNCTION = r"^[-._a-zA-Z0-9]+\.py:[A-Za-z_][A-Za-z0-9_]*$"
_FIXED = ("modelDeployment", "input", "output", "hooks")
Function = Annotated[str, StringConstraints(pattern=_FUNCTION, min_length=1, max_length=253)]
RowCount = Annotated[int, Field(ge=0, le=10**12)]


class BatchVolume(ApiModel):
    """File or folder on a PersistentVolumeClaim in the namespace of the BatchInference."""

    claim_name: DnsName
    """Name of the PersistentVolumeClaim that contains the file or folder."""
    path: RelativePath
    """Path of the file or folder in the volume, for example `sets/2026/images.npz`."""


class BatchInput(ApiModel):
    """Data set that a BatchInference sends to the model, on a volume or in a bucket.

    Set exactly one of persistentVolumeClaim and uri.
    """

    persistent_volume_claim: BatchVolume | None = None
    """File or folder that contains the rows, on a volume. The volume is mounted read-only."""
    uri: BucketUri | None = None
    """URI of the file or folder that contains the rows, in a bucket. `s3://BUCKET/PATH`: any S3-compatible store.
    `gs://BUCKET/PATH`: Google Cloud Storage. `az://CONTAINER/PATH`, with `endpoint`: Azure Blob Storage. The runner
    first copies the file or folder to the node's disk."""
    credentials: BatchCredentials | None = None
    """Credentials for the bucket, which must allow reading and listing. Only with `uri`. Default: none; unsigned
    requests."""
    endpoint: StoreEndpoint | None = None
    """URL of the store that has the bucket, for example `https://minio.storage.svc:9000`. Required for `az://`, with
    the storage account as the first part of the host. Only with `uri`. Default: AWS for `s3://`, Google Cloud Storage
    for `gs://`."""
    region: StoreRegion | None = None
    """Region of the S3 bucket. Only for `s3://`. Default: us-east-1."""
    size_limit: quantity_field("1Mi", "2Ti") | None = None  # type: ignore[valid-type]
    """Maximum size (1Mi to 2Ti) of a data set in a bucket. The runner's copy may use this much disk space on the node.
    Only with `uri`. Default: 20Gi."""
    format: Literal["Npz", "Jsonl", "Parquet", "Folder"] | None = None
    """Format of the data set. Npz: an archive with one array per input; the first dimension of each array is the row.
    Jsonl: one JSON value per line, either an object with the values by input, or the value of the only input. Parquet:
    one column per input; the runner's image must contain pyarrow. Folder: one file per row, in the order of the paths.
    Default: the format that the name of the file or folder indicates."""

    rules: ClassVar = (
        *bucket_rules("spec.input", "input: {persistentVolumeClaim: {claimName: sets, path: 2026/images.npz}}"),
        Rule(
            cel="has(self.uri) || !has(self.sizeLimit)",
            check=lambda m: m.uri is not None or m.size_limit is None,
            message="spec.input.sizeLimit applies only to uri, because a volume isn't copied; remove sizeLimit",
        ),
    )


class BatchOutput(ApiModel):
    """Location and format of the results of a BatchInference, on a volume or in a bucket.

    Set exactly one of persistentVolumeClaim and uri.
    """

    persistent_volume_claim: BatchVolume | None = None
    """Folder for the results, on a volume. The folder is created if it does not exist. It must be empty, or contain
    only results of this BatchInference."""
    uri: BucketUri | None = None
    """URI of the folder for the results in a bucket, in the form of `input.uri`. The folder must contain no objects
    except results of this BatchInference."""
    credentials: BatchCredentials | None = None
    """Credentials for the bucket, which must allow listing, reading, writing and deleting. Only with `uri`. Default: none."""
    endpoint: StoreEndpoint | None = None
    """URL of the store that has the bucket, as in `input.endpoint`. Only with `uri`."""
    region: StoreRegion | None = None
    """Region of the S3 bucket. Only for `s3://`. Default: us-east-1."""
    format: Literal["Npz", "Jsonl"] | None = None
    """Format of the results. Default: Npz if the input is Npz, else Jsonl."""

    rules: ClassVar = bucket_rules(
        "spec.output", "output: {persistentVolumeClaim: {claimName: sets, path: results/night}}"
    )


class BatchHooks(ApiModel):
    """Python functions that convert rows into inputs (`prepare`) and outputs into results (`finish`).

    The functions have the same form as those of `halcyon bench`.
    """

    config_map: DnsName
    """Name of the ConfigMap that contains the Python files with the functions, in the same namespace."""
    prepare: Function | None = None
    """Function that receives one row and returns an array, or arrays by input. The row is the path of a file, arrays by
    name, or the JSON value of a line. Form: FILE.py:FUNCTION, for example `hooks.py:prepare`. Default: none; the rows
    are sent as inputs unchanged."""
    finish: Function | None = None
    """Function that receives the outputs of one row, by name, and returns the value to store. Form: FILE.py:FUNCTION.
    Default: none; the outputs are stored unchanged."""


class BatchInferenceSpec(ApiModel):
    """Desired state of a BatchInference: the model, the data set, the results, and the capacity for the batch."""

    model_deployment: DnsName
    """Name of the ModelDeployment that processes the rows, in the same namespace. It must have balancers
    (`traffic.mode: Balancer`)."""
    input: BatchInput
    """Data set to send to the model. If its content changes during the batch, the batch fails."""
    output: BatchOutput
    """Location of the files with results, and of a file that lists the rows without a result."""
    hooks: BatchHooks | None = None
    """Python functions that prepare the rows and process the outputs. Default: none."""
    rows_per_request: Annotated[int, Field(ge=1, le=4096)] | None = None
    """Number of rows (1 to 4096) in each request. Default: 1 if `gentle` is true or the model does not support
    batching; otherwise the runner chooses a number from the execution times of the first requests."""
    max_failures: Annotated[int, Field(ge=0, le=10**9)] = 100
    """Maximum number of rows without a result. If more rows have no result, the batch fails. To continue a failed
    batch, raise this number. Default: 100."""
    deadline: Annotated[Time, Field(json_schema_extra={"pattern": TIME})] | None = None
    """Time by which the batch should be complete, for example `2026-12-01T06:00:00Z`. If it is set, the autoscaler may
    add replicas for the batch. The autoscaler adds them within the GPU budget, and only after the replicas that users
    need. Default: none."""
    max_replicas: Annotated[int, Field(ge=0, le=1000)] | None = None
    """Maximum number of replicas that the autoscaler may add for the batch. Default: the model's maximum if `deadline`
    is set; otherwise 0."""
    at_zero: Literal["Wait", "Wake"] = "Wait"
    """Behavior of the batch while the model has 0 replicas. Wait: the batch waits until a user's request starts a
    replica. Wake: the autoscaler starts a replica for the batch once the runner's pod runs. Default: Wait."""
    gentle: bool = False
    """Whether the batch limits its requests so that the latency of users hardly changes. If false, the batch uses all
    the capacity that users leave free. Default: false."""
    suspend: bool = False
    """Whether the batch is paused, as with `suspend` of a Job. After it is resumed, rows whose results were not written
    yet are computed again. Default: false."""
    workers: Annotated[int, Field(ge=1, le=64)] = 1
    """Number of processes (1 to 64) that run the functions in `hooks`. Default: 1."""
    service_account_name: DnsName | None = None
    """Name of the ServiceAccount of the runner's pod. Its token is exchanged for temporary credentials if a bucket has
    `credentials.identity`. Default: `default`."""
    cpu: quantity_field("10m", "256") = "500m"  # type: ignore[valid-type]
    """CPU (10m to 256 cores) that the runner's pod requests. More `workers` need more CPU. Default: 500m."""
    memory: quantity_field("256Mi", "1Ti") = "1Gi"  # type: ignore[valid-type]
    """Memory request and memory limit of the runner's pod, 256Mi to 1Ti. Default: 1Gi."""

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
    """Condition types of a BatchInference. The text below each type is its entry in the reference."""

    COMPLETE = "Complete"
    """Every row has a result or is listed in the file of failures. While the condition is False, its reason shows what
    the batch is doing."""
    FAILED = "Failed"
    """The batch cannot continue until you make the change that the message describes. Present only while true."""
    SUSPENDED = "Suspended"
    """`spec.suspend` is true. Present only while true."""
    ON_TIME = "OnTime"
    """At the current rate, the batch will be complete before `spec.deadline`. Present only if a deadline is set, and
    only after the rate is known or the deadline has passed."""


class BatchReason(StrEnum):
    """Condition reasons of a BatchInference.

    The runner reports InputUnreadable and all reasons after it, in the Failed condition.
    """

    COMPLETED = "Completed"
    """Every row has a result or is listed in the file of failures."""
    RUNNING = "Running"
    """Rows of the data set are being processed."""
    PENDING = "Pending"
    """The runner's pod is not running yet, or has not responded to the operator yet. The message gives the cause."""
    WAITING = "Waiting"
    """The runner is waiting, for example until a server is ready. The message gives the last response of the model."""
    SUSPENDED = "Suspended"
    """`spec.suspend` is true."""
    FAILED = "Failed"
    """The batch has failed. The reason of the Failed condition gives the cause."""
    MODEL_NOT_FOUND = "ModelNotFound"
    """The namespace has no ModelDeployment with the name in `spec.modelDeployment`."""
    MODEL_UNSUITABLE = "ModelUnsuitable"
    """The model has no balancers, which give requests of users priority, or it accepts only TLS connections."""
    MODEL_STOPPED = "ModelStopped"
    """The model has 0 replicas, and nothing may start one."""
    POLICY_DENIED = "PolicyDenied"
    """The site policy doesn't allow a bucket, its endpoint, its Secret, the ServiceAccount or the Secret with the API
    keys of the model. The message names the field and the limit."""
    RUNNER_UNKNOWN = "RunnerUnknown"
    """The operator is configured without an image for the runner."""
    NAME_CONFLICT = "NameConflict"
    """The Job or NetworkPolicy for the runner cannot be created, because an object of another owner has its name. The
    message names the object."""
    RUNNER_FAILED = "RunnerFailed"
    """The runner's pod has failed too often. The message says how the pod ended the last time."""
    INVALID = "Invalid"
    """The spec of the BatchInference breaks a rule. The message names the rule."""
    DEADLINE_TOO_CLOSE = "DeadlineTooClose"
    """At the current rate, the batch will be complete only after its deadline. The message gives the required rate."""
    DEADLINE_MISSED = "DeadlineMissed"
    """The deadline of the batch has passed."""
    IN_TIME = "InTime"
    """At the current rate, the batch will be complete before its deadline."""
    INPUT_UNREADABLE = "InputUnreadable"
    """The data set doesn't exist, can't be read, or isn't in its declared format. The message gives the file or object,
    and the cause."""
    INPUT_EMPTY = "InputEmpty"
    """The data set has no rows."""
    INPUT_TOO_LARGE = "InputTooLarge"
    """The data set in a bucket is larger than `input.sizeLimit`."""
    INPUT_CHANGED = "InputChanged"
    """The data set has changed since the first rows were processed. The message gives the digests of the old and the
    new content. Restore the old content and resume the batch, or create a BatchInference with another output."""
    FORMAT_UNSUPPORTED = "FormatUnsupported"
    """The runner's image can't read the format of the data set, for example Parquet without pyarrow."""
    OUTPUT_EXISTS = "OutputExists"
    """The output folder contains other files, or the results of another BatchInference."""
    OUTPUT_UNWRITABLE = "OutputUnwritable"
    """The results can't be written, for example because of missing permissions. The message says what is needed."""
    OUTPUT_UNREADABLE = "OutputUnreadable"
    """A file of earlier results can't be read, or is damaged. The message names the file. Correct or remove it, then
    resume the batch."""
    OUTPUT_FULL = "OutputFull"
    """The volume for the results, or the quota of the bucket, has no space left. Results that are already written are
    kept. Enlarge the volume or the quota, then resume the batch."""
    OUTPUT_UNSUITABLE = "OutputUnsuitable"
    """The outputs of the model can't be stored in `output.format`, for example rows of different shapes as Npz."""
    RECIPE_CHANGED = "RecipeChanged"
    """The functions of `hooks`, or the model's name in requests, have changed since the first rows were processed."""
    FUNCTION_INVALID = "FunctionInvalid"
    """A file of `hooks` can't be loaded, or doesn't contain the function."""
    FUNCTION_ENDED = "FunctionEnded"
    """The process that runs a function of `hooks` has ended unexpectedly, for example because it ran out of memory."""
    TOO_MANY_FAILURES = "TooManyFailures"
    """More rows than `maxFailures` have no result. Raise `maxFailures` to resume the batch."""


class RowsStatus(ApiModel):
    """Number of rows of a BatchInference in each state."""

    total: RowCount
    """Number of rows in the input."""
    done: RowCount
    """Number of rows whose result is written."""
    failed: RowCount
    """Number of rows without a result, which are listed in the file of failures."""


class BatchInferenceStatus(ApiModel):
    """Observed state of a BatchInference."""

    observed_generation: int | None = None
    """Generation of the spec to which this status refers; 0 until the operator has processed the object."""
    conditions: Annotated[tuple[ConditionStatus, ...], Field(max_length=8), ListMap(("type",))] | None = None
    """Conditions of the BatchInference. Complete is always present; the others are present only while they apply."""
    rows: RowsStatus | None = None
    """Number of rows in each state; absent until the input has been read."""
    progress: Short | None = None
    """Rows done or failed, out of all rows of the data set, for example `61000/200000`."""
    rate: Short | None = None
    """Mean number of rows per second over at most the last two minutes; absent if unknown."""
    eta: Time | None = None
    """Time at which the batch will be complete at the current rate; absent if unknown."""
    rows_per_request: Annotated[int, Field(ge=1, le=65536)] | None = None
    """Number of rows in each request; absent until it is chosen."""
    completion_time: Time | None = None
    """Time at which the batch became complete."""
