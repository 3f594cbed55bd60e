"""`spec.runtime`: the Triton container of a server pod, and where such pods may run."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field, StringConstraints

from halcyon.api.spec.fields import Documented, exactly_one
from halcyon.api.types import (
    DnsName,
    Image,
    Key,
    LabelKey,
    LabelValue,
    ListMap,
    Quantity,
    Rule,
    Text,
    duration_field,
    quantity,
)


class Gpu(Documented):
    """The GPUs of one pod."""

    count: Annotated[int, Field(ge=0, le=16)] = 1
    """Whole GPUs per pod (`nvidia.com/gpu`); 0 runs the model on CPU."""


class Resources(Documented):
    """CPU and memory of the Triton container. Memory is request and limit alike; CPU is a request only."""

    cpu: Quantity | None = None
    """CPU request, for example `500m` or `4`."""
    memory: Quantity | None = None
    """Memory request and limit, for example `8Gi`. /dev/shm counts against it."""


class SecretKey(Documented):
    """A key of a Secret in the same namespace; the kubelet reads it, the operator never does."""

    name: DnsName
    """Name of the Secret."""
    key: Key
    """Key inside it."""


_FORBIDDEN_ENV = "(LD_|NVIDIA_|CUDA_|KUBERNETES_|AIP_|PYTHON).*"


class EnvVar(Documented):
    """An environment variable of the Triton container: a value or a Secret's key."""

    name: Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,127}$", max_length=128)]
    """Name. LD_*, NVIDIA_*, CUDA_*, KUBERNETES_*, AIP_* and PYTHON* are refused: they change what the container is, not
    what the model does."""
    value: Text | None = None
    """Plain value."""
    secret_key_ref: SecretKey | None = None
    """Value from a key of a Secret in the same namespace; the kubelet reads it, the operator never does."""

    rules: ClassVar = (
        exactly_one("value", "secretKeyRef", where="an entry of spec.runtime.env", good="{name: MODE, value: fast}"),
        Rule(
            cel="!(" + " || ".join(f"self.name.startsWith('{p}')" for p in _FORBIDDEN_ENV[1:-3].split("|")) + ")",
            check=lambda m: not m.name.startswith(tuple(_FORBIDDEN_ENV[1:-3].split("|"))),
            message="spec.runtime.env: {name} is reserved: names must not start with LD_, NVIDIA_, CUDA_, KUBERNETES_, "
            "AIP_ or PYTHON; use for example MODEL_MODE",
        ),
    )


class ImagePullSecret(Documented):
    """A Secret that holds registry credentials."""

    name: DnsName
    """Name of the Secret."""


class Toleration(Documented):
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


class Placement(Documented):
    """Where the pods may run. GPU pods always tolerate the taint `nvidia.com/gpu`."""

    node_selector: Annotated[dict[LabelKey, LabelValue], Field(min_length=1, max_length=32)] | None = None
    """Labels that a node must have."""
    tolerations: Annotated[tuple[Toleration, ...], Field(min_length=1, max_length=16)] | None = None
    """Taints that the pods tolerate."""
    priority_class_name: DnsName | None = None
    """Priority class of the pods."""
    runtime_class_name: DnsName | None = None
    """Runtime class of the pods, for example `nvidia`."""


class Runtime(Documented):
    """How Triton runs."""

    image: Image | None = None
    """Triton image; the operator's default where it is left out."""
    image_pull_secrets: (
        Annotated[tuple[ImagePullSecret, ...], Field(min_length=1, max_length=8), ListMap(("name",))] | None
    ) = None
    """Secrets for pulling the image, and that of a model which is one."""
    gpu: Gpu = Gpu()
    """GPUs of one pod."""
    resources: Resources = Resources()
    """CPU and memory of the Triton container of one pod. Memory is request and limit alike; CPU is a request only."""
    instances_per_gpu: Annotated[Annotated[int, Field(ge=1, le=64)] | None, Field(alias="instancesPerGPU")] = None
    """Model instances per GPU (per pod on CPU); the model's own config.pbtxt decides where it is left out."""
    env: Annotated[tuple[EnvVar, ...], Field(min_length=1, max_length=64), ListMap(("name",))] | None = None
    """Environment variables."""
    shared_memory: Quantity = "256Mi"
    """Size of /dev/shm (memory-backed). The Python backend passes tensors through it."""
    placement: Placement = Placement()
    """Where the pods may run. GPU pods always tolerate the taint `nvidia.com/gpu`."""
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
