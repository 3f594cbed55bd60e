"""What the platform team decides for every ModelDeployment of a cluster."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from halcyon.api.documents.balancer_plan import CollectorAddress
from halcyon.api.policy.network import SiteNetwork
from halcyon.api.policy.site_policy import ANYTHING, SitePolicy
from halcyon.api.spec.runtime import Placement

SERVICE_ANNOTATIONS = (
    "service.beta.kubernetes.io/",
    "service.kubernetes.io/",
    "cloud.google.com/",
    "networking.gke.io/",
    "load-balancer.hetzner.cloud/",
    "oci.oraclecloud.com/",
    "oci-network-load-balancer.oraclecloud.com/",
    "loadbalancer.openstack.org/",
    "metallb.io/",
    "metallb.universe.tf/",
    "lbipam.cilium.io/",
    "kube-vip.io/",
    "external-dns.alpha.kubernetes.io/",
)
"""Beginnings of annotations that a Service may bear unless the site says otherwise: what load balancers and external-dns read."""

ANYWHERE = Placement()


@dataclass(frozen=True)
class Site:
    """Images and addresses that builders need."""

    operator_image: str
    """Runs the fetcher in server pods and the agent in balancer pods."""
    balancer_image: str
    server_image: str
    """Triton image of models that name none."""
    collector: CollectorAddress | None
    """Where agents send what they see; None until the operator has its certificate."""
    pull_secrets: tuple[str, ...] = ()
    """Names of Secrets, in the ModelDeployment's own namespace, for pulling these images."""
    service_annotations: tuple[str, ...] = SERVICE_ANNOTATIONS
    """Beginnings of the keys that `traffic.service.annotations` may have."""
    version: str = ""
    """Of the operator: written down with what it renders."""

    policy: SitePolicy = ANYTHING
    """What specs may ask for."""
    balancers: Placement = ANYWHERE
    """Where balancer pods may run."""
    network: SiteNetwork | None = None
    """Who may reach whom; None: no NetworkPolicies are made."""
    port: int = 10250
    """Of operator pods, that agents send to."""
    own_secret: str = ""
    """NAMESPACE/NAME of the Secret with the operator's key, which no model may be given."""

    def refused_annotations(self, keys: Iterable[str]) -> list[str]:
        """Those that this site does not allow."""
        return sorted(key for key in keys if not key.startswith(self.service_annotations))


@dataclass(frozen=True)
class Subject:
    """The ModelDeployment that children belong to."""

    namespace: str
    name: str
    uid: str
