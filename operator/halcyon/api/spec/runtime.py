"""`spec.runtime`: the Triton container of a server pod, and the placement of such pods."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field, StringConstraints

from halcyon.api.spec.gpu import Gpu
from halcyon.api.spec.placement import ServerPlacement
from halcyon.api.spec.server_settings import RULES as SERVER_RULES
from halcyon.api.spec.server_settings import ServerSettings
from halcyon.api.types import (
    GROUP,
    ApiModel,
    AtomicMap,
    DnsName,
    Image,
    Key,
    LabelKey,
    LabelValue,
    ListMap,
    Rule,
    Text,
    duration_field,
    exactly_one,
    quantity,
    quantity_cel,
    quantity_field,
)


class ResourceList(ApiModel):
    """Amounts of CPU, memory and ephemeral storage."""

    cpu: quantity_field("1m", "10k") | None = None  # type: ignore[valid-type]
    """Amount of CPU, 1m to 10k cores, for example `500m` or `4`. Default: none."""
    memory: quantity_field("1Mi", "100Ti") | None = None  # type: ignore[valid-type]
    """Amount of memory, 1Mi to 100Ti, for example `8Gi`. It includes the content of /dev/shm. Default: none."""
    ephemeral_storage: Annotated[quantity_field("1Mi", "100Ti") | None, Field(alias="ephemeral-storage")] = None  # type: ignore[valid-type]
    """Amount of disk space on the node, 1Mi to 100Ti, for example `30Gi`. Logs, /tmp, the home directory and a
    downloaded model use it. Default: none."""


def _within_limit(attribute: str) -> Rule:
    name = attribute.replace("_", "-")
    path = attribute.replace("_", "__dash__") if "_" in attribute else attribute
    return Rule(
        cel=f"!has(self.requests) || !has(self.limits) || !has(self.requests.{path}) || !has(self.limits.{path}) || "
        f"{quantity_cel(f'self.requests.{path}')}.compareTo({quantity_cel(f'self.limits.{path}')}) <= 0",
        check=lambda m: (
            m.requests is None
            or m.limits is None
            or None in (getattr(m.requests, attribute), getattr(m.limits, attribute))
            or quantity(getattr(m.requests, attribute)) <= quantity(getattr(m.limits, attribute))
        ),
        message=f"spec.runtime.resources.requests.{name} is above spec.runtime.resources.limits.{name}; for example "
        "requests: {{cpu: 2, memory: 4Gi}}, limits: {{memory: 8Gi}}",
    )


class Resources(ApiModel):
    """Resource requests and limits of the Triton container, as in a pod."""

    requests: ResourceList | None = None
    """Resources that the scheduler reserves on the node. Default: the same as `limits`, or else none."""
    limits: ResourceList | None = None
    """Maximum resources that the container may use. The container is throttled at its CPU limit, and killed above its
    memory limit. The pod is evicted above its limit of ephemeral storage. Each model instance gets as many threads as its
    share of the CPU limit. Default: none."""

    rules: ClassVar = tuple(_within_limit(attribute) for attribute in ("cpu", "memory", "ephemeral_storage"))


class SecretKey(ApiModel):
    """A key of a Secret in the same namespace; the kubelet reads it, the operator never does."""

    name: DnsName
    """Name of the Secret."""
    key: Key
    """Key in the Secret."""
    optional: bool | None = None
    """Whether the pod starts without the variable if the Secret or the key does not exist. Default: false."""


class ConfigMapKey(ApiModel):
    """A key of a ConfigMap in the same namespace."""

    name: DnsName
    """Name of the ConfigMap."""
    key: Key
    """Key in the ConfigMap."""
    optional: bool | None = None
    """Whether the pod starts without the variable if the ConfigMap or the key does not exist. Default: false."""


class FieldReference(ApiModel):
    """Field of the pod from which an environment variable takes its value."""

    field_path: Annotated[
        str,
        StringConstraints(
            pattern=r"^(metadata\.(name|namespace|uid|(labels|annotations)\['[-A-Za-z0-9_./]+'\])|"
            r"spec\.(nodeName|serviceAccountName)|status\.(hostIP|hostIPs|podIP|podIPs))$",
            max_length=400,
        ),
    ]
    """Path of the field, for example `metadata.name` or `spec.nodeName`."""


class EnvVarSource(ApiModel):
    """Source of the value of an environment variable. Set exactly one of these fields."""

    secret_key_ref: SecretKey | None = None
    """Key of a Secret in the same namespace. The kubelet reads it; the operator never does."""
    config_map_key_ref: ConfigMapKey | None = None
    """Key of a ConfigMap in the same namespace. Changes to the ConfigMap take effect when the pod restarts."""
    field_ref: FieldReference | None = None
    """Field of the pod that holds the value, for example the pod's name."""

    rules: ClassVar = (
        exactly_one(
            "secretKeyRef",
            "configMapKeyRef",
            "fieldRef",
            subject="valueFrom of an entry of spec.runtime.env",
            example="valueFrom: {secretKeyRef: {name: store, key: token}}",
        ),
    )


