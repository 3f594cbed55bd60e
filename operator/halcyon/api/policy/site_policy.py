"""What a site allows its tenants: the single typed source of the admission policy and of the check at reconcile time.

A limit that is None is no limit; an empty list allows nothing. `rules` defines what each limit applies to, and
`admission_policies` how the API server enforces it. The chart's values `sitePolicy` have exactly this shape.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal, Self

from pydantic import Field, StringConstraints, ValidationError

from halcyon.api.spec.fields import Documented
from halcyon.api.types import HOST, DnsName

NAMESPACE = "{namespace}"
"""Placeholder for the ModelDeployment's own namespace in names of hosts, Gateways and buckets."""

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
"""A registry, or a path in it. The host has a dot or a port, as in every reference that does not mean docker.io."""
Version = Annotated[str, _text("[0-9]{2}[.](0[1-9]|1[0-2])", 5)]
"""A release of Triton's container, year and month. Releases sort as texts."""
Digest = Annotated[str, _text("sha256:[a-f0-9]{64}", 71)]
Pair = Annotated[str, _text(rf"({_DNS_NAME}/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?(=[-A-Za-z0-9_.]*)?", 381)]
"""A key with any value, or a key and its value."""
SecretName = Annotated[str, _text(r"[a-z0-9][-a-z0-9.]*\*?")]
"""A name, or a prefix of names."""
EnvName = Annotated[str, _text(r"[A-Za-z_][A-Za-z0-9_]*\*?", 128)]
"""A name of an environment variable, or a prefix of names."""
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
    """Triton images that a model may name.

    If a model names none, the site's own image is used, which these limits do not apply to.
    """

    registries: Annotated[tuple[Registry, ...], _Some] | None = None
    """Allowed registries, or paths in them: `nvcr.io/nvidia` allows every image below it."""
    pinned: Literal["Tag", "Digest"] | None = None
    """Required form of references. `Digest`: by digest only. `Tag`: by a tag other than latest, or by digest. It
    applies to models in images, too."""


class Triton(Documented):
    """Versions of Triton's container that a model may name."""

    refuse_below: Version | None = None
    """Oldest version that is accepted. An image whose version is unknown is rejected like an older one."""
    warn_below: Version | None = None
    """Oldest version that is accepted without a warning."""
    digests: Annotated[dict[Digest, Version], Field(max_length=256)] = Field(default_factory=dict)
    """Versions of images that are named by digest. A tag beside a digest is not evidence of the version."""


class Models(Documented):
    """Kinds of models, and what they may read."""

    sources: Annotated[tuple[Literal["configMap", "persistentVolumeClaim", "image", "uri"], ...], _Some] | None = None
    """Allowed kinds of source."""
    urls: Annotated[tuple[UrlPattern, ...], _Some] | None = None
    """Allowed prefixes of a source's `uri.url`: `s3://models`, a bucket; `s3://models/{namespace}`, a folder of it;
    `https://models.example.com`, a host."""
    endpoints: Annotated[tuple[Endpoint, ...], _Some] | None = None
    """S3 stores that a source may name besides AWS: `https://minio.storage.svc:9000`. Empty: only AWS."""
    images: Annotated[tuple[Registry, ...], _Some] | None = None
    """Registries, or paths in them, that models in images may come from: `registry.example.com/models`.
    `images.registries` is for servers."""
    backends: Annotated[tuple[Backend, ...], _Some] | None = None
    """Allowed Triton backends. With a list, every model's configuration must name one of them, and a model's folder may
    hold no backend of its own. Without `python` in it, models bring no code of that kind."""
    secrets: Annotated[tuple[SecretName, ...], _Some] | None = None
    """Secrets that a spec may name, for example `models-*`."""


class PodLimits(Documented):
    """Placement, ServiceAccounts and environment of server pods."""

    priority_classes: Annotated[tuple[DnsName, ...], _Some] | None = None
    """Allowed priority classes."""
    runtime_classes: Annotated[tuple[DnsName, ...], _Some] | None = None
    """Allowed runtime classes."""
    node_selectors: Annotated[tuple[Pair, ...], _Some] | None = None
    """Node labels allowed in a node selector or node affinity: `pool=models`, or `pool` for any value."""
    tolerations: Annotated[tuple[Pair, ...], _Some] | None = None
    """Taints that may be tolerated: `dedicated=models`, or `dedicated` for any value."""
    service_accounts: Annotated[tuple[DnsName, ...], _Some] | None = None
    """ServiceAccounts that server pods may run as. Unlike for the other limits, no list allows none but `default`."""
    env: Annotated[tuple[EnvName, ...], _Some] | None = None
    """Names of environment variables that may be set: `MODEL_MODE`, or `MODEL_*`. The entries of `envFrom` then need a
    prefix that one of the patterns covers."""
    config_maps: Annotated[tuple[SecretName, ...], _Some] | None = None
    """ConfigMaps that environment variables may come from, for example `models-*`."""


class Limits(Documented):
    """Maximum size of a model, and of all models in a namespace."""

    replicas: Annotated[int, Field(ge=1, le=1000)] | None = None
    """Maximum replicas of a model."""
    gpus_per_model: Annotated[int, Field(ge=0, le=16000)] | None = None
    """Maximum GPUs of a model, over all its replicas."""
    gpus_per_namespace: Annotated[int, Field(ge=0, le=1000000)] | None = None
    """Maximum GPUs of a namespace's models, each counted at its maximum replicas. Enforced only at reconcile time:
    first come, first served."""


class TrafficLimits(Documented):
    """Ways in which clients may reach models."""

    service_types: Annotated[tuple[Literal["ClusterIP", "NodePort", "LoadBalancer"], ...], _Some] | None = None
    """Allowed types of Service."""
    gateways: Annotated[tuple[GatewayName, ...], _Some] | None = None
    """Allowed Gateways, as NAMESPACE/NAME; `{namespace}` is the ModelDeployment's own."""
    hostnames: Annotated[tuple[HostPattern, ...], _Some] | None = None
    """Allowed hostnames: `digits.example.com`, or `*.{namespace}.example.com` for all below. With a list, routes must
    name theirs."""


class SitePolicy(Documented):
    """Limits of a site; by default everything that the resource supports is allowed."""

    exempt_namespaces: Annotated[tuple[Namespace, ...], _Some] = ()
    """Namespaces that the policy does not apply to: the platform team's own."""
    images: Images = Images()
    """Limits on Triton images."""
    triton: Triton = Triton()
    """Limits on Triton versions."""
    models: Models = Models()
    """Limits on models."""
    pods: PodLimits = PodLimits()
    """Limits on pods."""
    limits: Limits = Limits()
    """Limits on replicas and GPUs."""
    traffic: TrafficLimits = TrafficLimits()
    """Limits on how clients reach models."""

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Return the policy in a JSON document.

        Raises:
            ValueError: it names every field that is wrong, and its value.
        """
        try:
            return cls.model_validate_json(text, strict=True)
        except ValidationError as error:
            found = error.errors(include_url=False)
            said = (f"{'.'.join(map(str, one['loc'])) or 'it'} is {one['input']!r}: {one['msg']}" for one in found)
            raise ValueError("; ".join(said)) from None


ANYTHING: Final = SitePolicy()
"""Policy of a site that has none."""
