"""Latency histograms of responses: rules of haproxy.cfg count them in a stick table, from which the agent reads them. Pure.

Each counter counts the responses that took at least as long as its bound. Evaluation stops at the first bound that a
response did not reach, so a response within a millisecond costs one comparison. Prometheus counts responses below each
bound instead; `Latency.buckets` converts the counts.

There are three kinds of histogram: for slots, for clients and for streams. Each measures the time until the response
headers, but from different starts and with different bounds.

A stream is a request with many responses: `generate_stream`, ModelStreamInfer. Triton sends its headers with the first event. Streams
also count in the latency of clients. They have a separate stick table, because the row of counters is full.

The latency of a slot does not include the wait in the balancer, so it is independent of the balancer's load, and
comparing two slots compares two revisions. For this comparison its bounds are close together: 25 % apart from 8 ms to 1
s, and less than 50 % apart above.

The failed responses of a slot's servers are counted, too, because Triton counts a request as successful if a model
answers it with an error.
"""

# latency     measured from                          until                 bounds       includes
# of slots    sending the request to a server        the response headers  `BOUNDS_MS`  Triton's own queue
# of clients  the arrival of the request             the response headers  `SHOWN_MS`   also time held, queued, and receiving the body
# of streams  the same, only streams                 the first event       `SHOWN_MS`   the same

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from halcyon.balancer.config.error_responses import Protocol
    from halcyon.balancer.config.writer import Writer

SHOWN_MS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 30000)
"""Bounds of all histograms in the agent's metrics, in milliseconds."""
BOUNDS_MS = (
    *(1, 2, 5, 8),
    *(10, 13, 16, 20, 25, 32, 40, 50, 63, 80),
    *(100, 125, 160, 200, 250, 320, 400, 500, 630, 800),
    *(1000, 1400, 2000, 2800, 4000, 5000, 7000, 10000, 14000, 20000, 30000, 42000),
)
SLOTS = ("a", "b")
_INFERS = "txn.infers"
UNAVAILABLE = 4
"""Number of the stick-table counter for requests that a server, rather than HAProxy, answered with 503 or gRPC
UNAVAILABLE."""
OWN_RESPONSE = "halcyon-own-response"
"""Header that marks a response as sent by HAProxy instead of a server. It is used for requests that pass through
HAProxy twice."""
FIRST = 6
"""Number of the first stick-table counter for the latency of clients. `queueing.COUNTERS` describes the counters before
it."""
_FIRST_OF_SLOTS = FIRST + 2 + len(SHOWN_MS)
_PER_SLOT = 3 + len(BOUNDS_MS)
COUNTERS = _FIRST_OF_SLOTS + len(SLOTS) * _PER_SLOT
"""Number of counters in a stick-table row. HAProxy allows at most 100."""
STREAMS = "streams_first_event"
"""Name of the stick table whose one row (key 1) counts streams: responses, their total time, and those slower than each
bound."""
_TRACKED = 1
"""Number of the stick counter with which HAProxy tracks a stream. HAProxy 3.0 rejects `sc-add-gpc` with a number above
2."""
_UNAVAILABLE = {"http": "{ status 503 }", "grpc": "{ res.hdr(grpc-status) -m str 14 }"}
_FAILURES = {"http": "{ status ge 500 }", "grpc": "{ res.hdr(grpc-status) -m str 2 12 13 14 }"}
"""HAProxy condition that is true for a failed response, by protocol.

The gRPC codes are UNKNOWN, UNIMPLEMENTED, INTERNAL and UNAVAILABLE. Other codes, such as INVALID_ARGUMENT and
CANCELLED, mean that the request is wrong, or that the client cancelled it."""


@dataclass(frozen=True)
class Latency:
    """Latency histogram of the responses since HAProxy started."""

    bounds_ms: tuple[int, ...]
    answered: int
    """Number of responses from servers, including error responses. A stream is counted at its first response."""
    total_ms: int
    """Total time of the responses in the histogram, in milliseconds."""
    slower: tuple[int, ...]
    """Number of responses that took at least as long as each bound. The bounds are in ascending order."""
    failed: int = 0
    """Number of failed responses of a slot's servers: HTTP 5xx, or gRPC UNKNOWN, UNIMPLEMENTED, INTERNAL or UNAVAILABLE."""

    @property
    def buckets(self) -> tuple[tuple[float, int], ...]:
        """Number of responses below each bound of `SHOWN_MS`, as in Prometheus.

        Each pair is (bound in seconds, number of responses).
        """
        return tuple((b / 1000, n) for b, n in zip(self.bounds_ms, self._below, strict=True) if b in SHOWN_MS)

    @property
    def counts(self) -> tuple[int, ...]:
        """Number of responses in each interval between two bounds.

        The first interval starts at 0, and the last one has no upper bound.
        """
        below = (0, *self._below, max((self.answered, *self._below)))
        return tuple(high - low for low, high in pairwise(below))

    @property
    def _below(self) -> tuple[int, ...]:
        # The counters are read one after the other while responses arrive, so they can disagree slightly.
        least = 0
        below = []
        for slower in self.slower:
            least = max(least, self.answered - slower)
            below.append(least)
        return tuple(below)


def response_rules(out: Writer, slot: str, protocol: Protocol) -> None:
    """Add the rules that count the latencies, the failures and the 503s of a slot's inference requests.

    They must be the last `http-response` rules of its back end. Responses of the server `held` (`queueing`) are not
    counted here but in the back end to which the request goes next.
    """
    out.add("acl moved srv_name held")
    # A request that only reads may have moved, too, if it was queued.
    hop_rules(out, " moved")
    out.add(f"http-response allow if moved or !{{ var({_INFERS}) -m found }}")
    out.add(f"http-response sc-inc-gpc({_first(slot) + _PER_SLOT - 1},0) if {_FAILURES[protocol]}")
    out.add(f"http-response sc-inc-gpc({UNAVAILABLE},0) if {_UNAVAILABLE[protocol]}")
    # A streaming response is counted when its first message arrives, because the queue advances then.
    _count(out, "res.timer.hdr", _first(slot), BOUNDS_MS)


