"""Rules of haproxy.cfg that reject requests while more arrive than can be answered within the latency objective. Pure.

A new request is late if the queue is too long for it to be answered within the objective. Late requests wait in
`late.lua` behind all others, and go to a server that would otherwise be idle. So a burst is answered without delaying
the requests that come after it. A late request is rejected once it has waited for `LATE_OBJECTIVES` times the
objective, or sooner in an overload.

The requests of a burst arrive together, while those of an overload are spread over time. To distinguish the two, the
rules count moments: short intervals in which at least one request arrived that had to wait. A moment is half as long as
the mean time between two answers. For each answer, half a moment is subtracted.

The agent sets the limits once per second (`overload_limits`). While they are 0, no request is late. They do not apply
to requests that were held at zero replicas, or to those that arrive until the held ones are answered.

With API keys, a client's request is rejected only if the client has at least its share of all waiting requests. A
client that sends too many requests therefore does not affect the others.
"""

# requests that wait or are in servers | rejected within the objective | moments             | late requests     | a new request
# up to what can be answered in time   | -                             | -                   | -                 | waits
# more                                 | none                          | up to `LATE_SPREAD` | below `LATE_MOST` | waits behind all others: it is late
# more                                 | none                          | more                | -                 | is rejected
# more                                 | none                          | -                   | `LATE_MOST`       | is rejected
# more                                 | some                          | -                   | -                 | is rejected
# more, and its client has few of them | -                             | -                   | -                 | waits, up to `HOPELESS`

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from halcyon.balancer.config import client_limits, error_responses
from halcyon.balancer.config.model import SENT_ROW

if TYPE_CHECKING:
    from halcyon.api.documents.balancer_plan import BalancerPlan
    from halcyon.balancer.config.error_responses import Protocol
    from halcyon.balancer.config.writer import Writer

IN_TIME: Final = "proc.in_time"
LATE: Final = "proc.late"
HOPELESS: Final = "proc.hopeless"
"""HAProxy variables with limits on the requests in this balancer, waiting or at servers. A request that arrives at or
above `LATE` will miss the latency objective. During a lasting overload, the lower `IN_TIME` applies instead, which
counts only whole batches. At or above `HOPELESS`, a request would take twice the objective. If `HOPELESS` is 0, no
request is rejected because of the objective."""
PRESENT: Final = "proc.present"
"""HAProxy variable with the number of requests, queued or at servers, that can be answered within the objective. Each
client with an API key may have an equal share of it."""
LATE_MOST: Final = "proc.late_most"
"""HAProxy variable with the maximum number of late requests that wait in this balancer."""
LATE_ROOM: Final = "proc.late_room"
"""HAProxy variable with the number of requests at the servers below which this balancer sends them late requests."""
LATE_PACE: Final = "proc.late_pace"
"""HAProxy variable with the rate at which servers with full batches answer this balancer's requests, in requests per
1000 s."""
LATE_SPREAD: Final = "proc.late_spread"
"""HAProxy variable with a number of moments (see the module), in hundredths. A higher count means an overload instead
of a burst."""
LIMITS: Final = (IN_TIME, LATE, HOPELESS, PRESENT)
LATE_LIMITS: Final = (LATE_MOST, LATE_ROOM, LATE_PACE, LATE_SPREAD)
LATE_OBJECTIVES: Final = 6
"""Maximum time that a late request waits, as a multiple of the latency objective."""
WOKEN: Final = "proc.woken"
"""HAProxy variable that `hold.lua` sets to 1 when a server is up and the held requests are released. It is set to 0
once they are answered."""

_OVER_SINCE: Final = "proc.over_since"
_OVER_AT: Final = "proc.over_at"
"""HAProxy variables with the first (`over_since`) and the last (`over_at`) time at which the queue exceeded its limit,
in milliseconds since the epoch."""
_REFUSED_AT: Final = "proc.refused_at"
"""HAProxy variable with the time of the last rejection because of the objective, in milliseconds since the epoch."""
_MOMENTS: Final = "proc.moments"
_MOMENT_AT: Final = "proc.moment_at"
"""HAProxy variables with the number of moments, in hundredths, and the time of the last one, in microseconds since the
epoch."""
REJECTED_AT: Final = "sess.rejected_at"
"""HAProxy variable with the time of the last rejection on an HTTP connection, in milliseconds since the epoch."""
_REPEATS_AFTER_MS: Final = "900:1600"


