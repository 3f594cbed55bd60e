"""Rules of haproxy.cfg that reject requests while more arrive than can be answered within the latency objective. Pure.

A new request is rejected if, for at least the time of the objective, the queue has been too long to be answered within
the objective. It is also rejected if the queue is more than twice as long. A shorter burst waits: its requests are
late, but they are answered.

Rejection ends when the queue has been below its limit for the time of the objective. The agent sets the limits once per
second, from the time of a batch, the measured rate and this balancer's share of the requests (`overload_limits`). While
they are 0, no requests are rejected.

The limits do not apply to requests that were held at zero replicas, or to those that arrive until the held ones are
answered.

With API keys, a client is rejected only if it has at least its share of all requests that wait. Other clients therefore
do not suffer from one client that sends too many.
"""

# requests that wait in this balancer   | and for as long as the objective  | a new request
# up to what can be answered in time    | -                                 | waits
# up to twice as long                   | fewer waited at some time         | waits: it is late, but the burst is answered
# more than can be answered in time     | as many waited all the time       | is rejected
# more than twice as long               | -                                 | is rejected

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from halcyon.balancer.config import client_limits, error_responses

if TYPE_CHECKING:
    from halcyon.api.documents.balancer_plan import BalancerPlan
    from halcyon.balancer.config.error_responses import Protocol
    from halcyon.balancer.config.writer import Writer

IN_TIME: Final = "proc.in_time"
"""HAProxy variable with a number of queued requests, in whole batches. If at least this many requests are queued during
a lasting overload, a new request would miss the latency objective."""
LATE: Final = "proc.late"
"""HAProxy variable with a number of queued requests. If at least this many are queued, a new request takes longer than
the latency objective."""
HOPELESS: Final = "proc.hopeless"
"""HAProxy variable with a number of queued requests. If at least this many are queued, a new request takes longer than
twice the latency objective. If it is 0, overload limits are off."""
PRESENT: Final = "proc.present"
"""HAProxy variable with the number of requests that can be answered within the latency objective. This number includes
both queued requests and requests in progress at servers."""
LIMITS: Final = (IN_TIME, LATE, HOPELESS, PRESENT)
WOKEN: Final = "proc.woken"
"""HAProxy variable that `hold.lua` sets to 1 when a server is up and the held requests are released. It is 0 again once
they are answered."""

_OVER_SINCE: Final = "proc.over_since"
_OVER_AT: Final = "proc.over_at"
"""HAProxy variables with the first (`over_since`) and the last (`over_at`) time at which the queue exceeded its limit,
in milliseconds since the epoch."""
REJECTED_AT: Final = "sess.rejected_at"
"""HAProxy variable with the time of the last rejection on an HTTP connection, in milliseconds since the epoch."""
_REPEATS_AFTER_MS: Final = "900:1600"


def repetition_rules(out: Writer, protocol: Protocol) -> None:
    """Add the rules of a client-facing front end that count the requests that clients repeat after a rejection.

    The counter is gpc5. A gRPC request contains the number of earlier attempts. For HTTP the count is an estimate. A
    request counts if it arrives on the connection of a rejected request, after the time in `Retry-After`. The rules use
    the ACL `infers`.
    """
    if protocol == "grpc":
        out.add("http-request sc-inc-gpc(5,0) if infers { req.hdr(grpc-previous-rpc-attempts) -m found }")
        return
    out.add(f"acl rejected_before var({REJECTED_AT}) -m found")
    out.add(f"http-request set-var(txn.since_ms) date(0,ms),sub({REJECTED_AT}) if infers rejected_before")
    out.add(f"http-request sc-inc-gpc(5,0) if {{ var(txn.since_ms) -m int {_REPEATS_AFTER_MS} }}")
    out.add(f"http-request unset-var({REJECTED_AT}) if {{ var(txn.since_ms) -m found }}")


def prologue(out: Writer) -> None:
    """Add the initial values of the variables for overload limits to the section `global`."""
    for name in (*LIMITS, WOKEN, _OVER_SINCE, _OVER_AT):
        out.add(f"set-var {name} int(0)")


def rejection_rules(out: Writer, plan: BalancerPlan, protocol: Protocol) -> None:
    """Add the rules of a client-facing front end that reject requests during overload.

    They use its ACLs `waits`, `up` and `infers`. They come after `client_limits.queue_rules`, which count the requests
    of each client.
    """
    if not plan.objective_ms:
        return
    out.add(f"http-request set-var(txn.now) date(0,ms) if waits up infers {{ var({HOPELESS}) -m int gt 0 }}")
    out.add("acl limited var(txn.now) -m found")
    drained = f"{{ var(txn.waiting),sub({LATE}) -m int le 0 }}"
    out.add(f"http-request set-var({WOKEN}) int(0) if limited {{ var({WOKEN}) -m int gt 0 }} {drained}")
    out.add(f"acl woken var({WOKEN}) -m int gt 0")
    # For how long the queue has exceeded its limit, without a pause as long as the objective.
    out.add(
        f"http-request set-var(txn.over_ms) var(txn.now),sub({_OVER_SINCE}) "
        f"if limited {{ var(txn.now),sub({_OVER_AT}) -m int lt $objective }}",
        objective=plan.objective_ms,
    )
    out.add("acl lasts var(txn.over_ms) -m int ge $objective", objective=plan.objective_ms)
    out.add(f"http-request set-var(txn.over) var(txn.waiting),sub({LATE}) if limited !lasts")
    out.add(f"http-request set-var(txn.over) var(txn.waiting),sub({IN_TIME}) if limited lasts")
    out.add("acl over var(txn.over) -m int ge 0")
    out.add(f"http-request set-var({_OVER_SINCE}) var(txn.now) if over !woken !{{ var(txn.over_ms) -m found }}")
    out.add(f"http-request set-var({_OVER_AT}) var(txn.now) if over !woken")
    # Number of requests of this client above its share of all.
    out.add(f"http-request set-var(txn.n_clients) table_cnt({client_limits.CLIENTS}) if over {{ sc_conn_cur(4) gt 0 }}")
    out.add(f"http-request set-var(txn.share) var({PRESENT}),div(txn.n_clients) if over {{ sc_conn_cur(4) gt 0 }}")
    out.add("http-request set-var(txn.own) sc_conn_cur(4),sub(txn.share) if over { sc_conn_cur(4) gt 0 }")
    out.add("acl within_share var(txn.own) -m int le 0")
    error_responses.reject_retryable(out, plan, protocol, "over objective", "over lasts !woken !within_share")
    hopeless = f"limited !woken {{ var(txn.waiting),sub({HOPELESS}) -m int ge 0 }}"
    error_responses.reject_retryable(out, plan, protocol, "over objective", hopeless)
