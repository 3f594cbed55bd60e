"""Which requests are sent a second time, to another server: as rules of haproxy.cfg, and how many may be. Pure.

    what failed                                    | sent again
    the connection: nothing has reached a server   | always, once
    the answer: the connection ended before any of | once, where the whole request is in the buffer: its body is known to end, within
    it came                                        | `MOST_BYTES`; not a stream, not where the model keeps a state between requests
                                                   | (`sequences`), not while `Budget` forbids it
    the answer, after its headers                  | never: the client has seen a part

So a request may be computed twice. An inference changes nothing but the server's own counters, so that is a cost and no error;
sequences are the exception, and their id lies in the body, which HAProxy can't read.

HAProxy keeps a copy only of requests that it has whole before it sends their first byte, so it waits for bodies. One larger than
`MOST_BYTES` is sent as it comes.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from halcyon.balancer.streams import IS_STREAM

if TYPE_CHECKING:
    from halcyon.api.plan import BalancerPlan
    from halcyon.balancer.answers import Protocol
    from halcyon.balancer.haproxy_text import Writer
    from halcyon.balancer.runtime_socket import Reading

ONCE: Final = "proc.once"
"""1 while no request may be sent again for its answer's sake."""
MOST_BYTES = 24576
"""Less than a stream's window and than a buffer with its headers: the wait for this much always ends."""
BODY_MS = 30000
"""Longest wait for it."""

MOST_SHARE = 0.1
"""Of all requests, those that may be sent again."""
FEWEST = 10
"""In `WINDOW_S`, these may always be: a tenth of very few says nothing."""
WINDOW_S = 10.0


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
    out.add(f"http-request wait-for-body time $ms at-least $bytes if infers{one}", ms=BODY_MS, bytes=MOST_BYTES)


@dataclass(frozen=True)
class _Look:
    at: float
    requests: int
    failed: int


class Budget:
    """Whether requests may be sent again now.

    Counted are those that were, and those that would have been: so it stays shut for as long as servers fail.
    """

    def __init__(self) -> None:
        """Nothing is known, and nothing forbidden."""
        self._looks: deque[_Look] = deque()
        self._process: int | None = None

    def allows(self, reading: Reading, *, now: float) -> bool:
        """The verdict after this look.

        Args:
            reading: what HAProxy has counted. Another process than before begins anew.
            now: seconds of a clock that does not jump.
        """
        look = _Look(now, reading.requests, reading.repeated + reading.errors)
        last = self._looks[-1] if self._looks else None
        # The counters have 32 bits.
        if reading.process != self._process or (last and (look.requests < last.requests or look.failed < last.failed)):
            self._looks.clear()
            self._process = reading.process
        self._looks.append(look)
        while now - self._looks[0].at > WINDOW_S:
            self._looks.popleft()
        requests = look.requests - self._looks[0].requests
        failed = look.failed - self._looks[0].failed
        return failed <= max(FEWEST, MOST_SHARE * requests)
