"""`spec.runtime`: the Triton container of a server pod, and the placement of such pods."""

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
    """GPUs of each server pod."""

    count: Annotated[int, Field(ge=0, le=16)] = 1
    """Number of whole GPUs per pod (`nvidia.com/gpu`), 0 to 16. With 0 the model runs on CPU. Default: 1."""


class Resources(Documented):
    """CPU and memory of the Triton container.

    Memory is both the request and the limit; CPU is a request only.
    """

    cpu: Quantity | None = None
    """CPU request, for example `500m` or `4`. Default: none."""
    memory: Quantity | None = None
    """Memory request and limit, for example `8Gi`. /dev/shm counts against it. Default: none."""


class SecretKey(Documented):
    """A key of a Secret in the same namespace; the kubelet reads it, the operator never does."""

    name: DnsName
    """Name of the Secret."""
    key: Key
    """Key in the Secret."""


_FORBIDDEN_ENV = "(LD_|NVIDIA_|CUDA_|KUBERNETES_|AIP_|PYTHON).*"


class EnvVar(Documented):
    """An environment variable of the Triton container: a value, or a key of a Secret."""

    name: Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,127}$", max_length=128)]
    """Name of the variable. Names that begin with LD_, NVIDIA_, CUDA_, KUBERNETES_, AIP_ or PYTHON are rejected,
    because these change the container and not the model."""
    value: Text | None = None
    """Plain value, 4096 characters at most."""
    secret_key_ref: SecretKey | None = None
    """Key of a Secret in the same namespace that holds the value. The kubelet reads it; the operator never does."""

    rules: ClassVar = (
        exactly_one("value", "secretKeyRef", where="an entry of spec.runtime.env", good="{name: MODE, value: fast}"),
        Rule(
            cel="!(" + " || ".join(f"self.name.startsWith('{p}')" for p in _FORBIDDEN_ENV[1:-3].split("|")) + ")",
            check=lambda m: not m.name.startswith(tuple(_FORBIDDEN_ENV[1:-3].split("|"))),
            message=(
                "spec.runtime.env: {name} is a reserved name; names must not start with LD_, NVIDIA_, CUDA_, "
                "KUBERNETES_, AIP_ or PYTHON; for example MODEL_MODE"
            ),
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
    """Comparison with the taint: `Equal` requires the same value, `Exists` accepts any value. Default: Equal."""
    value: LabelValue | None = None
    """Value of the taint. Only for operator `Equal`."""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = None
    """Effect of the taint. Default: every effect."""

    rules: ClassVar = (
        Rule(
            cel="self.operator != 'Exists' || !has(self.value)",
            check=lambda m: m.operator != "Exists" or m.value is None,
            message=(
                "spec.runtime.placement.tolerations: {key} has operator Exists and a value; remove the "
                "value, or set operator: Equal"
            ),
        ),
    )


class Placement(Documented):
    """Placement of the server pods.

    Pods with a GPU always tolerate the taint `nvidia.com/gpu`.
    """

    node_selector: Annotated[dict[LabelKey, LabelValue], Field(min_length=1, max_length=32)] | None = None
    """Labels that a node must have, for example `pool: gpu`. Default: none."""
    tolerations: Annotated[tuple[Toleration, ...], Field(min_length=1, max_length=16)] | None = None
    """Taints that the pods tolerate. Default: none."""
    priority_class_name: DnsName | None = None
    """Priority class of the pods. Default: that of the cluster."""
    runtime_class_name: DnsName | None = None
    """Runtime class of the pods, for example `nvidia`. Default: that of the nodes."""


class Runtime(Documented):
    """The Triton container of the server pods, and their placement."""

    image: Image | None = None
    """Triton image. Default: the operator's default image; `status.runtimeImage` shows it."""
    image_pull_secrets: (
        Annotated[tuple[ImagePullSecret, ...], Field(min_length=1, max_length=8), ListMap(("name",))] | None
    ) = None
    """Secrets for pulling the Triton image, and the image of a model whose source is an image. Default: none."""
    gpu: Gpu = Gpu()
    """GPUs of each server pod."""
    resources: Resources = Resources()
    """CPU and memory of the Triton container in each server pod. Memory is both the request and the limit; CPU is a
    request only."""
    instances_per_gpu: Annotated[Annotated[int, Field(ge=1, le=64)] | None, Field(alias="instancesPerGPU")] = None
    """Number of model instances per GPU (per pod on CPU), 1 to 64. Default: the model's config.pbtxt decides."""
    env: Annotated[tuple[EnvVar, ...], Field(min_length=1, max_length=64), ListMap(("name",))] | None = None
    """Environment variables of the Triton container. Default: none."""
    shared_memory: Quantity = "256Mi"
    """Size of /dev/shm, which is backed by memory. It counts against resources.memory and, if that is set, must be
    smaller than it. The Python backend passes tensors through /dev/shm. Default: 256Mi."""
    placement: Placement = Placement()
    """Placement of the server pods. Pods with a GPU always tolerate the taint `nvidia.com/gpu`."""
    startup_timeout: duration_field("10s", "24h") = "10m"  # type: ignore[valid-type]
    """Maximum time from the start of a pod until its model is ready, 10s to 24h. The progress deadline of a rollout is
    one minute longer. Default: 10m."""

    rules: ClassVar = (
        Rule(
            cel="!has(self.resources.memory) || "
            "quantity(self.sharedMemory).compareTo(quantity(self.resources.memory)) < 0",
            check=lambda m: m.resources.memory is None or quantity(m.shared_memory) < quantity(m.resources.memory),
            message=(
                "spec.runtime.sharedMemory is {sharedMemory}; it counts towards "
                "spec.runtime.resources.memory, which is {resources.memory}, and must be smaller; for "
                "example resources: {{memory: 4Gi}}, sharedMemory: 1Gi"
            ),
        ),
    )
