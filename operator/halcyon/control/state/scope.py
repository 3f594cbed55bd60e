"""The scope: all input of one reconcile, collected in one value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from halcyon.api.documents.balancer_plan import LowerClass
from halcyon.api.documents.measured_capacity import MeasuredCapacity, MeasuredLine, Served
from halcyon.api.spec import Spec
from halcyon.control.advice.selection import AdviceSelection
from halcyon.kube.kinds import Key, Kind, Object
from halcyon.metricsapi import api_service
from halcyon.metricsapi.api_service import ExternalMetricsApi
from halcyon.render.revision import Content, Revision
from halcyon.render.site import Site, Subject
from halcyon.scaling.gpu_cost import Cost
from halcyon.scaling.policy.decision import Change, Decision


@dataclass(frozen=True)
class SourceState:
    """Current state of a model's source."""

    content: Content | None = None
    """Files of the model from a ConfigMap; None for another kind of source."""
    missing: str = ""
    """A sentence that names the missing object or key; empty if the source exists."""
    exclusive: Mapping[str, str] = field(default_factory=dict)
    """Access modes of the PersistentVolumeClaim, by its name, if only one node can attach its volume; else empty."""
    lacking: str = ""
    """A sentence about the cluster feature that such a source, or a ResourceClaim, needs; empty if the cluster has it."""


@dataclass(frozen=True)
class Signals:
    """Data about a model from the agents' reports."""

    load_errors: Mapping[str, str] = field(default_factory=dict)
    """Triton's error message from a failed load of the model, by pod."""
    versions: tuple[str, ...] = ()
    dead: Mapping[str, str] = field(default_factory=dict)
    """Reason for each pod that the agents have taken out of service because its backend is dead, until its container restarts."""
    restarting: Mapping[str, str] = field(default_factory=dict)
    """The same for each pod whose container restarts for that reason."""
    failing: Mapping[str, str] = field(default_factory=dict)
    """How requests fail, for each pod in which all do without any proof that its backend is dead."""
    mean_batch: float | None = None


@dataclass(frozen=True)
class CanaryResult:
    """Verdict of the canary analysis on a revision, from all samples of both revisions since the analysis began."""

    revision: str
    """Key of the canary's revision."""
    action: Literal["promote", "wait", "rollback"]
    why: str
    """A sentence with the numbers behind the verdict."""


@dataclass(frozen=True)
class PublishedScaling:
    """The scaling decision for a model, as the status shows it."""

    verdict: Decision | None = None
    """The decision; None if no agent has reported yet."""
    changes: tuple[Change, ...] = ()
    """The last changes to the desired replicas, newest first."""
    rival: str = ""
    """A sentence about an external writer of the replicas; empty if there is none."""
    settling: bool = False
    """Whether this process started recently and has no report about the model yet. If so, the status keeps its previous values."""


@dataclass(frozen=True)
class Gpus:
    """GPUs reserved by the ModelDeployments of a namespace, for the site's limit per namespace."""

    held: int = 0
    """GPUs granted to this ModelDeployment."""
    elsewhere: int = 0
    """GPUs reserved by all other ModelDeployments in the namespace."""


@dataclass(frozen=True)
class Measured:
    """What a bench has measured of a model, from its ConfigMap NAME-capacity."""

    served: Served = field(default_factory=Served)
    """What the model serves with now."""
    document: MeasuredCapacity | None = None
    """The ConfigMap's content; None if there is none, or if it is ignored."""
    line: MeasuredLine | None = None
    """Its times for what serves now."""
    ignored: str = ""
    """A sentence about why the ConfigMap is ignored; empty if it isn't, or if there is none."""


@dataclass(frozen=True)
class PublishedCosts:
    """The cost of a model's GPUs, as the status shows it."""

    cost: Cost | None = None
    """The cost as last published; None if the model has no GPUs."""
    currency: str = ""
    settling: bool = False
    """Whether the cost wasn't evaluated yet. If so, the status keeps its previous value."""


@dataclass(frozen=True)
class Scope:
    """All input of one reconcile of a ModelDeployment. Plan and status are computed from it alone."""

    resource: Object
    site: Site
    children: Mapping[tuple[Kind, str], Object]
    """Existing objects that have the name of a child of this ModelDeployment, by kind and name, with any owner."""
    revisions: tuple[Revision, ...] = ()
    """Revisions of this ModelDeployment, from its ControllerRevisions."""
    config_maps: tuple[str, ...] = ()
    """Names of this ModelDeployment's immutable ConfigMaps."""
    pods: tuple[Object, ...] = ()
    """Server pods of this ModelDeployment, from the cache."""
    troubles: tuple[str, ...] = ()
    """Failures that the balancers report about themselves: one sentence for each balancer pod with a failure."""
    balancers: int = 0
    """Number of balancer pods, including those that are being deleted."""
    balancer_trouble: str = ""
    """A sentence about why a balancer pod isn't ready; empty if there is no reason."""
    source: SourceState = SourceState()
    """Current state of the source that the current spec refers to."""
    signals: Signals | None = None
    """Data from the agents' reports; None without a report."""
    metrics_api: ExternalMetricsApi = api_service.UNKNOWN
    gateway_api: bool = False
    """Whether the cluster has the kinds of Gateway API routes, and their caches are filled."""
    routes_beside: tuple[Object, ...] = ()
    """Routes of other models at the Gateways that this model has routes at."""
    foreign_autoscaler: str = ""
    """Kind and name of an external HPA that targets this ModelDeployment; empty if there is none."""
    foreign_below: Mapping[str, str] = field(default_factory=dict)
    """Kind and name of an external HPA for each server Deployment that has one, by the Deployment's name."""
    scaling: PublishedScaling = PublishedScaling()
    measured: Measured = Measured()
    canary: CanaryResult | None = None
    """Verdict on the canary; None without a canary, or before any request was measured."""
    costs: PublishedCosts = PublishedCosts()
    advice: AdviceSelection | None = None
    """Advice as last selected; None if it wasn't selected yet. If so, the status keeps its previous one."""
    accepted: Spec | None = None
    """The last accepted spec; None if this process has not read one with a valid digest."""
    now: float = 0.0
    """Time of the observation, in seconds since the epoch."""
    lower_class: LowerClass | None = None
    """Lower class of requests in the balancers; None if it is not known yet. If so, the plan keeps its previous one."""
    gpus: Gpus = Gpus()
    """GPUs reserved in the namespace; all zero if the site doesn't limit the GPUs of a namespace."""
    refused: str = ""
    """The API server's message if it rejected a write in the last reconcile; else empty."""

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
        """Namespace, name and uid of the ModelDeployment, as the functions in `halcyon.render` need them."""
        return Subject(self.meta["namespace"], self.meta["name"], self.meta["uid"])

    @property
    def malformed(self) -> tuple[str, ...]:
        """A sentence for each field of the spec that was dropped because its value is of the wrong type."""
        return tuple(said for said in self.resource.get("malformed", ()) if said.startswith("spec"))

    @property
    def status(self) -> Mapping[str, Any]:
        """The status that was written last. It serves to find what has changed, and isn't a source for decisions."""
        status: Mapping[str, Any] = self.resource.get("status") or {}
        return status
