"""Rules of haproxy.cfg for an inference request from its arrival until it is in a server's queue. Pure.

A request is rejected, held while no server is up, or passed to a slot's back end. There it is queued for at most
queueTimeout.

Requests of batch inference (`LOWER_CLASS_HEADER`) wait in `lower.lua` until servers have capacity that no other
requests need. They are never rejected because of the latency objective.

HAProxy detects the disconnect of an HTTP/1.1 client only after its request has been sent towards a server. It detects
the reset of an HTTP/2 stream at any time. In both cases it must first have read everything that the client sent before,
so it detects neither while the buffer of a waiting request is full. An HTTP/1.1 request is therefore held behind a hop.
Back end `wait_http` sends the request as HTTP/2 through a unix socket to front end `wait_http` of the same process. If
the client disconnects, the hop resets the HTTP/2 stream. gRPC needs no hop.

After a reload, the old process receives no new servers. It passes its held requests on to the new process, which
listens on the same sockets.

If the last server of a back end is removed, HAProxy rejects the requests in its queue. Each slot's back end therefore
has a server `held`, which leads to the front end of held requests. It is in maintenance, except while the agent removes
the last server. The queue then moves to `held`.

The current rate is the variable `proc.rate`, in responses per 1000 s, which the agent measures and sets. If it is 0, the rate is
unknown, and no request is rejected because of it.
"""

# state at arrival                      | result
# too many requests in progress         | 429, gRPC 8 (`client_limits`)
# large, of a source that sends slowly  | 429, gRPC 8 (`client_limits.slow_rules`)
# no server is up                       | the request is held (`hold.lua`)
# queueLimit requests are queued        | 429, gRPC 8; a client with few of them is admitted (`client_limits`)
# latency objective exceeded            | it waits behind all others (`late.lua`), or 429, gRPC 8 (`overload_rules`)
# it would miss its deadline or timeout | 429, gRPC 8
# otherwise                             | it goes to a slot's back end, where it is queued for at most queueTimeout

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

from halcyon.balancer.config import (
    body_limits,
    client_limits,
    error_responses,
    grpc_streams,
    latency_buckets,
    overload_rules,
    retries,
    stickiness,
)
from halcyon.balancer.config.error_responses import PROTOCOLS, Protocol
from halcyon.balancer.config.memory_budget import MAX_MOVED
from halcyon.balancer.config.model import LOWER_VARIABLES, SENT_ROW

if TYPE_CHECKING:
    from halcyon.api.documents.balancer_plan import BalancerPlan, Slot
    from halcyon.balancer.config.writer import Writer

COUNTERS = "counters"
"""Name of the stick table with a row of 32-bit counters (key 1), and two rows for batch inference (module `model`).

gpc0: inference requests. gpc1: rejected requests. gpc2: requests that failed between HAProxy and the server. gpc3:
requests with a second attempt. gpc4: requests that a server, not HAProxy, answered with 503 or gRPC UNAVAILABLE. gpc5:
requests that a client retries after a rejection. gpc6 and above: the counters of `latency_buckets`. conn_cur: requests
of any kind in progress; a request that passes through HAProxy twice counts as two.
"""
HELD_SERVER: Final = "held"
"""Name of a special server in a slot's back end, which leads to the front end that holds requests while no server is
up."""
HELD_SERVER_ID: Final = 1
"""Number that HAProxy gives to this server, because it is the first of its back end. Server 1 of a pod has the next one."""
RATE = "proc.rate"
"""HAProxy variable with the measured rate of all servers together, in responses per 1000 s. It is 0 if the rate is
unknown."""
SERVICE = "proc.service"
"""HAProxy variable with the mean time that a server takes for one request, in milliseconds. The time includes the
server's own queue."""

_TIME_LEFT_HEADER = "halcyon-left-ms"
_UNITS = (
    ("H", "mul(3600000)"),
    ("M", "mul(60000)"),
    ("S", "mul(1000)"),
    ("m", "add(0)"),
    ("u", "div(1000)"),
    ("n", "div(1000000)"),
)
"""HAProxy converters that convert each unit of the header `grpc-timeout` to milliseconds."""
_NOT_BY_SERVER = "!{ var(txn.answered) -m found }"
_BY_SERVER = 2
"""Value of the HAProxy variable `txn.answered` for a response from a server. The value 1 marks a response of HAProxy
itself that does not count as a rejection."""


