"""How much of a resource nodes have left, and who holds it: what somebody asks next whose pods find no node.

The operator itself may not see nodes, nor pods of others, and its counts don't depend on them; so this is counted by the commands
of people, with the rights of whoever asks. Only extended resources, such as nvidia.com/gpu: they come in whole pieces, and a pod has
them from the moment when it has a node until it has ended.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from halcyon.api.types import quantity
from halcyon.control.objects import pods
from halcyon.kube import kinds
from halcyon.kube.kinds import Kind
from halcyon.render import names
from halcyon_cli.kube import fields
from halcyon_cli.kube.client import Cluster

Json = Mapping[str, Any]
NAMED = 3
"""Holders that are named; the others are counted."""
_NODE = Kind("v1", "Node", "nodes", namespaced=False)
_WITH_A_NODE = "spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed"


@dataclass(frozen=True)
class Holder:
    """Pods that belong together, and what they hold."""

    name: str
    """A ModelDeployment, another controller or a single pod, as namespace/name."""
    count: int


@dataclass(frozen=True)
class FreeCapacity:
    """What the nodes have of one resource."""

    resource: str
    total: int
    """Of all nodes that take new pods."""
    free: int
    most: int
    """Free on one node: a pod has all of its own on the same."""
    nodes: int
    """That have any of it, and take new pods."""
    holders: tuple[Holder, ...]
    """On these nodes; the largest first."""

    def say(self) -> str:
        """For example `0 of 8 nvidia.com/gpu free on 2 nodes; team/digits holds 6, batch/train 2`."""
        where = f"{self.nodes} node{'' if self.nodes == 1 else 's'}" if self.nodes else "any node that takes pods"
        apart = f", at most {self.most} on one" if self.most < self.free else ""
        told = [f"{one.name} {'holds ' if n == 0 else ''}{one.count}" for n, one in enumerate(self.holders[:NAMED])]
        if len(self.holders) > NAMED:
            rest = self.holders[NAMED:]
            told.append(f"{len(rest)} others {sum(one.count for one in rest)}")
        held = f"; {', '.join(told)}" if told else ""
        return f"{self.free} of {self.total} {self.resource} free on {where}{apart}{held}"


def lacking(messages: Iterable[str]) -> list[str]:
    """The extended resources that a scheduler has found too little of, each once."""
    return list(dict.fromkeys(name for said in messages for name in pods.lacking(said) if "/" in name))


def look(cluster: Cluster, resources: Sequence[str]) -> tuple[FreeCapacity, ...]:
    """Count them, one by one; nothing is read where there are none.

    Raises:
        ClusterError: nodes, or the pods of all namespaces, may not be listed.
    """
    if not resources:
        return ()
    nodes, holding = cluster.items(_NODE), cluster.items(kinds.POD, everywhere=True, fields=_WITH_A_NODE)
    if nodes is None or holding is None:
        return ()
    return tuple(room(name, nodes, holding) for name in resources)


def room(resource: str, nodes: Iterable[Json], holding: Iterable[Json]) -> FreeCapacity:
    """What these nodes have of a resource, beside what these pods hold of it."""
    totals = {
        str(_part(node, "metadata").get("name")): _amount(_part(node, "status").get("allocatable"), resource)
        for node in nodes
        if _takes_pods(node)
    }
    totals = {name: total for name, total in totals.items() if total}
    used: Counter[str] = Counter()
    holders: Counter[str] = Counter()
    for pod in holding:
        node, phase = _part(pod, "spec").get("nodeName"), _part(pod, "status").get("phase")
        count = _held(pod, resource)
        if node in totals and count and phase not in {"Succeeded", "Failed"}:
            used[node] += count
            holders[_holder(pod)] += count
    left = {name: max(total - used[name], 0) for name, total in totals.items()}
    ranked = sorted(holders.items(), key=lambda one: (-one[1], one[0]))
    return FreeCapacity(
        resource,
        total=sum(totals.values()),
        free=sum(left.values()),
        most=max(left.values(), default=0),
        nodes=len(totals),
        holders=tuple(Holder(name, count) for name, count in ranked),
    )


def _takes_pods(node: Json) -> bool:
    """Neither cordoned nor out of order."""
    conditions = fields.mappings(_part(node, "status").get("conditions"))
    is_ready = any(c.get("type") == "Ready" and c.get("status") == "True" for c in conditions)
    return is_ready and not _part(node, "spec").get("unschedulable")


def _held(pod: Json, resource: str) -> int:
    """As the scheduler counts: its containers and sidecars together, or one that runs before them if that needs more."""
    spec, sidecars, before = _part(pod, "spec"), 0, 0
    for container in fields.mappings(spec.get("initContainers")):
        asked = _asked(container, resource)
        before = max(before, sidecars + asked)
        if container.get("restartPolicy") == "Always":
            sidecars += asked
    return max(before, sidecars + sum(_asked(c, resource) for c in fields.mappings(spec.get("containers"))))


def _asked(container: Json, resource: str) -> int:
    # Of an extended resource requests and limits are the same, and either may be left out.
    resources = _part(container, "resources")
    return max(_amount(resources.get(part), resource) for part in ("requests", "limits"))


def _holder(pod: Json) -> str:
    """A name that its owner knows it by."""
    meta = _part(pod, "metadata")
    labels = fields.mapping(meta.get("labels"))
    owner = next((one for one in fields.mappings(meta.get("ownerReferences")) if one.get("controller")), {})
    name = labels.get(names.OWNER_LABEL) or owner.get("name") or meta.get("name")
    if owner.get("kind") == "ReplicaSet":
        name = str(name).removesuffix(f"-{labels.get('pod-template-hash')}")
    return f"{meta.get('namespace')}/{name}"


def _amount(amounts: object, resource: str) -> int:
    try:
        return int(quantity(str(fields.mapping(amounts).get(resource, 0))))
    except ValueError:
        return 0


def _part(one: Json, name: str) -> Json:
    return fields.mapping(one.get(name))
