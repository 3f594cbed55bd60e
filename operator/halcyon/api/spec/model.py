"""`spec.model`: the model to serve, its source, its versions and its warm-up."""

from __future__ import annotations

import re
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field, StringConstraints

from halcyon.api.credentials import BUCKET, SEGMENT, Credentials, StoreEndpoint, StoreRegion, identity_scheme_rule
from halcyon.api.types import (
    HOST,
    ApiModel,
    AtomicMap,
    DnsName,
    Image,
    Key,
    ListMap,
    ListSet,
    ModelName,
    RelativePath,
    Rule,
    exactly_one,
    quantity_field,
)


class ConfigMapItem(ApiModel):
    """One file of a model that is stored in a ConfigMap."""

    key: Key
    """Key in the `data` or `binaryData` of the ConfigMap."""
    path: RelativePath
    """Path of the file in the model's folder, for example `1/model.onnx` or `config.pbtxt`. If the ConfigMap holds
    several models, such as an ensemble and its steps, the path begins with the model's name."""


class ConfigMapSource(ApiModel):
    """A model in a ConfigMap in the same namespace, at most 1 MiB."""

    name: DnsName
    """Name of the ConfigMap."""
    items: Annotated[tuple[ConfigMapItem, ...], Field(min_length=1, max_length=64), ListMap(("path",))]
    """Files of the model, 1 to 64, each with its path in the model's folder and its key in the ConfigMap."""


class PersistentVolumeClaimSource(ApiModel):
    """A model on a PersistentVolumeClaim in the same namespace, mounted read-only."""

    claim_name: DnsName
    """Name of the PersistentVolumeClaim."""
    path: RelativePath | None = None
    """Folder in the volume that holds `config.pbtxt` and the version folders, for example `vision/resnet50`. Default:
    the root of the volume."""


class ImageSource(ApiModel):
    """An image that contains only the model; each node pulls it and mounts it read-only."""

    reference: Image
    """Reference of the image, for example `registry.example.com/models/resnet50:3`. A digest (`...@sha256:...`) ensures
    that all pods serve the same model. The Secrets in `spec.runtime.imagePullSecrets` are used to pull the image."""
    path: RelativePath | None = None
    """Folder in the image that holds `config.pbtxt` and the version folders. Default: the root of the image."""


_ARCHIVE = r"\.(tar|tar\.gz|tgz)"
_REGISTRY = rf"hf://{SEGMENT}(/{SEGMENT})*(@{SEGMENT}(/{SEGMENT})*)?|mlflow://{SEGMENT}/[1-9][0-9]*(/{SEGMENT})*"
_COMMIT = "^hf://[^/@]+(/[^/@]+)?@[0-9a-f]{40}(/|$)"
_URL = rf"^((s3|gs|az)://{BUCKET}(/{SEGMENT})*|{_REGISTRY}|https?://{HOST}(/{SEGMENT})*/{SEGMENT}{_ARCHIVE})$"


SOURCE_KINDS = ("configMap", "persistentVolumeClaim", "image", "uri")
_ONLY_URI = ("credentials", "endpoint", "region", "path", "digest", "sizeLimit")

DEFAULT_SIZE_LIMIT = "20Gi"
"""Disk space of a downloaded model if `sizeLimit` is not set."""


