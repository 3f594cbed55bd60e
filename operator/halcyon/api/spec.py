"""`spec` of a ModelDeployment: every field, its default, its bounds, and the rules between fields.

The docstring under a field is its description in the CRD and in the reference page. A default that a later version may
improve (image, actuator, targets) is not stored by the schema: `halcyon.api.defaults` resolves it, and status shows it.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, ConfigDict, Field, StringConstraints

from halcyon.api.types import (
    DnsName,
    Image,
    Key,
    LabelKey,
    LabelValue,
    ListMap,
    ListSet,
    Model,
    ModelName,
    Quantity,
    RelativePath,
    Rule,
    Text,
    duration_field,
    quantity,
)


class _Documented(Model):
    model_config = ConfigDict(use_attribute_docstrings=True)


def _exactly_one(*names: str, where: str, good: str) -> Rule:
    attributes = {name: "".join("_" + c.lower() if c.isupper() else c for c in name) for name in names}
    return Rule(
        cel=f"[{', '.join(f'has(self.{n})' for n in names)}].filter(x, x).size() == 1",
        check=lambda m: sum(getattr(m, a) is not None for a in attributes.values()) == 1,
        message=f"{where} needs exactly one of {', '.join(names)}; for example "
        + good.replace("{", "{{").replace("}", "}}"),
    )


class ConfigMapItem(_Documented):
    """One file of a model that lies in a ConfigMap."""

    key: Key
    """Key in the ConfigMap's data or binaryData."""
    path: RelativePath
    """Where the file belongs in the model's folder, for example `1/model.onnx` or `config.pbtxt`."""


class ConfigMapSource(_Documented):
    """A model in a ConfigMap of the same namespace (1 MiB at most)."""

    name: DnsName
    """Name of the ConfigMap."""
    items: Annotated[tuple[ConfigMapItem, ...], Field(min_length=1, max_length=64), ListMap(("path",))]
    """Which key becomes which file of the model's folder."""


class PersistentVolumeClaimSource(_Documented):
    """A model on a PersistentVolumeClaim of the same namespace, mounted read-only."""

    claim_name: DnsName
    """Name of the claim."""
    path: RelativePath | None = None
    """Folder of the model inside the volume (the one that holds `config.pbtxt` and the version folders); the volume's
    root where it is left out."""


class Source(_Documented):
    """Where the model comes from: exactly one of the kinds."""

    config_map: ConfigMapSource | None = None
    """Small models, from a ConfigMap. Its content is part of the revision: a change rolls the servers."""
    persistent_volume_claim: PersistentVolumeClaimSource | None = None
    """Models on a shared or pre-filled volume."""

    rules: ClassVar = (
        _exactly_one(
            "configMap",
            "persistentVolumeClaim",
            where="spec.model.source",
            good="source: {persistentVolumeClaim: {claimName: models, path: resnet50}}",
        ),
    )


def _no_number(value: Any) -> Any:  # any JSON value
    # To pydantic 1 is one of Literal[True].
    if not isinstance(value, bool):
        raise ValueError("Input should be true")  # noqa: TRY004  # pydantic takes no TypeError for a refusal
    return value


class Versions(_Documented):
    """Which of the model's version folders are served: exactly one of the policies."""

    latest: Annotated[int, Field(ge=1, le=100)] | None = None
    """The n highest version numbers."""
    specific: (
        Annotated[tuple[Annotated[int, Field(ge=1, le=2**31 - 1)], ...], Field(min_length=1, max_length=32), ListSet()]
        | None
    ) = None
    """These version numbers."""
    all: Annotated[Literal[True], BeforeValidator(_no_number)] | None = None
    """Every version folder."""

    rules: ClassVar = (
        _exactly_one("latest", "specific", "all", where="spec.model.versions", good="versions: {latest: 1}"),
    )


DataType = Literal[
    "BOOL", "UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16", "INT32", "INT64", "FP16", "BF16", "FP32", "FP64", "STRING"
]  # fmt: skip


class WarmupInput(_Documented):
    """One input tensor of a warm-up request."""

    name: ModelName
    """Name of the input."""
    data_type: DataType
    """Triton's data type, without the prefix `TYPE_`."""
    dims: Annotated[tuple[Annotated[int, Field(ge=1, le=65536)], ...], Field(max_length=8)]
    """Shape of one row: without the batch dimension, every dimension fixed."""