def longest_ms(plan: BalancerPlan) -> int:
    """Return the maximum time that a request is held, queued and in a server, with a margin, in milliseconds."""
    return plan.longest_wait_ms + plan.queue_timeout_ms + plan.response_timeout_ms + 5000


def prologue(out: Writer, plan: BalancerPlan, *, lua: str, late_lua: str, lower_lua: str) -> None:
    """Add initial values of variables to the section `global`, and the lines that load Lua files of the queue."""
    out.add("set-var $rate int(0)".replace("$rate", RATE))
    out.add("set-var $service int(0)".replace("$service", SERVICE))
    overload_rules.prologue(out, plan, late_lua=late_lua)
    out.add("lua-load $file $limit $slots", file=lua, limit=plan.queue_limit, slots=len(_weighted_slots(plan)))
    if plan.has_lower_class:
        for name in LOWER_VARIABLES:
            out.add(f"set-var {name} int(0)")
        places = {
            f"backend_{letter}": name for letter, name in zip("abcdefgh", overload_rules.backends(plan), strict=False)
        }
        line = "lua-load $file $ms" + "".join(f" ${place}" for place in places)
        out.add(line, file=lower_lua, ms=plan.queue_timeout_ms, **places)


def tables(out: Writer, plan: BalancerPlan) -> None:
    """Add the stick tables that count requests."""
    out.section("backend $table", table=COUNTERS)
    out.add("stick-table type integer size 16 store gpc($counters),conn_cur", counters=latency_buckets.COUNTERS)
    client_limits.queue_tables(out)
    latency_buckets.tables(out)
    stickiness.tables(out, plan)


def arrival_rules(out: Writer, plan: BalancerPlan, protocol: Protocol) -> None:
    """Add the rules of a client-facing front end that count, reject, hold or route requests.

    They come after the other rules of the front end, and use its ACL `infers`.
    """
    # Only HAProxy's own hops may set it: front end `wait` of this process uses it without a limit.
    out.add(f"http-request del-header {_TIME_LEFT_HEADER}")
    body_limits.length_rules(out, plan, protocol)
    out.add("http-request sc-inc-gpc(0,0) if infers")
    overload_rules.repetition_rules(out, protocol)
    latency_buckets.arrival_rules(out, " !lower" if plan.has_lower_class else "")
    out.add("acl counted var(txn.came_at) -m found")
    client_limits.request_rules(out, plan, protocol)
    retries.rules(out, plan, protocol)
    body_limits.byte_rules(out, plan, protocol)
    client_limits.slow_rules(out, plan, protocol, large=retries.MAX_BYTES)
    for slot in _weighted_slots(plan):
        out.add(f"acl up nbsrv({protocol}_$slot) gt 0", slot=slot.name)
    _queue_length_rules(out, plan)
    if protocol == "grpc":
        grpc_streams.arrival_rules(out)
    # Only inference requests are held.
    out.add("http-request allow if !infers !up")
    _lower_class_rules(out, plan, protocol)
    # Most requests can go to a server at once, and evaluate no further rule of this front end. All others share the queue, whatever they
    # are: otherwise one client could fill it with reads, so that the inference requests of others are rejected.
    out.add("http-request allow if up { var(txn.waiting) -m int eq 0 }")
    out.add("http-request set-var(txn.waits) bool(true)")
    out.add("acl waits var(txn.waits) -m found")
    if protocol == "grpc":
        for unit, convert in _UNITS:
            has_unit = f"{{ req.fhdr(grpc-timeout) -m end {unit} }}"
            out.add(f"http-request set-var(txn.left_ms) req.fhdr(grpc-timeout),{convert} if waits {has_unit}")
    sooner = "{ var(txn.left_ms) -m int lt $ms }"
    # A client's deadline includes the time in a server; the queue timeout does not.
    out.add("http-request set-var(txn.service_ms) int(0) if waits")
    waits = {"waits": plan.queue_timeout_ms}
    if plan.longest_wait_ms > plan.queue_timeout_ms:
        waits = {"waits up": plan.queue_timeout_ms, "waits !up": plan.longest_wait_ms}
    for condition, limit_ms in waits.items():
        out.add(f"http-request set-var(txn.service_ms) var({SERVICE}) if {condition} {sooner}", ms=limit_ms)
        out.add(f"http-request set-var(txn.left_ms) int($ms) if {condition} !{sooner}", ms=limit_ms)
    client_limits.queue_rules(out, plan, protocol)
    overload_rules.rejection_rules(out, plan, protocol, counters=COUNTERS)
    # The queued requests ahead of this one and its own time in a server must fit into 80 % of the time left. The margin of 20 % is
    # needed because rate and time are means, and a response that is just too late costs as much as one in time. If no requests are
    # queued, a server has free capacity, and this request is not rejected.
    out.add(
        f"http-request set-var(txn.room) var(txn.left_ms),mul(4),div(5),sub(txn.service_ms),mul({RATE}),div(1000000) "
        f"if waits up {{ var({RATE}) -m int gt 0 }}"
    )
    late = "waits { var(txn.room) -m found } { var(txn.ahead),sub(txn.room) -m int ge 0 }"
    error_responses.reject_retryable(out, plan, protocol, "too late", late)
    overload_rules.late_rules(out, plan, protocol)
    if protocol == "http":
        out.add("use_backend wait_http if waits !up")
    else:
        _hold(out, plan, protocol, " if waits !up")
    _choose(out, plan, protocol)
    _count_answers(out, protocol, faces_clients=True)


