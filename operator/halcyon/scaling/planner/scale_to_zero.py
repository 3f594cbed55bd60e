"""Scaling to zero: whether a model is idle, and how long it must be idle first.

This time is `idleTimeout`, or longer if scaling to zero has cost more than it saved. It begins with the last request,
or when the first ready pod became ready if that was later. A model at zero saves the GPU time of its replicas. The next
request then costs their start: GPU time, the wait, and extra replicas that clear the backlog.

After each scale-up from zero, the GPU time saved is compared with the GPU time of the start. If the start took more,
the next timeout is 1.5 times the timeout that would have avoided this scale to zero. If it took less than 25 % of the
time saved, the timeout is halved, but not below `idleTimeout`.
"""

from __future__ import annotations

import math
from dataclasses import replace

from halcyon.scaling.frozen import immutable
from halcyon.scaling.planner.forecast.arrival_rate import ArrivalRate
from halcyon.scaling.planner.reading import Objectives, Reading

MAX_TIMEOUT_S = 1800.0
"""Maximum learnt idle timeout in seconds, equal to the maximum learnt time for which unused replicas are kept
(`scale_down_hold.MAX_HOLD_S`). A longer `idleTimeout` is not shortened."""
_ENOUGH = 1.5
"""Ratio of the new idle timeout to the timeout that would have avoided the last scale to zero. The margin is needed
because people and timers return after similar, but not equal, intervals."""
_CHEAP = 4.0
"""Ratio of the GPU time saved at zero replicas to the GPU time spent on the next cold start, above which the idle
timeout is halved."""


@immutable(frozen=True, slots=True)
class IdleTimeout:
    """Learnt idle timeout, with the times of the last scale to zero and of the scale-up after it.

    Times are in seconds since the epoch.
    """

    patience_s: float = 0.0
    left: tuple[float, int] | None = None
    """Last scale to zero, as (time, number of replicas before it)."""
    back: tuple[float, int] | None = None
    """Time and size of the scale-up after the last scale to zero: (time of the first scale-up, highest number of
    replicas since then)."""

    def wait_s(self, idle_after_s: float) -> float:
        """Return the seconds without a request after which the model scales to zero."""
        return max(idle_after_s, self.patience_s)

    def started(self, now: float, count: int) -> IdleTimeout:
        """Return the timeout after a component other than the planner decided to start `count` replicas from zero.

        The planner's next decision then finds replicas, and would not see that they were started.
        """
        return self if self.left is None or self.back is not None else replace(self, back=(now, count))

    def with_count(self, now: float, before: int, count: int, *, idle_after_s: float, start_s: float) -> IdleTimeout:
        """Return the timeout after a decision that changes the replicas from `before` to `count`.

        After a scale-up from zero, the timeout changes only after `start_s` seconds, when the first pods have had time
        to start.
        """
        if count == 0:
            return self if before == 0 else IdleTimeout(self.patience_s, (now, before))
        if self.left is None:
            return self
        if self.back is None and before > 0:
            # The replicas were never 0, for example in the mode Recommend.
            return IdleTimeout(self.patience_s)
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
    """Return the reason why the model should have zero replicas, or None if it should have some."""
    after = objectives.idle_after_s
    if objectives.low > 0 or after is None or reading.inflight or _has_other_work(objectives, reading):
        return None
    if arrivals.last_at is None and reading.replicas == 0:
        return "no request has arrived"
    quiet, wait_s = _quiet_s(now, arrivals), timeout.wait_s(after)
    ready_s = _ready_s(now, reading)
    if min(quiet, ready_s) < wait_s or _is_starting(now, objectives, reading):
        return None
    return f"{_idle_for(quiet, ready_s)}; idleTimeout is {after:.0f} s"


def extended_idle_reason(
    now: float, objectives: Objectives, reading: Reading, arrivals: ArrivalRate, timeout: IdleTimeout
) -> str | None:
    """Return the reason why the model keeps replicas although `idleTimeout` has passed without a request.

    Return None if there is no such reason.
    """
    after, quiet = objectives.idle_after_s, _quiet_s(now, arrivals)
    if objectives.low > 0 or after is None or reading.inflight or _has_other_work(objectives, reading):
        return None
    ready_s = _ready_s(now, reading)
    if min(quiet, ready_s) < after or _is_starting(now, objectives, reading):
        return None
    wait_s = timeout.wait_s(after)
    return (
        f"{_idle_for(quiet, ready_s)}, idleTimeout is {after:.0f} s; the last start cost more GPU time than zero replicas had saved, so the next "
        f"scale to zero is after {wait_s:.0f} s"
    )


def _is_starting(now: float, objectives: Objectives, reading: Reading) -> bool:
    """Return whether no pod is ready yet, and one may still become ready within `startupTimeout`.

    Removing such a pod would waste its start. If starts take longer than the idle timeout and clients give up earlier,
    the model would never become ready.
    """
    phases = [pod.phase for pod in reading.pods]
    return "ready" not in phases and any(
        pod.phase in {"starting", "unschedulable"} and now - pod.created_at < objectives.startup_timeout_s
        for pod in reading.pods
    )


def _ready_s(now: float, reading: Reading) -> float:
    """Return the seconds since the first of the ready pods became ready; infinite if this is unknown.

    Idle time counts only from then on, so that a client that gave up during the start can retry before the pod is
    removed.
    """
    since = [pod.ready_at for pod in reading.pods if pod.phase == "ready"]
    times = [at for at in since if at is not None]
    return now - min(times) if times and len(times) == len(since) else math.inf


def _idle_for(quiet_s: float, ready_s: float) -> str:
    since = f" and ready for {ready_s:.0f} s" if ready_s < quiet_s else ""
    return f"no request for {quiet_s:.0f} s{since}"


def _has_other_work(objectives: Objectives, reading: Reading) -> bool:
    """Return whether the site's query shows work for the model, or could show work because its result is missing.

    If the result is missing at zero replicas, nothing shows that there is work, so the model stays at zero. Otherwise all
    such models would start whenever Prometheus is unavailable, or the operator restarts.
    """
    if not objectives.metric:
        return False
    return reading.replicas > 0 if reading.metric is None else reading.metric > 0


def _quiet_s(now: float, arrivals: ArrivalRate) -> float:
    """Return the seconds since the last request. If there was no request, return the seconds since the first sample."""
    since = arrivals.last_at if arrivals.last_at is not None else arrivals.since
    return 0.0 if since is None else now - since
