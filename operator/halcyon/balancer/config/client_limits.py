"""Rules of haproxy.cfg that limit each client source, so that other clients always have some capacity. Pure.

The more connections or requests are in use, the fewer a single source may have. If a source exceeds its limit, its new
connections are closed, and its new requests are rejected.

A single source may use up to three quarters of the capacity. It may be an Ingress, a NAT gateway or a node with many
clients. Several sources together can exhaust the capacity: it takes four or five, each at its limit.

A source is an IPv4 address or an IPv6 /64 network. Connections are counted per front end. Requests are counted over all front ends
(`memory_budget`), before HAProxy waits for any part of a body. Requests are counted per source only while more than half of the
maximum is in use; below that, each request costs one comparison.

Clients that wait for a server share the queue. A client is an API key, or a source if the model has no keys.

If the queue is full, requests of a client that has more than half of its share are rejected.

The share of a client is the total divided by the number of clients that wait. Waiting requests are not ordered by
source, because a source may be an Ingress or a NAT gateway with many clients.
"""

# in use, of the maximum     | and this source has more than | effect
# 1/2 of the connections     | -                             | HTTP/1.1 responses have `Connection: close`
# 3/4 of the connections     | 1/4 of them                   | its new connections are closed at once
# 7/8 of the connections     | 1/16 of them                  | its new connections are closed at once
# 1/2 of the requests        | 1/4 of them, since then       | 429, gRPC 8; connection closed if it does not read its responses
# 7/8 of the requests        | 1/16 of them                  | 429, gRPC 8; connection closed if it does not read its responses
# all requests               | -                             | 429, gRPC 8; connection closed far beyond the maximum

# in the queue                    | and this client has          | effect
# queueLimit                      | more than half of its share  | 429, gRPC 8
# 5/4 of queueLimit               | -                            | 429, gRPC 8
# -                               | 3/2 of its share; a key only | other clients' requests are up to 5 s ahead of it

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

from halcyon.api.documents.balancer_plan import LOWER_CLASS_HEADER
from halcyon.balancer.config import error_responses, grpc_streams
from halcyon.balancer.config.memory_budget import (
    MAX_LOWER,
    MAX_METRICS_CONNECTIONS,
    MAX_POLLED,
    MAX_REQUESTS,
    MAX_STREAMS,
    STREAMS_PER_CHANNEL,
    HaproxyLimits,
    users_requests,
)
from halcyon.balancer.config.model import LOWER_ROW

if TYPE_CHECKING:
    from halcyon.api.documents.balancer_plan import BalancerPlan
    from halcyon.balancer.config.error_responses import Protocol
    from halcyon.balancer.config.writer import Writer

Frontend = Literal["http", "grpc", "metrics"]

CLIENTS: Final = "clients"
"""Name of the stick table that counts, by API key, the requests in progress that had to wait for a server."""
SOURCES: Final = "sources"
"""Name of the stick table that counts, by source, the requests in progress that had to wait for a server."""
_SCRAPES: Final = "scrapes"
_WAITING: Final = "waiting"
_MAX_OVERTAKING_MS: Final = 5000
_BY_SOURCE: Final = "requests_of"
SLOW: Final = "slow"
"""Name of the stick table of sources that kept servers busy with requests that they did not finish sending."""
CAPPED: Final = "capped"
"""Name of the stick table of sources that kept servers busy with unread responses or idle streams. An entry contains
the number of requests that the source may have in progress."""
SLOW_FOR_S: Final = 60
"""Time for which a source stays in the tables `SLOW` and `CAPPED`, in seconds."""
_UNREAD_MS: Final = 60_000
"""Maximum time in which a client may read nothing of its response, in milliseconds."""
_CROWDED: Final = "{ sc_conn_cur(3) gt 0 }"
"""HAProxy condition that is true if more than half of the maximum number of requests are in progress. Only then are
requests counted per source. The condition checks that a counter exists, which is cheaper than comparing numbers."""
_SOURCE: Final = "src,ipmask(32,64)"
"""HAProxy expression for the source of a connection. IPv6 addresses are masked to /64, because one client may own all
2^64 addresses of such a network."""


def prologue(out: Writer, room: HaproxyLimits) -> None:
    """Add the limits on connections and buffers to the section `global` of haproxy.cfg."""
    out.add("maxconn $connections", connections=room.connections)
    out.add("tune.buffers.limit $buffers", buffers=room.buffers)
    out.add("tune.stick-counters 8")
    # HAProxy creates the streams of all connections that it has polled before it evaluates a rule for the first of them. So it polls few
    # at a time, and runs all of their streams before it polls again.
    out.add("tune.maxpollevents $events", events=MAX_POLLED)
    out.add("tune.runqueue-depth $tasks", tasks=MAX_POLLED * STREAMS_PER_CHANNEL)


