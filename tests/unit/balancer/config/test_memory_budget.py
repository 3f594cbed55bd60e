from __future__ import annotations

from dataclasses import replace

import pytest

from halcyon.api.documents.balancer_plan import HAPROXY_MEMORY_MIB, BalancerPlan, Slot
from halcyon.balancer.config import memory_budget
from halcyon.balancer.config.haproxy_cfg import render
from halcyon.balancer.config.memory_budget import MAX_REQUESTS, STREAMS_PER_CHANNEL, haproxy_limits
from halcyon.balancer.config.model import Listen, TlsFiles

PLAN = BalancerPlan(
    namespace="default",
    name="digits",
    model="digits",
    slots=(Slot("a", "digits-server-a", 100, 8),),
    max_connections=48,
    queue_limit=200,
    queue_timeout_ms=60000,
    response_timeout_ms=60000,
    drain_ms=30000,
)
ROLLING = replace(PLAN, slots=tuple(Slot(name, "x", 50, 2048) for name in ("a", "b")))
"""A rollout of a model with 1,000 replicas: the most server lines that there can be."""

# KiB, measured: docs/decisions/0039-room-for-other-clients.md.
PROCESS, LINE, HTTP, GRPC, TLS, REQUEST, BUFFER = 19 * 1024, 9, 6, 12, 39, 6, 32


@pytest.mark.parametrize("tls", [False, True])
@pytest.mark.parametrize("plan", [PLAN, ROLLING], ids=["one slot", "most server lines"])
def test_the_maximum_that_haproxy_may_hold_fits_below_its_limit(plan: BalancerPlan, *, tls: bool) -> None:
    most = haproxy_limits(plan, tls=tls)
    lines = sum(slot.capacity for slot in plan.slots)
    kib = 2 * (PROCESS + lines * LINE) + most.http * HTTP + most.grpc * GRPC + (most.http + most.grpc) * TLS * tls
    kib += (MAX_REQUESTS + STREAMS_PER_CHANNEL) * REQUEST + most.buffers * (BUFFER + REQUEST)
    # The queues of both protocols, moved while the last server of each slot leaves.
    kib += 2 * len(plan.slots) * memory_budget.MAX_MOVED * (GRPC + REQUEST)
    # What is left is for sockets' own queues and the allocator.
    assert HAPROXY_MEMORY_MIB * 1024 - kib > 32 * 1024


@pytest.mark.parametrize("tls", [False, True])
def test_no_source_alone_can_take_the_last_buffer(*, tls: bool) -> None:
    wide = replace(PLAN, slots=(Slot("a", "x", 50, 512),))
    for plan in (PLAN, wide):
        most = haproxy_limits(plan, tls=tls)
        assert most.lone_source < most.buffers


def test_a_smaller_container_has_fewer_buffers_by_as_much() -> None:
    assert (
        haproxy_limits(PLAN, tls=False).buffers
        - haproxy_limits(PLAN, tls=False, limit_mib=HAPROXY_MEMORY_MIB - 38).buffers
        == 1024
    )


@pytest.mark.parametrize("tls", [None, TlsFiles("certificate-0.pem")])
def test_each_front_end_has_room_that_no_other_can_take(tls: TlsFiles | None) -> None:
    text = render(PLAN, listen=Listen(tls=tls))
    most = haproxy_limits(PLAN, tls=tls is not None)
    together = most.http + most.grpc + memory_budget.MAX_METRICS_CONNECTIONS + 2 * memory_budget.MAX_STREAMS
    assert most.connections > together
    assert f"  maxconn {most.connections}\n" in text
    for name, own in (("http", most.http), ("grpc", most.grpc), ("metrics", memory_budget.MAX_METRICS_CONNECTIONS)):
        section = text.split(f"\nfrontend {name}\n")[1].split("\n\n")[0]
        assert f"\n  maxconn {own}\n" in section
        rejects = [line for line in section.splitlines() if "connection reject" in line]
        assert rejects == [
            f"  tcp-request connection reject if {{ fe_conn gt {own * 3 // 4} }} {{ sc2_conn_cur gt {own // 4} }}",
            f"  tcp-request connection reject if {{ fe_conn gt {own * 7 // 8} }} {{ sc2_conn_cur gt {own // 16} }}",
        ]


@pytest.mark.parametrize("name", ["http", "grpc"])
def test_requests_are_bounded_before_any_body_is_waited_for(name: str) -> None:
    keyed = replace(PLAN, max_request_bytes=2**20)
    section = render(keyed, listen=Listen(keys="keys-0.txt")).split(f"\nfrontend {name}\n")[1].split("\n\n")[0]
    # Only calls that their client has reset already end before they are counted.
    section = "".join(line for line in section.splitlines(keepends=True) if "fs.aborted" not in line)
    first = section.index("http-request track-sc0 int(1)")
    assert first < section.index("http-request return") < section.index("wait-for-body")
    assert section.index("http-request reject") < section.index("http-request return")
    assert section.index(f"sc_conn_cur(0) gt {MAX_REQUESTS} }}") < section.index("wait-for-body")


def test_idle_connections_are_kept_for_five_minutes() -> None:
    assert "\n  timeout http-keep-alive 5m\n" in render(PLAN, listen=Listen())
