"""Latency of responses: counted by rules of haproxy.cfg, read from its stick table. Pure.

A rule costs one comparison, and nothing is kept per request. So each bound counts the responses that took at least that long, and
the rules end at the first bound that a response meets: one within a millisecond costs a single comparison. Prometheus counts the
other way round; `Latency.buckets` converts.

    of a slot   from handing the request to a server until the response headers, by `BOUNDS_MS`
    of clients  from the arrival of the request until then, by `SHOWN_MS`: includes time held, queued, and receiving the body

The first includes Triton's own queue and not the wait in the balancer. So it does not depend on the balancer's load, and comparing
two slots compares two revisions. That is why its bounds are fine: a quarter apart from 8 ms to 1 s, and less than half above.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from halcyon.balancer.config.writer import Writer

SHOWN_MS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 30000)
"""Bounds that Prometheus gets, for both."""
BOUNDS_MS = (
    *(1, 2, 3, 5, 8),
    *(10, 13, 16, 20, 25, 32, 40, 50, 63, 80),
    *(100, 125, 160, 200, 250, 320, 400, 500, 630, 800),
    *(1000, 1400, 2000, 2800, 4000, 5000, 7000, 10000, 14000, 20000, 30000, 42000),
)
SLOTS = ("a", "b")
_INFERS = "txn.infers"
_CLIENTS = 6
"""First counter of clients; those before it belong to `queueing.COUNTERS`."""
_FIRST = _CLIENTS + 2 + len(SHOWN_MS)
_PER_SLOT = 2 + len(BOUNDS_MS)
COUNTERS = _FIRST + len(SLOTS) * _PER_SLOT
"""Number of counters in a row; HAProxy allows at most 100."""


@dataclass(frozen=True)
class Latency:
    """Responses since HAProxy started. 32-bit counters."""

    bounds_ms: tuple[int, ...]
    answered: int
    """Responses of servers, including their own failures. A stream counts as of its first response."""
    total_ms: int
    """Total time that they took."""
    slower: tuple[int, ...]
    """Responses that took at least as long as each bound."""

    @property
    def buckets(self) -> tuple[tuple[float, int], ...]:
        """(seconds, responses that took less) for each bound in `SHOWN_MS`, ascending, as in Prometheus."""
        return tuple((b / 1000, n) for b, n in zip(self.bounds_ms, self._below, strict=True) if b in SHOWN_MS)

    @property
    def counts(self) -> tuple[int, ...]:
        """Responses between successive bounds, and last those above all: one more than there are bounds."""
        below = (0, *self._below, max((self.answered, *self._below)))
        return tuple(high - low for low, high in pairwise(below))

    @property
    def _below(self) -> tuple[int, ...]:
        # A row's counters are read one after the other, while responses arrive.
        least = 0
        below = []
        for slower in self.slower:
            least = max(least, self.answered - slower)
            below.append(least)
        return tuple(below)


def response_rules(out: Writer, slot: str) -> None:
    """Add the last `http-response` rules of a slot's back end, for inference requests; no rule behind them is evaluated."""
    out.add(f"http-response allow if !{{ var({_INFERS}) -m found }}")
    # A streaming response counts when its first message arrives: the queue advances then.
    _count(out, "res.timer.hdr", _first(slot), BOUNDS_MS)


def inference_rules(out: Writer, condition: str = "") -> None:
    """Add rules of a front end that mark a request as inference if it meets the condition, or always; they define the acl `inference_rules`."""
    # Many rules use it: reading a variable costs a quarter of a comparison of the path.
    out.add(f"http-request set-var({_INFERS}) bool(true) {condition}".rstrip())
    out.add(f"acl infers var({_INFERS}) -m found")


def arrival_rules(out: Writer) -> None:
    """Add the first rule of a client-facing front end for inference requests."""
    out.add("http-request set-var(txn.came_at) date(0,ms) if infers")


def client_response_rules(out: Writer) -> None:
    """Add the last `http-response` rules of a client-facing front end, for responses of servers, also behind a hop."""
    out.add("http-response allow if !{ var(txn.came_at) -m found }")
    # HAProxy's own timers leave out the time a request was held.
    out.add("http-response set-var(txn.took_ms) date(0,ms),sub(txn.came_at)")
    # The clock was set back meanwhile.
    out.add("http-response set-var(txn.took_ms) int(0) if { var(txn.took_ms) -m int lt 0 }")
    _count(out, "var(txn.took_ms)", _CLIENTS, SHOWN_MS)


def _count(out: Writer, took_ms: str, first: int, bounds_ms: tuple[int, ...]) -> None:
    out.add(f"http-response sc-inc-gpc({first},0)")
    out.add(f"http-response sc-add-gpc({first + 1},0) {took_ms}")
    match = " -m int" if took_ms.startswith("var") else ""
    for number, bound_ms in enumerate(bounds_ms):
        out.add(f"http-response allow if {{ {took_ms}{match} lt {bound_ms} }}")
        out.add(f"http-response sc-inc-gpc({first + 2 + number},0)")


def read(counters: Mapping[int, int]) -> dict[str, Latency]:
    """Return the latency of each slot from a row's counters by number; missing ones are 0."""
    return {slot: _latency(counters, _first(slot), BOUNDS_MS) for slot in SLOTS}


def read_clients(counters: Mapping[int, int]) -> Latency:
    """Return the latency of clients from a row's counters by number; missing ones are 0."""
    return _latency(counters, _CLIENTS, SHOWN_MS)


def _first(slot: str) -> int:
    # The plan's slots are these two; whatever it contains, HAProxy must be able to read the file.
    return _FIRST + (SLOTS.index(slot) if slot in SLOTS else 0) * _PER_SLOT


def _latency(counters: Mapping[int, int], first: int, bounds_ms: tuple[int, ...]) -> Latency:
    values = [counters.get(number, 0) for number in range(first, first + 2 + len(bounds_ms))]
    return Latency(bounds_ms, values[0], values[1], tuple(values[2:]))
