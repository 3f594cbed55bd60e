"""Rules of haproxy.cfg that determine which requests may be retried on another server. Pure.

Whether a request is retried depends on when it failed: while connecting to the server, before the response headers, or
after them.

A retried request may be computed twice. That costs time but does no harm, because inference changes only the server's
own counters. Sequences are an exception, but HAProxy cannot recognise them, because their id is in the body.

HAProxy can retry a request only if it had received all of it before sending the first byte. It therefore waits for the
body. A body larger than `MAX_BYTES` is sent as it arrives.
"""

# what failed                                    | retried
# the connection to the server                   | always, once
# the response, before its headers               | once, if all of these are true: HAProxy has the complete request in its buffer
#                                                | (at most `MAX_BYTES`); it is not a stream; the model keeps no state between
#                                                | requests (`sequences`); the retry budget allows it
# the response, after its headers                | never: the client has already received a part

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from halcyon.balancer.config.grpc_streams import IS_STREAM

if TYPE_CHECKING:
    from halcyon.api.documents.balancer_plan import BalancerPlan
    from halcyon.balancer.config.error_responses import Protocol
    from halcyon.balancer.config.writer import Writer

ONCE: Final = "proc.once"
"""HAProxy variable that is 1 while the retry budget is used up. Requests are then not retried after a failed
response."""
MAX_BYTES = 24576
"""Maximum size of a body for which HAProxy waits before it chooses a server, in bytes. The wait always ends: this size
is less than the HTTP/2 window of a stream, and fits into a buffer together with headers of the usual size. With longer
headers, the wait ends when the buffer is full (`body_limits`)."""
BODY_TIMEOUT_MS = 30000
"""Maximum time that HAProxy waits for a body, in milliseconds."""


def rules(out: Writer, plan: BalancerPlan, protocol: Protocol) -> None:
    """Add the rules for retries to a front end that sends requests to servers. They use its ACL `infers`."""
    if plan.sequences:
        out.add("http-request disable-l7-retry")
        return
    out.add(f"http-request disable-l7-retry if {{ var({ONCE}) -m int gt 0 }}")
    condition = ""
    if protocol == "grpc":
        out.add(f"http-request disable-l7-retry if {IS_STREAM}")
        condition = f" !{IS_STREAM}"
    out.add(
        f"http-request wait-for-body time $ms at-least $bytes if infers{condition}", ms=BODY_TIMEOUT_MS, bytes=MAX_BYTES
    )