class Warmup(_Documented):
    """Requests that Triton runs before a pod takes traffic, so that the first client doesn't pay for lazy set-up."""

    batch_sizes: (
        Annotated[tuple[Annotated[int, Field(ge=1, le=4096)], ...], Field(min_length=1, max_length=8), ListSet()] | None
    ) = None
    """Batch sizes to run, in rows. Left out: 1 and the model's maximum, which is also how its capacity becomes known."""
    iterations: Annotated[int, Field(ge=1, le=100)] = 2
    """How often each batch size runs. The very first execution is an outlier, so 2 is the least that measures."""
    data: Literal["Zero", "Random"] = "Zero"
    """What the tensors hold."""
    inputs: Annotated[tuple[WarmupInput, ...], Field(min_length=1, max_length=32), ListMap(("name",))] | None = None
    """Inputs of the requests. Left out: those of the model's own config.pbtxt, with 1 for each variable dimension."""


class ModelSpec(_Documented):
    """What is served."""

    name: ModelName | None = None
    """Name that clients use in requests; the ModelDeployment's name where it is left out."""
    source: Source
    """Where the model comes from."""
    revision: Annotated[str, Field(max_length=63)] | None = None
    """Free text. A change rolls the servers: the way to say that the content of a volume has changed."""
    versions: Versions | None = None
    """Which version folders are served; Triton's default (the highest) or the model's own policy where it is left out."""
    backend: Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]{0,62}$", max_length=63)] | None = None
    """Triton backend, for models whose config.pbtxt doesn't name one, for example `onnxruntime`, `python` or `tensorrt`."""
    parameters: Annotated[dict[Key, Annotated[str, Field(max_length=1024)]], Field(max_length=64)] | None = None
    """Parameters of the model's configuration; they override the model's own of the same name."""
    warmup: Warmup | None = None
    """Warm-up before a pod takes traffic; none where it is left out."""


class Gpu(_Documented):
    """The GPUs of one pod."""

    count: Annotated[int, Field(ge=0, le=16)] = 1
    """Whole GPUs per pod (`nvidia.com/gpu`); 0 runs the model on CPU."""


class Resources(_Documented):
    """CPU and memory of the Triton container. Memory is request and limit alike; CPU is a request only."""

    cpu: Quantity | None = None
    """CPU request, for example `500m` or `4`."""
    memory: Quantity | None = None
    """Memory request and limit, for example `8Gi`. /dev/shm counts against it."""


class SecretKey(_Documented):
    """A key of a Secret in the same namespace; the kubelet reads it, the operator never does."""

    name: DnsName
    """Name of the Secret."""
    key: Key
    """Key inside it."""


_FORBIDDEN_ENV = "(LD_|NVIDIA_|CUDA_|KUBERNETES_|AIP_|PYTHON).*"


class EnvVar(_Documented):
    """An environment variable of the Triton container: a value or a Secret's key."""

    name: Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,127}$", max_length=128)]
    """Name. LD_*, NVIDIA_*, CUDA_*, KUBERNETES_*, AIP_* and PYTHON* are refused: they change what the container is, not
    what the model does."""
    value: Text | None = None
    """Plain value."""
    secret_key_ref: SecretKey | None = None
    """Value from a Secret."""

    rules: ClassVar = (
        _exactly_one("value", "secretKeyRef", where="an entry of spec.runtime.env", good="{name: MODE, value: fast}"),
        Rule(
            cel="!(" + " || ".join(f"self.name.startsWith('{p}')" for p in _FORBIDDEN_ENV[1:-3].split("|")) + ")",
            check=lambda m: not m.name.startswith(tuple(_FORBIDDEN_ENV[1:-3].split("|"))),
            message="spec.runtime.env: {name} is reserved: names must not start with LD_, NVIDIA_, CUDA_, KUBERNETES_, "
            "AIP_ or PYTHON; use for example MODEL_MODE",
        ),
    )


class ImagePullSecret(_Documented):
    """A Secret that holds registry credentials."""

    name: DnsName
    """Name of the Secret."""


class Toleration(_Documented):
    """A taint that the pods tolerate."""

    key: LabelKey
    """Key of the taint."""
    operator: Literal["Exists", "Equal"] = "Equal"
    """Whether the value counts."""
    value: LabelValue | None = None
    """Value of the taint, for `Equal`."""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = None
    """Effect of the taint; every one where it is left out."""

    rules: ClassVar = (
        Rule(
            cel="self.operator != 'Exists' || !has(self.value)",
            check=lambda m: m.operator != "Exists" or m.value is None,
            message="spec.runtime.placement.tolerations: {key} has operator Exists and a value; "
            "leave the value out, or use operator Equal",
        ),
    )


