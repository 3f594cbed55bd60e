"""Proxy of a connection to an API server, from the kubeconfig and the environment."""

from __future__ import annotations

from typing import Any

import pytest

from halcyon_cli.kube import tunnel
from halcyon_cli.kube.kubeconfig import Access
from halcyon_cli.kube.transport import Transport

PROXY = "http://proxy.example.com:3128"
NO_PROXY = "10.0.0.0/8, fd00::/8,192.168.1.7,.internal.example.com,*.test.example.com"


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "no_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    monkeypatch.setenv("HTTPS_PROXY", PROXY)
    monkeypatch.setenv("NO_PROXY", NO_PROXY)


@pytest.mark.parametrize(
    "host",
    [
        "10.1.2.3:6443",
        "[fd00::1]:6443",
        "192.168.1.7:6443",
        "127.0.0.1:40123",
        "[::1]:6443",
        "localhost:6443",
        "api.internal.example.com",
        "api.test.example.com",
    ],
)
def test_the_api_server_needs_no_proxy_where_kubectl_needs_none(host: str) -> None:
    assert Transport(Access(f"https://{host}")).proxy is None


@pytest.mark.parametrize("host", ["203.0.113.4:6443", "11.1.2.3:6443", "[fe00::1]:6443", "test.example.com"])
def test_the_proxy_of_the_environment_serves_all_other_api_servers(host: str) -> None:
    assert Transport(Access(f"https://{host}")).proxy == PROXY


def test_a_proxy_of_the_environment_may_lack_its_scheme(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "proxy.example.com:3128")
    transport = Transport(Access("https://203.0.113.4:6443"))
    assert transport.proxy == PROXY
    assert transport.pool.proxy is not None


def test_the_kubeconfigs_proxy_serves_even_a_server_that_no_proxy_names() -> None:
    assert Transport(Access("https://10.1.2.3:6443", proxy="http://other:8080")).proxy == "http://other:8080"


@pytest.mark.parametrize(
    ("access", "first"),
    [
        (Access("https://10.1.2.3:6443"), ("10.1.2.3", 6443)),
        (Access("https://127.0.0.1:6443"), ("127.0.0.1", 6443)),
        (Access("https://203.0.113.4:6443"), ("proxy.example.com", 3128)),
        (Access("https://10.1.2.3:6443", proxy="http://other:8080"), ("other", 8080)),
    ],
)
def test_a_tunnel_to_a_pod_takes_the_same_proxy(
    access: Access, first: tuple[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    connected: list[tuple[str, int]] = []

    def resolve(host: str, port: int, *_: Any) -> None:
        connected.append((host, port))
        raise OSError("no connection in a unit test")

    monkeypatch.setattr("socket.getaddrinfo", resolve)
    with pytest.raises(tunnel.TunnelError, match="no connection"):
        tunnel.open_tunnel(Transport(access), "/api/v1/namespaces/team/pods/digits", 8000)
    assert connected == [first]
