"""What the platform team decides for every ModelDeployment of a cluster."""

from __future__ import annotations

from dataclasses import dataclass

from halcyon.api.plan import Collector


@dataclass(frozen=True)
class Site:
    """Images and addresses that builders need."""

    operator_image: str
    """Runs the fetcher in server pods and the agent in balancer pods."""
    balancer_image: str
    server_image: str
    """Triton image of models that name none."""
    collector: Collector | None
    """Where agents send what they see; None until the operator has its certificate."""
    pull_secrets: tuple[str, ...] = ()
    """Names of Secrets, in the ModelDeployment's own namespace, for pulling these images."""


@dataclass(frozen=True)
class Subject:
    """The ModelDeployment that children belong to."""

    namespace: str
    name: str
    uid: str
