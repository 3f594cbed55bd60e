"""ModelDeployment with its objects in the cluster. Out of scope: their interpretation (`output.tree`, `diagnose`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from halcyon.api.documents.download_progress import DownloadProgress
from halcyon.kube import kinds
from halcyon.kube.kinds import Kind
from halcyon.render import names
from halcyon_cli.errors import ClusterError
from halcyon_cli.kube import fields
from halcyon_cli.kube.client import Cluster

Object = Mapping[str, Any]
READ_KINDS = (kinds.DEPLOYMENT, kinds.POD, kinds.HPA, kinds.CONTROLLER_REVISION)
"""Kinds of objects that are read in addition to the ModelDeployment."""


@dataclass(frozen=True)
class Inventory:
    """ModelDeployment with its objects, as read from the cluster."""

    model: Object
    deployments: Sequence[Object] = ()
    pods: Sequence[Object] = ()
    hpas: Sequence[Object] = ()
    revisions: Sequence[Object] = ()
    unreadable: tuple[str, ...] = ()
    """Sentences about the kinds of objects that could not be read, each with the reason."""
    downloads: Mapping[str, DownloadProgress] = field(default_factory=dict)
    """Progress of the downloads, by pod. Pods with unknown progress are omitted."""

    @property
    def slots(self) -> list[Object]:
        """Deployments of model pods."""
        return [d for d in self.deployments if _component(d) == names.SERVER]

    @property
    def balancers(self) -> list[Object]:
        """Deployments of the balancers: one, or none."""
        return [d for d in self.deployments if _component(d) == names.BALANCER]

    @property
    def servers(self) -> list[Object]:
        """Model pods."""
        return [p for p in self.pods if _component(p) == names.SERVER]

    @property
    def balancer_pods(self) -> list[Object]:
        """Balancer pods."""
        return [p for p in self.pods if _component(p) == names.BALANCER]


def read_inventory(cluster: Cluster, name: str) -> Inventory:
    """Read a ModelDeployment and its objects. Unreadable kinds are skipped and listed in `unreadable`.

    Raises:
        ClusterError: the ModelDeployment itself doesn't exist or can't be read.
    """
    model = cluster.model(name)
    objects: dict[Kind, list[Object]] = {}
    unreadable = []
    for kind in READ_KINDS:
        try:
            objects[kind] = cluster.items(kind, selector=f"{names.OWNER_LABEL}={name}") or []
        except ClusterError as error:
            unreadable.append(f"{kind.plural} can't be read: {error}")
    return assemble(model, objects, tuple(unreadable))


def assemble(model: Object, objects: Mapping[Kind, Sequence[Object]], unreadable: tuple[str, ...] = ()) -> Inventory:
    """Build an inventory from a ModelDeployment and its objects, given by kind."""
    deployments, pods, hpas, revisions = (objects.get(kind, ()) for kind in READ_KINDS)
    return Inventory(model, deployments, pods, hpas, revisions, unreadable)


def _component(obj: Object) -> object:
    return fields.mapping(fields.mapping(obj.get("metadata")).get("labels")).get(names.COMPONENT_LABEL)
