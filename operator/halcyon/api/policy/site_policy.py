"""What a site allows its tenants: the one typed source of the admission policy and of the check at reconcile time.

A limit that is None is no limit; an empty list allows nothing. What each limit is held against stands in `policy_rules`, how the API
server is told in `admission`. The chart's values `sitePolicy` have this very shape.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal, Self

from pydantic import Field, StringConstraints, ValidationError

from halcyon.api.spec.fields import Documented
from halcyon.api.types import HOST, DnsName

NAMESPACE = "{namespace}"
"""In names of hosts, Gateways and buckets it stands for the ModelDeployment's own namespace."""

_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_DNS_NAME = rf"{_LABEL}(\.{_LABEL})*"
_PART = r"([-a-z0-9]|\{namespace\})+"


def _text(pattern: str, most: int = 253) -> StringConstraints:
    return StringConstraints(pattern=f"^({pattern})$", min_length=1, max_length=most)


Registry = Annotated[
    str,
    _text(
        rf"(localhost(:[0-9]{{1,5}})?|{_DNS_NAME}:[0-9]{{1,5}}|{_LABEL}(\.{_LABEL})+)(/[a-z0-9]([a-z0-9._-]*[a-z0-9])?)*"
    ),
]
"""A registry, or a path in it. The host has a dot or a port, as in every reference that doesn't mean docker.io."""
Version = Annotated[str, _text("[0-9]{2}[.](0[1-9]|1[0-2])", 5)]
"""A release of Triton's container, year and month. They sort as texts."""
Digest = Annotated[str, _text("sha256:[a-f0-9]{64}", 71)]
Pair = Annotated[str, _text(rf"({_DNS_NAME}/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?(=[-A-Za-z0-9_.]*)?", 381)]
"""A key, whatever its value, or a key and its value."""
SecretName = Annotated[str, _text(r"[a-z0-9][-a-z0-9.]*\*?")]
"""A name, or how names begin."""
Backend = Annotated[str, _text("[a-z][a-z0-9_]{0,62}", 63)]
GatewayName = Annotated[str, _text(rf"({_LABEL}|\{{namespace\}})/{_DNS_NAME}", 317)]
Namespace = Annotated[str, _text(_LABEL, 63)]
UrlPattern = Annotated[
    str,
    _text(
        rf"(s3://([a-z0-9.-]|\{{namespace\}})+|https?://{HOST})(/([A-Za-z0-9_][A-Za-z0-9_.=+-]*|\{{namespace\}}))*",
        1024,
    ),
]
"""A bucket or a host, or a path in it."""
Endpoint = Annotated[str, _text(rf"https?://{HOST}", 262)]
HostPattern = Annotated[str, _text(rf"(\*\.)?{_PART}(\.{_PART})*")]
_Some = Field(max_length=64)


class Images(Documented):
    """Triton images that a model may name. The site's own image, of models that name none, is the site's to choose."""

    registries: Annotated[tuple[Registry, ...], _Some] | None = None
    """Registries, or paths in them: `nvcr.io/nvidia` allows every image below it."""
    pinned: Literal["Tag", "Digest"] | None = None
    """`Digest`: by digest only. `Tag`: by a tag other than latest, or by digest. It holds for models in images, too."""


class Triton(Documented):
    """Versions of Triton's container that a model may name."""

    refuse_below: Version | None = None
    """The oldest that is taken. An image whose version nobody knows is refused with those that are older."""
    warn_below: Version | None = None
    """The oldest that is taken without a warning."""
    digests: Annotated[dict[Digest, Version], Field(max_length=256)] = Field(default_factory=dict)
    """Versions of images that are named by digest: a tag beside a digest proves nothing."""


