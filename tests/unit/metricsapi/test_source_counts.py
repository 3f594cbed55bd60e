"""Numbers of connections by source, and that limits cost as little with thousands of sources as with a few."""

from __future__ import annotations

import random
import sys
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from halcyon.metricsapi.connections import Connections, PortLimits
from halcyon.metricsapi.source_counts import SourceCounts
from halcyon.metricsapi.waiting_connections import WaitingConnections

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

FEW, MANY = 20, 4000
"""Numbers of sources. An agent has an address of its own, so 2,000 models with two balancers are 4,000 sources."""


def test_counts_agree_with_a_search_through_all_sources() -> None:
    """10,000 random steps with 30 sources."""
    draw, counts, expected = random.Random(3), SourceCounts(), Counter[str]()
    for _ in range(10_000):
        source = f"10.0.0.{draw.randrange(30)}"
        if expected[source] and draw.random() < 0.55:
            expected[source] -= 1
            counts.remove(source)
        else:
            expected[source] += 1
            counts.add(source)
        most = counts.most()
        assert counts.total == expected.total()
        assert counts[source] == expected[source]
        assert (0 if most is None else expected[most]) == max(expected.values())


def test_source_that_has_the_most_for_longest_comes_first() -> None:
    counts = SourceCounts()
    for source in ("a", "b", "c", "b", "c"):
        counts.add(source)
    assert counts.most() == "b"
    counts.remove("b")
    assert counts.most() == "c"


def test_no_source_has_the_most_without_connections() -> None:
    counts = SourceCounts()
    counts.add("a")
    counts.remove("a")
    assert (counts.most(), counts.total, counts["a"]) == (None, 0, 0)


def full_port(sources: int) -> Callable[[], object]:
    """Return a function that tries to open a connection on a port with a request of each of these sources."""
    connections = Connections(PortLimits(unidentified=sources))
    for number in range(sources):
        admitted = connections.admit(f"source {number}", 0.0)
        assert isinstance(admitted, tuple)
        connections.begin_request(admitted[0])
    return lambda: connections.admit("another source", 1.0)


def full_queue(sources: int) -> Callable[[], object]:
    """Return a function that adds a socket to the waiting sockets, of which each of these sources has one."""
    waiting: WaitingConnections[int] = WaitingConnections(sources)
    for number in range(sources):
        assert waiting.add(f"source {number}", number, 0.0) is None
    return lambda: waiting.add("another source", -1, 1.0)


def calls(work: Callable[[], object]) -> int:
    """Return the number of functions, including those written in C, that are called by `work`."""
    count = 0

    def note(_frame: FrameType, event: str, _argument: object) -> None:
        nonlocal count
        count += event in {"call", "c_call"}

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(before)
    return count


@pytest.mark.parametrize("full", [full_port, full_queue])
def test_rejection_costs_the_same_with_thousands_of_sources(full: Callable[[int], Callable[[], object]]) -> None:
    assert 0 < calls(full(MANY)) <= calls(full(FEW))
