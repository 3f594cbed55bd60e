"""Kinds and names of the objects that a ModelDeployment may own. Pure.

A reconcile reads these objects, and may delete them.

Out of scope: the contents of these objects (`halcyon.render`), and which of them should exist (`control/desired`).
"""

from __future__ import annotations

from halcyon.kube import kinds
from halcyon.kube.kinds import Kind
from halcyon.render import names
from halcyon.render.names import SLOTS, Slot

AGENT_KINDS = (kinds.ROLE_BINDING, kinds.ROLE, kinds.SERVICE_ACCOUNT)
"""Kinds of the objects that an agent needs until its pod has ended. They are deleted last, in this order."""


def every_child(name: str) -> list[tuple[Kind, str]]:
    """Return the kind and name of every object that a ModelDeployment may need, except names with a digest."""
    slot_objects = [child for slot in SLOTS for child in slot_children(name, slot)]
    return [(kinds.HPA, name), *slot_objects, *routing_children(name), *network_policies(name)]


def slot_children(name: str, slot: Slot) -> list[tuple[Kind, str]]:
    """Return the kind and name of each object that the servers of a slot need."""
    server = names.server(name, slot)
    return [(kinds.DEPLOYMENT, server), (kinds.PDB, server), (kinds.SERVICE, names.slot_service(name, slot))]


def routing_children(name: str) -> list[tuple[Kind, str]]:
    """Return the kind and name of each object that any routing mode needs."""
    shared = [(kinds.SERVICE, name), (kinds.CONFIG_MAP, names.balancer(name))]
    return [*shared, *balancer_children(name), *unbalanced_children(name), *((kind, name) for kind in kinds.ROUTES)]


def balancer_children(name: str) -> list[tuple[Kind, str]]:
    """Return the kind and name of each object that the balancers need.

    This includes the ServiceAccount and RBAC objects of the agents.
    """
    balancer = names.balancer(name)
    return [(kinds.DEPLOYMENT, balancer), (kinds.PDB, balancer), *((kind, balancer) for kind in AGENT_KINDS)]


def unbalanced_children(name: str) -> list[tuple[Kind, str]]:
    """Return the kind and name of each Service that a model without balancers needs."""
    return [(kinds.SERVICE, names.headless(name)), *gateway_services(name)]


def gateway_services(name: str) -> list[tuple[Kind, str]]:
    """Return the kind and name of each Service to which a Gateway's routes refer. There is one for each slot."""
    return [(kinds.SERVICE, names.route_service(name, slot)) for slot in SLOTS]


def network_policies(name: str) -> list[tuple[Kind, str]]:
    """Return the kind and name of the NetworkPolicies for server pods and for balancer pods."""
    return [(kinds.NETWORK_POLICY, names.network_policy(name, part)) for part in (names.SERVER, names.BALANCER)]