def tables(out: Writer, room: HaproxyLimits) -> None:
    """Add the stick tables that count connections and requests per source.

    Each table has room for all possible sources. In a smaller table, some sources would not be counted.
    """
    for frontend in ("http", "grpc", "metrics"):
        out.section("backend connections_$name", name=frontend)
        out.add("stick-table type ipv6 size $most expire 10s store conn_cur", most=2 * _max_connections(room, frontend))
    out.section("backend $table", table=_SCRAPES)
    out.add("stick-table type ipv6 size 1000 expire 10s store http_req_rate(10s)")
    # The agent adds sources (`slow_clients`).
    for table in (SLOW, CAPPED):
        out.section("backend $table", table=table)
        out.add("stick-table type ipv6 size 1000 expire $seconds store gpc0", seconds=SLOW_FOR_S * 1000)
    out.section("backend $table", table=_BY_SOURCE)
    out.add("stick-table type ipv6 size $most expire 10s store conn_cur", most=2 * MAX_REQUESTS)


def slow_rules(out: Writer, plan: BalancerPlan, protocol: Protocol, *, large: int) -> None:
    """Add the rule of a client-facing front end that rejects requests larger than a buffer if their source is slow.

    Such a request would be sent to a server before it is complete. The rule comes after those that wait for the body.
    Only requests of at least `large` bytes are looked up in the table.
    """
    condition = f"infers {{ req.body_len ge $large }} {{ {_SOURCE},table_gpc0({SLOW}) gt 0 }}"
    error_responses.reject_retryable(out, plan, protocol, "too slow", condition, large=large)


def queue_tables(out: Writer) -> None:
    """Add the stick tables that count the requests that wait for a server.

    They count by API key, by source, and in total.
    """
    # Entries without a request expire soon, because the number of entries is the number of clients that share the queue.
    # A table cuts longer names, and clients with the same beginning would be one. Names in a Secret have up to 253 characters.
    for table, key in (
        (CLIENTS, "string len 254 size 1000"),
        (SOURCES, "ipv6 size 10000"),
        (_WAITING, "integer size 1"),
    ):
        out.section("backend $table", table=table)
        out.add(f"stick-table type {key} expire 3s store conn_cur")


