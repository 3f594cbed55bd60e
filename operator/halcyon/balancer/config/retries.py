"""Rules of haproxy.cfg that choose which requests are retried on another server. Pure.

    what failed                                    | retried
    the connection: nothing has reached a server   | always, once
    the response: the connection ended before it   | once, if the whole request is in the buffer: its body is known to end, within
                                                   | `MAX_BYTES`; not a stream, not if the model keeps state between requests
                                                   | (`sequences`), not while the retry budget forbids it
    the response, after its headers                | never: the client has received a part

So a request may be computed twice. An inference changes nothing but the server's own counters, so that is a cost and not an error.
Sequences are the exception, and their id is in the body, which HAProxy can't read.

HAProxy keeps a copy of a request only if it has all of it before it sends the first byte, so it waits for bodies. A body larger than
`MAX_BYTES` is sent as it arrives.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from halcyon.balancer.config.grpc_streams import IS_STREAM

if TYPE_CHECKING:
    from halcyon.api.documents.balancer_plan import BalancerPlan
    from halcyon.balancer.config.error_responses import Protocol
    from halcyon.balancer.config.writer import Writer

ONCE: Final = "proc.once"
"""1 while no request may be retried after its response failed."""
MAX_BYTES = 24576
"""Less than a stream's window and than a buffer with its headers, so that the wait for this much always ends."""
BODY_TIMEOUT_MS = 30000
"""Maximum time of that wait."""


def rules(out: Writer, plan: BalancerPlan, protocol: Protocol) -> None:
    """Add the rules of a front end from which requests go to servers; they use its acl `infers`."""
    if plan.sequences:
        out.add("http-request disable-l7-retry")
        return
    out.add(f"http-request disable-l7-retry if {{ var({ONCE}) -m int gt 0 }}")
    one = ""
    if protocol == "grpc":
        out.add(f"http-request disable-l7-retry if {IS_STREAM}")
        one = f" !{IS_STREAM}"
    out.add(f"http-request wait-for-body time $ms at-least $bytes if infers{one}", ms=BODY_TIMEOUT_MS, bytes=MAX_BYTES)
