"""Controller of HPAs, for every peer that is an HPA or uses one.

It computes replicas from one metric, limited by `behavior`.

Source: the project's facts on autoscaling, sections 1.2 to 1.5. The limits are computed by
`halcyon.scaling.hpa.behavior`, which is tested against the real controller. Out of scope: the metric of each peer, and
zero replicas (an HPA has at least one).
"""

from __future__ import annotations

import math
from typing import Literal

from halcyon.api.spec.scaling import Behavior, ScalingRules
from halcyon.scaling.hpa.algorithm import MAX_REPLICAS, milli
from halcyon.scaling.hpa.behavior import DOWN_WINDOW_S, HpaMemory, first_seen, paced, written
from halcyon_simulator.engine.case import Case
from halcyon_simulator.engine.policy_view import PolicyView
from halcyon_simulator.policies.peers.parameters import PolicyError

Pace = Literal["none", "{}"]
"""Field `spec.behavior`: omitted (none), or present but empty."""


def behavior(policy: str, pace: Pace, *, up_window_s: int | None, down_window_s: int | None) -> Behavior | None:
    """Return the `behavior` for these knobs.

    Raises:
        PolicyError: a window is given without `behavior`. Without it, the window is a flag of the controller.
    """
    if pace == "none":
        for name, value in (("up_window_s", up_window_s), ("down_window_s", down_window_s)):
            if value is not None:
                raise PolicyError(
                    f"policy {policy}: {name} is {value}, but behavior is none, whose windows are fixed (0 s up, "
                    f"{DOWN_WINDOW_S} s down); for example {policy}:behavior={{}},{name}={value}"
                )
        return None
    return Behavior(
        scale_up=None if up_window_s is None else ScalingRules(stabilization_window_seconds=up_window_s),
        scale_down=None if down_window_s is None else ScalingRules(stabilization_window_seconds=down_window_s),
    )


class HpaController:
    """HPA with one metric, and the state that it keeps between syncs."""

    def __init__(self, case: Case, behavior: Behavior | None, *, high: int | None = None) -> None:
        """Set the tolerance and the limits.

        `high` is maxReplicas. The default is the limit of the case, which is also the upper limit of `high`.
        """
        self.low = max(1, case.low)
        self.high = max(self.low, case.high if high is None else min(high, case.high))
        self._behavior = behavior
        self._memory = HpaMemory()

    def synced(self, view: PolicyView, proposal: int | None) -> int:
        """Return the desired replicas after a sync.

        A proposal is None if its metric failed, and then has no effect.
        """
        current = view.replicas
        self._memory = first_seen(self._memory, now=view.now, current=current)
        if not self.low <= current <= self.high:
            count = min(max(current, self.low), self.high)
        elif proposal is None:
            return current
        else:
            count, _, self._memory = paced(
                proposal,
                now=view.now,
                current=current,
                behavior=self._behavior,
                low=self.low,
                high=self.high,
                memory=self._memory,
            )
        self._memory = written(self._memory, now=view.now, before=current, after=count, behavior=self._behavior)
        return count


def average_value(total: float | None, target: float, *, pods: int, tolerance: float) -> int | None:
    """Return the replicas for an External metric with an AverageValue target.

    `total` is the sum over all replicas. `pods` is status.replicas, which includes pods that aren't ready. The
    tolerance applies to target x pods.
    """
    if total is None:
        return None
    value, goal = milli(total), milli(target)
    if pods and within(value / (goal * pods), tolerance):
        return pods
    return min(math.ceil(value / goal), MAX_REPLICAS)


def pods_mean(
    mean: float | None,
    target: float,
    *,
    ready: int,
    missing: int,
    unready: int,
    current: int,
    tolerance: float,
) -> int | None:
    """Return the replicas for a Pods or Resource metric.

    Args:
        mean: mean over the `ready` pods, in the target's unit.
        target: target for one pod.
        ready: number of pods with a sample.
        missing: number of running pods without a sample. They count as the target when scaling down, and as 0 when
            scaling up.
        unready: number of pods that aren't measured yet. They are ignored when scaling down, and count as 0 when
            scaling up.
        current: spec.replicas.
        tolerance: share by which the mean may differ from the target.
    """
    if mean is None or ready == 0:
        return None
    ratio = mean / target
    waiting = unready if ratio > 1 else 0
    if not missing and not waiting:
        return current if within(ratio, tolerance) else min(math.ceil(round(ratio * ready, 9)), MAX_REPLICAS)
    counted = ready + missing + waiting
    filled = missing * target if ratio < 1 else 0.0
    ratio_after = (mean * ready + filled) / counted / target
    if within(ratio_after, tolerance) or (ratio < 1 < ratio_after) or (ratio_after < 1 < ratio):
        return current
    count = min(math.ceil(round(ratio_after * counted, 9)), MAX_REPLICAS)
    against = count > current if ratio_after < 1 else count < current
    return current if against else count


def within(ratio: float, tolerance: float) -> bool:
    """Return True if a ratio is so close to 1 that the replicas don't change."""
    return 1.0 - tolerance <= ratio <= 1.0 + tolerance
