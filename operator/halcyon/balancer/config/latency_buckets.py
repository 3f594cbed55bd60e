"""How long answers take: counted by rules of haproxy.cfg, read from its stick table. Pure.

A rule costs as much as a look at a number, and nothing is kept per request. So each bound has a counter of the answers that took
at least so long, and the rules end at the first bound that an answer kept: one that is there within a millisecond is looked at
once. Prometheus counts the other way round; `Latency.buckets` turns it.

    of a slot   from the moment that a server was given the request until the headers of its answer, by `BOUNDS_MS`
    of clients  from the request's arrival until then, by `SHOWN_MS`: held, queued, and while its body came

The first has Triton's own queue in it and the wait in the balancer not: so it is the same figure whatever the load on the balancer,
and that of two slots compares two revisions. That is why its bounds are fine: a quarter apart from 8 ms to 1 s, and less than half above.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from halcyon.balancer.config.writer import Writer

SHOWN_MS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 30000)
"""What Prometheus is told, of either."""
BOUNDS_MS = (
    *(1, 2, 3, 5, 8),
    *(10, 13, 16, 20, 25, 32, 40, 50, 63, 80),
    *(100, 125, 160, 200, 250, 320, 400, 500, 630, 800),
    *(1000, 1400, 2000, 2800, 4000, 5000, 7000, 10000, 14000, 20000, 30000, 42000),
)
SLOTS = ("a", "b")
_INFERS = "txn.infers"
_CLIENTS = 6
"""Counters before it are `admission.COUNTERS`'s."""
_FIRST = _CLIENTS + 2 + len(SHOWN_MS)
_PER_SLOT = 2 + len(BOUNDS_MS)
COUNTERS = _FIRST + len(SLOTS) * _PER_SLOT
"""Of a row, in all; 100 is the most that HAProxy has."""


@dataclass(frozen=True)
class Latency:
    """What was answered since HAProxy started. 32-bit counters."""

    bounds_ms: tuple[int, ...]
    answered: int
    """Answers of servers: their own failures too, and a stream from its first."""
    total_ms: int
    """What they took, all together."""
    slower: tuple[int, ...]
    """Answers that took as long as each bound, or longer."""

    @property
    def buckets(self) -> tuple[tuple[float, int], ...]:
        """(seconds, answers that took less) of each bound that is shown, rising, as Prometheus has it."""
        return tuple((b / 1000, n) for b, n in zip(self.bounds_ms, self._below, strict=True) if b in SHOWN_MS)

    @property
    def counts(self) -> tuple[int, ...]:
        """Answers between one bound and the next, and last those above all: one more than there are bounds."""
        whole = (0, *self._below, max((self.answered, *self._below)))
        return tuple(high - low for low, high in pairwise(whole))

    @property
    def _below(self) -> tuple[int, ...]:
        # The counters of a row are read one after the other, while answers come.
        least = 0
        found = []
        for slower in self.slower:
            least = max(least, self.answered - slower)
            found.append(least)
        return tuple(found)


def rules(out: Writer, slot: str) -> None:
    """The last `http-response` rules of a slot's back end, for inference requests: behind them none is looked at."""
    out.add(f"http-response allow if !{{ var({_INFERS}) -m found }}")
    # An answer of a stream counts when its first message comes: the queue moves on then.
    _count(out, "res.timer.hdr", _first(slot), BOUNDS_MS)


def infers(out: Writer, condition: str = "") -> None:
    """Rules of a front end: a request that meets the condition, or each one, is inference; they make its acl `infers`."""
    # Many rules ask it: a look at a variable costs a quarter of a comparison of the path.
    out.add(f"http-request set-var({_INFERS}) bool(true) {condition}".rstrip())
    out.add(f"acl infers var({_INFERS}) -m found")


def arrive(out: Writer) -> None:
    """First rule of a client's front end for inference requests."""
    out.add("http-request set-var(txn.came_at) date(0,ms) if infers")


def rules_of_clients(out: Writer) -> None:
    """The last `http-response` rules of a client's front end: what a server answered, also behind a hop."""
    out.add("http-response allow if !{ var(txn.came_at) -m found }")
    # HAProxy's own timers leave out who was held.
    out.add("http-response set-var(txn.took_ms) date(0,ms),sub(txn.came_at)")
    # A clock that was set back meanwhile.
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
    """Of each slot, from a row's counters by number; those that are missing are 0."""
    return {slot: _of(counters, _first(slot), BOUNDS_MS) for slot in SLOTS}


def read_clients(counters: Mapping[int, int]) -> Latency:
    """What clients met, from a row's counters by number; those that are missing are 0."""
    return _of(counters, _CLIENTS, SHOWN_MS)


def _first(slot: str) -> int:
    # The plan's slots are these two; whatever it says, the file must be one that HAProxy reads.
    return _FIRST + (SLOTS.index(slot) if slot in SLOTS else 0) * _PER_SLOT


def _of(counters: Mapping[int, int], first: int, bounds_ms: tuple[int, ...]) -> Latency:
    values = [counters.get(number, 0) for number in range(first, first + 2 + len(bounds_ms))]
    return Latency(bounds_ms, values[0], values[1], tuple(values[2:]))
