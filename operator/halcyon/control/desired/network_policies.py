"""NetworkPolicies of a model, if the site enables them. They follow the routing mode and the model's source. Pure.

spec.traffic.mode   balancer pods       Service led to servers   servers accept             policy for balancers
HAProxy                 -                   no                       balancers                  yes
HAProxy                 -                   yes                      balancers, clients         yes
else                    some                -                        clients, balancers         yes
else                    none                -                        clients                    no

`routing` decides when the Service leads to the servers. The headless Service of a model without balancers stays as long.
"""

from __future__ import annotations

from halcyon.api.spec import Spec, routing_mode
from halcyon.control.state.ownership import own
from halcyon.control.state.scope import Scope
from halcyon.kube import kinds
from halcyon.kube.kinds import Kind
from halcyon.render import names, network_policies, server
from halcyon.render.metadata import Object


def then(view: Scope, spec: Spec) -> list[Object]:
    """Return the NetworkPolicies that should exist; none if the site doesn't enable them."""
    asked = view.site.network
    if asked is None:
        return []
    balanced = _balanced(view, spec)
    clients = routing_mode.is_direct(spec) or own(view, kinds.SERVICE, names.headless(view.key.name)) is not None
    ports = _download_ports(view, spec)
    made = [network_policies.servers(view.subject, asked, balancers=balanced, clients=clients, downloads=ports)]
    if balanced:
        made.append(network_policies.balancers(view.subject, asked, operator_port=view.site.port))
    return made


def surplus(view: Scope, spec: Spec) -> list[tuple[Kind, str]]:
    """Return our NetworkPolicies that may be deleted now."""
    if view.site.network is None or _balanced(view, spec):
        return []
    around = (kinds.NETWORK_POLICY, names.network_policy(view.key.name, names.BALANCER))
    return [around] if own(view, *around) else []


def _download_ports(view: Scope, spec: Spec) -> set[int]:
    """Return the download ports of the spec's source and of the running revisions, whose pods may restart."""
    uri = spec.model.source.uri
    found = [] if uri is None else [(uri, spec.model.source.endpoint)]
    for slot in (names.SLOT_A, names.SLOT_B):
        if (deployment := own(view, kinds.DEPLOYMENT, names.server(view.key.name, slot))) is not None:
            found += server.downloads(deployment["spec"]["template"])
    return {network_policies.download_port(*where) for where in found}


def _balanced(view: Scope, spec: Spec) -> bool:
    return not routing_mode.is_direct(spec) or view.balancers > 0
