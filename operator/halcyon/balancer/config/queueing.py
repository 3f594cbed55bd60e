"""What happens to an inference request between its arrival and a server's queue, as rules of haproxy.cfg. Pure.

    what HAProxy finds at arrival         | what it does
    too many requests are under way       | 429, gRPC 8 (`pressure`)
    no server is up                       | holds the request (`hold.lua`)
    queueLimit requests wait already      | 429, gRPC 8
    it would be late, by the rate so far  | 429, gRPC 8
    else                                  | a slot's back end, in whose queue it waits at most requestTimeout

HAProxy notices that a client of HTTP/1.1 has gone only once its request is on its way to a server, and that an HTTP/2 stream was
reset at any time. So a request of HTTP/1.1 is held behind a hop: back end `wait_http` leads through a unix socket to front end
`wait_http` of the same process, as HTTP/2. The hop sees the client go, and tells the room. gRPC needs no hop.

When a process stops because another one has its place (a reload), nobody tells it of servers any more. What it holds goes on
to its successor, who listens at the same sockets.

The rate is `proc.rate`, answers in 1000 s, which the agent measures and sets; 0 is unknown, and nobody is refused for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from halcyon.balancer.config import (
    body_limits,
    client_limits,
    error_responses,
    grpc_streams,
    latency_buckets,
    retries,
    stickiness,
)
from halcyon.balancer.config.error_responses import PROTOCOLS, Protocol

if TYPE_CHECKING:
    from halcyon.api.documents.balancer_plan import BalancerPlan, Slot
    from halcyon.balancer.config.writer import Writer

COUNTERS = "counters"
"""Stick table with one row (key 1) of 32-bit counters: gpc0 inference requests, gpc1 refused ones, gpc2 ones lost on the way,
gpc3 requests for which a second attempt was made; from gpc6 on what `latency` counts. Its conn_cur are the requests of any kind that
are there now, those behind a hop twice."""
RATE = "proc.rate"
"""Answers in 1000 s; 0 where it is not known."""
SOURCES = "sources"
"""Stick table by source address: requests under way that could not go to a server at once."""
SERVICE = "proc.service"
"""Milliseconds that a server takes for one, its own queue included."""

_LEFT = "halcyon-left-ms"
_UNITS = (
    ("H", "mul(3600000)"),
    ("M", "mul(60000)"),
    ("S", "mul(1000)"),
    ("m", "add(0)"),
    ("u", "div(1000)"),
    ("n", "div(1000000)"),
)
"""Of `grpc-timeout`, to milliseconds."""
_OWN = "!{ var(txn.answered) -m found }"
_BY_SERVER = 2
"""Of `txn.answered`; 1 is an answer of HAProxy's own that must not count as refused."""


def longest_ms(plan: BalancerPlan) -> int:
    """Longest way of a request through a process: held, then in a queue, then in a server, each for its time; and a margin."""
    return 3 * plan.request_timeout_ms + 5000


def prologue(out: Writer, plan: BalancerPlan, *, lua: str) -> None:
    """Lines of `global`."""
    out.add("set-var $rate int(0)".replace("$rate", RATE))
    out.add("set-var $service int(0)".replace("$service", SERVICE))
    out.add("lua-load $file $bound $slots", file=lua, bound=plan.queue_limit, slots=len(_taking(plan)))


def tables(out: Writer, plan: BalancerPlan) -> None:
    """Sections for what is counted."""
    out.section("backend $table", table=COUNTERS)
    out.add("stick-table type integer size 16 store gpc($counters),conn_cur", counters=latency_buckets.COUNTERS)
    if _is_shared(plan):
        out.section("backend $table", table=SOURCES)
        out.add("stick-table type ipv6 size 10000 expire 1m store conn_cur")
    stickiness.tables(out, plan)


