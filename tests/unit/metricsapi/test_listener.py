"""How a port counts and logs the connections that it closes. Its sockets are tested in tests/integration."""

from __future__ import annotations

import socket
from dataclasses import replace

import pytest
from aiohttp import web
from prometheus_client import CollectorRegistry

from halcyon.metricsapi import waiting_connections
from halcyon.metricsapi.connections import DEFAULT_LIMITS, Limit, PortLimits
from halcyon.metricsapi.listener import Listener
from halcyon.monitoring import instruments, operator_metrics


def full(
    limit: Limit, monkeypatch: pytest.MonkeyPatch, limits: PortLimits = DEFAULT_LIMITS
) -> tuple[Listener, CollectorRegistry]:
    """Return a port at which each new connection would exceed this limit."""
    registry = CollectorRegistry()
    closed = instruments.counter(operator_metrics.CONNECTIONS_CLOSED, registry)
    listener = Listener(web.Application(), closed, name="https", tls=None, shutdown_s=0.0, limits=limits)
    monkeypatch.setattr(listener, "_begun", lambda *_: limit)
    return listener, registry


@pytest.mark.parametrize("limit", ["source", "all"])
async def test_a_connection_that_waits_too_long_is_counted_with_its_limit(
    limit: Limit, monkeypatch: pytest.MonkeyPatch
) -> None:
    listener, registry = full(limit, monkeypatch)
    ours, theirs = socket.socketpair()
    listener._take(ours, "10.0.0.1")
    monkeypatch.setattr(waiting_connections, "MAX_WAIT_S", 0.0)
    listener._check_waiting()
    labels = {"port": "https", "reason": limit}
    assert registry.get_sample_value("halcyon_connections_closed_total", labels) == 1
    theirs.close()


async def test_the_log_names_the_source_whose_connection_was_closed(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    listener, _ = full("source", monkeypatch, replace(DEFAULT_LIMITS, waiting=3))
    pairs = [socket.socketpair() for _ in range(4)]
    for (accepted, _), source in zip(pairs, ("10.0.0.1", "10.0.0.1", "10.0.0.1", "10.0.0.2"), strict=True):
        listener._take(accepted, source)
    assert [vars(record)["source"] for record in caplog.records] == ["10.0.0.1"]
    for sock in (sock for pair in pairs for sock in pair):
        sock.close()
