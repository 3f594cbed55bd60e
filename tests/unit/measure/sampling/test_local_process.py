"""Processes of a server on this machine."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from halcyon_measure.sampling import local_process
from halcyon_measure.sampling.local_process import LocalServer


def test_listener_of_a_port_is_found() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert local_process.listener("127.0.0.1", port) == os.getpid()
        assert local_process.listener("127.0.0.2", port) is None
    assert local_process.listener("127.0.0.1", port) is None


def test_listener_at_all_addresses_is_found_at_each() -> None:
    with socket.create_server(("0.0.0.0", 0)) as server:  # the case
        assert local_process.listener("127.0.0.3", server.getsockname()[1]) == os.getpid()


def test_listener_of_ipv6_at_an_ipv4_address_is_found() -> None:
    with socket.socket(socket.AF_INET6, socket.SOCK_STREAM) as server:
        server.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        server.bind(("::ffff:127.0.0.1", 0))
        server.listen()
        assert local_process.listener("127.0.0.1", server.getsockname()[1]) == os.getpid()


def test_loopback_is_local_and_another_network_is_not() -> None:
    assert local_process.is_local("127.0.0.1")
    assert not local_process.is_local("192.0.2.1")


def test_a_sample_has_cpu_time_and_memory() -> None:
    server = LocalServer(os.getpid())
    first = server.sample(0.0)
    sum(range(3_000_000))
    second = server.sample(1.0)
    assert first is not None
    assert second is not None
    assert second.cpu_s >= first.cpu_s > 0  # type: ignore[operator]  # measured
    assert second.memory > 2**20  # type: ignore[operator]  # measured


def test_an_ended_process_has_no_sample() -> None:
    assert LocalServer(2**22 + 1).sample(0.0) is None


def test_sample_without_scheduler_statistics_has_the_other_figures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = tmp_path / str(os.getpid())
    process.mkdir()
    for name in ("stat", "statm"):
        (process / name).write_text(Path(f"/proc/{os.getpid()}/{name}").read_text())
    monkeypatch.setattr(local_process, "_PROC", tmp_path)
    sample = LocalServer(os.getpid()).sample(0.0)
    assert sample is not None
    assert sample.cpu_s is not None
    assert sample.memory is not None
    assert sample.core_wait_s is None