def queue_rules(out: Writer, plan: BalancerPlan, protocol: Protocol) -> None:
    """Add the rules of a client-facing front end that divide the queue between clients.

    They use the ACLs `waits` and `up`. They set `txn.ahead`, the number of requests ahead of a new one in the queue.
    """
    out.add("acl keyed var(txn.client) -m found")
    out.add(f"http-request track-sc4 var(txn.client) table {CLIENTS} if waits keyed")
    is_limited = plan.source_share < 100
    out.add(f"http-request track-sc5 {_SOURCE} table {SOURCES} if waits" + ("" if is_limited else " !keyed"))
    if is_limited:
        own = max(1, plan.queue_limit * plan.source_share // 100)
        error_responses.reject_retryable(
            out, plan, protocol, "too many of one", "waits { sc_conn_cur(5) gt $own }", own=own
        )
    for table, counter, condition in ((CLIENTS, 4, "keyed"), (SOURCES, 5, "!keyed")):
        out.add(f"http-request set-var(txn.clients) table_cnt({table}) if waits {condition}")
        # Requests of this client, times the number of clients: more than the total if they are more than its share.
        out.add(f"http-request set-var(txn.load) sc_conn_cur({counter}),mul(txn.clients) if waits {condition}")
    limit = plan.queue_limit
    crowded = f"waits up {{ var(txn.waiting) -m int ge {limit} }}"
    error_responses.reject_retryable(
        out,
        plan,
        protocol,
        "too many wait",
        f"{crowded} {{ var(txn.load) -m int gt {limit // 2} }} or waits up {{ var(txn.waiting) -m int ge {limit * 5 // 4} }}",
    )
    # A client with a key waits for as many requests of each other client as for its own.
    out.add("http-request set-var(txn.ahead) var(txn.waiting) if waits")
    out.add(
        "http-request set-var(txn.ahead) var(txn.load) if waits keyed { var(txn.load),sub(txn.waiting) -m int lt 0 }"
    )
    out.add(f"http-request track-sc6 int(1) table {_WAITING} if waits keyed")
    out.add("http-request set-var(txn.all) sc_conn_cur(6),mul(3),div(2) if waits keyed")
    out.add(
        "http-request set-priority-offset int($ms) if waits keyed { var(txn.load),sub(txn.all) -m int gt 0 }",
        ms=min(plan.queue_timeout_ms // 4, _MAX_OVERTAKING_MS),
    )


def connection_rules(out: Writer, room: HaproxyLimits, frontend: Frontend) -> None:
    """Add the rules of a front end that limit its connections. They are its first rules."""
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


def reset_rule(out: Writer) -> None:
    """Add the rule of the front end `grpc` that ends calls already reset by their client.

    No later rule is evaluated for such a call, and it does not count as a request. Only the access log's rules precede
    this one. It protects HAProxy from clients that reset their calls as fast as they send them.
    """
    error_responses.reject(out, "grpc", (499, 1, "the client reset the call"), "{ fs.aborted -m bool }")


def scrape_rules(out: Writer) -> None:
    """Add the rules of the front end `metrics` that limit scrapes.

    A metrics page takes as much CPU time as hundreds of requests. One source may send 20 scrapes in 10 s, but only 5
    while all sources together send more than four per second.
    """
    out.add(f"http-request track-sc0 {_SOURCE} table $table", table=_SCRAPES)
    crowded = "{ sc_http_req_rate(0) gt 5 } { fe_req_rate gt 4 }"
    out.add(f"http-request return status 429 hdr Retry-After 10 if {{ sc_http_req_rate(0) gt 20 }} or {crowded}")


def few_connections_left(room: HaproxyLimits) -> str:
    """Return the HAProxy condition under which HTTP/1.1 responses close their connection.

    It is true if more than half of the connections are in use.
    """
    return f"{{ fe_conn gt {room.http // 2} }}"


def counting_rules(out: Writer, plan: BalancerPlan, protocol: Protocol, table: str) -> None:
    """Add the rules of a client-facing front end that count requests. They come before all rules that respond or wait.

    `table` is the stick table that counts the requests of all sources.
    """
    lower_class_rule(out, plan, table)
    most = users_requests(plan)
    out.add("http-request track-sc0 int(1) table $table", table=table)
    # Looking up the source is needed only while there are entries.
    out.add(f"http-request set-var(txn.places) {_SOURCE},table_gpc0({CAPPED}) if {{ table_cnt({CAPPED}) gt 0 }}")
    out.add("acl capped var(txn.places) -m int gt 0")
    streams = f" or {grpc_streams.IS_STREAM} {_many_streams(2)}" if protocol == "grpc" else ""
    out.add(
        f"http-request track-sc3 {_SOURCE} table $table if {{ sc_conn_cur(0) gt $half }} or capped{streams}",
        table=_BY_SOURCE,
        half=most // 2,
    )
    # A response that the client does not read takes as much memory as a request, so it counts, too. Both conditions are in one rule,
    # because each request evaluates every rule.
    out.add(
        f"http-request reject if {{ sc_conn_cur(3) gt $own }} or {_CROWDED} {{ sc_conn_cur(0) gt $most }}",
        own=most // 4 + STREAMS_PER_CHANNEL,
        most=most + STREAMS_PER_CHANNEL,
    )


def lower_class_rule(out: Writer, plan: BalancerPlan, table: str) -> None:
    """Add the rule that counts requests of batch inference in a separate row of the stick table.

    It defines the ACL `lower` for these requests, and precedes the rule that counts all other requests. Demand, latency
    and rejections therefore include only users' requests.
    """
    if plan.has_lower_class:
        out.add(f"acl lower req.fhdr({LOWER_CLASS_HEADER}) -m found")
        out.add("http-request track-sc0 int($row) table $table if lower", row=LOWER_ROW, table=table)


def request_rules(out: Writer, plan: BalancerPlan, protocol: Protocol) -> None:
    """Add the rules of a client-facing front end that reject requests above the limits.

    The rejected requests count as demand. The rules come before all rules that wait for a body.
    """
    most = users_requests(plan)
    condition = (
        f"{{ sc_conn_cur(3) gt {most // 4} }}"
        f" or {{ sc_conn_cur(3) gt {most // 16} }} {{ sc_conn_cur(0) gt {most * 7 // 8} }}"
        f" or {_CROWDED} {{ sc_conn_cur(0) gt {most} }}"
    )
    if protocol == "grpc":
        condition += f" or {grpc_streams.IS_STREAM} {{ sc_conn_cur(3) gt {MAX_STREAMS // 4} }} {_many_streams(4, 3)}"
    error_responses.reject_retryable(out, plan, protocol, "too many", condition)
    error_responses.reject_retryable(
        out, plan, protocol, "too slow to read", "capped infers { sc_conn_cur(3),sub(txn.places) -m int gt 0 }"
    )
    if plan.has_lower_class:
        condition = f"lower infers {{ sc_conn_cur(0) gt {MAX_LOWER} }}"
        error_responses.reject_retryable(out, plan, protocol, "too many lower", condition)


def response_rules(out: Writer, protocol: Protocol) -> None:
    """Add the rule of a client-facing front end that limits how long a client may go without reading from a response.

    While a request is being sent, `timeout client` applies, which is longer than a request may wait. `timeout client`
    also applies to streams, because a stream's client may be silent between two messages.
    """
    condition = f" if !{{ be_name -m str {grpc_streams.BACKEND} }}" if protocol == "grpc" else ""
    out.add(f"http-response set-timeout client {_UNREAD_MS}{condition}")


def _many_streams(divisor: int, factor: int = 1) -> str:
    """Return the HAProxy condition that is true if more than this share of the maximum number of streams are open."""
    return f"{{ be_conn({grpc_streams.BACKEND}) gt {MAX_STREAMS * factor // divisor} }}"


def _max_connections(room: HaproxyLimits, frontend: Frontend) -> int:
    return {"http": room.http, "grpc": room.grpc, "metrics": MAX_METRICS_CONNECTIONS}[frontend]
