"""What a reconcile has learnt before it decides: one value, from caches only."""

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
    """The model's source, as it is now."""

    content: Content | None = None
    """Files of a ConfigMap source."""
    missing: str = ""
    """What isn't there, in a sentence; empty where everything is."""
    lacking: str = ""
    """What the cluster would have to have for such a source, in a sentence; empty where it has it."""


@dataclass(frozen=True)
class Signals:
    """What the agents say of a model."""

    load_errors: Mapping[str, str] = field(default_factory=dict)
    """Triton's reason, by pod."""
    versions: tuple[str, ...] = ()
    maintenance: frozenset[str] = frozenset()
    """Pods that the agents have taken out, to be replaced."""
    mean_batch: float | None = None


@dataclass(frozen=True)
class CanaryVerdict:
    """What the analysis says of a revision, by all that both have done since the canary began."""

    revision: str
    """Its key."""
    action: Literal["promote", "wait", "rollback"]
    why: str
    """One sentence with numbers."""


@dataclass(frozen=True)
class PublishedScaling:
    """What is decided of a model, as it is to be shown."""

    verdict: Decision | None = None
    """None where nothing was heard yet."""
    changes: tuple[Change, ...] = ()
    """The last changes of the desired count, the newest first."""
    rival: str = ""
    """Who else writes the count, in a sentence; empty where nobody does."""
    settling: bool = False
    """This process is young and has not heard of the model yet: what was told before it still stands."""


@dataclass(frozen=True)
class Gpus:
    """GPUs that ModelDeployments of a namespace may have by what was accepted of them."""

    held: int = 0
    """This one."""
    elsewhere: int = 0
    """All others."""


@dataclass(frozen=True)
class PublishedCosts:
    """What a model's GPUs cost, as it is to be shown."""

    cost: Cost | None = None
    """None where it has no GPUs."""
    currency: str = ""
    settling: bool = False
    """It wasn't looked at yet: what was told before still stands."""


@dataclass(frozen=True)
class Scope:
    """Everything that a plan is made from."""

    resource: Object
    site: Site
    children: Mapping[tuple[Kind, str], Object]
    """Objects of the names that this ModelDeployment needs, whoever they belong to."""
    revisions: tuple[Revision, ...] = ()
    """Records of this ModelDeployment."""
    config_maps: tuple[str, ...] = ()
    """Names of our immutable ConfigMaps of this ModelDeployment."""
    pods: tuple[Object, ...] = ()
    """Server pods."""
    troubles: tuple[str, ...] = ()
    """What balancers say that they can't do, a sentence each."""
    balancers: int = 0
    """Balancer pods, those that are on their way out as well."""
    balancer_trouble: str = ""
    """What keeps a balancer pod from being ready, in a sentence; empty where nothing does."""
    source: SourceState = SourceState()
    """The source of the spec as it is now."""
    signals: Signals | None = None
    """None where nothing was heard."""
    metrics_api: ExternalMetricsApi = api_service.UNKNOWN
    gateway_api: bool = False
    """Whether this cluster has routes of the Gateway API, and the caches hold ours."""
    routes_beside: tuple[Object, ...] = ()
    """Other models' routes at the Gateways that this one's ask."""
    foreign_autoscaler: str = ""
    """An HPA of somebody else on this ModelDeployment, by kind and name."""
    foreign_below: Mapping[str, str] = field(default_factory=dict)
    """The same on Deployments of its servers: by the Deployment's name."""
    scaling: PublishedScaling = PublishedScaling()
    canary: CanaryVerdict | None = None
    """What the analysis says of the canary; None where nothing was measured."""
    costs: PublishedCosts = PublishedCosts()
    accepted: Spec | None = None
    """The spec in force, as far as this process has seen it with its seal."""
    now: float = 0.0
    """When it was looked, in seconds since the epoch."""
    gpus: Gpus = Gpus()
    """Of its namespace; nothing where the site has no limit on them."""
    refused: str = ""
    """What the API server said to the last write that it refused."""

    @property
    def meta(self) -> Mapping[str, Any]:
        """Metadata of the ModelDeployment."""
        meta: Mapping[str, Any] = self.resource["metadata"]
        return meta

    @property
    def key(self) -> Key:
        """Its key."""
        return Key(self.meta["namespace"], self.meta["name"])

    @property
    def subject(self) -> Subject:
        """What builders need to know of it."""
        return Subject(self.meta["namespace"], self.meta["name"], self.meta["uid"])

    @property
    def malformed(self) -> tuple[str, ...]:
        """Sentences about fields of its spec that aren't of their type, so that the resource is without them."""
        return tuple(said for said in self.resource.get("malformed", ()) if said.startswith("spec"))

    @property
    def status(self) -> Mapping[str, Any]:
        """The status that was written last. For transition times and events only: it is never trusted."""
        status: Mapping[str, Any] = self.resource.get("status") or {}
        return status
