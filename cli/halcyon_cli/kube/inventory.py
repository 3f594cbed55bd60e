"""A ModelDeployment and the objects that were made for it, as they were read. Not here: what they mean (`tree`, `findings`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from halcyon.kube import kinds
from halcyon.kube.kinds import Kind
from halcyon.render import names
from halcyon_cli.errors import ClusterError
from halcyon_cli.kube import fields
from halcyon_cli.kube.client import Cluster

Object = Mapping[str, Any]
SHOWN = (kinds.DEPLOYMENT, kinds.POD, kinds.HPA, kinds.CONTROLLER_REVISION)
"""Kinds beside the ModelDeployment itself."""


@dataclass(frozen=True)
class Inventory:
    """What was read."""

    model: Object
    deployments: Sequence[Object] = ()
    pods: Sequence[Object] = ()
    hpas: Sequence[Object] = ()
    revisions: Sequence[Object] = ()
    hidden: tuple[str, ...] = ()
    """What could not be read, a sentence each."""

    @property
    def slots(self) -> list[Object]:
        """Deployments of servers."""
        return [d for d in self.deployments if _component(d) == names.SERVER]

    @property
    def balancers(self) -> list[Object]:
        """Deployments of balancers: one, or none."""
        return [d for d in self.deployments if _component(d) == names.BALANCER]

    @property
    def servers(self) -> list[Object]:
        """Pods of servers."""
        return [p for p in self.pods if _component(p) == names.SERVER]

    @property
    def balancer_pods(self) -> list[Object]:
        """Pods of balancers."""
        return [p for p in self.pods if _component(p) == names.BALANCER]


def look(cluster: Cluster, name: str) -> Inventory:
    """Read a ModelDeployment and what was made for it. What may not be read is left out, and named in `hidden`.

    Raises:
        ClusterError: where the ModelDeployment itself can't be had.
    """
    model = cluster.model(name)
    found: dict[Kind, list[Object]] = {}
    hidden = []
    for kind in SHOWN:
        try:
            found[kind] = cluster.items(kind, selector=f"{names.OWNER_LABEL}={name}") or []
        except ClusterError as error:
            hidden.append(f"{kind.plural} can't be shown: {error}")
    return assemble(model, found, tuple(hidden))


def assemble(model: Object, found: Mapping[Kind, Sequence[Object]], hidden: tuple[str, ...] = ()) -> Inventory:
    """What was read, by kind."""
    deployments, pods, hpas, revisions = (found.get(kind, ()) for kind in SHOWN)
    return Inventory(model, deployments, pods, hpas, revisions, hidden)


def _component(obj: Object) -> object:
    return fields.mapping(fields.mapping(obj.get("metadata")).get("labels")).get(names.COMPONENT_LABEL)