class Source(ApiModel):
    """Source of the model. Set exactly one of configMap, persistentVolumeClaim, image and uri."""

    config_map: ConfigMapSource | None = None
    """A small model in a ConfigMap in the same namespace, at most 1 MiB. Its content is part of the revision, so
    changes to the ConfigMap start a rollout."""
    persistent_volume_claim: PersistentVolumeClaimSource | None = None
    """A model on an existing volume: a PersistentVolumeClaim in the same namespace, mounted read-only."""
    image: ImageSource | None = None
    """An image that contains only the model. Each node pulls the image with the Secrets in
    `spec.runtime.imagePullSecrets`, and mounts it read-only. Requires Kubernetes 1.35 or newer, with containerd 2.1 or
    CRI-O 1.31."""
    uri: Annotated[str, StringConstraints(pattern=_URL, min_length=1, max_length=1024)] | None = None
    """Location of a model that each server pod downloads when it starts. A model folder holds `config.pbtxt` and the
    version folders. `s3://BUCKET/FOLDER` is a model folder in an S3-compatible store (AWS, MinIO, Ceph).
    `gs://BUCKET/FOLDER` is a model folder in Google Cloud Storage. `az://CONTAINER/FOLDER`, with `endpoint`, is a model
    folder in Azure Blob Storage. `hf://OWNER/REPOSITORY@COMMIT/FOLDER` is a model folder in the Hugging Face Hub, at a
    commit of 40 hexadecimal digits. `mlflow://MODEL/VERSION/FOLDER` is a model folder in a version of the MLflow
    registry at `endpoint`. Without FOLDER, the root of the bucket, repository or version is the model folder.
    `https://HOST/PATH.tar.gz` is an archive of a model folder (.tar, .tar.gz or .tgz). `http://` requires `digest`. The
    URI must not contain a user name, a password or a query string: use `credentials` instead. So that all pods serve
    the same model, use a separate folder or archive for each version, or set `digest`."""
    credentials: Credentials | None = None
    """Credentials for the download. Only with `uri`. Default: none; the download is anonymous."""
    endpoint: StoreEndpoint | None = None
    """URL of the store or registry, for example `https://minio.storage.svc:9000`. Required for `mlflow://` and `az://`.
    For `az://`, the host begins with the account: `https://ACCOUNT.blob.core.windows.net`. Not allowed for archives.
    Default: AWS for `s3://`, Google Cloud Storage for `gs://`, `https://huggingface.co` for `hf://`."""
    region: StoreRegion | None = None
    """Region of the S3 bucket. Only for `s3://`. Default: us-east-1."""
    path: RelativePath | None = None
    """Folder of the model in the archive. Only for archives. Default: the root of the archive."""
    digest: Annotated[str, StringConstraints(pattern=r"^sha256:[a-f0-9]{64}$", max_length=71)] | None = None
    """SHA-256 digest of the archive: `sha256:` and 64 hexadecimal digits. A download with another digest is rejected.
    Only for archives. Default: not checked."""
    size_limit: quantity_field("1Mi", "2Ti") | None = None  # type: ignore[valid-type]
    """Maximum disk space (1Mi to 2Ti) of the unpacked model on the node. It counts as ephemeral storage of the pod.
    Only with `uri`. Default: 20Gi."""

    rules: ClassVar = (
        exactly_one(
            *SOURCE_KINDS,
            subject="spec.model.source",
            example="source: {persistentVolumeClaim: {claimName: models, path: resnet50}}",
        ),
        Rule(
            cel="has(self.uri) || !(" + " || ".join(f"has(self.{name})" for name in _ONLY_URI) + ")",
            check=lambda m: (
                m.uri is not None
                or (m.credentials, m.endpoint, m.region, m.path, m.digest, m.size_limit) == (None,) * len(_ONLY_URI)
            ),
            message="spec.model.source has credentials, endpoint, region, path, digest or sizeLimit, which apply only to "
            "uri; remove them, or set uri. The path in a claim or an image is persistentVolumeClaim.path or image.path",
        ),
        Rule(
            cel="!has(self.uri) || !self.uri.startsWith('http') || !has(self.endpoint)",
            check=lambda m: m.uri is None or not m.uri.startswith("http") or not m.endpoint,
            message="spec.model.source.endpoint applies only to buckets and registries (s3://, gs://, az://, hf://, mlflow://), but "
            "uri is {uri}; remove it",
        ),
        Rule(
            cel="!has(self.uri) || self.uri.startsWith('s3://') || !has(self.region)",
            check=lambda m: m.uri is None or m.uri.startswith("s3://") or not m.region,
            message="spec.model.source.region applies only to s3:// URIs, but uri is {uri}; remove it",
        ),
        Rule(
            cel="!has(self.uri) || !self.uri.matches('^(az|mlflow)://') || has(self.endpoint)",
            check=lambda m: m.uri is None or not m.uri.startswith(("az://", "mlflow://")) or m.endpoint is not None,
            message="spec.model.source.uri is {uri} but endpoint is not set; set endpoint to the URL of the storage account or the "
            "registry, for example endpoint: https://ACCOUNT.blob.core.windows.net or https://mlflow.example.com",
        ),
        Rule(
            cel=f"!has(self.uri) || !self.uri.startsWith('hf://') || self.uri.matches('{_COMMIT}')",
            check=lambda m: m.uri is None or not m.uri.startswith("hf://") or re.match(_COMMIT, m.uri) is not None,
            message="spec.model.source.uri is {uri}, which names no commit: pods that start later could serve another model. "
            "Append the commit, which git ls-remote prints for the repository's URL, for example "
            "hf://acme/resnet50@0f1e2d3c4b5a69788796a5b4c3d2e1f00f1e2d3c",
        ),
        identity_scheme_rule("spec.model.source"),
        Rule(
            cel="!has(self.uri) || self.uri.startsWith('http') || !(has(self.path) || has(self.digest))",
            check=lambda m: m.uri is None or m.uri.startswith("http") or not (m.path or m.digest),
            message="spec.model.source has path or digest, which apply only to archives, but uri is {uri}; remove them and "
            "put the folder into uri, for example s3://models/vision/resnet50",
        ),
        Rule(
            cel="!has(self.uri) || !self.uri.startsWith('http://') || has(self.digest)",
            check=lambda m: m.uri is None or not m.uri.startswith("http://") or m.digest is not None,
            message="spec.model.source.uri is {uri} but digest is not set: a download over http:// can be modified in "
            "transit; set digest (sha256: and 64 hexadecimal digits, from sha256sum) or use https://",
        ),
    )


