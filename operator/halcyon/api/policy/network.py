"""The peers that may reach the pods of models, and those that these pods may reach: only the platform team knows its network.

The form of a peer and of a rule is that of Kubernetes (NetworkPolicyPeer, NetworkPolicyEgressRule of
networking.k8s.io/v1); the API server checks it. The chart's values `networkPolicies.models` have this shape.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from halcyon.api.spec.fields import Documented

Peer = dict[str, Any]
"""A NetworkPolicyPeer."""
EgressRule = dict[str, Any]
"""A NetworkPolicyEgressRule."""

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
