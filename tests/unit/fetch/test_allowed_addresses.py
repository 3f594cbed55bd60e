"""Addresses that a download may connect to."""

from __future__ import annotations

import ipaddress

import pytest

from halcyon.fetch.egress_proxy import SiteProxy, is_open


@pytest.mark.parametrize(
    "address",
    [
        "169.254.169.254", "127.0.0.1", "127.9.9.9", "0.0.0.0", "224.0.0.1", "255.255.255.255", "240.0.0.1", "100.100.100.200",
        "168.63.129.16", "192.0.0.192", "::1", "::", "fe80::1", "fd00:ec2::254", "fd20:ce::254", "ff02::1", "::ffff:169.254.169.254",
        "::ffff:127.0.0.1", "64:ff9b::a9fe:a9fe", "2002:a9fe:a9fe::1", "2002:7f00:1::",
    ],
)  # fmt: skip
def test_forbidden_download_addresses_are_refused(address: str) -> None:
    parsed = ipaddress.ip_address(address)
    assert not is_open(parsed, private=False)
    assert not is_open(parsed, private=True)


@pytest.mark.parametrize(
    "address", ["10.0.0.1", "172.16.0.1", "192.168.1.1", "100.64.0.1", "fd12::1", "::ffff:10.0.0.1", "64:ff9b::a00:1"]
)
def test_a_private_network_is_open_where_the_site_has_named_the_server(address: str) -> None:
    parsed = ipaddress.ip_address(address)
    assert not is_open(parsed, private=False)
    assert is_open(parsed, private=True)


@pytest.mark.parametrize("address", ["52.216.1.1", "2600:1fa0::1", "::ffff:52.216.1.1", "64:ff9b::34d8:101"])
def test_the_rest_of_the_world_is_open(address: str) -> None:
    assert is_open(ipaddress.ip_address(address), private=False)


@pytest.mark.parametrize(
    ("entry", "host", "port", "is_direct"),
    [
        (".svc", "minio.storage.svc", 9000, True), ("svc", "svc", 443, True), (".svc", "minio.svc.example", 443, False),
        ("Minio.Example.COM", "minio.example.com", 443, True), ("minio.example.com:9000", "minio.example.com", 9000, True),
        ("minio.example.com:9000", "minio.example.com", 443, False), (".example.com:443", "a.example.com", 443, True),
        ("10.0.0.0/8", "10.1.2.3", 80, True), ("10.1.2.3", "10.1.2.3", 80, True), ("fd00::/8", "fd12::1", 80, True),
        ("fd00::1", "fd00", 80, False), ("10.0.0.0/8", "example.com", 80, False),
    ],
)  # fmt: skip
def test_hosts_without_the_sites_proxy_are_named_as_in_no_proxy(
    entry: str, host: str, port: int, is_direct: bool
) -> None:
    assert SiteProxy("http://proxy.example.com:3128", (entry,)).serves(host, port) is not is_direct
