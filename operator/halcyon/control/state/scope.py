"""The scope: all input of one reconcile as one value, from caches only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from halcyon.api.spec import Spec
from halcyon.kube.client import Object
from halcyon.kube.kinds import Key, Kind
from halcyon.metricsapi import api_service
from halcyon.metricsapi.api_service import ExternalMetricsApi
from halcyon.render.revision import Content, Revision
from halcyon.render.site import Site, Subject
from halcyon.scaling.gpu_cost import Cost
from halcyon.scaling.policy.decision import Change, Decision


@dataclass(frozen=True)
class SourceState:
    """The current state of the model's source."""

    content: Content | None = None
    """Files of a ConfigMap source."""
    missing: str = ""
    """A sentence about what is missing; empty if nothing is."""
    lacking: str = ""
    """A sentence about the cluster feature that such a source, or a ResourceClaim, needs; empty if the cluster has it."""


@dataclass(frozen=True)
class Signals:
    """The agents' reports about a model."""

    load_errors: Mapping[str, str] = field(default_factory=dict)
    """Triton's error message, by pod."""
    versions: tuple[str, ...] = ()
    maintenance: frozenset[str] = frozenset()
    """Pods that the agents have taken out of service and that need a replacement."""
    mean_batch: float | None = None


@dataclass(frozen=True)
class CanaryResult:
    """The verdict of the canary analysis on a revision, from all results of both revisions since the canary began."""

    revision: str
    """Key of the revision."""
    action: Literal["promote", "wait", "rollback"]
    why: str
    """One sentence with numbers."""


@dataclass(frozen=True)
class PublishedScaling:
    """The scaling decision for a model, as the status shows it."""

    verdict: Decision | None = None
    """None if no report has arrived yet."""
    changes: tuple[Change, ...] = ()
    """The last changes of the desired replicas, newest first."""
    rival: str = ""
    """A sentence about an external writer of the replicas; empty if there is none."""
    settling: bool = False
    """Whether this process is young and has no report about the model yet. Then the status written before still applies."""


@dataclass(frozen=True)
class Gpus:
    """GPUs that the ModelDeployments of a namespace may have, by their accepted specs."""

    held: int = 0
    """GPUs of this ModelDeployment."""
    elsewhere: int = 0
    """GPUs of all others in the namespace."""


@dataclass(frozen=True)
class PublishedCosts:
    """The cost of a model's GPUs, as the status shows it."""

    cost: Cost | None = None
    """None if it has no GPUs."""
    currency: str = ""
    settling: bool = False
    """Whether it wasn't evaluated yet. Then the status written before still applies."""


@dataclass(frozen=True)
class Scope:
    """Everything that a plan is derived from."""

    resource: Object
    site: Site
    children: Mapping[tuple[Kind, str], Object]
    """Objects with the names that this ModelDeployment needs, whatever their owner."""
    revisions: tuple[Revision, ...] = ()
    """Revisions of this ModelDeployment, from its ControllerRevisions."""
    config_maps: tuple[str, ...] = ()
    """Names of this ModelDeployment's immutable ConfigMaps."""
    pods: tuple[Object, ...] = ()
    """Server pods."""
    troubles: tuple[str, ...] = ()
    """Failures that the balancers report, one sentence each."""
    balancers: int = 0
    """Number of balancer pods, including those that are being deleted."""
    balancer_trouble: str = ""
    """The reason why a balancer pod isn't ready, in a sentence; empty if there is none."""
    source: SourceState = SourceState()
    """Current state of the source that the current spec names."""
    signals: Signals | None = None
    """None if there is no report."""
    metrics_api: ExternalMetricsApi = api_service.UNKNOWN
    gateway_api: bool = False
    """Whether this cluster has the routes of the Gateway API, and the caches hold ours."""
    routes_beside: tuple[Object, ...] = ()
    """Other models' routes at the Gateways of this one's routes."""
    foreign_autoscaler: str = ""
    """An external HPA that targets this ModelDeployment, by kind and name; empty if there is none."""
    foreign_below: Mapping[str, str] = field(default_factory=dict)
    """External HPAs that target its server Deployments, by the Deployment's name."""
    scaling: PublishedScaling = PublishedScaling()
    canary: CanaryResult | None = None
    """Verdict on the canary; None if nothing was measured."""
    costs: PublishedCosts = PublishedCosts()
    accepted: Spec | None = None
    """The spec in force, if this process has seen it with a valid digest."""
    now: float = 0.0
    """Time of the observation, in seconds since the epoch."""
    gpus: Gpus = Gpus()
    """GPUs of its namespace; zero if the site has no limit on them."""
    refused: str = ""
    """The API server's message for the last write that it refused."""

    @property
    def meta(self) -> Mapping[str, Any]:
        """Metadata of the ModelDeployment."""
        meta: Mapping[str, Any] = self.resource["metadata"]
        return meta

    @property
    def key(self) -> Key:
        """Key of the ModelDeployment."""
        return Key(self.meta["namespace"], self.meta["name"])

    @property
    def subject(self) -> Subject:
        """Namespace, name and uid, for the functions in `halcyon.render`."""
        return Subject(self.meta["namespace"], self.meta["name"], self.meta["uid"])

    @property
    def malformed(self) -> tuple[str, ...]:
        """Sentences about fields of its spec that were dropped because they are of the wrong type."""
        return tuple(said for said in self.resource.get("malformed", ()) if said.startswith("spec"))

    @property
    def status(self) -> Mapping[str, Any]:
        """The status that was written last. It is used for transition times and events only, and never trusted."""
        status: Mapping[str, Any] = self.resource.get("status") or {}
        return status
