"""Rules of the site policy in Python. Each function returns the values in a spec that violate a limit, as strings.

`rules` contains the same rules in CEL.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from halcyon.api.policy.site_policy import NAMESPACE, SitePolicy
from halcyon.api.spec import Spec
from halcyon.api.spec.model import SOURCE_KINDS
from halcyon.api.spec.placement import NodeRequirement


@dataclass(frozen=True)
class PolicySubject:
    """Spec that the rules check, with its namespace and the site policy."""

    spec: Spec
    namespace: str
    policy: SitePolicy

    @property
    def image(self) -> str:
        """Triton image in the spec; empty if the spec names none, so that the site's default image is used."""
        return self.spec.runtime.image or ""

    @property
    def model_image(self) -> str:
        """Image that contains the model; empty if the model's source is not an image."""
        source = self.spec.model.source.image
        return source.reference if source else ""


def replicas(spec: Spec) -> int:
    """Return the maximum number of replicas that the spec allows the autoscaler or the user to set."""
    return spec.scaling.max_replicas if spec.scaling else spec.replicas


def full_name(image: str) -> str:
    """Return the full name of an image, with the registry that container runtimes add if it is missing."""
    if not re.match(r"(localhost|[^/]*[.:][^/]*)/", image):
        return ("docker.io/" if "/" in image else "docker.io/library/") + image
    return re.sub(r"^docker\.io/([^/]+)$", r"docker.io/library/\1", image)


def _covers(registry: str, name: str) -> bool:
    is_exact = name == registry or name.startswith((f"{registry}:", f"{registry}@"))
    # `registry.example.com` must not match `registry.example.com:5000`.
    return name.startswith(f"{registry}/") or ("/" in registry and is_exact)


def foreign(image: str, limit: tuple[str, ...]) -> list[str]:
    """Return a list with the image if it is not from an allowed registry; otherwise an empty list."""
    name = full_name(image)
    return [] if not image or any(_covers(entry, name) for entry in limit) else [image]


def unpinned(subject: PolicySubject, limit: str) -> list[str]:
    """Return the images whose references are not pinned as the limit requires (`Tag` or `Digest`)."""

    def tagged(image: str) -> bool:
        return re.search(r":[A-Za-z0-9_][A-Za-z0-9_.-]*$", image) is not None and not image.endswith(":latest")

    named = [image for image in (subject.image, subject.model_image) if image and "@" not in image]
    return [image for image in named if limit != "Tag" or not tagged(image)]


def triton_version(image: str, policy: SitePolicy) -> str:
    """Return the Triton version of an image, from its tag or the policy's digests; empty if it is unknown."""
    name, by_digest, digest = image.partition("@")
    if by_digest:
        return policy.triton.digests.get(digest, "")
    match = re.search(r":([0-9]{2}\.[0-9]{2})([.-][A-Za-z0-9_.-]*)?$", name)
    return match[1] if match else ""


def old_release(subject: PolicySubject, limit: str) -> list[str]:
    """Return a list with the server's image if its Triton version is too old or unknown; otherwise an empty list."""
    # An unknown version is an empty text, which sorts before all versions.
    return [] if not subject.image or triton_version(subject.image, subject.policy) >= limit else [subject.image]


def secrets(subject: PolicySubject, limit: tuple[str, ...]) -> list[str]:
    """Return the names of Secrets in the spec that are not allowed."""
    return _unlisted(secret_names(subject.spec), limit)


def _unlisted(names: Iterable[str], limit: tuple[str, ...]) -> list[str]:
    return [
        name
        for name in names
        if not any(name.startswith(entry[:-1]) if entry.endswith("*") else name == entry for entry in limit)
    ]


def environment(subject: PolicySubject, limit: tuple[str, ...]) -> list[str]:
    """Return the environment variables that the limit does not allow. An entry of `envFrom` appears as `PREFIX*`."""
    runtime = subject.spec.runtime
    names = [*(e.name for e in runtime.env or ()), *(f"{e.prefix or ''}*" for e in runtime.env_from or ())]
    return _unlisted(names, limit)


def config_maps(subject: PolicySubject, limit: tuple[str, ...]) -> list[str]:
    """Return the names of ConfigMaps with environment variables of the spec that the limit does not allow."""
    env, env_from = subject.spec.runtime.env or (), subject.spec.runtime.env_from or ()
    names = [e.value_from.config_map_key_ref.name for e in env if e.value_from and e.value_from.config_map_key_ref]
    return _unlisted([*names, *(e.config_map_ref.name for e in env_from if e.config_map_ref)], limit)


