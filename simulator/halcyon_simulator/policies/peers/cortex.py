"""Cortex's autoscaler: a mean over one minute, small steps, and two stabilization windows.

Source: the project's facts on autoscaling, section 3.8 (cortex dc48c02e, archived).
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from typing import Annotated

from halcyon_simulator.engine.case import Case
from halcyon_simulator.engine.policy_view import PolicyView, SampleColumn
from halcyon_simulator.policies.peers.metrics import at_once, usable
from halcyon_simulator.policies.peers.parameters import NotNegative, Positive, Range


@dataclass(frozen=True)
class CortexKnobs:
    """Settings in the `autoscaling` section of an API. The replica limits are the case's, but at least 1."""

    target: Positive | None = None
    """`target_in_flight` per replica. Cortex's default is max_concurrency, 1. Default here: max_batch x instances."""
    window_s: Positive = 60.0
    """`window` of the mean, in seconds."""
    upscale_stabilization_period_s: NotNegative = 60.0
    """`upscale_stabilization_period` in seconds. Its smallest recommendation is used for scaling up."""
    downscale_stabilization_period_s: NotNegative = 300.0
    """`downscale_stabilization_period` in seconds. Its largest recommendation is used for scaling down."""
    max_downscale_factor: Annotated[float, Range(0)] = 0.75
    """`max_downscale_factor`: minimum ratio of a recommendation to the current replicas."""
    max_upscale_factor: Annotated[float, Range(1)] = 1.5
    """`max_upscale_factor`: maximum ratio of a recommendation to the current replicas."""
    downscale_tolerance: NotNegative = 0.05
    """`downscale_tolerance`: relative decrease up to which the replicas don't change."""
    upscale_tolerance: NotNegative = 0.05
    """`upscale_tolerance`: relative increase up to which the replicas don't change."""
    tick_s: Positive = 10.0
    """Interval between two decisions, in seconds."""


class Cortex:
    """Autoscaler of one Cortex API.

    If a metric is missing, there is no recommendation and no change. After its start, the replicas don't change until
    the stabilization windows have passed once.
    """

    def __init__(self, knobs: CortexKnobs, case: Case) -> None:
        self.knobs = knobs
        self.period_s = knobs.tick_s
        self._low, self._high = max(1, case.low), max(1, case.high)
        self._target = knobs.target or float(at_once(case.service))
        self._recommendations: deque[tuple[float, int]] = deque()
        self._begun_s: float | None = None

    def desired(self, view: PolicyView) -> int:
        """Return the desired replicas after a decision."""
        now, current, knobs = view.now, view.replicas, self.knobs
        if self._begun_s is None:
            self._begun_s = now
        mean = usable(view.mean(SampleColumn.INFLIGHT, knobs.window_s))
        if mean is None:
            return current
        count = self._recommended(mean / self._target, current)
        up_s, down_s = knobs.upscale_stabilization_period_s, knobs.downscale_stabilization_period_s
        self._recommendations.append((now, count))
        while self._recommendations[0][0] < now - max(up_s, down_s):
            self._recommendations.popleft()
        if count > current:
            return current if now - self._begun_s < up_s else max(current, min(self._since(now - up_s)))
        if count < current:
            return current if now - self._begun_s < down_s else min(current, max(self._since(now - down_s)))
        return current

    def _recommended(self, raw: float, current: int) -> int:
        knobs = self.knobs
        if current * (1 - knobs.downscale_tolerance) <= raw <= current * (1 + knobs.upscale_tolerance):
            count = current
        else:
            count = math.ceil(round(raw, 9))
        least = min(current - 1, math.ceil(knobs.max_downscale_factor * current))
        most = max(current + 1, math.ceil(knobs.max_upscale_factor * current))
        return min(max(count, least, self._low), most, self._high)

    def _since(self, begin_s: float) -> list[int]:
        return [count for at, count in self._recommendations if at >= begin_s]
