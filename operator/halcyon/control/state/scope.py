"""The scope of a reconcile, a value that contains all input of the reconcile."""

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
    """Current state of the source of a model."""

    content: Content | None = None
    """Files of the model from a ConfigMap; None if the source is of another kind."""
    missing: str = ""
    """Message about the object or key that is missing; empty if the source exists."""
    exclusive: Mapping[str, str] = field(default_factory=dict)
    """Name of the source's PersistentVolumeClaim with its access modes, if only one node at a time can attach its
    volume; otherwise empty."""
    lacking: str = ""
    """Message about a feature that the source or a ResourceClaim needs and the cluster lacks; empty if it lacks none."""


@dataclass(frozen=True)
class Signals:
    """Data about a model that its agents have reported."""

    load_errors: Mapping[str, str] = field(default_factory=dict)
    """Error message of Triton from a failed load of the model, by pod."""
    versions: tuple[str, ...] = ()
    dead: Mapping[str, str] = field(default_factory=dict)
    """Reason for each pod that agents have taken out of service because its backend is dead. The key is the pod's name.
    A pod is listed until its container restarts."""
    restarting: Mapping[str, str] = field(default_factory=dict)
    """Reason for each pod whose container is being restarted because its backend is dead. The key is the pod's name."""
    failing: Mapping[str, str] = field(default_factory=dict)
    """Description of the failures of each pod in which all requests fail, although its backend isn't proven to be dead.
    The key is the pod's name."""
    mean_batch: float | None = None


@dataclass(frozen=True)
class CanaryResult:
    """Result of the canary analysis of a revision, based on all samples since the analysis began."""

    revision: str
    """Key of the canary's revision."""
    action: Literal["promote", "wait", "rollback"]
    why: str
    """Message with the numbers on which the result is based."""


@dataclass(frozen=True)
class PublishedScaling:
    """Last published scaling decision for a model."""

    decision: Decision | None = None
    """Last published decision; None if no agent has reported yet."""
    changes: tuple[Change, ...] = ()
    """Last changes to the model's desired replicas, newest first."""
    external_writer: str = ""
    """Message about an external writer of the replicas; empty if there is none."""
    settling: bool = False
    """Whether the decision loop started recently and the load is unknown. If so, the status keeps its last values."""


@dataclass(frozen=True)
class Gpus:
    """GPUs reserved by the ModelDeployments in a namespace, to check the site's limit per namespace."""

    granted: int = 0
    """Number of GPUs granted to this ModelDeployment."""
    elsewhere: int = 0
    """Number of GPUs reserved by all other ModelDeployments in the namespace."""


@dataclass(frozen=True)
class Measured:
    """Capacity of a model that `halcyon bench` has measured, from the ConfigMap NAME-capacity."""

    served: Served = field(default_factory=Served)
    """Revision, image, GPU product and number of instances with which the model serves now."""
    document: MeasuredCapacity | None = None
    """Content of the ConfigMap with the measured capacity; None if there is no ConfigMap, or if it is ignored."""
    line: MeasuredLine | None = None
    """Measured execution times that apply to the revision that serves now; None if there are none."""
    ignored: str = ""
    """Reason why the ConfigMap with the measured capacity is ignored, as a message; empty if it isn't ignored or
    doesn't exist."""


@dataclass(frozen=True)
class PublishedCosts:
    """Last published cost of a model's GPUs."""

    cost: Cost | None = None
    """Last published cost; None if the model has no GPUs."""
    currency: str = ""
    settling: bool = False
    """Whether the cost has not been computed yet. If so, the status keeps its previous value."""


@dataclass(frozen=True)
class Scope:
    """All input of one reconcile of a ModelDeployment. Its plan and its status are computed from this input alone."""

    resource: Object
    site: Site
    children: Mapping[tuple[Kind, str], Object]
    """Existing objects that have the name of a child of this ModelDeployment, by kind and name. They may have another
    owner, or none."""
    revisions: tuple[Revision, ...] = ()
    """Revisions of this ModelDeployment, from its ControllerRevisions."""
    config_maps: tuple[str, ...] = ()
    """Names of this ModelDeployment's immutable ConfigMaps."""
    pods: tuple[Object, ...] = ()
    """Server pods of this ModelDeployment that are in the cache."""
    balancer_errors: tuple[str, ...] = ()
    """Messages about errors that balancers report about themselves, one for each balancer pod with an error."""
    balancers: int = 0
    """Number of balancer pods, including those that are being deleted."""
    balancer_failure: str = ""
    """Message with the reason why a balancer pod isn't ready; empty if no balancer pod has failed."""
    source: SourceState = SourceState()
    """Current state of the source to which the current spec refers."""
    signals: Signals | None = None
    """Data about this model from the agents' reports; None if there is no report."""
    metrics_api: ExternalMetricsApi = api_service.UNKNOWN
    gateway_api: bool = False
    """Whether the cluster has the kinds of Gateway API routes and the caches of these kinds are filled."""
    other_routes: tuple[Object, ...] = ()
    """Routes of other models that belong to the same Gateways as the routes of this model."""
    external_hpa: str = ""
    """Kind and name of an external HPA that targets this ModelDeployment; empty if there is none."""
    deployment_hpas: Mapping[str, str] = field(default_factory=dict)
    """Kind and name of the external HPA of each Deployment of servers or balancers that has one, by the Deployment's
    name."""
    scaling: PublishedScaling = PublishedScaling()
    measured: Measured = Measured()
    canary: CanaryResult | None = None
    """Result of the model's canary; None if there is no canary, or if no request has been measured yet."""
    costs: PublishedCosts = PublishedCosts()
    advice: AdviceSelection | None = None
    """Advice that is selected for the model. None before the first selection: the status then keeps its last advice."""
    accepted: Spec | None = None
    """Last accepted spec; None if this process has not read one with a valid digest."""
    now: float = 0.0
    """Time at which the scope was built, in seconds since the epoch."""
    lower_class: LowerClass | None = None
    """How much capacity the balancers give to batch inference. None if unknown: the plan then keeps its last value."""
    gpus: Gpus = Gpus()
    """GPUs reserved in the namespace; all zero if the site does not limit the GPUs per namespace."""
    rejected_write: str = ""
    """Message with which the API server rejected a write in the last reconcile; empty if it rejected none."""
    failing: str = ""
    """Message of the last failed write if writes have failed in several reconciles in a row; otherwise empty."""

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
        """Messages about fields of the spec that were dropped because their values have the wrong type."""
        return tuple(message for message in self.resource.get("malformed", ()) if message.startswith("spec"))

    @property
    def status(self) -> Mapping[str, Any]:
        """Status in the cache, to which the new one is compared. Decisions don't depend on it."""
        status: Mapping[str, Any] = self.resource.get("status") or {}
        return status
