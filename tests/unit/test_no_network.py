"""Unit tests reach no cluster and no network: what holds them to it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from halcyon_cli.errors import ClusterError
from halcyon_cli.kube.client import Cluster, Target
from tests.no_network import ReachedOutError, no_network

TEST = "tests/unit/test_a.py::test_b"


@pytest.mark.parametrize(
    ("family", "address", "attempt"),
    [
        (socket.AF_INET, ("127.0.0.1", 1), "connects to 127.0.0.1 port 1"),
        (socket.AF_INET, ("192.0.2.1", 443), "connects to 192.0.2.1 port 443"),
        (socket.AF_INET6, ("::1", 6443), "connects to ::1 port 6443"),
    ],
)
def test_a_connection_is_refused_with_test_address_and_where_it_belongs(
    family: socket.AddressFamily, address: tuple[str, int], attempt: str
) -> None:
    with (
        pytest.raises(ReachedOutError) as caught,
        no_network(TEST),
        socket.socket(family) as client,
    ):
        client.connect(address)

    assert str(caught.value) == (
        f"{TEST} {attempt}, and unit tests use no network: a test that needs a server belongs in tests/integration"
    )


async def test_a_library_s_connection_is_refused_alike() -> None:
    with pytest.raises(ReachedOutError, match=r"connects to 127\.0\.0\.1 port 1,"), no_network(TEST):
        await asyncio.open_connection("127.0.0.1", 1)


def test_a_datagram_and_a_lookup_are_refused() -> None:
    with (
        pytest.raises(ReachedOutError, match=r"connects to 127\.0\.0\.1 port 53"),
        no_network(TEST),
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client,
    ):
        client.sendto(b"x", ("127.0.0.1", 53))
    with pytest.raises(ReachedOutError, match=r"looks up kubernetes\.default\.svc,"), no_network(TEST):
        socket.getaddrinfo("kubernetes.default.svc", 443)


def test_a_test_that_survives_a_refused_connection_fails_at_its_end() -> None:
    def goes_on() -> None:
        with contextlib.suppress(Exception), socket.socket() as client:
            client.connect(("127.0.0.1", 1))

    with pytest.raises(ReachedOutError, match=r"connects to 127\.0\.0\.1 port 1"), no_network(TEST):
        goes_on()


def test_sockets_of_files_and_pairs_are_let_through(tmp_path: Path) -> None:
    with no_network(TEST), socket.socket(socket.AF_UNIX) as server, socket.socket(socket.AF_UNIX) as client:
        server.bind(str(tmp_path / "s"))
        server.listen()
        client.connect(str(tmp_path / "s"))
        first, second = socket.socketpair()
        with first, second:
            first.sendall(b"x")
            assert second.recv(1) == b"x"


def test_no_cluster_is_configured_here_or_in_child_processes() -> None:
    code = "import os; print([name for name in os.environ if name.startswith('KUBE')])"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout

    assert shown.strip() == "[]"
    assert not Path("~/.kube/config").expanduser().exists()
    with pytest.raises(ClusterError, match=rf"kubeconfig {os.environ['HOME']}/\.kube/config doesn't exist; name one"):
        Cluster(Target("get"))
