"""How long capacity is kept after it was needed: the ski-rental rule, and patience that grows with regret.

Keeping a pod through a gap costs its time; releasing it and starting one again costs a start. Whoever keeps it for as long
as a start takes pays at most twice what foresight would. Each time a release was followed by a new rise within twice the hold,
the hold doubles, so that in an hour at most log2(MOST_S / shortest) + 3600 / MOST_S + 1 releases can be followed by one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

SHORTEST_S = 60.0
"""No release of what the rate needs is sooner than this: the rate itself is a mean of a minute."""
MOST_S = 1800.0
"""Patience ends here, unless a start itself takes longer."""


@dataclass(frozen=True, slots=True)
class Hold:
    """What was needed lately."""

    needs: tuple[tuple[float, int], ...] = ()
    """(time, count), ascending in time and falling in count: only what still counts."""
    factor: float = 1.0
    """The hold over its shortest."""
    lowered_at: float | None = None
    """When the held count fell last."""
    eased_at: float = 0.0
    """When the factor was changed last."""
    held: int | None = None
    """The count that was held last."""

    def seconds(self, shortest_s: float) -> float:
        """How long a need is kept now."""
        return min(shortest_s * self.factor, max(MOST_S, shortest_s))

    def with_need(self, now: float, need: int, shortest_s: float) -> tuple[int, Hold]:
        """The count to hold now that `need` is needed, and the memory with it."""
        span = self.seconds(shortest_s)
        kept = [(at, count) for at, count in self.needs if at > now - span and count > need]
        needs = (*kept, (now, need))
        held = needs[0][1]
        memory = replace(self, needs=needs, held=held)
        if self.held is None or held == self.held:
            if self.factor > 1.0 and now - self.eased_at > 4 * span:
                memory = replace(memory, factor=max(self.factor / 2, 1.0), eased_at=now)
            return held, memory
        if held < self.held:
            return held, replace(memory, lowered_at=now)
        if self.lowered_at is not None and now - self.lowered_at < 2 * span:
            memory = replace(
                memory, factor=self.factor * 2 if span < MOST_S else self.factor, eased_at=now, lowered_at=None
            )
        return held, memory
