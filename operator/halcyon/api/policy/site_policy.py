"""Values of the site policy: the limits that the platform team places on ModelDeployments.

None means that there is no limit; an empty list allows no value. The admission policy and the check during a reconcile use the same
values. `rules` defines which fields each limit applies to. The chart's values `sitePolicy` have the same structure.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal, Self

from pydantic import Field, StringConstraints, ValidationError

from halcyon.api.types import DNS_LABEL, DNS_NAME, HOST, ApiModel, DnsName

NAMESPACE = "{namespace}"
"""Placeholder for the namespace of the ModelDeployment in the names of hosts, Gateways and buckets."""

_PART = r"([-a-z0-9]|\{namespace\})+"


def _text(pattern: str, most: int = 253) -> StringConstraints:
    return StringConstraints(pattern=f"^({pattern})$", min_length=1, max_length=most)


Registry = Annotated[
    str,
    _text(
        rf"(localhost(:[0-9]{{1,5}})?|{DNS_NAME}:[0-9]{{1,5}}|{DNS_LABEL}(\.{DNS_LABEL})+)(/[a-z0-9]([a-z0-9._-]*[a-z0-9])?)*"
    ),
]
"""Registry, or path in a registry. The host must have a dot or a port; image references without one mean docker.io."""
Version = Annotated[str, _text("[0-9]{2}[.](0[1-9]|1[0-2])", 5)]
"""Version of the Triton container as year and month, for example `26.07`. Versions can be compared as texts."""
Digest = Annotated[str, _text("sha256:[a-f0-9]{64}", 71)]
Pair = Annotated[str, _text(rf"({DNS_NAME}/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?(=[-A-Za-z0-9_.]*)?", 381)]
"""Key of a label or taint, which allows any value; or `KEY=VALUE`, which allows one value."""
SecretName = Annotated[str, _text(r"[a-z0-9][-a-z0-9.]*\*?")]
"""Name of a Secret, or a prefix of names followed by `*`."""
EnvName = Annotated[str, _text(r"[A-Za-z_][A-Za-z0-9_]*\*?", 128)]
"""Name of an environment variable, or a prefix of names followed by `*`."""
Backend = Annotated[str, _text("[a-z][a-z0-9_]{0,62}", 63)]
GatewayName = Annotated[str, _text(rf"({DNS_LABEL}|\{{namespace\}})/{DNS_NAME}", 317)]
Namespace = Annotated[str, _text(DNS_LABEL, 63)]
UrlPattern = Annotated[
    str,
    _text(
        rf"((s3|gs|az)://([a-z0-9._-]|\{{namespace\}})+|(hf|mlflow)://([A-Za-z0-9._-]|\{{namespace\}})+|https?://{HOST})(/([A-Za-z0-9_][A-Za-z0-9_.=+-]*|\{{namespace\}}))*",
        1024,
    ),
]
"""URL of a bucket or host, or of a path in one."""
Endpoint = Annotated[str, _text(rf"https?://{HOST}", 262)]
HostPattern = Annotated[str, _text(rf"(\*\.)?{_PART}(\.{_PART})*")]
_Some = Field(max_length=64)


class Images(ApiModel):
    """Limits on the Triton images that a spec may name.

    They do not apply to the site's default image, which is used if a spec names none.
    """

    registries: Annotated[tuple[Registry, ...], _Some] | None = None
    """Allowed registries, or paths in them. For example, `nvcr.io/nvidia` allows all images below it."""
    pinned: Literal["Tag", "Digest"] | None = None
    """Required form of image references. `Digest`: a digest. `Tag`: a tag other than latest, or a digest. It also
    applies to images that contain models."""


class Triton(ApiModel):
    """Limits on the versions of the Triton image that a spec may name."""

    refuse_below: Version | None = None
    """Oldest Triton version that is accepted. An image whose version is unknown is rejected like an older one."""
    warn_below: Version | None = None
    """Oldest Triton version that is accepted without a warning. If it is not set, the operator warns about versions
    with known vulnerabilities (`triton_images.outdated`)."""
    digests: Annotated[dict[Digest, Version], Field(max_length=256)] = Field(default_factory=dict)
    """Triton version of each image digest, for specs that name an image by digest. A tag next to a digest is ignored."""


class Models(ApiModel):
    """Limits on the sources, backends and Secrets of models."""

    sources: Annotated[tuple[Literal["configMap", "persistentVolumeClaim", "image", "uri"], ...], _Some] | None = None
    """Allowed kinds of `model.source`, for example `uri`."""
    urls: Annotated[tuple[UrlPattern, ...], _Some] | None = None
    """Allowed prefixes of `source.uri`, for example `s3://models` (a bucket), `gs://models/{namespace}` (a folder in
    it), `hf://acme` (an owner in the Hugging Face Hub) or `https://models.example.com` (a host). An `az://` prefix applies to
    containers of all accounts; restrict the accounts in `endpoints`."""
    endpoints: Annotated[tuple[Endpoint, ...], _Some] | None = None
    """Allowed values of `source.endpoint`, for example `https://minio.storage.svc:9000`; empty allows only AWS S3,
    Google Cloud Storage and the Hugging Face Hub."""
    images: Annotated[tuple[Registry, ...], _Some] | None = None
    """Allowed registries, or paths in them, for images that contain models, for example `registry.example.com/models`.
    For images of servers, see `images.registries`."""
    backends: Annotated[tuple[Backend, ...], _Some] | None = None
    """Allowed Triton backends. If it is set, the configuration of each model must name one of them, and a model's folder must
    not contain a backend. Without `python` in the list, models cannot bring code for the Python backend."""
    secrets: Annotated[tuple[SecretName, ...], _Some] | None = None
    """Secrets that a spec may name, for example `models-*`."""


class PodLimits(ApiModel):
    """Limits on the placement, ServiceAccounts and environment of server pods."""

    priority_classes: Annotated[tuple[DnsName, ...], _Some] | None = None
    """Allowed priority classes."""
    runtime_classes: Annotated[tuple[DnsName, ...], _Some] | None = None
    """Allowed runtime classes."""
    node_selectors: Annotated[tuple[Pair, ...], _Some] | None = None
    """Allowed node labels in a node selector or node affinity, for example `pool=models`, or `pool` for any value."""
    tolerations: Annotated[tuple[Pair, ...], _Some] | None = None
    """Taints that may be tolerated, for example `dedicated=models`, or `dedicated` for any value."""
    resource_claim_templates: Annotated[tuple[DnsName, ...], _Some] | None = None
    """ResourceClaimTemplates that models may use for their GPUs. The model states how many devices they request;
    Halcyon does not check this number."""
    service_accounts: Annotated[tuple[DnsName, ...], _Some] | None = None
    """ServiceAccounts that server pods may run as. Unlike other limits, None allows only `default`."""
    env: Annotated[tuple[EnvName, ...], _Some] | None = None
    """Names of environment variables that may be set, for example `MODEL_MODE` or `MODEL_*`. If it is set, each entry
    of `envFrom` needs a prefix that matches one of the patterns."""
    config_maps: Annotated[tuple[SecretName, ...], _Some] | None = None
    """ConfigMaps that may be the source of environment variables, for example `models-*`."""


class Limits(ApiModel):
    """Limits on the replicas and GPUs of a model, and on the GPUs of a namespace."""

    replicas: Annotated[int, Field(ge=1, le=1000)] | None = None
    """Maximum replicas of a model."""
    gpus_per_model: Annotated[int, Field(ge=0, le=16000)] | None = None
    """Maximum GPUs of a model, over all its replicas."""
    gpus_per_namespace: Annotated[int, Field(ge=0, le=1000000)] | None = None
    """Maximum GPUs of all models in a namespace, each counted at its maximum replicas. The operator enforces it during
    a reconcile, not at admission. Specs are accepted in the order in which they arrive."""


class TrafficLimits(ApiModel):
    """Limits on the ways in which clients can connect to models."""

    service_types: Annotated[tuple[Literal["ClusterIP", "NodePort", "LoadBalancer"], ...], _Some] | None = None
    """Allowed values of `traffic.service.type`."""
    gateways: Annotated[tuple[GatewayName, ...], _Some] | None = None
    """Allowed Gateways, as NAMESPACE/NAME. `{namespace}` stands for the namespace of the ModelDeployment."""
    hostnames: Annotated[tuple[HostPattern, ...], _Some] | None = None
    """Allowed hostnames of routes, for example `digits.example.com`, or `*.{namespace}.example.com` for all hosts below it. If
    it is set, each route must name its hostnames."""


class CanaryLimits(ApiModel):
    """Limits on the queries of canary analyses."""

    query_namespaces: Annotated[tuple[Namespace, ...], _Some] | None = None
    """Namespaces whose models may query the site's Prometheus for their canary analysis. Unlike other limits, null
    allows none: a query is made with the operator's credentials, and can read the metrics of every tenant."""