def repetition_rules(out: Writer, protocol: Protocol) -> None:
    """Add the rules of a client-facing front end that count requests that clients retry after a rejection.

    The counter is gpc5. A gRPC request contains the number of earlier attempts. For HTTP the count is an estimate: a
    request counts as a retry if it arrives on the connection of a rejected request, after the time in `Retry-After`.
    The rules use the ACL `infers`.
    """
    if protocol == "grpc":
        out.add("http-request sc-inc-gpc(5,0) if infers { req.hdr(grpc-previous-rpc-attempts) -m found }")
        return
    out.add(f"acl rejected_before var({REJECTED_AT}) -m found")
    out.add(f"http-request set-var(txn.since_ms) date(0,ms),sub({REJECTED_AT}) if infers rejected_before")
    out.add(f"http-request sc-inc-gpc(5,0) if {{ var(txn.since_ms) -m int {_REPEATS_AFTER_MS} }}")
    out.add(f"http-request unset-var({REJECTED_AT}) if {{ var(txn.since_ms) -m found }}")


def backends(plan: BalancerPlan) -> tuple[str, ...]:
    """Return the names of the back ends of all slots."""
    return tuple(f"{protocol}_{slot.name}" for slot in plan.slots for protocol in error_responses.PROTOCOLS)


def prologue(out: Writer, plan: BalancerPlan, *, late_lua: str) -> None:
    """Add the initial values of the variables to the section `global`, and load `late.lua` from the path `late_lua`."""
    for name in (*LIMITS, *LATE_LIMITS, WOKEN, _OVER_SINCE, _OVER_AT, _REFUSED_AT, _MOMENTS, _MOMENT_AT):
        out.add(f"set-var {name} int(0)")
    if plan.objective_ms:
        places = {f"backend_{letter}": name for letter, name in zip("abcdefgh", backends(plan), strict=False)}
        time_ms = min(LATE_OBJECTIVES * plan.objective_ms, plan.queue_timeout_ms)
        line = "lua-load $file $ms $objective $limit" + "".join(f" ${place}" for place in places)
        out.add(line, file=late_lua, ms=time_ms, objective=plan.objective_ms, limit=plan.queue_limit, **places)


