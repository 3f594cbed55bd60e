"""Addresses to which a download may connect: never this machine, link-local addresses, or metadata services of a cloud or a node.

Out of scope: the connections (`egress_proxy`), and the private networks that the site allows (`sitePolicy.models`).
"""

from __future__ import annotations

import ipaddress

from halcyon.api.policy.metadata_addresses import METADATA

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

_METADATA = frozenset(map(ipaddress.ip_address, METADATA))
_NAT64 = ipaddress.ip_network("64:ff9b::/96")
"""NAT64 network, in which the last 32 bits of an address are an IPv4 address (RFC 6052)."""


def is_open(address: Address, *, private: bool) -> bool:
    """Return True if a download may connect to the address.

    This machine, link-local addresses and metadata services are never allowed, private networks only if `private` is true.
    """
    address = _ipv4_of(address)
    if address.is_loopback or address.is_link_local or address.is_multicast or address.is_unspecified:
        return False
    if address in _METADATA or address.is_reserved:
        return False
    return private or address.is_global


def _ipv4_of(address: Address) -> Address:
    """Return the IPv4 address that is embedded in an IPv6 address; if there is none, the address itself."""
    if isinstance(address, ipaddress.IPv4Address):
        return address
    if address in _NAT64:
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped or address.sixtofour or address
