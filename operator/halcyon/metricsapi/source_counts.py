"""Numbers of connections by source, from which the source with the most is known at once. Pure.

After an outage, thousands of agents connect from as many addresses, and each of these connections needs that source.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from dataclasses import dataclass, field


@dataclass
class SourceCounts:
    """Number of connections of each source that has any. The time of each method doesn't depend on the number of sources."""

    total: int = 0
    """Number of connections of all sources."""
    _counts: dict[str, int] = field(default_factory=dict)
    _sources: defaultdict[int, OrderedDict[str, None]] = field(default_factory=lambda: defaultdict(OrderedDict))
    """Sources by number of connections. A source that has had its number for longest comes first."""
    _most: int = 0

    def __getitem__(self, source: str) -> int:
        """Return the number of connections of a source."""
        return self._counts.get(source, 0)

    def add(self, source: str) -> None:
        """Count one more connection of a source."""
        self._move(source, 1)

    def remove(self, source: str) -> None:
        """Count one connection of a source less. It must have one."""
        self._move(source, -1)

    def most(self) -> str | None:
        """Return the source with the most connections; None if there are no connections."""
        return next(iter(self._sources[self._most])) if self._most else None

    def _move(self, source: str, step: int) -> None:
        before = self._counts.pop(source, 0)
        after = before + step
        if before:
            del self._sources[before][source]
            if not self._sources[before]:
                del self._sources[before]
        if after:
            self._counts[source] = after
            self._sources[after][source] = None
        self.total += step
        # Each step changes a number by one, so the largest one changes by at most one.
        if after > self._most or (before == self._most and before not in self._sources):
            self._most = after
