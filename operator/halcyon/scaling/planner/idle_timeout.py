"""For how long nobody may have asked until no replica is left: `idleAfter`, and longer where going has cost more than it saved.

A model at zero saves what its replicas would have cost. Who asks next pays for their start, in GPU time and by waiting, and in more
replicas that work off what waited meanwhile. Where the start took more GPU time than zero has saved, the next wait is half as long
again as would have been enough this time; where it took a quarter or less, the wait halves, down to `idleAfter`.
"""

from __future__ import annotations

from halcyon.scaling.frozen import immutable

MAX_TIMEOUT_S = 1800.0
"""The wait grows up to here (`scale_down_hold.MAX_HOLD_S` is the same, for the same reason). An `idleAfter` that is longer counts as it is."""
_ENOUGH = 1.5
"""The next gap may be longer by so much: people and timers come back at about the same distance, not at the same."""
_CHEAP = 4.0
"""Zero has saved so many times what the start took: no reason for patience."""


@immutable(frozen=True, slots=True)
class IdleTimeout:
    """When the last replica went and who came back; times in seconds of the planner's clock."""

    patience_s: float = 0.0
    left: tuple[float, int] | None = None
    """When the last replicas were let go, and how many there were."""
    back: tuple[float, int] | None = None
    """When the first came back after that, and the most replicas since."""

    def wait_s(self, idle_after_s: float) -> float:
        """Seconds without a request until no replica is left."""
        return max(idle_after_s, self.patience_s)

    def with_count(self, now: float, before: int, count: int, *, idle_after_s: float, start_s: float) -> IdleTimeout:
        """With a decision for `count` in place of `before` replicas. A return is judged when its first pods have started."""
        if count == 0:
            return self if before == 0 else IdleTimeout(self.patience_s, (now, before))
        if self.left is None:
            return self
        back = (now, count) if self.back is None else (self.back[0], max(self.back[1], count))
        if now - back[0] < start_s:
            return self if back == self.back else IdleTimeout(self.patience_s, self.left, back)
        away_s = back[0] - self.left[0]
        saved, spent = away_s * self.left[1], start_s * back[1]
        if spent > saved:
            return IdleTimeout(min(_ENOUGH * (self.wait_s(idle_after_s) + away_s), MAX_TIMEOUT_S))
        return IdleTimeout(self.patience_s / 2 if _CHEAP * spent < saved else self.patience_s)