def held_request_sections(out: Writer, plan: BalancerPlan, protocol: Protocol, *, path: str) -> None:
    """Add the sections in which requests are held until the first server is up.

    These are the entry from the client-facing front end, the front end that holds requests, and the path to the new
    process after a reload.
    """
    if protocol == "http":
        _hop(out, plan, protocol, name="wait", path=path)
    out.section(f"frontend wait_{protocol}")
    out.add("bind unix@$file mode 600 proto h2", file=path)
    # The client-facing front end has counted the request; its outcome is counted here.
    out.add("http-request track-sc0 int(1) table $table", table=COUNTERS)
    # Convert the header's text to a number.
    out.add(f"http-request set-var(txn.left_ms) req.fhdr({_TIME_LEFT_HEADER}),add(0)")
    out.add(f"http-request del-header {_TIME_LEFT_HEADER}")
    # A request that was queued has no header. The response timeout of its back end has begun.
    moved_ms = min(plan.queue_timeout_ms, max(plan.response_timeout_ms * 3 // 4, 1))
    out.add("http-request set-var(txn.left_ms) int($ms) unless { var(txn.left_ms) -m found }", ms=moved_ms)
    _queue_length_rules(out, plan)
    # Only inference requests are held, each with the part of the body that its client has sent.
    latency_buckets.inference_rules(out)
    out.add("acl counted always_true")
    retries.rules(out, plan, protocol)
    _hold(out, plan, protocol, "")
    _choose(out, plan, protocol)
    out.add(f"http-after-response set-header {latency_buckets.OWN_RESPONSE} 1 if {_NOT_BY_SERVER}")
    _count_answers(out, protocol)
    # Do not use the connections of `wait`, because they lead to this same process.
    _hop(out, plan, protocol, name="next", path=path)


def held_server(out: Writer, *, path: str) -> None:
    """Add the server `held` to a slot's back end, before the line `default-server`.

    `path` is the socket of the front end that holds requests.
    """
    out.add(
        f"server {HELD_SERVER} unix@$file proto h2 pool-max-conn 0 maxconn $most disabled", file=path, most=MAX_MOVED
    )


def stream_rules(out: Writer, plan: BalancerPlan) -> None:
    """Add the rules of the front end that sends streams to servers.

    A stream is counted when it arrives; these rules count its outcome.
    """
    client_limits.lower_class_rule(out, plan, COUNTERS)
    out.add("http-request track-sc0 int(1) table $table", table=COUNTERS)
    latency_buckets.inference_rules(out)
    out.add("acl counted always_true")
    out.add("http-request disable-l7-retry")
    _to_slots(out, plan, "grpc")
    _count_answers(out, "grpc")


def _lower_class_rules(out: Writer, plan: BalancerPlan, protocol: Protocol) -> None:
    """Add the rules that make requests of batch inference wait in `lower.lua`.

    No later rule is evaluated for these requests.
    """
    if not plan.has_lower_class:
        return
    # In the queue of a back end, it is behind all others.
    out.add("http-request set-priority-class int(2047) if lower infers")
    out.add("http-request lua.lower if lower infers")
    error_responses.reject_retryable(out, plan, protocol, "no room", "{ var(txn.lower) -m str late }")
    out.add("http-request track-sc6 int($row) table $table if lower infers", row=SENT_ROW, table=COUNTERS)
    out.add("http-request allow if lower infers")


def _weighted_slots(plan: BalancerPlan) -> tuple[Slot, ...]:
    return tuple(slot for slot in plan.slots if slot.weight)


def _hop(out: Writer, plan: BalancerPlan, protocol: Protocol, *, name: Literal["wait", "next"], path: str) -> None:
    out.section(f"backend {name}_{protocol}")
    # The front end that holds requests responds only after a long time; only a failed connection to it is an error.
    out.add("retries 0")
    error_responses.errors(out, protocol)
    out.add("timeout server $ms", ms=longest_ms(plan))
    out.add(f"http-request set-header {_TIME_LEFT_HEADER} %[var(txn.left_ms)]")
    # Over gRPC, the response goes to the client. Over HTTP, it returns to back end `wait_http`.
    if name == "wait" or protocol == "grpc":
        latency_buckets.hop_rules(out)
    # Keep no idle connections: one from the process to itself would delay its exit after a reload.
    out.add("server room unix@$file proto h2 pool-max-conn 0", file=path)


def _hold(out: Writer, plan: BalancerPlan, protocol: Protocol, condition: str) -> None:
    backends = {f"slot_{letter}": slot.name for letter, slot in zip("abcdefgh", _weighted_slots(plan), strict=False)}
    out.add("http-request lua.hold" + "".join(f" {protocol}_${place}" for place in backends) + condition, **backends)
    error_responses.reject_retryable(out, plan, protocol, "too many wait", "{ var(txn.held) -m str full }")
    error_responses.reject_retryable(out, plan, protocol, "no server", "{ var(txn.held) -m str late }")
    out.add(f"use_backend next_{protocol} if {{ var(txn.held) -m str next }}")


def _queue_length_rules(out: Writer, plan: BalancerPlan) -> None:
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
    """Add the rules that choose a slot by weight.

    A slot without an available server passes its share to the other slot.
    """
    stickiness.known_value_rules(out, plan, protocol)
    *others, last = _weighted_slots(plan)
    left = sum(slot.weight for slot in plan.slots)
    for slot in others:
        for lot in stickiness.share_conditions(plan):
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


def _count_answers(out: Writer, protocol: Protocol, *, faces_clients: bool = False) -> None:
    out.add(f"http-response set-var(txn.answered) int({_BY_SERVER})")
    out.add("http-after-response sc-inc-gpc(3,0) if { txn.conn_retries gt 0 } counted")
    # The rules below are for HAProxy's own responses; a server's response evaluates only this one, if it is no stream.
    by_server = f"{{ var(txn.answered) -m int eq {_BY_SERVER} }}"
    if faces_clients:
        latency_buckets.stream_rules(out, by_server)
    else:
        out.add(f"http-after-response allow if {by_server}")
    # Requests that were not counted on arrival are not counted here. A 503 with a server's id is a failed connection; a 503 without one
    # is a request that never left the queue.
    out.add(f"http-after-response sc-inc-gpc(1,0) if {{ status 429 }} {_NOT_BY_SERVER} counted")
    if protocol == "http":
        out.add(f"http-after-response set-var({overload_rules.REJECTED_AT}) date(0,ms) if {{ status 429 503 }} counted")
    if protocol == "grpc":
        refusal = "{ status 200 } { res.hdr(grpc-status) -m str 8 14 }"
        out.add(f"http-after-response sc-inc-gpc(1,0) if {refusal} {_NOT_BY_SERVER} counted")
    out.add(f"http-after-response sc-inc-gpc(1,0) if {{ status 503 }} !{{ srv_id -m found }} {_NOT_BY_SERVER} counted")
    out.add(f"http-after-response sc-inc-gpc(2,0) if {{ status 503 }} {{ srv_id -m found }} {_NOT_BY_SERVER} counted")
    out.add(f"http-after-response sc-inc-gpc(2,0) if {{ status 502 504 }} {_NOT_BY_SERVER} counted")
    if protocol == "grpc":
        # A client that receives an HTTP status other than 200 loses the message, so failures are sent as gRPC statuses.
        out.add(f"http-after-response set-status 200 if {{ status 408 502:504 }} {_NOT_BY_SERVER}")
        out.add("http-after-response set-header content-type application/grpc if { res.hdr(grpc-status) -m found }")
