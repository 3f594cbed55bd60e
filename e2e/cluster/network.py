"""Addresses of a cluster, and the network namespace of a cluster with a node.

A cluster with a node gets 10.X.0.0/16, where X is at least 200 and no other network on the machine uses these
addresses:

    10.X.0.0/24    the veth pair: .1 is the host, .2 the node and its API server
    10.X.1.0/24    with two nodes, the veth pair between them: .1 is the first node, .2 the second
    10.X.64.0/18   Services (kube-proxy, in each node's namespace)
    10.X.128.0/17  pods, the first half of them on the first node

The second node is behind the first, in a network namespace of its own, as a server behind a router.
The host has routes to all of them, so pods and Services are reachable from the host's shell. The host's firewall rules
aren't changed, and the host doesn't forward packets. So pods reach only the host and each other. A control plane
without a node has no namespace; it uses loopback and free ports.
"""

import ipaddress
import json
import random
import socket
from collections.abc import Iterable
from dataclasses import dataclass

from e2e.cluster.errors import ClusterError
from e2e.cluster.places import RUN, Place
from e2e.cluster.system import command

_BLOCKS = range(200, 240)
_LINK = "node-2"
LOCK = RUN / ".network.lock"


@dataclass(frozen=True, kw_only=True)
class Network:
    """Addresses at which a cluster's components listen, and address ranges that it assigns."""

    namespace: str | None
    interface: str | None
    host_address: str
    node_address: str
    api_port: int
    etcd_port: int
    pod_cidr: str
    service_cidr: str

    @property
    def api_url(self) -> str:
        """URL of the API server, valid on the host and in the namespace."""
        host = f"[{self.node_address}]" if self.is_ipv6 else self.node_address
        return f"https://{host}:{self.api_port}"

    @property
    def is_ipv6(self) -> bool:
        """Whether the API server, pods and Services have IPv6 addresses only."""
        return ":" in self.node_address

    @property
    def enter(self) -> list[str]:
        """Return the command prefix that runs a command in the network of the first node."""
        return self.enter_node(1)

    def enter_node(self, node: int) -> list[str]:
        """Return the command prefix that runs a command in a node's network.

        `ip netns exec` would also mount a new /sys, which hides the cgroups from the kubelet.
        """
        return [] if self.namespace is None else ["nsenter", f"--net=/run/netns/{of_node(self.namespace, node)}"]

    def address_of(self, node: int) -> str:
        """Return the address of a node."""
        return self.node_address if node == 1 else self.second_link[2]

    def pods_of(self, node: int) -> str:
        """Return the range from which a node's pods get their addresses: one half of `pod_cidr`."""
        halves = list(ipaddress.ip_network(self.pod_cidr).subnets())
        return str(halves[node - 1])

    @property
    def second_link(self) -> tuple[str, str, str]:
        """The link between the nodes: its network, the address of the first node and that of the second."""
        start = ipaddress.ip_interface(f"{self.node_address}/24").network.network_address + 256
        return f"{start}/24", str(start + 1), str(start + 2)


def loopback(*, ipv6: bool) -> Network:
    """Return a network for a control plane on loopback. Pods and Services have unreachable addresses."""
    api_port, etcd_port = _free_ports(2)
    if ipv6:
        return Network(
            namespace=None,
            interface=None,
            host_address="::1",
            node_address="::1",
            api_port=api_port,
            etcd_port=etcd_port,
            pod_cidr="fd00:201:128::/64",
            service_cidr="fd00:201:64::/112",
        )
    return Network(
        namespace=None,
        interface=None,
        host_address="127.0.0.1",
        node_address="127.0.0.1",
        api_port=api_port,
        etcd_port=etcd_port,
        pod_cidr="10.201.128.0/17",
        service_cidr="10.201.64.0/18",
    )


def plan(place: Place) -> Network:
    """Choose a free block for a cluster with a node, without creating it. Call this and `make` while holding LOCK.

    Raises:
        ClusterError: no block is free.
    """
    used = _used_networks()
    for block in _BLOCKS:
        subnet = ipaddress.ip_network(f"10.{block}.0.0/16")
        if not any(subnet.overlaps(network) for network in used):
            return Network(
                namespace=place.namespace,
                interface=f"halcyon{block}",
                host_address=f"10.{block}.0.1",
                node_address=f"10.{block}.0.2",
                api_port=6443,
                etcd_port=2379,
                pod_cidr=f"10.{block}.128.0/17",
                service_cidr=f"10.{block}.64.0/18",
            )
    raise ClusterError(
        f"no network is free from 10.{_BLOCKS[0]}.0.0/16 to 10.{_BLOCKS[-1]}.0.0/16: the machine's routes use each; "
        "end another cluster, e.g. python -m e2e.cluster down --name NAME"
    )


def make(network: Network) -> None:
    """Create the namespace, the veth pair and the host's routes."""
    if network.namespace is None or network.interface is None:
        return
    command(["ip", "netns", "add", network.namespace])
    command(
        ["ip", "link", "add", network.interface, "type", "veth", "peer", "name", "eth0", "netns", network.namespace]
    )
    command(["ip", "addr", "add", f"{network.host_address}/24", "dev", network.interface])
    command(["ip", "link", "set", network.interface, "up"])
    for line in (
        "link set lo up",
        f"addr add {network.node_address}/24 dev eth0",
        "link set eth0 up",
        f"route add default via {network.host_address}",
    ):
        command(["ip", "-netns", network.namespace, *line.split()])
    for cidr in (network.pod_cidr, network.service_cidr):
        command(["ip", "route", "add", cidr, "via", network.node_address, "dev", network.interface])
    command([*network.enter, "sysctl", "-qw", "net.ipv4.ip_forward=1"])
    _guard_services(network, 1)