def inference_rules(out: Writer, condition: str = "") -> None:
    """Add rules of a front end that mark requests as inference. They define the ACL `infers`.

    Without a condition, all requests are marked.
    """
    # Many rules use this ACL, and reading a variable costs 25 % of a comparison of the path.
    out.add(f"http-request set-var({_INFERS}) bool(true) {condition}".rstrip())
    out.add(f"acl infers var({_INFERS}) -m found")


def tables(out: Writer) -> None:
    """Add the stick table that counts gRPC streams and their latency."""
    out.section("backend $table", table=STREAMS)
    out.add("stick-table type integer size 16 store gpc($counters)", counters=2 + len(SHOWN_MS))


def arrival_rules(out: Writer, condition: str = "") -> None:
    """Add the rules of a client-facing front end that store the arrival time of inference requests and track streams.

    A stream is tracked only if `condition` is also true.
    """
    out.add("http-request set-var(txn.came_at) date(0,ms) if infers")
    streams = "{ path -m end /generate_stream /ModelStreamInfer }"
    out.add(f"http-request track-sc{_TRACKED} int(1) table $table if infers{condition} {streams}", table=STREAMS)


def stream_rules(out: Writer, condition: str) -> None:
    """Add the `http-after-response` rules of a client-facing front end that count streams.

    The rules apply to responses for which `condition` is true; HAProxy evaluates no later rule for them. If a response
    doesn't belong to a stream, HAProxy evaluates only one of these rules. They come after the rules of
    `client_response_rules`.
    """
    out.add(f"http-after-response allow if {condition} !{{ sc_tracked({_TRACKED}) }}")
    out.add(f"http-after-response sc-inc-gpc(0,{_TRACKED}) if {condition}")
    out.add(f"http-after-response sc-add-gpc(1,{_TRACKED}) var(txn.took_ms) if {condition}")
    for number, bound_ms in enumerate(SHOWN_MS, 2):
        out.add(f"http-after-response allow if {condition} {{ var(txn.took_ms) -m int lt {bound_ms} }}")
        out.add(f"http-after-response sc-inc-gpc({number},{_TRACKED}) if {condition}")
    out.add(f"http-after-response allow if {condition}")


def client_response_rules(out: Writer) -> None:
    """Add the rules of a client-facing front end that count the latency as clients see it.

    They must be its last `http-response` rules. They count responses from servers, including requests that passed
    through HAProxy twice (`hop_rules`).
    """
    out.add("http-response allow if !{ var(txn.came_at) -m found }")
    # HAProxy's own timers do not include the time for which a request was held.
    out.add("http-response set-var(txn.took_ms) date(0,ms),sub(txn.came_at)")
    # The time is negative if the clock was set back in between.
    out.add("http-response set-var(txn.took_ms) int(0) if { var(txn.took_ms) -m int lt 0 }")
    _count(out, "var(txn.took_ms)", FIRST, SHOWN_MS)


def hop_rules(out: Writer, condition: str = "") -> None:
    """Add the rules that exclude HAProxy's own responses from the latency of clients.

    They belong to a back end through which a request passes to HAProxy itself, and are evaluated before the rules of
    the front end.
    """
    out.add(f"http-response unset-var(txn.came_at) if{condition} {{ res.hdr({OWN_RESPONSE}) -m found }}")
    out.add(f"http-response del-header {OWN_RESPONSE}" + (f" if{condition}" if condition else ""))


def _count(out: Writer, took_ms: str, first: int, bounds_ms: tuple[int, ...]) -> None:
    out.add(f"http-response sc-inc-gpc({first},0)")
    out.add(f"http-response sc-add-gpc({first + 1},0) {took_ms}")
    match = " -m int" if took_ms.startswith("var") else ""
    for number, bound_ms in enumerate(bounds_ms):
        out.add(f"http-response allow if {{ {took_ms}{match} lt {bound_ms} }}")
        out.add(f"http-response sc-inc-gpc({first + 2 + number},0)")


def read(counters: Mapping[int, int]) -> dict[str, Latency]:
    """Return the latency histogram of each slot.

    `counters` has the stick table's counters by number; missing ones are 0.
    """
    return {
        slot: replace(_latency(counters, _first(slot), BOUNDS_MS), failed=counters.get(_first(slot) + _PER_SLOT - 1, 0))
        for slot in SLOTS
    }


def read_clients(counters: Mapping[int, int]) -> Latency:
    """Return the latency histogram as clients see it.

    `counters` has the stick table's counters by number; missing ones are 0.
    """
    return _latency(counters, FIRST, SHOWN_MS)


def read_streams(counters: Mapping[int, int]) -> Latency:
    """Return the histogram of the time to the first event of streams.

    `counters` has the counters of the stick table `STREAMS` by number; missing ones are 0.
    """
    return _latency(counters, 0, SHOWN_MS)


def _first(slot: str) -> int:
    # A plan has only the slots in `SLOTS`. If it has another name, the file must still be valid for HAProxy.
    return _FIRST_OF_SLOTS + (SLOTS.index(slot) if slot in SLOTS else 0) * _PER_SLOT


def _latency(counters: Mapping[int, int], first: int, bounds_ms: tuple[int, ...]) -> Latency:
    values = [counters.get(number, 0) for number in range(first, first + 2 + len(bounds_ms))]
    return Latency(bounds_ms, values[0], values[1], tuple(values[2:]))