def _no_number(value: Any) -> Any:  # any JSON value
    # pydantic accepts 1 as Literal[True].
    if not isinstance(value, bool):
        raise ValueError("must be true")  # noqa: TRY004  # pydantic does not treat a TypeError as a rejection
    return value


class Versions(ApiModel):
    """Version folders of the model that are served. Set exactly one of latest, specific and all."""

    latest: Annotated[int, Field(ge=1, le=100)] | None = None
    """Number of versions (1 to 100) to serve, beginning with the highest version number."""
    specific: (
        Annotated[tuple[Annotated[int, Field(ge=1, le=2**31 - 1)], ...], Field(min_length=1, max_length=32), ListSet()]
        | None
    ) = None
    """Version numbers to serve, for example `[1, 2]`."""
    all: Annotated[Literal[True], BeforeValidator(_no_number)] | None = None
    """Whether all version folders are served. Only `true` is allowed."""

    rules: ClassVar = (
        exactly_one("latest", "specific", "all", subject="spec.model.versions", example="versions: {latest: 1}"),
    )


DataType = Literal[
    "BOOL", "UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16", "INT32", "INT64", "FP16", "BF16", "FP32", "FP64", "STRING"
]  # fmt: skip


class WarmupInput(ApiModel):
    """One input tensor of the warm-up requests."""

    name: Annotated[str, StringConstraints(pattern="^[!-~]([ -~]*[!-~])?$", min_length=1, max_length=253)]
    """Name of the input, as in Triton's configuration, for example `input_ids:0`."""
    data_type: DataType
    """Data type of the input, as in Triton's configuration but without the prefix `TYPE_`, for example `FP32`."""
    dims: Annotated[tuple[Annotated[int, Field(ge=1, le=65536)], ...], Field(max_length=8)]
    """Shape of one row, without the batch dimension, for example `[3, 224, 224]`. Every dimension needs a fixed
    size."""


class Warmup(ApiModel):
    """Requests that Triton executes before a pod receives traffic."""

    batch_sizes: (
        Annotated[tuple[Annotated[int, Field(ge=1, le=4096)], ...], Field(min_length=1, max_length=8), ListSet()] | None
    ) = None
    """Batch sizes of the warm-up requests, in rows. Default: 1 and the model's maximum batch size. With these two
    sizes, Halcyon can estimate the capacity of a replica."""
    iterations: Annotated[int, Field(ge=1, le=100)] = 2
    """Number of times (1 to 100) that Triton runs each batch size in the warm-up. The first execution of a batch size
    is unusually slow, so the measured batch time is an upper bound. More iterations bring it closer to the real time.
    Default: 2."""
    data: Literal["Zero", "Random"] = "Zero"
    """Content of the input tensors: zeros or random values. Default: Zero."""
    inputs: Annotated[tuple[WarmupInput, ...], Field(min_length=1, max_length=32), ListMap(("name",))] | None = None
    """Input tensors of the warm-up requests. Default: the inputs in the model's config.pbtxt, with size 1 for each
    variable dimension."""


class ModelSpec(ApiModel):
    """Model to serve: its name, source, versions and warm-up."""

    name: ModelName | None = None
    """Name of the model in requests. Default: the name of the ModelDeployment."""
    source: Source
    """Source of the model. Set exactly one of configMap, persistentVolumeClaim, image and uri."""
    revision: Annotated[str, Field(max_length=63)] | None = None
    """Free text of at most 63 characters, for example a date. Changing it starts a rollout. Change it after you change
    the content of a volume or bucket, because Halcyon does not detect such changes. Default: none."""
    versions: Versions | None = None
    """Version folders of the model to serve. Set exactly one of latest, specific and all. Default: the version policy
    in the model's config.pbtxt, or else only the highest version."""
    backend: Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]{0,62}$", max_length=63)] | None = None
    """Triton backend of a model whose config.pbtxt names no backend, for example `onnxruntime`, `python` or `tensorrt`.
    Default: the backend in config.pbtxt, or else the one that Triton chooses."""
    parameters: Annotated[dict[Key, Annotated[str, Field(max_length=1024)]], Field(max_length=64)] | None = None
    """Parameters of the model's configuration, at most 64. They override parameters with the same name in config.pbtxt.
    Default: none."""
    warmup: Annotated[Warmup, AtomicMap()] | None = None
    """Requests that Triton runs before a pod receives traffic. Without a warm-up, the first client waits until the
    model is set up completely. Default: the warm-up in the model's config.pbtxt, or else none."""
