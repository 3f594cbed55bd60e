"""Rules of haproxy.cfg that limit each client source, so that other clients always have some capacity. Pure.

    in use, of the maximum     | and this source has more than | effect
    1/2 of the connections     | -                             | HTTP/1.1 responses have `Connection: close`
    3/4 of the connections     | 1/4 of them                   | its new connections are closed at once
    7/8 of the connections     | 1/16 of them                  | its new connections are closed at once
    1/2 of the requests        | 1/4 of them, since then       | 429, gRPC 8; connection closed if it does not read its responses
    7/8 of the requests        | 1/16 of them                  | 429, gRPC 8; connection closed if it does not read its responses
    all requests               | -                             | 429, gRPC 8; connection closed far beyond the maximum

A single source may use up to three quarters of the capacity: it may be an Ingress, a NAT gateway or a node with many clients. Each
further source that takes all it can reduces the rest; only four or five such sources together exhaust it.

A source is an IPv4 address or an IPv6 /64 network. Connections are counted per front end. Requests are counted over all front ends
(`memory_budget`), before HAProxy waits for any part of a body. Requests are counted per source only while more than half of the
maximum is in use; below that, each request costs one comparison.
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
"""Condition that more than half of the maximum number of requests are in progress.

Requests are counted per source only then, and checking that the counter exists is cheaper than comparing numbers.
"""
_SOURCE: Final = "src,ipmask(32,64)"
"""Source of a connection. IPv6 addresses are masked to /64, because one client may own all 2^64 addresses of such a network."""


def prologue(out: Writer, room: HaproxyLimits) -> None:
    """Add the connection and buffer limits to the section `global`."""
    out.add("maxconn $connections", connections=room.connections)
    out.add("tune.buffers.limit $buffers", buffers=room.buffers)
    out.add("tune.stick-counters 6")


def tables(out: Writer, room: HaproxyLimits) -> None:
    """Add the stick tables that count connections and requests per source.

    Each table is large enough for all sources at once; otherwise some sources would not be counted.
    """
    for frontend in ("http", "grpc", "metrics"):
        out.section("backend connections_$name", name=frontend)
        out.add("stick-table type ipv6 size $most expire 10s store conn_cur", most=2 * _max_connections(room, frontend))
    out.section("backend $table", table=_BY_SOURCE)
    out.add("stick-table type ipv6 size $most expire 10s store conn_cur", most=2 * MAX_REQUESTS)


def connection_rules(out: Writer, room: HaproxyLimits, frontend: Frontend) -> None:
    """Add the first rules of a front end, which limit its connections."""
    most = _max_connections(room, frontend)
    out.add("maxconn $most", most=most)
    # With the default, `maxconn`, the kernel would drop connection attempts in a larger burst.
    out.add("backlog 4096")
    out.add(f"tcp-request connection track-sc2 {_SOURCE} table connections_$name", name=frontend)
    for crowded, share in ((most * 3 // 4, most // 4), (most * 7 // 8, most // 16)):
        out.add(
            "tcp-request connection reject if { fe_conn gt $crowded } { sc2_conn_cur gt $share }",
            crowded=crowded,
            share=share,
        )


def few_connections_left(room: HaproxyLimits) -> str:
    """Return the condition under which HTTP/1.1 responses close their connection: more than half of the connections are in use."""
    return f"{{ fe_conn gt {room.http // 2} }}"


def counting_rules(out: Writer, table: str) -> None:
    """Add the rules of a client-facing front end that count requests; they come before all rules that respond or wait.

    `table` is the stick table that counts the requests of all sources.
    """
    out.add("http-request track-sc0 int(1) table $table", table=table)
    out.add(
        f"http-request track-sc3 {_SOURCE} table $table if {{ sc_conn_cur(0) gt $half }}",
        table=_BY_SOURCE,
        half=MAX_REQUESTS // 2,
    )
    # A response that the client does not read takes as much memory as a request, so it counts, too. Both conditions are in one rule,
    # because each request evaluates every rule.
    out.add(
        f"http-request reject if {{ sc_conn_cur(3) gt $own }} or {_CROWDED} {{ sc_conn_cur(0) gt $most }}",
        own=MAX_REQUESTS // 4 + STREAMS_PER_CHANNEL,
        most=MAX_REQUESTS + STREAMS_PER_CHANNEL,
    )


def request_rules(out: Writer, plan: BalancerPlan, protocol: Protocol) -> None:
    """Add the rules of a client-facing front end that reject requests above the limits; the rejected requests count as demand.

    They come before all rules that wait for a body.
    """
    condition = (
        f"{{ sc_conn_cur(3) gt {MAX_REQUESTS // 4} }}"
        f" or {{ sc_conn_cur(3) gt {MAX_REQUESTS // 16} }} {{ sc_conn_cur(0) gt {MAX_REQUESTS * 7 // 8} }}"
        f" or {_CROWDED} {{ sc_conn_cur(0) gt {MAX_REQUESTS} }}"
    )
    error_responses.reject_retryable(out, plan, protocol, "too many", condition)


def _max_connections(room: HaproxyLimits, frontend: Frontend) -> int:
    return {"http": room.http, "grpc": room.grpc, "metrics": MAX_METRICS_CONNECTIONS}[frontend]
