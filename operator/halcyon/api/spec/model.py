"""`spec.model`: what is served, where it comes from, which versions, and its warm-up."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field, StringConstraints

from halcyon.api.spec.base import Documented, exactly_one
from halcyon.api.types import DnsName, Key, ListMap, ListSet, ModelName, RelativePath


class ConfigMapItem(Documented):
    """One file of a model that lies in a ConfigMap."""

    key: Key
    """Key in the ConfigMap's data or binaryData."""
    path: RelativePath
    """Where the file belongs in the model's folder, for example `1/model.onnx` or `config.pbtxt`."""


class ConfigMapSource(Documented):
    """A model in a ConfigMap of the same namespace (1 MiB at most)."""

    name: DnsName
    """Name of the ConfigMap."""
    items: Annotated[tuple[ConfigMapItem, ...], Field(min_length=1, max_length=64), ListMap(("path",))]
    """Which key becomes which file of the model's folder."""


class PersistentVolumeClaimSource(Documented):
    """A model on a PersistentVolumeClaim of the same namespace, mounted read-only."""

    claim_name: DnsName
    """Name of the claim."""
    path: RelativePath | None = None
    """Folder of the model inside the volume (the one that holds `config.pbtxt` and the version folders); the volume's
    root where it is left out."""


class Source(Documented):
    """Where the model comes from: exactly one of the kinds."""

    config_map: ConfigMapSource | None = None
    """Small models, from a ConfigMap. Its content is part of the revision: a change rolls the servers."""
    persistent_volume_claim: PersistentVolumeClaimSource | None = None
    """Models on a shared or pre-filled volume."""

    rules: ClassVar = (
        exactly_one(
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


class Versions(Documented):
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
        exactly_one("latest", "specific", "all", where="spec.model.versions", good="versions: {latest: 1}"),
    )


DataType = Literal[
    "BOOL", "UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16", "INT32", "INT64", "FP16", "BF16", "FP32", "FP64", "STRING"
]  # fmt: skip


class WarmupInput(Documented):
    """One input tensor of a warm-up request."""

    name: ModelName
    """Name of the input."""
    data_type: DataType
    """Triton's data type, without the prefix `TYPE_`."""
    dims: Annotated[tuple[Annotated[int, Field(ge=1, le=65536)], ...], Field(max_length=8)]
    """Shape of one row: without the batch dimension, every dimension fixed."""


class Warmup(Documented):
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


class ModelSpec(Documented):
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
