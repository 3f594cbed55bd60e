"""NetworkPolicies of a model: one for its servers, one for its balancers.

- Servers accept connections from the model's balancers, the operator and scrapers, and from clients if there are no
  balancers. They may connect to the download sources of the model, and to destinations in the site's egress rules.
- Balancers accept connections from clients, scrapers and the model's other balancers. They may connect to the model's
  servers and other balancers, the operator, the API server and DNS.

Ports are numbers, because not all network plugins support names. Probes need no rule, because they come from the node,
whose traffic NetworkPolicies don't restrict.
"""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import ip_network
from typing import Any
from urllib.parse import urlsplit

from halcyon.api.policy.metadata_addresses import LINK_LOCAL, METADATA
from halcyon.api.policy.network import SiteNetwork
from halcyon.render import names
from halcyon.render.metadata import Object, child
from halcyon.render.site import Subject

_HTTP_PORT, _HTTPS_PORT = 80, 443
DNS: Object = {"ports": [{"port": port, "protocol": protocol} for port in (53, 5353) for protocol in ("UDP", "TCP")]}
"""Egress rule for DNS. It includes port 5353, because rules apply to the ports of pods, and OpenShift's DNS pods use
this port."""


def _anywhere(network: str, version: int) -> Object:
    """Return a peer for all addresses of an IP version, except the clouds' instance metadata services."""
    blocked = [ip_network(text) for text in (*LINK_LOCAL, *METADATA)]
    return {"ipBlock": {"cidr": network, "except": [str(net) for net in blocked if net.version == version]}}


_ANYWHERE = (_anywhere("0.0.0.0/0", 4), _anywhere("::/0", 6))


def download_port(url: str, endpoint: str | None) -> int:
    """Return the port of the server from which a model is downloaded."""
    if endpoint is None and not url.startswith("http"):
        return _HTTPS_PORT
    parts = urlsplit(endpoint or url)
    return parts.port or (_HTTPS_PORT if parts.scheme == "https" else _HTTP_PORT)


def downloads(network: SiteNetwork, ports: Iterable[int]) -> list[Object]:
    """Return the egress rules of a NetworkPolicy for downloads at these ports; empty if there are no ports."""
    listed = sorted(set(ports))
    return [_to(network.sources or _ANYWHERE, *listed)] if listed else []


def servers(
    subject: Subject, network: SiteNetwork, *, balancers: bool, clients: bool, ports: Iterable[int] = ()
) -> Object:
    """Build the NetworkPolicy of the servers.

    `balancers` is true if the model has or will have balancers, and `clients` if clients connect directly to the servers.
    `ports` are the ports of the servers from which the model is downloaded.
    """
    balancer_pods = {"podSelector": {"matchLabels": names.selector(subject.name, names.BALANCER)}}
    ingress = [_from(network.operator, names.HTTP_PORT, names.METRICS_PORT)]
    if balancers:
        ingress.append(_from([balancer_pods], names.HTTP_PORT, names.GRPC_PORT, names.METRICS_PORT))
    if clients:
        ingress.append(_from(network.clients, names.HTTP_PORT, names.GRPC_PORT))
    if network.scrapers:
        ingress.append(_from(network.scrapers, names.METRICS_PORT))
    egress = list(network.egress)
    if rules := downloads(network, ports):
        egress += [*rules, DNS]
    return _policy(subject, names.SERVER, ingress, egress)


def balancers(subject: Subject, network: SiteNetwork, *, operator_port: int) -> Object:
    """Build the NetworkPolicy of the balancers. `operator_port` is the operator's port to which agents connect."""
    ingress = [_from(network.clients, names.HTTP_PORT, names.GRPC_PORT)]
    if network.scrapers:
        ingress.append(_from(network.scrapers, names.HAPROXY_METRICS_PORT, names.AGENT_PORT))
    # Agents read each other's loads, to divide the requests that a server pod may have in progress.
    balancer_pods = {"podSelector": {"matchLabels": names.selector(subject.name, names.BALANCER)}}
    ingress.append(_from([balancer_pods], names.AGENT_PORT))
    server_pods = {"podSelector": {"matchLabels": names.selector(subject.name, names.SERVER)}}
    egress = [
        _to([server_pods], names.HTTP_PORT, names.GRPC_PORT, names.METRICS_PORT),
        _to([balancer_pods], names.AGENT_PORT),
        _to(network.operator, operator_port),
        _to(_ANYWHERE, *network.api_server_ports),
        DNS,
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
        # Omit an empty list, because the API server would drop it; without rules, all egress is denied.
        result["spec"]["egress"] = egress
    return result


def _from(peers: Iterable[dict[str, Any]], *ports: int) -> Object:
    """Build an ingress rule for these peers and ports. Without peers, the rule allows all sources."""
    named = list(peers)
    return ({"from": named} if named else {}) | {"ports": _ports(ports)}


def _to(peers: Iterable[dict[str, Any]], *ports: int) -> Object:
    return {"to": list(peers), "ports": _ports(ports)}


def _ports(ports: Iterable[int]) -> list[Object]:
    return [{"port": port, "protocol": "TCP"} for port in ports]
