"""Who may reach the pods of models, and whom they may reach: what only the platform team knows of its network.

The form of a peer and of a rule is Kubernetes' own (NetworkPolicyPeer, NetworkPolicyEgressRule of networking.k8s.io/v1); the API server
checks it. The chart's values `networkPolicies.models` have this shape.
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
    """The peers of models' pods."""

    operator: Annotated[tuple[Peer, ...], Field(min_length=1, max_length=64)]
    """As what operator pods are seen: agents send to them, and they read servers."""
    clients: Annotated[tuple[Peer, ...], _Some] = ()
    """Who may ask models; empty: anybody."""
    scrapers: Annotated[tuple[Peer, ...], _Some] = ()
    """Who reads metrics of balancers and servers; empty: nobody."""
    egress: Annotated[tuple[EgressRule, ...], _Some] = ()
    """What servers may reach; empty: nothing."""
    sources: Annotated[tuple[Peer, ...], _Some] = ()
    """Where servers may download models from, at the port that their `source.uri` names; empty: anywhere but clouds' metadata."""
    api_server_ports: Annotated[
        tuple[Annotated[int, Field(ge=1, le=65535)], ...], Field(min_length=1, max_length=8)
    ] = (443, 6443)
    """Ports of the API server, behind its Service: agents watch it."""