class SitePolicy(ApiModel):
    """Limits of the platform team on ModelDeployments.

    By default, everything that a ModelDeployment supports is allowed.
    """

    exempt_namespaces: Annotated[tuple[Namespace, ...], _Some] = ()
    """Namespaces to which the policy does not apply, for example those of the platform team."""
    images: Images = Images.defaults()
    """Limits on Triton images and their registries."""
    triton: Triton = Triton.defaults()
    """Limits on the versions of Triton."""
    models: Models = Models.defaults()
    """Limits on the sources, backends and Secrets of models."""
    pods: PodLimits = PodLimits.defaults()
    """Limits on the placement, ServiceAccounts and environment of server pods."""
    limits: Limits = Limits.defaults()
    """Limits on the number of replicas and GPUs."""
    traffic: TrafficLimits = TrafficLimits.defaults()
    """Limits on the ways in which clients can connect to models."""
    canary: CanaryLimits = CanaryLimits.defaults()
    """Limits on the queries of canary analyses."""

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Return the site policy from a JSON document.

        Raises:
            ValueError: fields are invalid; the message names all of them with their values.
        """
        try:
            return cls.model_validate_json(text, strict=True)
        except ValidationError as error:
            errors = error.errors(include_url=False)
            texts = (f"{'.'.join(map(str, e['loc'])) or 'it'} is {e['input']!r}: {e['msg']}" for e in errors)
            raise ValueError("; ".join(texts)) from None


ANYTHING: Final = SitePolicy.defaults()
"""Policy without any limits, for a site that has set none."""
