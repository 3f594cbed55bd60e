"""NetworkPolicies of a model: one around its servers, one around its balancers.

              from                                          to
servers       its balancers; the operator; scrapers;        what the site says, else nothing: a model comes by a volume
              clients, where no balancer is before them
balancers     clients; scrapers                             its servers, the operator, the API server, DNS

Ports of pods are numbers: some network plugins don't know names. Probes come from the node, which policies don't hold.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from halcyon.api.site_network import SiteNetwork
from halcyon.render import names
from halcyon.render.objects import Object, child
from halcyon.render.site import Subject

_DNS_PORT = 53
_ANYWHERE = (
    # But what a cloud tells a machine of itself.
    {"ipBlock": {"cidr": "0.0.0.0/0", "except": ["169.254.0.0/16"]}},
    {"ipBlock": {"cidr": "::/0", "except": ["fe80::/10", "fd00:ec2::254/128"]}},
)


def servers(subject: Subject, network: SiteNetwork, *, balancers: bool, clients: bool) -> Object:
    """Around the servers.

    `balancers`: there are some, or will be. `clients`: they are let in, since the Service leads to the servers.
    """
    mine = {"podSelector": {"matchLabels": names.selector(subject.name, names.BALANCER)}}
    ingress = [_from(network.operator, names.HTTP_PORT, names.METRICS_PORT)]
    if balancers:
        ingress.append(_from([mine], names.HTTP_PORT, names.GRPC_PORT, names.METRICS_PORT))
    if clients:
        ingress.append(_from(network.clients, names.HTTP_PORT, names.GRPC_PORT))
    if network.scrapers:
        ingress.append(_from(network.scrapers, names.METRICS_PORT))
    return _policy(subject, names.SERVER, ingress, list(network.egress))


def balancers(subject: Subject, network: SiteNetwork, *, operator_port: int) -> Object:
    """Around the balancers; `operator_port` is the one that agents send to."""
    ingress = [_from(network.clients, names.HTTP_PORT, names.GRPC_PORT)]
    if network.scrapers:
        ingress.append(_from(network.scrapers, names.HAPROXY_METRICS_PORT, names.AGENT_PORT))
    its_servers = {"podSelector": {"matchLabels": names.selector(subject.name, names.SERVER)}}
    egress = [
        _to([its_servers], names.HTTP_PORT, names.GRPC_PORT, names.METRICS_PORT),
        _to(network.operator, operator_port),
        _to(_ANYWHERE, *network.api_server_ports),
        {"ports": [{"port": _DNS_PORT, "protocol": protocol} for protocol in ("UDP", "TCP")]},
    ]
    return _policy(subject, names.BALANCER, ingress, egress)


def _policy(subject: Subject, component: str, ingress: list[Object], egress: list[Object]) -> Object:
    name = names.network_policy(subject.name, component)
    result = child("networking.k8s.io/v1", "NetworkPolicy", subject, name, component)
    result["spec"] = {
        "podSelector": {"matchLabels": names.selector(subject.name, component)},
        "policyTypes": ["Ingress", "Egress"],
        "ingress": ingress,
    }
    if egress:
        # The API server keeps no empty list, and without one nothing may go out.
        result["spec"]["egress"] = egress
    return result


def _from(peers: Iterable[dict[str, Any]], *ports: int) -> Object:
    """Of no peers: from anybody."""
    named = list(peers)
    return ({"from": named} if named else {}) | {"ports": _ports(ports)}


def _to(peers: Iterable[dict[str, Any]], *ports: int) -> Object:
    return {"to": list(peers), "ports": _ports(ports)}


def _ports(ports: Iterable[int]) -> list[Object]:
    return [{"port": port, "protocol": "TCP"} for port in ports]