class Models(Documented):
    """What a model may be, and what it may read."""

    sources: Annotated[tuple[Literal["configMap", "persistentVolumeClaim", "image", "uri"], ...], _Some] | None = None
    """Kinds of source."""
    urls: Annotated[tuple[UrlPattern, ...], _Some] | None = None
    """How a source's `uri.url` may begin: `s3://models`, a bucket; `s3://models/{namespace}`, a folder of it; `https://models.example.com`, a
    host."""
    endpoints: Annotated[tuple[Endpoint, ...], _Some] | None = None
    """S3 stores that a source may name beside AWS' own: `https://minio.storage.svc:9000`. Empty: AWS alone."""
    images: Annotated[tuple[Registry, ...], _Some] | None = None
    """Registries, or paths in them, that models in images may come from: `registry.example.com/models`. `images.registries` is for servers."""
    backends: Annotated[tuple[Backend, ...], _Some] | None = None
    """Triton backends. With a list, every model's configuration must name one of them, and a model's folder may hold no backend of its
    own; without `python` in it, models bring no code of that kind."""
    secrets: Annotated[tuple[SecretName, ...], _Some] | None = None
    """Secrets that a spec may name, for example `models-*`."""


class PodLimits(Documented):
    """Where server pods may run."""

    priority_classes: Annotated[tuple[DnsName, ...], _Some] | None = None
    """Priority classes."""
    runtime_classes: Annotated[tuple[DnsName, ...], _Some] | None = None
    """Runtime classes."""
    node_selectors: Annotated[tuple[Pair, ...], _Some] | None = None
    """Node labels that may be asked for: `pool=models`, or `pool` for any value."""
    tolerations: Annotated[tuple[Pair, ...], _Some] | None = None
    """Taints that may be tolerated: `dedicated=models`, or `dedicated` for any value."""


class Limits(Documented):
    """How much a model, and a namespace, may ask for."""

    replicas: Annotated[int, Field(ge=1, le=1000)] | None = None
    """Most replicas of a model."""
    gpus_per_model: Annotated[int, Field(ge=0, le=16000)] | None = None
    """Most GPUs of a model, all its replicas together."""
    gpus_per_namespace: Annotated[int, Field(ge=0, le=1000000)] | None = None
    """Most GPUs of a namespace's models at the most replicas of each. Held at reconcile time only: who comes first has them."""


class TrafficLimits(Documented):
    """How clients may reach models."""

    service_types: Annotated[tuple[Literal["ClusterIP", "NodePort", "LoadBalancer"], ...], _Some] | None = None
    """Types of Service."""
    gateways: Annotated[tuple[GatewayName, ...], _Some] | None = None
    """Gateways, as NAMESPACE/NAME; `{namespace}` is the ModelDeployment's own."""
    hostnames: Annotated[tuple[HostPattern, ...], _Some] | None = None
    """Names of hosts: `digits.example.com`, or `*.{namespace}.example.com` for all below. With a list, routes must name theirs."""


class SitePolicy(Documented):
    """What a site allows; by default everything that the resource has."""

    exempt_namespaces: Annotated[tuple[Namespace, ...], _Some] = ()
    """Namespaces that none of this holds for: the platform team's own."""
    images: Images = Images()
    """Images."""
    triton: Triton = Triton()
    """Versions of Triton."""
    models: Models = Models()
    """Models."""
    pods: PodLimits = PodLimits()
    """Pods."""
    limits: Limits = Limits()
    """Amounts."""
    traffic: TrafficLimits = TrafficLimits()
    """Ways in."""

    @classmethod
    def from_json(cls, text: str) -> Self:
        """The policy in a JSON document.

        Raises:
            ValueError: naming every field that is wrong, and its value.
        """
        try:
            return cls.model_validate_json(text, strict=True)
        except ValidationError as error:
            found = error.errors(include_url=False)
            said = (f"{'.'.join(map(str, one['loc'])) or 'it'} is {one['input']!r}: {one['msg']}" for one in found)
            raise ValueError("; ".join(said)) from None


ANYTHING: Final = SitePolicy()
"""The policy of a site that has none."""
