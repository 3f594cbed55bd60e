"""Ray Serve's autoscaler: a mean over 30 s, and a required number of consecutive decisions in the same direction.

Source: the project's facts on autoscaling, section 3.5.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from halcyon_simulator.engine.case import Case
from halcyon_simulator.engine.policy_view import PolicyView, SampleColumn
from halcyon_simulator.policies.peers.metrics import at_once, usable
from halcyon_simulator.policies.peers.parameters import NotNegative, Positive


@dataclass(frozen=True)
class RayKnobs:
    """Settings in `autoscaling_config`. The case sets min_replicas and max_replicas."""

    target: Positive | None = None
    """`target_ongoing_requests` per replica, running and queued. Ray's default of 2 ignores batches. Default here:
    max_batch x instances."""
    look_back_period_s: Positive = 30.0
    """`look_back_period_s`: window of the mean, in seconds."""
    upscale_delay_s: NotNegative = 30.0
    """`upscale_delay_s`: time in seconds for which the result must be higher before the replicas increase."""
    downscale_delay_s: NotNegative = 600.0
    """`downscale_delay_s`: time in seconds for which the result must be lower before the replicas decrease."""
    downscale_to_zero_delay_s: NotNegative | None = None
    """`downscale_to_zero_delay_s`: delay in seconds for scaling from 1 to 0. Default: `downscale_delay_s`."""
    upscaling_factor: Positive = 1.0
    """`upscaling_factor`: share of a desired increase that is applied at once."""
    downscaling_factor: Positive = 1.0
    """`downscaling_factor`: share of a desired decrease that is applied at once."""
    loop_s: Positive = 1.0
    """Interval of the control loop in seconds, which is 0.1 s in Ray. Samples arrive once a second and delays are
    counted in loops, so an interval of 1 s decides at the same times. The reporting interval of Ray's replicas, 10 s,
    is not simulated, which favours Ray."""


class Ray:
    """Autoscaler of one deployment in Ray Serve. If a metric is missing, neither the replicas nor the delays change."""

    def __init__(self, knobs: RayKnobs, case: Case) -> None:
        self.knobs = knobs
        self.period_s = knobs.loop_s
        self._low, self._high = case.low, case.high
        self._target = knobs.target or float(at_once(case.service))
        self._streak = 0
        """Number of consecutive decisions in one direction. It is positive for increases and negative for decreases."""

    def desired(self, view: PolicyView) -> int:
        """Return the desired replicas after one loop."""
        ongoing = usable(view.mean(SampleColumn.INFLIGHT, self.knobs.look_back_period_s))
        current = view.replicas
        if ongoing is None:
            return current
        if current == 0:
            self._streak = 0
            from_zero = max(math.ceil(self.knobs.upscaling_factor), self._pods(ongoing))
            return min(from_zero, self._high) if ongoing > 0 else 0
        count = self._bounded(self._smoothed(ongoing, current), current)
        if count == current:
            self._streak = 0
            return current
        self._streak = max(self._streak, 0) + 1 if count > current else min(self._streak, 0) - 1
        if abs(self._streak) <= int(self._delay_s(count, current) / self.knobs.loop_s):
            return current
        self._streak = 0
        return count

    def _pods(self, ongoing: float) -> int:
        return math.ceil(round(ongoing / self._target, 9))

    def _smoothed(self, ongoing: float, current: int) -> int:
        desired = ongoing / self._target
        factor = self.knobs.upscaling_factor if desired > current else self.knobs.downscaling_factor
        count = math.ceil(round(current + factor * (desired - current), 9))
        # With a small factor alone, the last step down would never happen.
        return count - 1 if count == current and self._pods(ongoing) < current else count

    def _bounded(self, count: int, current: int) -> int:
        low = self._low if current == 1 else max(1, self._low)
        return min(max(count, low), self._high)

    def _delay_s(self, count: int, current: int) -> float:
        if count > current:
            return self.knobs.upscale_delay_s
        to_zero_s = self.knobs.downscale_to_zero_delay_s
        return to_zero_s if count == 0 and to_zero_s is not None else self.knobs.downscale_delay_s
