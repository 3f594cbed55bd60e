"""Network peers with which the pods of models may communicate, as configured by the platform team for NetworkPolicies.

Peers and rules have the form of NetworkPolicyPeer and NetworkPolicyEgressRule in networking.k8s.io/v1, which the API server validates. The
chart's values `networkPolicies.models` have the same structure.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from halcyon.api.spec.fields import Documented

Peer = dict[str, Any]
"""NetworkPolicyPeer of networking.k8s.io/v1."""
EgressRule = dict[str, Any]
"""NetworkPolicyEgressRule of networking.k8s.io/v1."""

_Some = Field(max_length=64)


class SiteNetwork(Documented):
    """The network peers of models' pods."""

    operator: Annotated[tuple[Peer, ...], Field(min_length=1, max_length=64)]
    """Peers that match operator pods: agents send reports to them, and they read servers."""
    clients: Annotated[tuple[Peer, ...], _Some] = ()
    """Peers that may send requests to models; empty: any."""
    scrapers: Annotated[tuple[Peer, ...], _Some] = ()
    """Peers that may read metrics of balancers and servers; empty: none."""
    egress: Annotated[tuple[EgressRule, ...], _Some] = ()
    """Connections that servers may open; empty: none."""
    sources: Annotated[tuple[Peer, ...], _Some] = ()
    """Peers that servers may download models from, at the port in their `source.uri`; empty: any, except the metadata
    services of clouds."""
    api_server_ports: Annotated[
        tuple[Annotated[int, Field(ge=1, le=65535)], ...], Field(min_length=1, max_length=8)
    ] = (443, 6443)
    """Ports of the API server, behind its Service; agents watch it."""
