"""Limits on clients that always leave some capacity to others, as rules of haproxy.cfg. Pure.

    in use, of all             | a source that has more than | effect
    1/2 of the connections     | -                           | HTTP/1.1 responses have `Connection: close`
    3/4 of the connections     | 1/4 of them                 | its new connections are closed at once
    7/8 of the connections     | 1/16 of them                | the same
    1/2 of the requests        | 1/4 of them, since then     | 429, gRPC 8; if it doesn't read its responses, its connection is closed
    7/8 of the requests        | 1/16 of them                | the same
    all requests               | -                           | 429, gRPC 8; far beyond, its connection is closed

A single source may use up to three quarters, as an Ingress, a NAT or a node with many clients behind it may need. The rest shrinks with
each source that takes as much as it can; it takes four or five of them to use it up.

A source is an IPv4 address or an IPv6 /64 network. Connections are counted by front end, and requests over all front ends
(`memory_budget`), before HAProxy waits for any part of a body. Requests are counted by source only in the upper half: below that, each
request costs one comparison.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

from halcyon.balancer.config import error_responses
from halcyon.balancer.config.memory_budget import (
    MAX_METRICS_CONNECTIONS,
    MAX_REQUESTS,
    STREAMS_PER_CHANNEL,
    HaproxyLimits,
)

if TYPE_CHECKING:
    from halcyon.api.documents.balancer_plan import BalancerPlan
    from halcyon.balancer.config.error_responses import Protocol
    from halcyon.balancer.config.writer import Writer

Frontend = Literal["http", "grpc", "metrics"]

_BY_SOURCE: Final = "requests_of"
_CROWDED: Final = "{ sc_conn_cur(3) gt 0 }"
"""A source is counted, so more than half of all requests are in use: checking for the counter is cheaper than comparing a number."""
_SOURCE: Final = "src,ipmask(32,64)"
"""The owner of an IPv6 network has 2^64 addresses."""


def prologue(out: Writer, room: HaproxyLimits) -> None:
    """Add lines to `global`."""
    out.add("maxconn $connections", connections=room.connections)
    out.add("tune.buffers.limit $buffers", buffers=room.buffers)
    out.add("tune.stick-counters 4")


def tables(out: Writer, room: HaproxyLimits) -> None:
    """Add the tables of connections and requests. Each has room for all sources at once, or some would go uncounted."""
    for frontend in ("http", "grpc", "metrics"):
        out.section("backend connections_$name", name=frontend)
        out.add("stick-table type ipv6 size $most expire 10s store conn_cur", most=2 * _max_connections(room, frontend))
    out.section("backend $table", table=_BY_SOURCE)
    out.add("stick-table type ipv6 size $most expire 10s store conn_cur", most=2 * MAX_REQUESTS)


def connection_rules(out: Writer, room: HaproxyLimits, frontend: Frontend) -> None:
    """Add the first rules of a front end."""
    most = _max_connections(room, frontend)
    out.add("maxconn $most", most=most)
    # The default is `maxconn`: the kernel would drop the first packets of a larger burst.
    out.add("backlog 4096")
    out.add(f"tcp-request connection track-sc2 {_SOURCE} table connections_$name", name=frontend)
    for crowded, share in ((most * 3 // 4, most // 4), (most * 7 // 8, most // 16)):
        out.add(
            "tcp-request connection reject if { fe_conn gt $crowded } { sc2_conn_cur gt $share }",
            crowded=crowded,
            share=share,
        )


def few_connections_left(room: HaproxyLimits) -> str:
    """Return the condition for few connections being left, in HTTP/1.1's front end: requests then close their connection."""
    return f"{{ fe_conn gt {room.http // 2} }}"


def counting_rules(out: Writer, table: str) -> None:
    """Add the rules of a client-facing front end that count all requests in this table, before any that respond or wait."""
    out.add("http-request track-sc0 int(1) table $table", table=table)
    out.add(
        f"http-request track-sc3 {_SOURCE} table $table if {{ sc_conn_cur(0) gt $half }}",
        table=_BY_SOURCE,
        half=MAX_REQUESTS // 2,
    )
    # A response that its client doesn't read holds as much memory as a request, so responses are limited, too. (One rule, because every
    # request evaluates each rule.)
    out.add(
        f"http-request reject if {{ sc_conn_cur(3) gt $own }} or {_CROWDED} {{ sc_conn_cur(0) gt $most }}",
        own=MAX_REQUESTS // 4 + STREAMS_PER_CHANNEL,
        most=MAX_REQUESTS + STREAMS_PER_CHANNEL,
    )


def request_rules(out: Writer, plan: BalancerPlan, protocol: Protocol) -> None:
    """Add the rules of a client-facing front end before any that wait for a body; the requests that they reject count as demand."""
    condition = (
        f"{{ sc_conn_cur(3) gt {MAX_REQUESTS // 4} }}"
        f" or {{ sc_conn_cur(3) gt {MAX_REQUESTS // 16} }} {{ sc_conn_cur(0) gt {MAX_REQUESTS * 7 // 8} }}"
        f" or {_CROWDED} {{ sc_conn_cur(0) gt {MAX_REQUESTS} }}"
    )
    error_responses.reject_retryable(out, plan, protocol, "too many", condition)


def _max_connections(room: HaproxyLimits, frontend: Frontend) -> int:
    return {"http": room.http, "grpc": room.grpc, "metrics": MAX_METRICS_CONNECTIONS}[frontend]
