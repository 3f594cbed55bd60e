"""What a reconcile has learnt before it decides: one value, from caches only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from halcyon.control.client import Object
from halcyon.control.kinds import Key, Kind
from halcyon.render.revision import Content, Revision
from halcyon.render.site import Site, Subject


@dataclass(frozen=True)
class Source:
    """The model's source, as it is now."""

    content: Content | None = None
    """Files of a ConfigMap source."""
    missing: str = ""
    """What lacks, in a sentence; empty where nothing does."""


@dataclass(frozen=True)
class Signal:
    """One signal that scaling follows."""

    name: str
    target: int
    value: float | None = None
    """Sum over the replicas; None while it is missing."""
    missing: str = ""
    observed_at: str | None = None
    """RFC 3339."""


@dataclass(frozen=True)
class Signals:
    """What the agents say of a model."""

    load_errors: Mapping[str, str] = field(default_factory=dict)
    """Triton's reason, by pod."""
    versions: tuple[str, ...] = ()
    maintenance: frozenset[str] = frozenset()
    """Pods that the agents have taken out, to be replaced."""
    scaling: tuple[Signal, ...] = ()
    mean_batch: float | None = None


@dataclass(frozen=True)
class MetricsApi:
    """Who serves external.metrics.k8s.io."""

    ours: bool
    why: str


@dataclass(frozen=True)
class Direct:
    """The last decision of the Direct actuator."""

    desired: int
    why: str


@dataclass(frozen=True)
class View:
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
    source: Source = Source()
    """The source of the spec as it is now."""
    signals: Signals | None = None
    """None where nothing was heard."""
    metrics_api: MetricsApi = MetricsApi(ours=False, why="not looked yet")
    foreign_autoscaler: str = ""
    """Name of an HPA of somebody else on this ModelDeployment."""
    direct: Direct | None = None
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
    def status(self) -> Mapping[str, Any]:
        """The status that was written last. For transition times and events only: it is never trusted."""
        status: Mapping[str, Any] = self.resource.get("status") or {}
        return status
