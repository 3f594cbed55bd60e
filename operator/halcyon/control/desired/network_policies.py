"""NetworkPolicies of a model, which depend on its routing mode and its source. Pure.

After a change of the routing mode to Balancer, the headless Service exists until clients no longer send requests
directly to the servers (`routing`).
"""

# spec.traffic.mode   balancer pods   headless Service exists   servers accept traffic from   policy for balancers
# Balancer            -               no                        balancers                     yes
# Balancer            -               yes                       balancers, clients            yes
# else                some            -                         clients, balancers            yes
# else                none            -                         clients                       no

from __future__ import annotations

import contextlib

from halcyon.api.spec import Spec, routing_mode
from halcyon.control.state.ownership import own
from halcyon.control.state.scope import Scope
from halcyon.kube import kinds
from halcyon.kube.kinds import Kind
from halcyon.render import download, names, network_policies
from halcyon.render.metadata import Object


def objects(scope: Scope, spec: Spec) -> list[Object]:
    """Return the NetworkPolicies that should exist; none if the site doesn't enable them."""
    network = scope.site.network
    if network is None:
        return []
    balanced = _balanced(scope, spec)
    clients = routing_mode.is_direct(spec) or own(scope, kinds.SERVICE, names.headless(scope.key.name)) is not None
    ports = _download_ports(scope, spec)
    policies = [network_policies.servers(scope.subject, network, balancers=balanced, clients=clients, ports=ports)]
    if balanced:
        policies.append(network_policies.balancers(scope.subject, network, operator_port=scope.site.port))
    return policies


def surplus(scope: Scope, spec: Spec) -> list[tuple[Kind, str]]:
    """Return the NetworkPolicies of this ModelDeployment that are no longer needed."""
    if scope.site.network is None or _balanced(scope, spec):
        return []
    policy = (kinds.NETWORK_POLICY, names.network_policy(scope.key.name, names.BALANCER))
    return [policy] if own(scope, *policy) else []


def _download_ports(scope: Scope, spec: Spec) -> set[int]:
    """Return the ports from which pods download the model.

    They include the ports for running revisions, because a pod that restarts downloads its revision's model again.
    """
    ports = _ports(download.arguments(spec.model.source, scope.site.downloads))
    for slot in (names.SLOT_A, names.SLOT_B):
        if (deployment := own(scope, kinds.DEPLOYMENT, names.server(scope.key.name, slot))) is not None:
            for container in deployment["spec"]["template"]["spec"].get("initContainers", ()):
                with contextlib.suppress(ValueError, RecursionError):  # a user's edit, which the plan overwrites
                    ports |= _ports(container.get("args", ()))
    return ports


def _ports(arguments: list[str]) -> set[int]:
    return {network_policies.download_port(*server) for server in download.servers(arguments)}


def _balanced(scope: Scope, spec: Spec) -> bool:
    return not routing_mode.is_direct(spec) or scope.balancers > 0
