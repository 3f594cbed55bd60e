"""`spec.model`: what is served, where it comes from, which versions, and its warm-up."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field, StringConstraints

from halcyon.api.spec.fields import Documented, exactly_one
from halcyon.api.types import HOST, DnsName, Image, Key, ListMap, ListSet, ModelName, RelativePath, Rule, quantity_field


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


class ImageSource(Documented):
    """A model in an image of its own, which the node pulls and mounts read-only. Kubernetes 1.35 or newer, containerd 2.1 or CRI-O 1.31."""

    reference: Image
    """The image, for example `registry.example.com/models/resnet50:3`, or by digest (`...@sha256:...`), so that all pods have the same. It is
    pulled with the Secrets of `spec.runtime.imagePullSecrets`."""
    path: RelativePath | None = None
    """Folder of the model inside the image (the one that holds `config.pbtxt` and the version folders); the image's root where it is left
    out."""


_BUCKET = "[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]"
_SEGMENT = "[A-Za-z0-9_][A-Za-z0-9_.=+-]*"
_ARCHIVE = r"\.(tar|tar\.gz|tgz)"
_URL = rf"^(s3://{_BUCKET}(/{_SEGMENT})*|https?://{HOST}(/{_SEGMENT})*/{_SEGMENT}{_ARCHIVE})$"


class UriSource(Documented):
    """A model that each server pod downloads when it starts: a folder of a bucket, or an archive on a web server."""

    url: Annotated[str, StringConstraints(pattern=_URL, min_length=1, max_length=1024)]
    """`s3://BUCKET/FOLDER`: the folder that holds `config.pbtxt` and the version folders, in a store that speaks the S3 protocol (AWS, MinIO,
    Ceph, and Google's by `endpoint: https://storage.googleapis.com`). `https://HOST/PATH.tar.gz`: an archive (.tar, .tar.gz, .tgz) of such a
    folder. `http://` needs `sha256`. No user, password or query stands in it: credentials belong into a Secret."""
    secret_name: DnsName | None = None
    """Name of a Secret of the same namespace, which the kubelet mounts for the download alone. Its keys, each optional: `AWS_ACCESS_KEY_ID`,
    `AWS_SECRET_ACCESS_KEY`, `AWS_SESSION_TOKEN`; `authorization`, the value of that header for a web server (`Bearer ...`); `ca.crt`, PEM, further
    authorities that the server's certificate may come from. Left out: nothing is signed."""
    endpoint: Annotated[str, StringConstraints(pattern=rf"^https?://{HOST}$", min_length=1, max_length=262)] | None = (
        None
    )
    """Address of an S3 store that isn't AWS', for example `https://minio.storage.svc:9000`."""
    region: Annotated[str, StringConstraints(pattern=r"^[a-z0-9-]{1,64}$", max_length=64)] | None = None
    """Region of an S3 bucket; `us-east-1` where it is left out."""
    path: RelativePath | None = None
    """Folder of the model inside the archive; the archive's root where it is left out."""
    sha256: Annotated[str, StringConstraints(pattern=r"^[a-f0-9]{64}$", max_length=64)] | None = None
    """Digest of the archive, in hexadecimal: anything else is refused."""
    size_limit: quantity_field("1Mi", "2Ti") = "20Gi"  # type: ignore[valid-type]
    """Most that the model may take of the node's disk, unpacked. It counts as the pod's ephemeral storage."""

    rules: ClassVar = (
        Rule(
            cel="self.url.startsWith('s3://') || !(has(self.endpoint) || has(self.region))",
            check=lambda m: m.url.startswith("s3://") or not (m.endpoint or m.region),
            message="spec.model.source.uri: endpoint and region go with s3:// alone, and url is {url}; leave them out",
        ),
        Rule(
            cel="!self.url.startsWith('s3://') || !(has(self.path) || has(self.sha256))",
            check=lambda m: not m.url.startswith("s3://") or not (m.path or m.sha256),
            message="spec.model.source.uri: path and sha256 go with an archive, and url is {url}; write the folder into url, for example "
            "s3://models/vision/resnet50",
        ),
        Rule(
            cel="!self.url.startsWith('http://') || has(self.sha256)",
            check=lambda m: not m.url.startswith("http://") or m.sha256 is not None,
            message="spec.model.source.uri.url is {url}, and over http:// anybody on the way may change what comes; say sha256 (64 "
            "hexadecimal digits, by sha256sum), or use https://",
        ),
    )


class Source(Documented):
    """Where the model comes from: exactly one of the kinds."""

    config_map: ConfigMapSource | None = None
    """A small model, in a ConfigMap of the same namespace (1 MiB at most). Its content is part of the revision: a change rolls the servers."""
    persistent_volume_claim: PersistentVolumeClaimSource | None = None
    """A model on a shared or pre-filled volume: a PersistentVolumeClaim of the same namespace, mounted read-only."""
    image: ImageSource | None = None
    """A model in an image of its own, which the node pulls and mounts read-only: nodes keep what they have pulled, and the registry
    decides who may pull. Kubernetes 1.35 or newer, containerd 2.1 or CRI-O 1.31."""
    uri: UriSource | None = None
    """A model that each server pod downloads when it starts: a folder of a bucket, or an archive on a web server. Name each version's own
    folder or archive, or give its `sha256`, so that all pods have the same."""

    rules: ClassVar = (
        exactly_one(
            "configMap",
            "persistentVolumeClaim",
            "image",
            "uri",
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
    """How often each batch size runs. The first execution of each is an outlier, so the time of a batch is known as an upper bound until
    requests come: with 2 one of several times as much, with more a closer one."""
    data: Literal["Zero", "Random"] = "Zero"
    """What the tensors hold."""
    inputs: Annotated[tuple[WarmupInput, ...], Field(min_length=1, max_length=32), ListMap(("name",))] | None = None
    """Inputs of the requests. Left out: those of the model's own config.pbtxt, with 1 for each variable dimension."""


class ModelSpec(Documented):
    """What is served."""

    name: ModelName | None = None
    """Name that clients use in requests; the ModelDeployment's name where it is left out."""
    source: Source
    """Where the model comes from: exactly one of the kinds."""
    revision: Annotated[str, Field(max_length=63)] | None = None
    """Free text. A change rolls the servers: the way to say that the content of a volume or a bucket has changed."""
    versions: Versions | None = None
    """Which of the model's version folders are served: exactly one of the policies. Left out: the model's own policy, or else Triton's default
    (the highest)."""
    backend: Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]{0,62}$", max_length=63)] | None = None
    """Triton backend, for models whose config.pbtxt doesn't name one, for example `onnxruntime`, `python` or `tensorrt`."""
    parameters: Annotated[dict[Key, Annotated[str, Field(max_length=1024)]], Field(max_length=64)] | None = None
    """Parameters of the model's configuration; they override the model's own of the same name."""
    warmup: Warmup | None = None
    """Requests that Triton runs before a pod takes traffic, so that the first client doesn't pay for lazy set-up. Left out: none."""
