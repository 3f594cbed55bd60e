"""Settings of the platform team for all ModelDeployments of a cluster."""

from __future__ import annotations

from dataclasses import dataclass

from halcyon.api.documents.balancer_plan import CollectorAddress
from halcyon.api.policy.network import SiteNetwork
from halcyon.api.policy.site_policy import ANYTHING, SitePolicy
from halcyon.api.spec.placement import Placement

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
"""Prefixes of annotations that a Service may have by default: those read by load balancers and external-dns."""

ANYWHERE = Placement()


@dataclass(frozen=True)
class Site:
    """Images, addresses and policies that builders need."""

    operator_image: str
    """Image that runs the fetcher in server pods and the agent in balancer pods."""
    balancer_image: str
    server_image: str
    """Triton image of models that name none."""
    collector: CollectorAddress | None
    """Address that agents report to; None until the operator has its certificate."""
    pull_secrets: tuple[str, ...] = ()
    """Names of Secrets, in the ModelDeployment's own namespace, for pulling these images."""
    service_annotations: tuple[str, ...] = SERVICE_ANNOTATIONS
    """Prefixes of the keys that `traffic.service.annotations` may have."""
    model_pod_labels: tuple[str, ...] = ()
    """Keys that `runtime.podLabels` may have. An entry with a slash is a prefix, any other is a whole key."""
    model_pod_annotations: tuple[str, ...] = ()
    """Keys that `runtime.podAnnotations` may have, in the same form."""
    fixed_user_ids: bool = True
    """Whether pods have fixed users and groups; if not, the platform assigns them, as OpenShift does."""
    version: str = ""
    """Version of the operator, recorded with the templates it renders."""

    policy: SitePolicy = ANYTHING
    """Restrictions on specs."""
    balancers: Placement = ANYWHERE
    """Placement of balancer pods."""
    network: SiteNetwork | None = None
    """Network settings for NetworkPolicies; None: no NetworkPolicies are created."""
    port: int = 10250
    """TLS port of the operator pods that agents connect to."""
    own_secret: str = ""
    """NAMESPACE/NAME of the Secret with the operator's key, which no model may use."""


@dataclass(frozen=True)
class Subject:
    """The ModelDeployment that children belong to."""

    namespace: str
    name: str
    uid: str
