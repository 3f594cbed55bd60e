"""Site settings: the platform team's settings for all ModelDeployments of an installation."""

from __future__ import annotations

from dataclasses import dataclass

from halcyon.api.documents.balancer_plan import CollectorAddress
from halcyon.api.policy.downloads import NO_DOWNLOADS, SiteDownloads
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
"""Default for the prefixes of annotations in `traffic.service.annotations`: those of cloud load balancers and
external-dns."""

ANYWHERE = Placement.defaults()


@dataclass(frozen=True)
class Site:
    """Site settings that the builders of objects need: images, addresses and policies."""

    operator_image: str
    """Image that runs the fetcher in server pods and the agent in balancer pods."""
    balancer_image: str
    server_image: str
    """Triton image for models whose spec names none."""
    collector: CollectorAddress | None
    """Address to which agents send reports; None until the operator has its serving certificate."""
    pull_secrets: tuple[str, ...] = ()
    """Names of the Secrets for pulling Halcyon's images, which are in the namespace of the ModelDeployment."""
    service_annotations: tuple[str, ...] = SERVICE_ANNOTATIONS
    """Prefixes of the annotations that `traffic.service.annotations` may have."""
    model_pod_labels: tuple[str, ...] = ()
    """Keys that `runtime.podLabels` may have. An entry with a slash is a prefix of keys; any other entry is a whole
    key."""
    model_pod_annotations: tuple[str, ...] = ()
    """Keys that `runtime.podAnnotations` may have. An entry with a slash is a prefix of keys; any other entry is a
    whole key."""
    cpu_limit: str = ""
    """CPU limit of each of Halcyon's own containers in the namespaces of models, such as `2`; empty if they have none."""
    fixed_user_ids: bool = True
    """Whether pods have fixed users and groups. If not, the platform assigns them, as OpenShift does."""
    downloads: SiteDownloads = NO_DOWNLOADS
    """Proxy and certificates for the downloads of models."""
    version: str = ""
    """Version of the operator, which is stored with each template that it renders."""

    policy: SitePolicy = ANYTHING
    """Restrictions of the site on the specs of ModelDeployments."""
    balancers: Placement = ANYWHERE
    """Placement of balancer pods on nodes."""
    network: SiteNetwork | None = None
    """Peers and rules for NetworkPolicies; None if no NetworkPolicies are created."""
    port: int = 10250
    """TLS port of the operator pods to which agents connect."""
    has_prometheus: bool = False
    """Whether the operator has a Prometheus to query."""
    hold_scale_down: bool = False
    """Whether scaling down is disabled for the whole site, including scaling down by the models' HPAs."""
    queries: tuple[str, ...] = ()
    """Names of the queries of the site's Prometheus that specs may use."""
    own_secret: str = ""
    """NAMESPACE/NAME of the Secret with the operator's private key, which no model may use."""


@dataclass(frozen=True)
class Subject:
    """Name, namespace and uid of the ModelDeployment that owns the objects."""

    namespace: str
    name: str
    uid: str
