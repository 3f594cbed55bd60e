"""How long servers take for their answers, by slot: counted by rules of haproxy.cfg, read from its stick table. Pure.

A rule costs as much as a look at a number, and nothing is kept per request. So each bound has a counter of the answers that took
at least so long, and the rules end at the first bound that an answer kept: one that is there within a millisecond is looked at
once. Prometheus counts the other way round; `Latency.buckets` turns it.

    time = from the moment that a server was given the request until the headers of its answer

Triton's own queue is in it, the wait in the balancer is not: so it is the same figure whatever the load on the balancer, and that of
two slots compares two revisions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from halcyon.balancer.haproxy_text import Writer

BOUNDS_MS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 30000)
SLOTS = ("a", "b")
_FIRST = 6
"""Counters before it are of all slots together (`admission.COUNTERS`)."""
_PER_SLOT = 2 + len(BOUNDS_MS)
COUNTERS = _FIRST + len(SLOTS) * _PER_SLOT
"""Of a row, in all; 100 is the most that HAProxy has."""


@dataclass(frozen=True)
class Latency:
    """What one slot's servers have answered since HAProxy started. 32-bit counters."""

    answered: int
    """Answers of servers: their own failures too, and a stream from its first."""
    total_ms: int
    """What they took, all together."""
    slower: tuple[int, ...]
    """Answers that took as long as each of `BOUNDS_MS`, or longer."""

    @property
    def buckets(self) -> tuple[tuple[float, int], ...]:
        """(seconds, answers that took less) of each bound, rising, as Prometheus has it."""
        # The counters of a row are read one after the other, while answers come.
        least = 0
        found = []
        for bound_ms, slower in zip(BOUNDS_MS, self.slower, strict=True):
            least = max(least, self.answered - slower)
            found.append((bound_ms / 1000, least))
        return tuple(found)


def rules(out: Writer, slot: str) -> None:
    """The last `http-response` rules of a slot's back end, for tracked requests: behind them none is looked at."""
    first = _first(slot)
    # An answer of a stream counts when its first message comes: the queue moves on then.
    out.add(f"http-response sc-inc-gpc({first},0)")
    out.add(f"http-response sc-add-gpc({first + 1},0) res.timer.hdr")
    for number, bound_ms in enumerate(BOUNDS_MS):
        out.add(f"http-response allow if {{ res.timer.hdr lt {bound_ms} }}")
        out.add(f"http-response sc-inc-gpc({first + 2 + number},0)")


def read(counters: Mapping[int, int]) -> dict[str, Latency]:
    """Of each slot, from a row's counters by number; those that are missing are 0."""
    return {slot: _of(counters, _first(slot)) for slot in SLOTS}


def _first(slot: str) -> int:
    # The plan's slots are these two; whatever it says, the file must be one that HAProxy reads.
    return _FIRST + (SLOTS.index(slot) if slot in SLOTS else 0) * _PER_SLOT


def _of(counters: Mapping[int, int], first: int) -> Latency:
    values = [counters.get(number, 0) for number in range(first, first + _PER_SLOT)]
    return Latency(values[0], values[1], tuple(values[2:]))
