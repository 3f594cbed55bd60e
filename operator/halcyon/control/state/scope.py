"""The scope: a value with all input of one reconcile."""

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
    """Sentence about the missing object or key; empty if the source exists."""
    exclusive: Mapping[str, str] = field(default_factory=dict)
    """Access modes of the source's PersistentVolumeClaim, by its name. Empty unless only one node at a time can attach
    the claim's volume."""
    lacking: str = ""
    """Sentence about a cluster feature that the source or a ResourceClaim needs; empty if the cluster has it."""


@dataclass(frozen=True)
class Signals:
    """Data about a model from the agents' reports."""

    load_errors: Mapping[str, str] = field(default_factory=dict)
    """Triton's error message from a failed load of the model, by pod."""
    versions: tuple[str, ...] = ()
    dead: Mapping[str, str] = field(default_factory=dict)
    """Reason for each pod that agents have taken out of service because its backend is dead, by pod. A pod is listed
    until its container restarts."""
    restarting: Mapping[str, str] = field(default_factory=dict)
    """Reason for each pod whose container is restarting because its backend is dead, by pod."""
    failing: Mapping[str, str] = field(default_factory=dict)
    """Description of the failures for each pod in which all requests fail without a proof of a dead backend, by pod."""
    mean_batch: float | None = None


@dataclass(frozen=True)
class CanaryResult:
    """Result of the canary analysis on a revision, from all samples since the analysis began."""

    revision: str
    """Key of the canary's revision."""
    action: Literal["promote", "wait", "rollback"]
    why: str
    """Sentence with the numbers that the result is based on."""


@dataclass(frozen=True)
class PublishedScaling:
    """The last published scaling decision for a model."""

    decision: Decision | None = None
    """The last published decision; None if no agent has reported yet."""
    changes: tuple[Change, ...] = ()
    """The last changes to the desired replicas, newest first."""
    rival: str = ""
    """Sentence about an external writer of the replicas; empty if there is none."""
    settling: bool = False
    """Whether this process started recently and has no report on the model yet. If so, the status keeps its previous
    values."""


@dataclass(frozen=True)
class Gpus:
    """GPUs reserved by the ModelDeployments of a namespace, for the site's limit per namespace."""

    held: int = 0
    """GPUs granted to this ModelDeployment."""
    elsewhere: int = 0
    """GPUs reserved by all other ModelDeployments in the namespace."""


@dataclass(frozen=True)
class Measured:
    """Capacity of a model as a bench has measured it, from its ConfigMap NAME-capacity."""

    served: Served = field(default_factory=Served)
    """Revision, image, GPU product and instances that the model serves with now."""
    document: MeasuredCapacity | None = None
    """Content of the ConfigMap; None if there is no ConfigMap, or if it is ignored."""
    line: MeasuredLine | None = None
    """Measured times that apply to what the model serves with now; None if there are none."""
    ignored: str = ""
    """Sentence about why the ConfigMap is ignored; empty if it isn't ignored or doesn't exist."""


@dataclass(frozen=True)
class PublishedCosts:
    """The last published cost of a model's GPUs."""

    cost: Cost | None = None
    """The last published cost; None if the model has no GPUs."""
    currency: str = ""
    settling: bool = False
    """Whether the cost wasn't evaluated yet. If so, the status keeps its previous value."""


@dataclass(frozen=True)
class Scope:
    """All input of a reconcile of one ModelDeployment. Plan and status are computed from it alone."""

    resource: Object
    site: Site
    children: Mapping[tuple[Kind, str], Object]
    """Existing objects that have the name of a child of this ModelDeployment, by kind and name. Their owner may be
    another object."""
    revisions: tuple[Revision, ...] = ()
    """Revisions of this ModelDeployment, from its ControllerRevisions."""
    config_maps: tuple[str, ...] = ()
    """Names of this ModelDeployment's immutable ConfigMaps."""
    pods: tuple[Object, ...] = ()
    """Server pods of this ModelDeployment, from the cache."""
    troubles: tuple[str, ...] = ()
    """Errors that the balancers report about themselves: one sentence for each balancer pod with an error."""
    balancers: int = 0
    """Number of balancer pods, including those that are being deleted."""
    balancer_trouble: str = ""
    """Sentence about why a balancer pod isn't ready; empty if there is no reason."""
    source: SourceState = SourceState()
    """Current state of the source that the current spec refers to."""
    signals: Signals | None = None
    """Data about this model from the agents' reports; None without a report."""
    metrics_api: ExternalMetricsApi = api_service.UNKNOWN
    gateway_api: bool = False
    """Whether the cluster has the kinds of Gateway API routes and the caches of these kinds are filled."""
    routes_beside: tuple[Object, ...] = ()
    """Routes of other models at the same Gateways as the routes of this model."""
    foreign_autoscaler: str = ""
    """Kind and name of an external HPA that targets this ModelDeployment; empty if there is none."""
    foreign_below: Mapping[str, str] = field(default_factory=dict)
    """Kind and name of the external HPA of each server Deployment that has one, by the Deployment's name."""
    scaling: PublishedScaling = PublishedScaling()
    measured: Measured = Measured()
    canary: CanaryResult | None = None
    """Result of the canary; None if there is no canary, or if no request was measured yet."""
    costs: PublishedCosts = PublishedCosts()
    advice: AdviceSelection | None = None
    """Selected advice; None if none was selected yet. If so, the status keeps its previous advice."""
    accepted: Spec | None = None
    """The last accepted spec; None if this process has read none with a valid digest."""
    now: float = 0.0
    """Time at which the scope was built, in seconds since the epoch."""
    lower_class: LowerClass | None = None
    """Class of lower-priority requests in the balancers. None if it isn't known yet. If so, the plan keeps its previous
    class."""
    gpus: Gpus = Gpus()
    """GPUs reserved in the namespace. All numbers are zero if the site doesn't limit the GPUs of a namespace."""
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
        """Namespace, name and uid of the ModelDeployment, in the form that `halcyon.render` needs."""
        return Subject(self.meta["namespace"], self.meta["name"], self.meta["uid"])

    @property
    def malformed(self) -> tuple[str, ...]:
        """Sentence for each field of the spec that was dropped because its value has the wrong type."""
        return tuple(said for said in self.resource.get("malformed", ()) if said.startswith("spec"))

    @property
    def status(self) -> Mapping[str, Any]:
        """The last written status. It is used to find changes, and not as an input of decisions."""
        status: Mapping[str, Any] = self.resource.get("status") or {}
        return status
