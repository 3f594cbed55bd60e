"""What clients are refused so that some room is always left for others, as rules of haproxy.cfg. Pure.

    in use, of all             | a source that has more than | what it meets
    1/2 of the connections     | -                           | answers of HTTP/1.1 say `Connection: close`
    3/4 of the connections     | 1/4 of them                 | its new connections are closed at once
    7/8 of the connections     | 1/16 of them                | the same
    1/2 of the requests        | 1/4 of them, since then     | 429, gRPC 8; and if it reads no answers, its connection is closed
    7/8 of the requests        | 1/16 of them                | the same
    all requests               | -                           | 429, gRPC 8; far beyond, its connection is closed

A source that is alone has up to three quarters, as an Ingress, a NAT or a node with many clients behind it may need. What is left to
others shrinks with each source that takes as much as it can; it takes four or five of them to use it up.

A source is an address, or a network of IPv6 that belongs to one. Connections are counted by front end and requests over all
(`memory`), before anything of a body is waited for. Requests are counted by source only in the upper half: the others pay for one
look at a number.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

from halcyon.balancer.config import error_responses
from halcyon.balancer.config.memory_budget import MAX_REQUESTS, METRICS_CONNECTIONS, STREAMS_PER_CHANNEL, Room

if TYPE_CHECKING:
    from halcyon.api.documents.balancer_plan import BalancerPlan
    from halcyon.balancer.config.error_responses import Protocol
    from halcyon.balancer.config.writer import Writer

Frontend = Literal["http", "grpc", "metrics"]

_BY_SOURCE: Final = "requests_of"
_CROWDED: Final = "{ sc_conn_cur(3) gt 0 }"
"""A source is counted, so more than half of all requests are there: what isn't counted is cheaper to ask for than a number."""
_SOURCE: Final = "src,ipmask(32,64)"
"""Who owns a network of IPv6 has 2^64 addresses."""


def prologue(out: Writer, room: Room) -> None:
    """Lines of `global`."""
    out.add("maxconn $connections", connections=room.connections)
    out.add("tune.buffers.limit $buffers", buffers=room.buffers)
    out.add("tune.stick-counters 4")


def tables(out: Writer, room: Room) -> None:
    """Sections for what is counted. None is smaller than what is counted in it at once, or a source would go uncounted."""
    for frontend in ("http", "grpc", "metrics"):
        out.section("backend connections_$name", name=frontend)
        out.add("stick-table type ipv6 size $most expire 10s store conn_cur", most=2 * _most(room, frontend))
    out.section("backend $table", table=_BY_SOURCE)
    out.add("stick-table type ipv6 size $most expire 10s store conn_cur", most=2 * MAX_REQUESTS)


def of_connections(out: Writer, room: Room, frontend: Frontend) -> None:
    """First rules of a front end."""
    most = _most(room, frontend)
    out.add("maxconn $most", most=most)
    # Else as long as `maxconn`: a burst of more would make the kernel drop the first packet of others.
    out.add("backlog 4096")
    out.add(f"tcp-request connection track-sc2 {_SOURCE} table connections_$name", name=frontend)
    for crowded, share in ((most * 3 // 4, most // 4), (most * 7 // 8, most // 16)):
        out.add(
            "tcp-request connection reject if { fe_conn gt $crowded } { sc2_conn_cur gt $share }",
            crowded=crowded,
            share=share,
        )


def is_short(room: Room) -> str:
    """The condition that connections of HTTP/1.1 get short, in its front end: who asks then, keeps none."""
    return f"{{ fe_conn gt {room.http // 2} }}"


def count(out: Writer, table: str) -> None:
    """Rules of a client's front end, before any that answers or waits; this table has the requests of all."""
    out.add("http-request track-sc0 int(1) table $table", table=table)
    out.add(
        f"http-request track-sc3 {_SOURCE} table $table if {{ sc_conn_cur(0) gt $half }}",
        table=_BY_SOURCE,
        half=MAX_REQUESTS // 2,
    )
    # An answer that its client doesn't read holds as much as a request. So there is an end to answers, too. (One rule: each is asked for
    # by every request.)
    out.add(
        f"http-request reject if {{ sc_conn_cur(3) gt $own }} or {_CROWDED} {{ sc_conn_cur(0) gt $most }}",
        own=MAX_REQUESTS // 4 + STREAMS_PER_CHANNEL,
        most=MAX_REQUESTS + STREAMS_PER_CHANNEL,
    )


def of_requests(out: Writer, plan: BalancerPlan, protocol: Protocol) -> None:
    """Rules of a client's front end, before any that waits for a body; what they refuse is counted as demand."""
    condition = (
        f"{{ sc_conn_cur(3) gt {MAX_REQUESTS // 4} }}"
        f" or {{ sc_conn_cur(3) gt {MAX_REQUESTS // 16} }} {{ sc_conn_cur(0) gt {MAX_REQUESTS * 7 // 8} }}"
        f" or {_CROWDED} {{ sc_conn_cur(0) gt {MAX_REQUESTS} }}"
    )
    error_responses.refuse(out, plan, protocol, "too many", condition)


def _most(room: Room, frontend: Frontend) -> int:
    return {"http": room.http, "grpc": room.grpc, "metrics": METRICS_CONNECTIONS}[frontend]