RESERVED_ENV = ("LD_", "NVIDIA_", "CUDA_", "KUBERNETES_", "AIP_", "PYTHONPATH", "PYTHONHOME", "PYTHONSTARTUP")
"""Prefixes of environment variables that change the container and not the model."""
_RESERVED_CEL = " || ".join(f"{{0}}.startsWith('{prefix}')" for prefix in RESERVED_ENV)
_RESERVED_TEXT = f"must not start with {', '.join(RESERVED_ENV[:-1])} or {RESERVED_ENV[-1]}"


class EnvVar(ApiModel):
    """One environment variable of the Triton container, as in a pod spec. Set exactly one of value and valueFrom."""

    name: Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,127}$", max_length=128)]
    """Name of the environment variable. Names that begin with LD_, NVIDIA_, CUDA_, KUBERNETES_, AIP_, PYTHONPATH,
    PYTHONHOME or PYTHONSTARTUP are rejected, because they affect the container instead of the model."""
    value: Text | None = None
    """Value as plain text, at most 4096 characters. Default: none."""
    value_from: EnvVarSource | None = None
    """Source of the value: a key of a Secret or of a ConfigMap, or a field of the pod. Default: none."""

    rules: ClassVar = (
        exactly_one("value", "valueFrom", subject="an entry of spec.runtime.env", example="{name: MODE, value: fast}"),
        Rule(
            cel=f"!({_RESERVED_CEL.format('self.name')})",
            check=lambda m: not m.name.startswith(RESERVED_ENV),
            message=f"spec.runtime.env: {{name}} is a reserved name; names {_RESERVED_TEXT}; for example MODEL_MODE",
        ),
    )


class EnvFromReference(ApiModel):
    """A Secret or a ConfigMap whose keys become environment variables."""

    name: DnsName
    """Name of the Secret or ConfigMap."""
    optional: bool | None = None
    """Whether the pod starts without the variables if the Secret or ConfigMap does not exist. Default: false."""


class EnvFrom(ApiModel):
    """A Secret or ConfigMap whose keys become environment variables. Set exactly one of secretRef and configMapRef."""

    prefix: Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,63}$", max_length=64)] | None = None
    """Prefix for the names of the variables, for example `MODEL_`. Prefixes that are reserved in `env`, such as
    NVIDIA_, are rejected. Default: none."""
    secret_ref: EnvFromReference | None = None
    """A Secret in the same namespace. The kubelet reads it; the operator never does. Default: none."""
    config_map_ref: EnvFromReference | None = None
    """A ConfigMap in the same namespace. Changes to the ConfigMap take effect when the pod restarts. Default: none."""

    rules: ClassVar = (
        exactly_one(
            "secretRef",
            "configMapRef",
            subject="an entry of spec.runtime.envFrom",
            example="{configMapRef: {name: settings}}",
        ),
        Rule(
            cel=f"!has(self.prefix) || !({_RESERVED_CEL.format('self.prefix')})",
            check=lambda m: not (m.prefix or "").startswith(RESERVED_ENV),
            message=f"spec.runtime.envFrom: {{prefix}} begins like a reserved name; prefixes {_RESERVED_TEXT}; for example MODEL_",
        ),
    )


class ImagePullSecret(ApiModel):
    """A Secret with credentials for a container registry."""

    name: DnsName
    """Name of the Secret."""


_OWN_KEYS = (f"{GROUP}/", "app.kubernetes.io/", "pod-template-hash")
"""Prefixes of label and annotation keys that are reserved for Halcyon, its selectors and Deployments."""


def _no_own_keys(field: str, attribute: str) -> Rule:
    """Return the rule that a map in `runtime`, such as podLabels, must contain no key that Halcyon reserves."""
    return Rule(
        cel=f"!has(self.{field}) || self.{field}.all(k, "
        + " && ".join(f"!k.startsWith('{own}')" for own in _OWN_KEYS)
        + ")",
        check=lambda m: not any(key.startswith(_OWN_KEYS) for key in getattr(m, attribute) or ()),
        message=f"spec.runtime.{field} has a key that Halcyon itself sets; keys must not start with {', '.join(_OWN_KEYS)}; "
        "for example team.example.com/cost-center",
    )