def arrive(out: Writer, plan: BalancerPlan, protocol: Protocol) -> None:
    """Rules of a client's front end, behind its own ones; they use its acl `infers`."""
    body_limits.at_once(out, plan, protocol)
    out.add("http-request sc-inc-gpc(0,0) if infers")
    latency_buckets.arrive(out)
    out.add("acl counted var(txn.came_at) -m found")
    client_limits.of_requests(out, plan, protocol)
    retries.rules(out, plan, protocol)
    body_limits.by_its_bytes(out, plan, protocol)
    for slot in _taking(plan):
        out.add(f"acl up nbsrv({protocol}_$slot) gt 0", slot=slot.name)
    _look_at_the_queue(out, plan)
    # Most requests find a server at once: no later rule of this front end costs them anything.
    out.add("http-request allow if !infers")
    out.add("http-request allow if up { var(txn.waiting) -m int eq 0 }")
    out.add("http-request set-var(txn.waits) bool(true)")
    out.add("acl waits var(txn.waits) -m found")
    if protocol == "grpc":
        for unit, convert in _UNITS:
            of_unit = f"{{ req.fhdr(grpc-timeout) -m end {unit} }}"
            out.add(f"http-request set-var(txn.left_ms) req.fhdr(grpc-timeout),{convert} if waits {of_unit}")
    sooner = "{ var(txn.left_ms) -m int lt $ms }"
    out.add(f"http-request set-var(txn.left_ms) int($ms) if waits !{sooner}", ms=plan.request_timeout_ms)
    if _is_shared(plan):
        # One who owns a network of IPv6 has 2^64 addresses.
        out.add("http-request track-sc1 src,ipmask(32,64) table $table if waits", table=SOURCES)
        own = max(1, plan.queue_limit * plan.source_share // 100)
        error_responses.refuse(out, plan, protocol, "too many of one", "waits { sc1_conn_cur gt $own }", own=own)
    error_responses.refuse(out, plan, protocol, "too many wait", "waits up { var(txn.waiting) -m int ge $waiting }")
    # What is ahead of it in the queue, and the time in a server, must fit in four fifths: rate and time are means, and one that
    # is answered just too late has cost as much as one in time. Where nobody waits, a server has room: it may go.
    out.add(
        f"http-request set-var(txn.room) var(txn.left_ms),mul(4),div(5),sub({SERVICE}),mul({RATE}),div(1000000) "
        f"if waits up {{ var({RATE}) -m int gt 0 }}"
    )
    late = "waits { var(txn.room) -m found } { var(txn.waiting),sub(txn.room) -m int ge 0 }"
    error_responses.refuse(out, plan, protocol, "too late", late)
    if protocol == "http":
        out.add("use_backend wait_http if waits !up")
    else:
        _hold(out, plan, protocol, " if waits !up")
    _choose(out, plan, protocol)
    _count_answers(out, protocol)


def waiting_room(out: Writer, plan: BalancerPlan, protocol: Protocol, *, path: str) -> None:
    """Where requests wait for the first server: the way in, the room, and the way to a successor."""
    if protocol == "http":
        _hop(out, plan, protocol, name="wait", path=path)
    out.section(f"frontend wait_{protocol}")
    out.add("bind unix@$file mode 600 proto h2", file=path)
    # Its client's front end has counted the request; what becomes of it is counted here.
    out.add("http-request track-sc0 int(1) table $table", table=COUNTERS)
    # A number, where the header is a text.
    out.add(f"http-request set-var(txn.left_ms) req.fhdr({_LEFT}),add(0)")
    out.add(f"http-request del-header {_LEFT}")
    _look_at_the_queue(out, plan)
    # Only inference comes here, and what its client sent of the body comes along.
    latency_buckets.infers(out)
    out.add("acl counted always_true")
    retries.rules(out, plan, protocol)
    _hold(out, plan, protocol, "")
    _choose(out, plan, protocol)
    _count_answers(out, protocol)
    # Never the connections of `wait`: they lead to this very process.
    _hop(out, plan, protocol, name="next", path=path)


def stream_in(out: Writer, plan: BalancerPlan) -> None:
    """Rules of the front end from which streams go to servers. Those were counted where they came; here is what becomes of them."""
    out.add("http-request track-sc0 int(1) table $table", table=COUNTERS)
    latency_buckets.infers(out)
    out.add("acl counted always_true")
    out.add("http-request disable-l7-retry")
    _to_slots(out, plan, "grpc")
    _count_answers(out, "grpc")


def _taking(plan: BalancerPlan) -> tuple[Slot, ...]:
    return tuple(slot for slot in plan.slots if slot.weight)


def _is_shared(plan: BalancerPlan) -> bool:
    return plan.source_share < 100


def _hop(out: Writer, plan: BalancerPlan, protocol: Protocol, *, name: Literal["wait", "next"], path: str) -> None:
    out.section(f"backend {name}_{protocol}")
    # The room answers in its own time; only one that is not there is an error.
    out.add("retries 0")
    error_responses.errors(out, protocol)
    out.add("timeout server $ms", ms=longest_ms(plan))
    out.add(f"http-request set-header {_LEFT} %[var(txn.left_ms)]")
    # An idle connection of a process to itself would keep it from ending after a reload.
    out.add("server room unix@$file proto h2 pool-max-conn 0", file=path)


def _hold(out: Writer, plan: BalancerPlan, protocol: Protocol, condition: str) -> None:
    backends = {f"slot_{letter}": slot.name for letter, slot in zip("abcdefgh", _taking(plan), strict=False)}
    out.add("http-request lua.hold" + "".join(f" {protocol}_${place}" for place in backends) + condition, **backends)
    error_responses.refuse(out, plan, protocol, "too many wait", "{ var(txn.held) -m str full }")
    error_responses.refuse(out, plan, protocol, "no server", "{ var(txn.held) -m str late }")
    out.add(f"use_backend next_{protocol} if {{ var(txn.held) -m str next }}")


def _look_at_the_queue(out: Writer, plan: BalancerPlan) -> None:
    first = True
    for slot in plan.slots:
        for protocol in PROTOCOLS:
            more = "" if first else ",add(txn.waiting)"
            out.add(f"http-request set-var(txn.waiting) queue({protocol}_$slot){more}", slot=slot.name)
            first = False


def _choose(out: Writer, plan: BalancerPlan, protocol: Protocol) -> None:
    if protocol == "grpc":
        out.add(f"use_backend {grpc_streams.BACKEND} if {grpc_streams.IS_STREAM}")
    _to_slots(out, plan, protocol)


def _to_slots(out: Writer, plan: BalancerPlan, protocol: Protocol) -> None:
    """The slots by their weights; one without a server leaves its share to the others."""
    stickiness.known(out, plan, protocol)
    *others, last = _taking(plan)
    left = sum(slot.weight for slot in plan.slots)
    for slot in others:
        for lot in stickiness.lots(plan):
            out.add(
                f"use_backend {protocol}_$slot if {lot} {{ nbsrv({protocol}_$slot) gt 0 }}",
                slot=slot.name,
                left=left,
                weight=slot.weight,
                header=plan.sticky_header,
            )
        left -= slot.weight
    for slot in others:
        out.add(
            f"use_backend {protocol}_$slot if {{ nbsrv({protocol}_$slot) gt 0 }} !{{ nbsrv({protocol}_$last) gt 0 }}",
            slot=slot.name,
            last=last.name,
        )
    out.add(f"default_backend {protocol}_$slot", slot=last.name)


def _count_answers(out: Writer, protocol: Protocol) -> None:
    out.add(f"http-response set-var(txn.answered) int({_BY_SERVER})")
    out.add("http-after-response sc-inc-gpc(3,0) if { txn.conn_retries gt 0 } counted")
    # What follows is for HAProxy's own answers; a server's pay for one look.
    out.add(f"http-after-response allow if {{ var(txn.answered) -m int eq {_BY_SERVER} }}")
    # What wasn't counted as it came is no demand. With a server's id a 503 is a failed connection, without one the request never left the queue.
    out.add(f"http-after-response sc-inc-gpc(1,0) if {{ status 429 }} {_OWN} counted")
    if protocol == "grpc":
        refusal = "{ status 200 } { res.hdr(grpc-status) -m str 8 14 }"
        out.add(f"http-after-response sc-inc-gpc(1,0) if {refusal} {_OWN} counted")
    out.add(f"http-after-response sc-inc-gpc(1,0) if {{ status 503 }} !{{ srv_id -m found }} {_OWN} counted")
    out.add(f"http-after-response sc-inc-gpc(2,0) if {{ status 503 }} {{ srv_id -m found }} {_OWN} counted")
    out.add(f"http-after-response sc-inc-gpc(2,0) if {{ status 502 504 }} {_OWN} counted")
    if protocol == "grpc":
        # A client that meets an HTTP status other than 200 loses the message, so failures are told in gRPC's own way.
        out.add(f"http-after-response set-status 200 if {{ status 408 502:504 }} {_OWN}")
        out.add("http-after-response set-header content-type application/grpc if { res.hdr(grpc-status) -m found }")
