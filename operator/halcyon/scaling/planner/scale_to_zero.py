"""Scaling to zero: whether a model is idle, and the idle time that it takes.

That time is `idleTimeout`, extended if scaling to zero has cost more than it saved. A model at zero saves the GPU time of its
replicas. The next request pays for their start: in GPU time, in waiting, and in extra replicas that drain the backlog. If the
start took more GPU time than zero has saved, the next timeout is 1.5 times what would have been enough this time. If it took
25 % or less, the timeout halves, down to `idleTimeout`.
"""

from __future__ import annotations

from halcyon.scaling.frozen import immutable
from halcyon.scaling.planner.forecast.arrival_rate import ArrivalRate
from halcyon.scaling.planner.reading import Objectives, Reading

MAX_TIMEOUT_S = 1800.0
"""Maximum learnt timeout (`scale_down_hold.MAX_HOLD_S` is the same, for the same reason). A longer `idleTimeout` is used as it
is."""
_ENOUGH = 1.5
"""Factor on the timeout that would have been enough: people and timers return after similar intervals, not the same ones."""
_CHEAP = 4.0
"""Ratio of saved to spent GPU time above which the timeout shrinks."""


@immutable(frozen=True, slots=True)
class IdleTimeout:
    """Last scale to zero and the return after it; times are seconds of the planner's clock."""

    patience_s: float = 0.0
    left: tuple[float, int] | None = None
    """Time of the last scale to zero, and the replicas before it."""
    back: tuple[float, int] | None = None
    """Time of the first return after that, and the most replicas since."""

    def wait_s(self, idle_after_s: float) -> float:
        """Return the seconds without a request before the model scales to zero."""
        return max(idle_after_s, self.patience_s)

    def with_count(self, now: float, before: int, count: int, *, idle_after_s: float, start_s: float) -> IdleTimeout:
        """Apply a decision for `count` in place of `before` replicas. A return is judged once its first pods have started."""
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


def idle_reason(
    now: float, objectives: Objectives, reading: Reading, arrivals: ArrivalRate, timeout: IdleTimeout
) -> str | None:
    """Return why there should be no replica, or None if there should be one."""
    after = objectives.idle_after_s
    if objectives.low > 0 or after is None or reading.inflight:
        return None
    if arrivals.last_at is None and reading.replicas == 0:
        return "no request has arrived"
    quiet = _quiet_s(now, arrivals)
    if quiet < timeout.wait_s(after):
        return None
    return f"no request for {quiet:.0f} s; idleTimeout is {after:.0f} s"


def extended_idle_reason(
    now: float, objectives: Objectives, reading: Reading, arrivals: ArrivalRate, timeout: IdleTimeout
) -> str | None:
    """Return why there are replicas although no request came for `idleTimeout`, or None if that isn't so."""
    after, quiet = objectives.idle_after_s, _quiet_s(now, arrivals)
    if objectives.low > 0 or after is None or reading.inflight or quiet < after:
        return None
    wait_s = timeout.wait_s(after)
    return (
        f"no request for {quiet:.0f} s, idleTimeout is {after:.0f} s; the last start cost more GPU time than zero replicas had saved, so the next "
        f"scale to zero is after {wait_s:.0f} s"
    )


def _quiet_s(now: float, arrivals: ArrivalRate) -> float:
    """Return the seconds since the last request, or since observation began."""
    since = arrivals.last_at if arrivals.last_at is not None else arrivals.since
    return 0.0 if since is None else now - since