class Runtime(ApiModel):
    """Settings of the server pods: Triton container, resources, GPUs and placement."""

    image: Image | None = None
    """Triton image of the server pods. `status.runtimeImage` shows the image in use. Default: the operator's default
    image."""
    image_pull_secrets: (
        Annotated[tuple[ImagePullSecret, ...], Field(min_length=1, max_length=8), ListMap(("name",))] | None
    ) = None
    """Secrets for pulling the Triton image and, if `model.source.image` is set, the model image. Default: none."""
    gpu: Annotated[Gpu, AtomicMap()] | None = None
    """GPUs of each server pod, for example `gpu: {count: 1}`. Default: none; the model runs on CPU."""
    resources: Resources = Resources.defaults()
    """CPU, memory and ephemeral storage of the Triton container, as requests and limits. GPUs are set in `gpu`."""
    instances_per_gpu: Annotated[Annotated[int, Field(ge=1, le=64)] | None, Field(alias="instancesPerGPU")] = None
    """Number of instances (1 to 64) of the model on each GPU, or in each pod if the model runs on CPU. Default: the
    number in the model's config.pbtxt."""
    env: Annotated[tuple[EnvVar, ...], Field(min_length=1, max_length=64), ListMap(("name",))] | None = None
    """Environment variables of the Triton container, as in a pod spec. Default: none."""
    env_from: Annotated[tuple[EnvFrom, ...], Field(min_length=1, max_length=16)] | None = None
    """Secrets and ConfigMaps whose keys become environment variables of the Triton container, as in a pod spec. The
    operator does not check their keys for reserved names. A site can require prefixes (`sitePolicy.pods.env`). Default:
    none."""
    shared_memory: quantity_field("0", "100Ti") = "256Mi"  # type: ignore[valid-type]
    """Size of /dev/shm, a file system in memory through which Triton's Python backend passes tensors. It counts against
    resources.limits.memory and must be smaller than that limit. Default: 256Mi."""
    pod_labels: Annotated[dict[LabelKey, LabelValue], Field(min_length=1, max_length=32)] | None = None
    """Additional labels of the server pods, for example for a queue or a cost report. The site must allow each key
    (operator option --model-pod-labels, chart value `modelPodLabels`). Halcyon's selectors do not use these labels.
    Default: none."""
    pod_annotations: Annotated[dict[LabelKey, Text], Field(min_length=1, max_length=32)] | None = None
    """Additional annotations of the server pods. The site must allow each key (operator option --model-pod-annotations,
    chart value `modelPodAnnotations`). Default: none."""
    service_account_name: DnsName | None = None
    """Name of an existing ServiceAccount in the same namespace, for the server pods. The site must allow it
    (`sitePolicy.pods.serviceAccounts`). Its token for the Kubernetes API is not mounted. Default: `default`."""
    server: ServerSettings | None = None
    """Options of the Triton server: response cache, memory pools, forwarded headers and log level. Default:
    Triton's."""
    placement: ServerPlacement = ServerPlacement.defaults()
    """Nodes for the server pods. Pods with GPUs always tolerate taints with the name of their GPU resource; pods with
    NVIDIA GPUs also tolerate the taint `nvidia.com/gpu`."""
    startup_timeout: duration_field("10s", "24h") = "10m"  # type: ignore[valid-type]
    """Maximum time (10s to 24h) from the start of Triton until the model is ready, not including a download of the
    model. The progress deadline of a rollout is one minute longer and includes the download. Default: 10m."""

    rules: ClassVar = (
        _no_own_keys("podLabels", "pod_labels"),
        _no_own_keys("podAnnotations", "pod_annotations"),
        Rule(
            cel="!has(self.resources.limits) || !has(self.resources.limits.memory) || "
            f"{quantity_cel('self.sharedMemory')}.compareTo({quantity_cel('self.resources.limits.memory')}) < 0",
            check=lambda m: (
                m.resources.limits is None
                or m.resources.limits.memory is None
                or quantity(m.shared_memory) < quantity(m.resources.limits.memory)
            ),
            message="spec.runtime.sharedMemory is {sharedMemory}; it counts towards "
            "spec.runtime.resources.limits.memory, which is {resources.limits.memory}, and must be smaller; for "
            "example resources: {{limits: {{memory: 4Gi}}}}, sharedMemory: 1Gi",
        ),
        *SERVER_RULES,
    )

    @property
    def gpus(self) -> int:
        """Return the number of GPUs of each pod; 0 for a model on CPU."""
        return 0 if self.gpu is None else self.gpu.count

    @property
    def instances(self) -> int:
        """Return the number of model instances in each pod; 1 per GPU if the spec leaves it to config.pbtxt."""
        return (self.instances_per_gpu or 1) * max(self.gpus, 1)