class Placement(_Documented):
    """Where the pods may run. GPU pods always tolerate the taint `nvidia.com/gpu`."""

    node_selector: Annotated[dict[LabelKey, LabelValue], Field(min_length=1, max_length=32)] | None = None
    """Labels that a node must have."""
    tolerations: Annotated[tuple[Toleration, ...], Field(min_length=1, max_length=16)] | None = None
    """Taints that the pods tolerate."""
    priority_class_name: DnsName | None = None
    """Priority class of the pods."""
    runtime_class_name: DnsName | None = None
    """Runtime class of the pods, for example `nvidia`."""


class Runtime(_Documented):
    """How Triton runs."""

    image: Image | None = None
    """Triton image; the operator's default where it is left out."""
    image_pull_secrets: (
        Annotated[tuple[ImagePullSecret, ...], Field(min_length=1, max_length=8), ListMap(("name",))] | None
    ) = None
    """Secrets for pulling the image."""
    gpu: Gpu = Gpu()
    """GPUs of one pod."""
    resources: Resources = Resources()
    """CPU and memory of one pod."""
    instances_per_gpu: Annotated[Annotated[int, Field(ge=1, le=64)] | None, Field(alias="instancesPerGPU")] = None
    """Model instances per GPU (per pod on CPU); the model's own config.pbtxt decides where it is left out."""
    env: Annotated[tuple[EnvVar, ...], Field(min_length=1, max_length=64), ListMap(("name",))] | None = None
    """Environment variables."""
    shared_memory: Quantity = "256Mi"
    """Size of /dev/shm (memory-backed). The Python backend passes tensors through it."""
    placement: Placement = Placement()
    """Where the pods may run."""
    startup_timeout: duration_field("10s", "24h") = "10m"  # type: ignore[valid-type]
    """How long a pod may take from its start until the model is ready; the rollout's deadline follows it."""

    rules: ClassVar = (
        Rule(
            cel="!has(self.resources.memory) || "
            "quantity(self.sharedMemory).compareTo(quantity(self.resources.memory)) < 0",
            check=lambda m: m.resources.memory is None or quantity(m.shared_memory) < quantity(m.resources.memory),
            message="spec.runtime.sharedMemory is {sharedMemory}; it counts against spec.runtime.resources.memory, which is "
            "{resources.memory}, and must be smaller; for example resources: {{memory: 4Gi}}, sharedMemory: 1Gi",
        ),
    )


class Batching(_Documented):
    """Triton's dynamic batching. Present: it is on. Left out: the model's own config.pbtxt decides."""

    max_batch_size: Annotated[int, Field(ge=1, le=65536)] | None = None
    """Most rows in one batch; the model's own max_batch_size where it is left out."""
    max_queue_delay: duration_field("0us", "1m") | None = None  # type: ignore[valid-type]
    """How long Triton waits for a fuller batch; the model's own delay, or none, where it is left out. 0us still batches
    under load."""
    preferred_batch_sizes: (
        Annotated[tuple[Annotated[int, Field(ge=1, le=65536)], ...], Field(min_length=1, max_length=16), ListSet()]
        | None
    ) = None
    """Batch sizes to form at once when they can be, in rows; the model's own where they are left out. Only for models that
    are faster at certain sizes."""
    preserve_ordering: bool | None = None
    """Answer in the order of arrival, also with several instances; as the model's own says where it is left out."""

    rules: ClassVar = (
        Rule(
            cel="!has(self.maxBatchSize) || !has(self.preferredBatchSizes) || "
            "self.preferredBatchSizes.all(n, n <= self.maxBatchSize)",
            check=lambda m: (
                m.max_batch_size is None
                or m.preferred_batch_sizes is None
                or all(n <= m.max_batch_size for n in m.preferred_batch_sizes)
            ),
            message="spec.batching.preferredBatchSizes is {preferredBatchSizes} and has a size above "
            "spec.batching.maxBatchSize, which is {maxBatchSize}; for example maxBatchSize: 16, preferredBatchSizes: [8, 16]",
        ),
    )


class ScalingPolicy(_Documented):
    """One limit on the pace of scaling, as in the HPA."""

    type: Literal["Pods", "Percent"]
    """Whether value counts pods or percent of the current count."""
    value: Annotated[int, Field(ge=1, le=100000)]
    """How much may change within the period."""
    period_seconds: Annotated[int, Field(ge=1, le=1800)]
    """Length of the period, in seconds."""