def rejection_rules(out: Writer, plan: BalancerPlan, protocol: Protocol, *, counters: str) -> None:
    """Add the rules of a client-facing front end that detect late requests, and reject them during a lasting overload.

    They use its ACLs `waits`, `up` and `infers`, and come after `client_limits.queue_rules`, which count the requests
    of each client. `late_rules` handles late requests that are not rejected at once. `counters` is the stick table that
    counts requests by class.
    """
    if not plan.objective_ms:
        return
    out.add(f"http-request set-var(txn.now) date(0,ms) if waits up infers {{ var({HOPELESS}) -m int gt 0 }}")
    out.add("acl limited var(txn.now) -m found")
    # Requests that wait for a server or are in one, without late ones that wait, and without batch inference.
    for number, backend in enumerate(backends(plan)):
        more = ",add(txn.present)" if number else ""
        out.add(f"http-request set-var(txn.present) be_conn($backend){more} if limited", backend=backend)
    if plan.has_lower_class:
        out.add(f"http-request set-var(txn.sent) int({SENT_ROW}),table_conn_cur($table) if limited", table=counters)
        out.add("http-request set-var(txn.present) var(txn.present),sub(txn.sent) if limited")
    drained = f"{{ var(txn.present),sub({LATE}) -m int le 0 }}"
    out.add(f"http-request set-var({WOKEN}) int(0) if limited {{ var({WOKEN}) -m int gt 0 }} {drained}")
    out.add(f"acl woken var({WOKEN}) -m int gt 0")
    # In the time of a moment, 25 hundredths of one are forgotten.
    forgotten = f"date(0,us),sub({_MOMENT_AT}),mul({LATE_PACE}),div(20000000)"
    out.add(f"http-request set-var(txn.forgotten) {forgotten} if limited !woken")
    # The clock was set back: otherwise no moment would count until it reaches the last one again.
    out.add("http-request set-var(txn.forgotten) int(25) if { var(txn.forgotten) -m int lt 0 }")
    out.add("acl moment var(txn.forgotten) -m int ge 25")
    out.add(f"http-request set-var({_MOMENTS}) var({_MOMENTS}),sub(txn.forgotten) if moment")
    out.add(f"http-request set-var({_MOMENTS}) int(0) if moment {{ var({_MOMENTS}) -m int lt 0 }}")
    out.add(f"http-request set-var({_MOMENTS}) var({_MOMENTS}),add(100) if moment")
    # There are at most twice as many as needed, so they are forgotten soon after a long overload.
    most = f"var({_MOMENTS}),sub({LATE_SPREAD}),sub({LATE_SPREAD})"
    out.add(f"http-request set-var({_MOMENTS}) var({LATE_SPREAD}),mul(2) if moment {{ {most} -m int gt 0 }}")
    out.add(f"http-request set-var({_MOMENT_AT}) date(0,us) if moment")
    # A time in the future is not within the objective: the clock was set back.
    within = f"0:{plan.objective_ms - 1}"
    # For how long the queue has exceeded its limit, without a pause as long as the objective.
    out.add(
        f"http-request set-var(txn.over_ms) var(txn.now),sub({_OVER_SINCE}) "
        f"if limited {{ var(txn.now),sub({_OVER_AT}) -m int {within} }}",
    )
    out.add("acl lasts var(txn.over_ms) -m int ge $objective", objective=plan.objective_ms)
    out.add(f"http-request set-var(txn.over) var(txn.present),sub({LATE}) if limited !lasts")
    out.add(f"http-request set-var(txn.over) var(txn.present),sub({IN_TIME}) if limited lasts")
    out.add("acl over var(txn.over) -m int ge 0")
    out.add(f"http-request set-var({_OVER_SINCE}) var(txn.now) if over !woken !{{ var(txn.over_ms) -m found }}")
    out.add(f"http-request set-var({_OVER_AT}) var(txn.now) if over !woken")
    # Number of requests of this client above its share of all.
    out.add(f"http-request set-var(txn.n_clients) table_cnt({client_limits.CLIENTS}) if over {{ sc_conn_cur(4) gt 0 }}")
    out.add(f"http-request set-var(txn.share) var({PRESENT}),div(txn.n_clients) if over {{ sc_conn_cur(4) gt 0 }}")
    out.add("http-request set-var(txn.own) sc_conn_cur(4),sub(txn.share) if over { sc_conn_cur(4) gt 0 }")
    out.add("acl within_share var(txn.own) -m int le 0")
    out.add("http-request set-var(txn.is_late) bool(true) if over !woken !within_share")
    out.add("acl is_late var(txn.is_late) -m found")
    # A client within its share.
    hopeless = f"limited !woken !is_late {{ var(txn.present),sub({HOPELESS}) -m int ge 0 }}"
    error_responses.reject_retryable(out, plan, protocol, "over objective", hopeless)
    out.add(f"http-request set-var(txn.refused_ms) var(txn.now),sub({_REFUSED_AT}) if is_late")
    spread = f"{{ var({_MOMENTS}),sub({LATE_SPREAD}) -m int gt 0 }}"
    out.add(f"http-request set-var(txn.refused_ms) int(0) if is_late {spread}")
    refuses = f"is_late {{ var(txn.refused_ms) -m int {within} }}"
    out.add(f"http-request set-var({_REFUSED_AT}) var(txn.now) if {refuses}")
    error_responses.reject_retryable(out, plan, protocol, "over objective", refuses)


def late_rules(out: Writer, plan: BalancerPlan, protocol: Protocol) -> None:
    """Add the rules of a client-facing front end that make late requests wait in `late.lua`, up to a limit.

    They come after all rules that reject requests on arrival.
    """
    if not plan.objective_ms:
        return
    out.add("http-request lua.late if is_late")
    refused = "is_late { var(txn.late) -m str full over }"
    out.add(f"http-request set-var({_REFUSED_AT}) date(0,ms) if {refused}")
    error_responses.reject_retryable(out, plan, protocol, "over objective", refused)
