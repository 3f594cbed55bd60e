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

from halcyon.api.spec import Spec, routing_mode
from halcyon.control.state.ownership import own
from halcyon.control.state.scope import Scope
from halcyon.kube import kinds
from halcyon.kube.kinds import Kind
from halcyon.render import download, names, network_policies
from halcyon.render.metadata import Object


def then(view: Scope, spec: Spec) -> list[Object]:
    """Return the NetworkPolicies that should exist; none if the site doesn't enable them."""
    asked = view.site.network
    if asked is None:
        return []
    balanced = _balanced(view, spec)
    clients = routing_mode.is_direct(spec) or own(view, kinds.SERVICE, names.headless(view.key.name)) is not None
    ports = _download_ports(view, spec)
    made = [network_policies.servers(view.subject, asked, balancers=balanced, clients=clients, ports=ports)]
    if balanced:
        made.append(network_policies.balancers(view.subject, asked, operator_port=view.site.port))
    return made


def surplus(view: Scope, spec: Spec) -> list[tuple[Kind, str]]:
    """Return the NetworkPolicies of this ModelDeployment that are no longer needed."""
    if view.site.network is None or _balanced(view, spec):
        return []
    around = (kinds.NETWORK_POLICY, names.network_policy(view.key.name, names.BALANCER))
    return [around] if own(view, *around) else []


def _download_ports(view: Scope, spec: Spec) -> set[int]:
    """Return the ports from which pods download the model.

    They are the ports of the spec's source, and those of running revisions, because a pod that restarts downloads
    again.
    """
    found = download.servers(download.arguments(spec.model.source, view.site.downloads))
    for slot in (names.SLOT_A, names.SLOT_B):
        if (deployment := own(view, kinds.DEPLOYMENT, names.server(view.key.name, slot))) is not None:
            for container in deployment["spec"]["template"]["spec"].get("initContainers", ()):
                found += download.servers(container.get("args", ()))
    return {network_policies.download_port(*where) for where in found}


def _balanced(view: Scope, spec: Spec) -> bool:
    return not routing_mode.is_direct(spec) or view.balancers > 0
