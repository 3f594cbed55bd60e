"""Accepted sockets that wait until their source may have another connection. Pure.

If thousands of agents behind one address reconnect at once, most of them exceed the limit of that address. A rejected
agent would have to connect again. A waiting socket needs no further attempt, and no TLS buffers in the operator.

Sources take turns, so that a source with many waiting sockets doesn't delay others. Out of scope: which connections may
begin (`connections`), and the sockets themselves (`listener`).
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

from halcyon.metricsapi.source_counts import SourceCounts

MAX_WAIT_S: Final = 3.0
"""Time after which a waiting socket is closed, in seconds. Agents then connect again within a second."""
_MAX_SKIPPED: Final = 4
"""Maximum number of sources that are skipped in one turn, so that a turn is short however many sources wait."""

T = TypeVar("T")


@dataclass
class WaitingConnections(Generic[T]):
    """Waiting sockets by source, oldest first. In all methods, `now` is the monotonic time in seconds."""

    limit: int
    """Maximum number of sockets that wait."""
    _by_source: OrderedDict[str, deque[tuple[float, T]]] = field(default_factory=OrderedDict)
    """Sockets with the time since which they wait. The source whose turn it is comes first."""
    _counts: SourceCounts = field(default_factory=SourceCounts)
    """Number of waiting sockets by source."""

    def __len__(self) -> int:
        """Return the number of waiting sockets."""
        return self._counts.total

    def has(self, source: str) -> bool:
        """Return whether sockets of this source wait."""
        return source in self._by_source

    def add(self, source: str, waiting: T, now: float) -> tuple[str, T] | None:
        """Add a socket that waits. If there are too many, remove one, and return its source and the socket to close.

        The newest socket of the source with the most sockets is removed. It may be the new socket.
        """
        closed: tuple[str, T] | None = None
        if len(self) >= self.limit:
            most = self._counts.most()
            if most is None or self._counts[most] <= self._counts[source] + 1:
                return source, waiting
            closed = most, self._by_source[most].pop()[1]
            self._counts.remove(most)
        self._by_source.setdefault(source, deque()).append((now, waiting))
        self._counts.add(source)
        return closed

    def begin(self, may_begin: Callable[[str, T], bool]) -> None:
        """Call `may_begin` with the source and the oldest socket of each source in turn. Remove the socket if it returns True.

        A source is skipped after its first socket for which the result is False. After some skipped sources, the next
        call continues with others.
        """
        skipped = set[str]()
        while len(skipped) < min(_MAX_SKIPPED, len(self._by_source)):
            source, queue = next(iter(self._by_source.items()))
            if source in skipped:
                pass
            elif may_begin(source, queue[0][1]):
                queue.popleft()
                self._counts.remove(source)
            else:
                skipped.add(source)
            if queue:
                self._by_source.move_to_end(source)
            else:
                del self._by_source[source]

    def expired(self, now: float) -> list[T]:
        """Remove and return the sockets that have waited for `MAX_WAIT_S`."""
        expired: list[T] = []
        for source, queue in list(self._by_source.items()):
            while queue and now - queue[0][0] >= MAX_WAIT_S:
                expired.append(queue.popleft()[1])
                self._counts.remove(source)
            if not queue:
                del self._by_source[source]
        return expired

    def clear(self) -> list[T]:
        """Remove and return all sockets."""
        cleared = [waiting for queue in self._by_source.values() for _, waiting in queue]
        self._by_source.clear()
        self._counts = SourceCounts()
        return cleared
