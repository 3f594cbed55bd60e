"""Who reaches whom by a model's NetworkPolicies: they are read as a network plugin reads them, and asked."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field
from typing import Any

import pytest

from halcyon.api.policy.network import SiteNetwork
from halcyon.render import names, network_policies
from halcyon.render.metadata import Object
from halcyon.render.site import Subject

SUBJECT = Subject("team", "digits", "0c8a9a4e-0000-4000-8000-000000000001")
OPERATOR_PORT, API_PORT = 10260, 6443


def peers(namespace: str, **labels: str) -> list[dict[str, Any]]:
    here = {"matchLabels": {"kubernetes.io/metadata.name": namespace}}
    return [{"namespaceSelector": here, "podSelector": {"matchLabels": labels}}]


SITE = SiteNetwork(
    operator=tuple(peers("halcyon-system", app="halcyon")),
    scrapers=tuple(peers("monitoring", app="prometheus")),
    api_server_ports=(API_PORT,),
)
STRICT = SITE.model_copy(update={"clients": tuple(peers("shop", app="front"))})
CALLING = SITE.model_copy(update={"egress": ({"to": peers("data", app="features"), "ports": [{"port": 6379}]},)})


@dataclass(frozen=True)
class Pod:
    namespace: str
    labels: dict[str, str] = field(default_factory=dict)
    address: str = "10.1.2.3"


SERVER = Pod("team", names.labels("digits", names.SERVER))
BALANCER = Pod("team", names.labels("digits", names.BALANCER))
OTHERS_BALANCER = Pod("team", names.labels("digits2", names.BALANCER))
FORGED = Pod("mallory", names.labels("digits", names.BALANCER))
OPERATOR = Pod("halcyon-system", {"app": "halcyon"})
PROMETHEUS = Pod("monitoring", {"app": "prometheus"})
FRONT = Pod("shop", {"app": "front"})
ANYBODY = Pod("team")
REDIS = Pod("data", {"app": "features"})
CLOUD = Pod("-", address="169.254.169.254")
CLOUD_6 = Pod("-", address="fd00:ec2::254")
API_SERVER = Pod("-", address="203.0.113.7")


def selected(selector: dict[str, Any], labels: dict[str, str]) -> bool:
    assert selector.keys() <= {"matchLabels"}
    return selector.get("matchLabels", {}).items() <= labels.items()


def is_peer(peer: dict[str, Any], pod: Pod) -> bool:
    if "ipBlock" in peer:
        address = ipaddress.ip_address(pod.address)
        block, *without = map(ipaddress.ip_network, (peer["ipBlock"]["cidr"], *peer["ipBlock"]["except"]))
        return address in block and not any(address in network for network in without)
    if "namespaceSelector" in peer:
        in_namespace = selected(peer["namespaceSelector"], {"kubernetes.io/metadata.name": pod.namespace})
    else:
        in_namespace = pod.namespace == SUBJECT.namespace
    return in_namespace and selected(peer.get("podSelector", {}), pod.labels)


def lets(rules: list[dict[str, Any]], side: str, pod: Pod, port: int, protocol: str) -> bool:
    return any(
        (side not in rule or any(is_peer(peer, pod) for peer in rule[side]))
        and (port, protocol) in {(p["port"], p.get("protocol", "TCP")) for p in rule["ports"]}
        for rule in rules
    )


def may(policies: list[Object], source: Pod, target: Pod, port: int, protocol: str = "TCP") -> bool:
    """Whether a connection comes about: the source lets it out, and the target lets it in."""
    for pod, kind, key, side, other in (
        (source, "Egress", "egress", "to", target),
        (target, "Ingress", "ingress", "from", source),
    ):
        around = [
            p["spec"]
            for p in policies
            if pod.namespace == p["metadata"]["namespace"]
            and selected(p["spec"]["podSelector"], pod.labels)
            and kind in p["spec"]["policyTypes"]
        ]
        if around and not any(lets(spec.get(key, []), side, other, port, protocol) for spec in around):
            return False
    return True


def rendered_policies(site: SiteNetwork, *, balancers: bool = True, clients: bool = False) -> list[Object]:
    around = [network_policies.servers(SUBJECT, site, balancers=balancers, clients=clients)]
    return around + ([network_policies.balancers(SUBJECT, site, operator_port=OPERATOR_PORT)] if balancers else [])


def reached(policies: list[Object], source: Pod, target: Pod) -> set[int]:
    return {port for port in (8000, 8001, 8002, 9100, 9101, 10250, 22) if may(policies, source, target, port)}


@pytest.mark.parametrize(
    ("source", "servers", "balancers"),
    [
        (BALANCER, {8000, 8001, 8002}, {9100}),
        (OTHERS_BALANCER, set(), {8000, 8001}),
        (FORGED, set(), {8000, 8001}),
        (OPERATOR, {8000, 8002}, {8000, 8001}),
        (PROMETHEUS, {8002}, {8000, 8001, 9100, 9101}),
        (ANYBODY, set(), {8000, 8001}),
        (SERVER, set(), set()),
    ],
    ids=["balancer", "another model's", "forged labels", "operator", "scraper", "anybody", "server"],
)
def test_behind_balancers_servers_are_reached_by_these_alone(
    source: Pod, servers: set[int], balancers: set[int]
) -> None:
    assert reached(rendered_policies(SITE), source, SERVER) == servers
    assert reached(rendered_policies(SITE), source, BALANCER) == balancers


def test_clients_that_are_named_are_the_only_ones() -> None:
    assert reached(rendered_policies(STRICT), FRONT, BALANCER) == {8000, 8001}
    assert reached(rendered_policies(STRICT), ANYBODY, BALANCER) == set()
    assert reached(rendered_policies(STRICT), FRONT, SERVER) == set()
    direct = rendered_policies(STRICT, balancers=False, clients=True)
    assert reached(direct, FRONT, SERVER) == {8000, 8001}
    assert reached(direct, ANYBODY, SERVER) == set()


def test_clients_reach_servers_without_a_balancer_and_never_their_metrics() -> None:
    policies = rendered_policies(SITE, balancers=False, clients=True)

    assert reached(policies, ANYBODY, SERVER) == {8000, 8001}
    assert reached(policies, OPERATOR, SERVER) == {8000, 8001, 8002}
    assert reached(policies, BALANCER, SERVER) == {8000, 8001}, "one that lingers is a client like others"
    both = rendered_policies(SITE, balancers=True, clients=True)
    assert reached(both, BALANCER, SERVER) == {8000, 8001, 8002}
    assert reached(both, ANYBODY, SERVER) == {8000, 8001}


@pytest.mark.parametrize("target", [ANYBODY, BALANCER, OPERATOR, API_SERVER, CLOUD, CLOUD_6, REDIS])
@pytest.mark.parametrize("port", [53, 80, 443, API_PORT, 6379, 8000, OPERATOR_PORT])
def test_servers_reach_nothing_unless_the_site_allows_it(target: Pod, port: int) -> None:
    assert not may(rendered_policies(SITE), SERVER, target, port)
    assert may(rendered_policies(CALLING), SERVER, target, port) == (target is REDIS and port == 6379)


def test_balancers_reach_what_their_agents_need_and_no_metadata() -> None:
    policies = rendered_policies(SITE)

    assert may(policies, BALANCER, OPERATOR, OPERATOR_PORT)
    assert may(policies, BALANCER, API_SERVER, API_PORT)
    for protocol in ("UDP", "TCP"):
        assert may(policies, BALANCER, Pod("kube-system"), 53, protocol)
    for target in (ANYBODY, OPERATOR, API_SERVER, REDIS):
        assert not may(policies, BALANCER, target, 80)
    for cloud in (CLOUD, CLOUD_6):
        assert not any(may(policies, BALANCER, cloud, port) for port in (80, 443, API_PORT, OPERATOR_PORT))
