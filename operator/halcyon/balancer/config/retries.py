"""Which requests are sent a second time, to another server: as rules of haproxy.cfg. Pure.

    what failed                                    | sent again
    the connection: nothing has reached a server   | always, once
    the answer: the connection ended before any of | once, where the whole request is in the buffer: its body is known to end, within
    it came                                        | `MAX_BYTES`; not a stream, not where the model keeps a state between requests
                                                   | (`sequences`), not while the retry budget forbids it
    the answer, after its headers                  | never: the client has seen a part

So a request may be computed twice. An inference changes nothing but the server's own counters, so that is a cost and no error;
sequences are the exception, and their id lies in the body, which HAProxy can't read.

HAProxy keeps a copy only of requests that it has whole before it sends their first byte, so it waits for bodies. One larger than
`MAX_BYTES` is sent as it comes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from halcyon.balancer.config.grpc_streams import IS_STREAM

if TYPE_CHECKING:
    from halcyon.api.documents.balancer_plan import BalancerPlan
    from halcyon.balancer.config.error_responses import Protocol
    from halcyon.balancer.config.writer import Writer

ONCE: Final = "proc.once"
"""1 while no request may be sent again for its answer's sake."""
MAX_BYTES = 24576
"""Less than a stream's window and than a buffer with its headers: the wait for this much always ends."""
BODY_MS = 30000
"""Longest wait for it."""


def rules(out: Writer, plan: BalancerPlan, protocol: Protocol) -> None:
    """Rules of a front end from which requests go to servers; they use its acl `infers`."""
    if plan.sequences:
        out.add("http-request disable-l7-retry")
        return
    out.add(f"http-request disable-l7-retry if {{ var({ONCE}) -m int gt 0 }}")
    one = ""
    if protocol == "grpc":
        out.add(f"http-request disable-l7-retry if {IS_STREAM}")
        one = f" !{IS_STREAM}"
    out.add(f"http-request wait-for-body time $ms at-least $bytes if infers{one}", ms=BODY_MS, bytes=MAX_BYTES)
