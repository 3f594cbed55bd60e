"""Settings of the site for measurements, such as the client's image, from the operator's Deployment.

The chart writes them as annotations. If the user may not read the Deployment, the image is derived from that of the
agents, which has the same registry and tag.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from halcyon.api.types import GROUP
from halcyon.kube import kinds
from halcyon.render import names
from halcyon_cli.errors import ClusterError, InputError
from halcyon_cli.kube import fields
from halcyon_cli.kube.client import Cluster
from halcyon_cli.kube.operator_pods import of_operators

Json = Mapping[str, Any]

IMAGE_ANNOTATION = f"{GROUP}/bench-image"
PRIORITY_ANNOTATION = f"{GROUP}/bench-priority-class"
CARBON_ANNOTATION = f"{GROUP}/bench-carbon-intensity"
_OPERATOR, _BENCH = "halcyon-operator:", "halcyon-bench:"


@dataclass(frozen=True)
class BenchSite:
    """Settings of the site for measurements."""

    image: str
    priority_class: str = ""
    """Name of the PriorityClass of copies and clients; empty if the site has none or the user can't read it."""
    pull_secrets: tuple[str, ...] = ()
    fixed_user_ids: bool = True
    network_policies: bool = False
    """Whether the site restricts the traffic of models by NetworkPolicies."""
    gpu_budget: int | None = None
    """Maximum number of GPUs that all models together may hold; None if there is no limit, or if the user can't read
    it.
    """
    carbon_intensity: str = ""
    """Grams of carbon dioxide per kWh, as the annotation's text; empty if the site doesn't set it or the user can't
    read it.
    """


def read_site(cluster: Cluster, model: str, *, image: str = "") -> BenchSite:
    """Return the site's settings; `image` replaces the client's image.

    Raises:
        InputError: the client's image is unknown.
    """
    try:
        operators = of_operators(cluster, kinds.DEPLOYMENT)
    except ClusterError:
        operators = []
    agents = _agents(cluster, model)
    return site_of(operators, agents, image=image)


def site_of(operators: Sequence[Json], agents: Sequence[Json], *, image: str = "") -> BenchSite:
    """Return the site's settings from the operators' Deployments and from pods that contain agents. Pure.

    Raises:
        InputError: the client's image is unknown.
    """
    for operator in operators:
        annotations = fields.mapping(fields.mapping(operator.get("metadata")).get("annotations"))
        if client_image := image or str(annotations.get(IMAGE_ANNOTATION) or ""):
            arguments = _arguments(operator)
            return BenchSite(
                image=client_image,
                priority_class=str(annotations.get(PRIORITY_ANNOTATION) or ""),
                pull_secrets=tuple(
                    text.partition("=")[2] for text in arguments if text.startswith("--image-pull-secret=")
                ),
                fixed_user_ids="--no-fixed-user-ids" not in arguments,
                gpu_budget=_number(arguments, "--gpu-budget="),
                carbon_intensity=str(annotations.get(CARBON_ANNOTATION) or ""),
                network_policies=any(text.startswith("--network-policies") for text in arguments),
            )
    for pod in agents:
        spec = fields.mapping(pod.get("spec"))
        secrets = tuple(str(secret.get("name")) for secret in fields.mappings(spec.get("imagePullSecrets")))
        fixed_user_ids = "runAsUser" in fields.mapping(spec.get("securityContext"))
        if image:
            return BenchSite(image=image, pull_secrets=secrets, fixed_user_ids=fixed_user_ids)
        for container in [*fields.mappings(spec.get("containers")), *fields.mappings(spec.get("initContainers"))]:
            agent_image = str(container.get("image"))
            if _OPERATOR in agent_image and "@" not in agent_image:
                client_image = agent_image.replace(_OPERATOR, _BENCH)
                return BenchSite(image=client_image, pull_secrets=secrets, fixed_user_ids=fixed_user_ids)
    if image:
        return BenchSite(image=image)
    raise InputError(
        f"the image of the client is unknown: the operator's Deployment has no annotation {IMAGE_ANNOTATION}, or you may not read it; "
        "name it, for example --bench-image registry.example.com/halcyon/halcyon-bench:dev. If your registry has none: make images "
        "push REGISTRY=registry.example.com/halcyon"
    )


def _agents(cluster: Cluster, model: str) -> list[Json]:
    selector = ",".join(f"{key}={value}" for key, value in names.selector(model, names.BALANCER).items())
    try:
        return list(cluster.items(kinds.POD, selector=selector) or ())
    except ClusterError:
        return []


def _arguments(deployment: Json) -> list[str]:
    spec = fields.mapping(fields.mapping(fields.mapping(deployment.get("spec")).get("template")).get("spec"))
    return [
        str(text)
        for container in fields.mappings(spec.get("containers"))
        for text in fields.sequence(container.get("args"))
    ]


def _number(arguments: Sequence[str], option: str) -> int | None:
    values = [text.removeprefix(option) for text in arguments if text.startswith(option)]
    return int(values[-1]) if values and values[-1].isdigit() else None


def push_hint(image: str) -> str:
    """Return advice for the case that nodes can't pull the client's image."""
    return (
        f"the nodes can't pull the client's image {image}; push it with the others (make images push REGISTRY=...), or name "
        "another one with --bench-image; a registry with a password needs imagePullSecrets of the chart"
    )