class ScalingRules(_Documented):
    """Limits on scaling in one direction, as in the HPA."""

    stabilization_window_seconds: Annotated[int, Field(ge=0, le=3600)] | None = None
    """Window, in seconds, whose most cautious recommendation counts. HPA's defaults: 0 up, 300 down."""
    select_policy: Literal["Max", "Min", "Disabled"] | None = None
    """Which of the policies counts; Max where it is left out."""
    policies: Annotated[tuple[ScalingPolicy, ...], Field(min_length=1, max_length=8)] | None = None
    """The policies. HPA's defaults: up 4 pods or 100 % in 15 s, down 100 % in 15 s."""


class Behavior(_Documented):
    """Pace of scaling in both directions; the HPA's own type and defaults."""

    scale_up: ScalingRules | None = None
    """Limits on the way up."""
    scale_down: ScalingRules | None = None
    """Limits on the way down."""


class Targets(_Documented):
    """What one replica should carry. The count follows whichever asks for more."""

    queue_depth: Annotated[int, Field(ge=1, le=1000000)] | None = None
    """Waiting requests per replica (balancer and Triton together). Left out: the requests that fill one batch of every
    instance, maxBatchSize x instances."""
    gpu_utilization: Annotated[int, Field(ge=1, le=100)] | None = None
    """GPU utilisation of a replica, in percent. Left out: 80 where pods have a GPU."""


class Scaling(_Documented):
    """How the number of replicas follows the load. Left out: spec.replicas is the count."""

    min_replicas: Annotated[int, Field(ge=1, le=1000)] = 1
    """Least replicas."""
    max_replicas: Annotated[int, Field(ge=1, le=1000)]
    """Most replicas."""
    policy: Literal["Rules"] | None = None
    """What decides. `Rules`: queue depth and GPU utilisation against their targets."""
    actuator: Literal["Auto", "HPA", "Direct"] | None = None
    """What writes the count. `Auto` (the default): a HorizontalPodAutoscaler where Halcyon serves the cluster's external
    metrics, else `Direct`: the operator applies the same rules itself."""
    targets: Targets = Targets()
    """What one replica should carry."""
    behavior: Behavior | None = None
    """Pace of scaling."""

    rules: ClassVar = (
        Rule(
            cel="self.minReplicas <= self.maxReplicas",
            check=lambda m: m.min_replicas <= m.max_replicas,
            message="spec.scaling.minReplicas is {minReplicas} and must not be above spec.scaling.maxReplicas, which is "
            "{maxReplicas}; for example minReplicas: 1, maxReplicas: 8",
        ),
    )


class Traffic(_Documented):
    """How requests reach the servers."""

    balancer_replicas: Annotated[int, Field(ge=1, le=10)] = 2
    """Balancer pods. With 1, its restart interrupts traffic."""
    queue_limit: Annotated[int, Field(ge=1, le=100000)] = 200
    """Most requests that wait in one balancer pod, HTTP and gRPC together; above it, 429 or RESOURCE_EXHAUSTED."""
    request_timeout: duration_field("10ms", "1h") = "1m"  # type: ignore[valid-type]
    """Longest time that a request may wait in a balancer, and then take in a server."""
    drain: duration_field("1s", "1h") = "30s"  # type: ignore[valid-type]
    """Time for requests in flight to end when a server stops. The grace period follows it."""


class Spec(_Documented):
    """What the user wants."""

    replicas: Annotated[int, Field(ge=0, le=1000)] = 1
    """Number of server pods. Without `scaling` yours to set (`kubectl scale`); with it, written by the actuator."""
    model: ModelSpec
    """What is served."""
    runtime: Runtime = Runtime()
    """How Triton runs."""
    batching: Batching | None = None
    """Dynamic batching."""
    scaling: Scaling | None = None
    """How the number of replicas follows the load."""
    traffic: Traffic = Traffic()
    """How requests reach the servers."""

    rules: ClassVar = (
        Rule(
            cel="!has(self.scaling) || !has(self.scaling.targets.gpuUtilization) || self.runtime.gpu.count > 0",
            check=lambda m: m.scaling is None or m.scaling.targets.gpu_utilization is None or m.runtime.gpu.count > 0,
            message="spec.scaling.targets.gpuUtilization is set and spec.runtime.gpu.count is {runtime.gpu.count}: there is no "
            "GPU to measure; set gpu: {{count: 1}} or remove the target",
        ),
    )
