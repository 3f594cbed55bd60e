"""Free units of a resource on the nodes, and the workloads that hold the other units.

They explain why pods are unschedulable. The operator may list neither nodes nor pods of other workloads, and its
decisions don't depend on them. Therefore user commands measure the capacity with the user's permissions. Only extended
resources, such as nvidia.com/gpu, are measured. They come in whole units, and a pod holds its units from the time it is
scheduled until it ends.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
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
MAX_NAMED_HOLDERS = 3
"""Maximum number of holders that are named. The others are only counted."""
_NODE = Kind("v1", "Node", "nodes", namespaced=False)
_SCHEDULED = "spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed"


@dataclass(frozen=True)
class Holder:
    """Workload whose pods hold units of a resource, and the number of these units."""

    name: str
    """Name of the workload as namespace/name. The workload is a ModelDeployment, another controller or a single pod."""
    count: int


@dataclass(frozen=True)
class FreeCapacity:
    """Free capacity of one resource on the nodes."""

    resource: str
    total: int
    """Number of units on all nodes that accept new pods."""
    free: int
    max_per_node: int
    """Largest number of free units on one node. It matters because a pod needs all of its units on the same node."""
    nodes: int
    """Number of nodes that have the resource and accept new pods."""
    holders: tuple[Holder, ...]
    """Workloads that hold units on these nodes, the largest first."""
    offered: tuple[str, ...] = ()
    """Extended resources that the nodes have, if no node has this one."""

    def describe(self) -> str:
        """Return the free capacity as text.

        For example: `0 of 8 nvidia.com/gpu free on 2 nodes; team/digits holds 6, batch/train 2`.
        """
        if not self.total and self.offered:
            return f"no node that accepts pods offers {self.resource}; nodes offer {', '.join(self.offered)}"
        nodes_text = (
            f"{self.nodes} node{'' if self.nodes == 1 else 's'}" if self.nodes else "any node that accepts pods"
        )
        per_node = f", at most {self.max_per_node} on one" if self.max_per_node < self.free else ""
        holders_text = [
            f"{holder.name} {'holds ' if n == 0 else ''}{holder.count}"
            for n, holder in enumerate(self.holders[:MAX_NAMED_HOLDERS])
        ]
        if len(self.holders) > MAX_NAMED_HOLDERS:
            others = self.holders[MAX_NAMED_HOLDERS:]
            holders_text.append(f"{len(others)} others {sum(holder.count for holder in others)}")
        holders_part = f"; {', '.join(holders_text)}" if holders_text else ""
        return f"{self.free} of {self.total} {self.resource} free on {nodes_text}{per_node}{holders_part}"


def insufficient_resources(messages: Iterable[str]) -> list[str]:
    """Return the extended resources that scheduler messages report as insufficient, without duplicates."""
    return list(dict.fromkeys(name for message in messages for name in pods.lacking(message) if "/" in name))


def read_free_capacity(cluster: Cluster, resources: Sequence[str]) -> tuple[FreeCapacity, ...]:
    """Return the free capacity of each resource. If none is given, send no request.

    Raises:
        ClusterError: the user may not list nodes, or pods in all namespaces.
    """
    if not resources:
        return ()
    nodes, scheduled_pods = cluster.items(_NODE), cluster.items(kinds.POD, all_namespaces=True, fields=_SCHEDULED)
    if nodes is None or scheduled_pods is None:
        return ()
    return tuple(measure(name, nodes, scheduled_pods) for name in resources)


def measure(resource: str, nodes: Collection[Json], scheduled_pods: Iterable[Json]) -> FreeCapacity:
    """Return the free capacity of a resource on these nodes, given the pods scheduled on them."""
    totals = {
        str(_section(node, "metadata").get("name")): _amount(_section(node, "status").get("allocatable"), resource)
        for node in nodes
        if _accepts_pods(node)
    }
    totals = {name: total for name, total in totals.items() if total}
    offered = () if totals else _extended_resources(nodes)
    used: Counter[str] = Counter()
    holders: Counter[str] = Counter()
    for pod in scheduled_pods:
        node, phase = _section(pod, "spec").get("nodeName"), _section(pod, "status").get("phase")
        count = _requested_by_pod(pod, resource)
        if node in totals and count and phase not in {"Succeeded", "Failed"}:
            used[node] += count
            holders[_holder_name(pod)] += count
    free_by_node = {name: max(total - used[name], 0) for name, total in totals.items()}
    ranked = sorted(holders.items(), key=lambda item: (-item[1], item[0]))
    return FreeCapacity(
        resource,
        total=sum(totals.values()),
        free=sum(free_by_node.values()),
        max_per_node=max(free_by_node.values(), default=0),
        nodes=len(totals),
        holders=tuple(Holder(name, count) for name, count in ranked),
        offered=offered,
    )


def _extended_resources(nodes: Iterable[Json]) -> tuple[str, ...]:
    """Return the extended resources of the nodes that accept pods."""
    allocatable = [fields.mapping(_section(node, "status").get("allocatable")) for node in nodes if _accepts_pods(node)]
    return tuple(
        sorted(
            {str(name) for amounts in allocatable for name in amounts if "/" in str(name) and _amount(amounts, name)}
        )
    )


def _accepts_pods(node: Json) -> bool:
    """Return True if the node is ready and not cordoned."""
    conditions = fields.mappings(_section(node, "status").get("conditions"))
    is_ready = any(c.get("type") == "Ready" and c.get("status") == "True" for c in conditions)
    return is_ready and not _section(node, "spec").get("unschedulable")


def _requested_by_pod(pod: Json, resource: str) -> int:
    """Return the units that a pod requests, computed as by the scheduler.

    This is the sum over containers and sidecars, or the request of an init container if that is larger.
    """
    spec, sidecars, init_max = _section(pod, "spec"), 0, 0
    for container in fields.mappings(spec.get("initContainers")):
        amount = _requested(container, resource)
        init_max = max(init_max, sidecars + amount)
        if container.get("restartPolicy") == "Always":
            sidecars += amount
    return max(init_max, sidecars + sum(_requested(c, resource) for c in fields.mappings(spec.get("containers"))))


def _requested(container: Json, resource: str) -> int:
    # For an extended resource, requests equal limits, and either may be omitted.
    resources = _section(container, "resources")
    return max(_amount(resources.get(part), resource) for part in ("requests", "limits"))


def _holder_name(pod: Json) -> str:
    """Return the name of the pod's workload as users see it."""
    meta = _section(pod, "metadata")
    labels = fields.mapping(meta.get("labels"))
    owner = next(
        (reference for reference in fields.mappings(meta.get("ownerReferences")) if reference.get("controller")), {}
    )
    name = labels.get(names.OWNER_LABEL) or owner.get("name") or meta.get("name")
    if owner.get("kind") == "ReplicaSet":
        name = str(name).removesuffix(f"-{labels.get('pod-template-hash')}")
    return f"{meta.get('namespace')}/{name}"


def _amount(amounts: object, resource: str) -> int:
    try:
        return int(quantity(str(fields.mapping(amounts).get(resource, 0))))
    except ValueError:
        return 0


def _section(obj: Json, name: str) -> Json:
    return fields.mapping(obj.get(name))