def secret_names(spec: Spec) -> list[str]:
    """Return the names of the Secrets that a spec refers to."""
    env, env_from = spec.runtime.env or (), spec.runtime.env_from or ()
    names = [e.value_from.secret_key_ref.name for e in env if e.value_from and e.value_from.secret_key_ref]
    names += [entry.secret_ref.name for entry in env_from if entry.secret_ref]
    names += [secret.name for secret in spec.runtime.image_pull_secrets or ()]
    tls, keys, store = spec.traffic.tls, spec.traffic.api_keys, spec.model.source.credentials
    others = (tls and tls.secret_name, tls and tls.client_ca, keys and keys.secret_name, store and store.secret_name)
    return names + [name for name in others if name]


def outside(value: str | None, limit: tuple[str, ...]) -> list[str]:
    """Return a list with the value if it is set and is not an allowed value; otherwise an empty list."""
    return [] if value is None or value in limit else [value]


def selectors(subject: PolicySubject, limit: tuple[str, ...]) -> list[str]:
    """Return the node labels in a node selector or a node affinity that the limit does not allow."""

    def allowed(e: NodeRequirement) -> bool:
        return e.key in limit or (e.operator == "In" and all(f"{e.key}={value}" in limit for value in e.values or ()))

    placement = subject.spec.runtime.placement
    pairs = (placement.node_selector or {}).items()
    labels = [f"{key}={value}" for key, value in pairs if not {key, f"{key}={value}"} & {*limit}]
    affinity = placement.affinity and placement.affinity.node_affinity
    terms = [[e.key for e in t.match_expressions if not allowed(e)] for t in (affinity.terms() if affinity else ())]
    return labels + [", ".join(keys) for keys in terms if keys]


def tolerations(subject: PolicySubject, limit: tuple[str, ...]) -> list[str]:
    """Return the tolerated taints that the limit does not allow."""
    taints = []
    for toleration in subject.spec.runtime.placement.tolerations or ():
        taint = toleration.key if toleration.operator == "Exists" else f"{toleration.key}={toleration.value or ''}"
        taints += [] if toleration.key in limit or taint in limit else [taint]
    return taints


def more(count: int, limit: int) -> list[str]:
    """Return a list with the number as text if it is above the limit; otherwise an empty list."""
    return [str(count)] if count > limit else []


def sources(subject: PolicySubject, limit: tuple[str, ...]) -> list[str]:
    """Return a list with the kind of the model's source if it is not allowed; otherwise an empty list."""
    return [kind for kind in SOURCE_KINDS if kind in subject.spec.model.source.to_dict() and kind not in limit]


def urls(subject: PolicySubject, limit: tuple[str, ...]) -> list[str]:
    """Return a list with the URL of the model if it is not allowed; otherwise an empty list."""
    uri = subject.spec.model.source.uri
    if uri is None or any(
        f"{uri.replace('@', '/')}/".startswith(f"{entry}/") for entry in _named(limit, subject.namespace)
    ):
        return []
    return [uri]


def endpoints(subject: PolicySubject, limit: tuple[str, ...]) -> list[str]:
    """Return the endpoints that the limit does not allow: those of the model's bucket and of its token service."""
    source = subject.spec.model.source
    identity = source.credentials and source.credentials.identity
    return [*outside(source.endpoint, limit), *outside(identity.endpoint if identity else None, limit)]


def gateways(subject: PolicySubject, limit: tuple[str, ...]) -> list[str]:
    """Return a list with the Gateway, as NAMESPACE/NAME, if it is not allowed; otherwise an empty list."""
    gateway = subject.spec.traffic.gateway
    if gateway is None:
        return []
    return outside(f"{gateway.namespace or subject.namespace}/{gateway.name}", tuple(_named(limit, subject.namespace)))


def queries(subject: PolicySubject, limit: tuple[str, ...] | None) -> list[str]:
    """Return the names of a canary's metrics if its namespace may not query the site's Prometheus; else none."""
    canary = subject.spec.rollout.canary
    metrics = (canary and canary.analysis.metrics) or ()
    return [] if subject.namespace in (limit or ()) else [metric.name for metric in metrics]


def _named(entries: Iterable[str], namespace: str) -> Iterator[str]:
    return (entry.replace(NAMESPACE, namespace) for entry in entries)


def hostnames(subject: PolicySubject, limit: tuple[str, ...]) -> list[str]:
    """Return the hostnames of routes that the limit does not allow. `*` stands for a route without hostnames."""
    gateway = subject.spec.traffic.gateway
    routes = [] if gateway is None else [gateway.http, *([gateway.grpc] if gateway.grpc else [])]
    names = [name for route in routes for name in route.hostnames or ("*",)]
    allowed = list(_named(limit, subject.namespace))
    return [
        name
        for name in names
        if not any(entry == name or (entry.startswith("*.") and name.endswith(entry[1:])) for entry in allowed)
    ]