def make_second(network: Network) -> None:
    """Create the second node's namespace, its link to the first node, and the routes of all three."""
    if network.namespace is None or network.interface is None:
        return
    first, second = network.namespace, of_node(network.namespace, 2)
    link, gateway, address = network.second_link
    command(["ip", "netns", "add", second])
    command(["ip", "-netns", first, "link", "add", _LINK, "type", "veth", "peer", "name", "eth0", "netns", second])
    for namespace, line in (
        (first, f"addr add {gateway}/24 dev {_LINK}"),
        (first, f"link set {_LINK} up"),
        (second, "link set lo up"),
        (second, f"addr add {address}/24 dev eth0"),
        (second, "link set eth0 up"),
        (second, f"route add default via {gateway}"),
        (first, f"route add {network.pods_of(2)} via {address} dev {_LINK}"),
    ):
        command(["ip", "-netns", namespace, *line.split()])
    command(["ip", "route", "replace", link, "via", network.node_address, "dev", network.interface])
    command([*network.enter_node(2), "sysctl", "-qw", "net.ipv4.ip_forward=1"])
    _guard_services(network, 2)


def cut_second(network: Network) -> None:
    """Drop every packet to and from the second node, silently, as when its power or its switch fails.

    A link that is down would be reported to the peers, which would then fail at once.
    """
    _cut_rules(network, "--insert")


def mend_second(network: Network) -> None:
    """Undo `cut_second`."""
    _cut_rules(network, "--delete")


def _cut_rules(network: Network, verb: str) -> None:
    # after routing, so that packets of pods are dropped, too
    for chain, direction in (("PREROUTING", "-i"), ("POSTROUTING", "-o")):
        rule = [direction, "eth0", "-j", "DROP"]
        command([*network.enter_node(2), "iptables", "--wait", "-t", "mangle", verb, chain, *rule])


def of_node(namespace: str, node: int) -> str:
    """Return the name of a node's namespace. A cluster's name has no dot, so it is never that of another cluster."""
    return namespace if node == 1 else f"{namespace}.{node}"


def _guard_services(network: Network, node: int) -> None:
    """Prepare a node's namespace for the rules of kube-proxy."""
    enter = network.enter_node(node)
    # A connection that begins before kube-proxy has created the rules for its Service would be tracked without
    # translation, and would stay so when the rules exist (kubernetes/kubernetes#48719). A connection whose first packet
    # is dropped isn't tracked. Its next packet, a second later, matches the rules. kube-proxy inserts its own rules
    # before this one.
    drop = ["-d", network.service_cidr, "-m", "conntrack", "--ctstate", "NEW", "-j", "DROP"]
    command([*enter, "iptables", "--wait", "--append", "FORWARD", *drop])
    # Without this, kube-proxy misses packets between pods on the same bridge. Kernels without the module lack the key.
    command([*enter, "sysctl", "-qw", "net.bridge.bridge-nf-call-iptables=1"], check=False)


def remove(namespace: str, interface: str | None) -> None:
    """Remove the veth pair (with the host's routes) and the namespaces of the nodes, if they exist."""
    if interface is not None:
        command(["ip", "link", "del", interface], check=False)
    remove_second(namespace)
    if namespace in namespaces():
        # without a record the interface is unknown, and the kernel removes it some time after the namespace
        command(["ip", "-netns", namespace, "link", "del", "eth0"], check=False)
        command(["ip", "netns", "del", namespace])


def remove_second(namespace: str) -> None:
    """Remove the link between the nodes and the second node's namespace, if they exist."""
    command(["ip", "-netns", namespace, "link", "del", _LINK], check=False)
    if of_node(namespace, 2) in namespaces():
        command(["ip", "netns", "del", of_node(namespace, 2)])


def namespaces() -> list[str]:
    """Return the names of the machine's network namespaces."""
    return [line.split()[0] for line in command(["ip", "netns", "list"], check=False).splitlines() if line.strip()]


def _used_networks() -> list[ipaddress.IPv4Network]:
    used = []
    for route in _json(["ip", "-json", "-4", "route", "show", "table", "all"]):
        destination = str(route.get("dst", "default"))
        if destination != "default" and "/0" not in destination:
            used.append(ipaddress.IPv4Network(destination, strict=False))
    return used


def _json(arguments: Iterable[str]) -> list[dict[str, object]]:
    answer = json.loads(command(arguments) or "[]")
    return [entry for entry in answer if isinstance(entry, dict)]


def _free_ports(count: int) -> list[int]:
    """Return ports below the kernel's range for outgoing connections, so that none is taken before its use."""
    ports: list[int] = []
    for port in random.sample(range(20000, 30000), 200):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        ports.append(port)
        if len(ports) == count:
            return ports
    raise ClusterError("no free TCP port from 20000 to 29999 on 127.0.0.1")
