"""Network peers with which the pods of models may communicate, as configured by the platform team for NetworkPolicies.

Peers and rules have the form of NetworkPolicyPeer and NetworkPolicyEgressRule in networking.k8s.io/v1, which the API server validates. The
chart's values `networkPolicies.models` have the same structure.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from halcyon.api.types import ApiModel

Peer = dict[str, Any]
"""Peer of a NetworkPolicy: a NetworkPolicyPeer of networking.k8s.io/v1."""
EgressRule = dict[str, Any]
"""Egress rule of a NetworkPolicy: a NetworkPolicyEgressRule of networking.k8s.io/v1."""

_Some = Field(max_length=64)


class SiteNetwork(ApiModel):
    """Peers with which the pods of models may communicate, for NetworkPolicies."""

    operator: Annotated[tuple[Peer, ...], Field(min_length=1, max_length=64)]
    """Peers that match the operator pods. Agents send reports to them, and they read metrics and states of servers."""
    clients: Annotated[tuple[Peer, ...], _Some] = ()
    """Peers that may send requests to models. If empty, any peer may."""
    scrapers: Annotated[tuple[Peer, ...], _Some] = ()
    """Peers that may read metrics of balancers and servers. If empty, none may."""
    egress: Annotated[tuple[EgressRule, ...], _Some] = ()
    """Egress rules for additional connections that servers may open. If empty, there are none."""
    sources: Annotated[tuple[Peer, ...], _Some] = ()
    """Peers from which servers may download models, at the port in `source.uri`. If empty, any peer is allowed except
    the metadata services of clouds."""
    api_server_ports: Annotated[
        tuple[Annotated[int, Field(ge=1, le=65535)], ...], Field(min_length=1, max_length=8)
    ] = (443, 6443)
    """Ports of the API server behind its Service, to which agents connect."""
