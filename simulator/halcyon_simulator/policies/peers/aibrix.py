"""AIBrix's autoscaler APA: a mean per pod over three minutes, multiplied by the current replicas.

Source: the project's facts on autoscaling, section 3.6 (aibrix e3e10f9e). This code follows our reading of AIBrix's
source; AIBrix itself was not run. The mean is old, but the replicas are current. Therefore, after a step of the load,
the result swings between one replica and the maximum. When scaling up, the stabilizer uses the maximum in the window,
and when scaling down the minimum, as in AIBrix's source.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass

from halcyon_simulator.engine.case import Case
from halcyon_simulator.engine.policy_view import PolicyView, SampleColumn
from halcyon_simulator.policies.peers.metrics import at_once, ready_pods, usable
from halcyon_simulator.policies.peers.parameters import NotNegative, Positive


@dataclass(frozen=True)
class AibrixKnobs:
    """Settings of a PodAutoscaler with the strategy APA. The replica limits are the case's, but at least 1."""

    target: Positive | None = None
    """`targetValue`: requests in flight per pod. Default: max_batch x instances."""
    sync_s: Positive = 10.0
    """Interval between two syncs, in seconds."""
    stable_window_s: Positive = 180.0
    """Window of the mean, in seconds."""
    up_fluctuation_tolerance: NotNegative = 0.1
    """`up-fluctuation-tolerance`: relative increase up to which the replicas don't change."""
    down_fluctuation_tolerance: NotNegative = 0.1
    """`down-fluctuation-tolerance`: relative decrease up to which the replicas don't change."""
    max_scale_up_rate: Positive = 2.0
    """`max-scale-up-rate`: maximum factor by which a sync increases the replicas."""
    max_scale_down_rate: Positive = 2.0
    """`max-scale-down-rate`: maximum divisor by which a sync decreases the replicas."""
    scale_up_cooldown_s: NotNegative = 0.0
    """Window in seconds whose largest recommendation is used for scaling up."""
    scale_down_cooldown_s: NotNegative = 300.0
    """Window in seconds whose smallest recommendation is used for scaling down."""


class Aibrix:
    """PodAutoscaler with the strategy APA.

    At its start, the window is filled with the earlier load. If a metric is missing or no pod is ready, there is no
    sample. If the window has no samples, the replicas don't change.
    """

    def __init__(self, knobs: AibrixKnobs, case: Case) -> None:
        self.knobs = knobs
        self.period_s = knobs.sync_s
        self._low, self._high = max(1, case.low), max(1, case.high)
        self._target = knobs.target or float(at_once(case.service))
        self._samples: deque[tuple[float, float]] = deque()
        self._recommendations: deque[tuple[float, int]] = deque()
        self._begun = False

    def desired(self, view: PolicyView) -> int:
        """Return the desired replicas after a sync."""
        self._sample(view)
        if not self._samples:
            return view.replicas
        mean = math.fsum(value for _, value in self._samples) / len(self._samples)
        count = min(max(self._recommended(mean / self._target, view.replicas), self._low), self._high)
        return self._stabilised(count, view)

    def _sample(self, view: PolicyView) -> None:
        now, ready, window_s = view.now, ready_pods(view), self.knobs.stable_window_s
        value = usable(view.value(SampleColumn.INFLIGHT))
        if not self._begun and ready:
            self._begun = True
            before = usable(view.mean(SampleColumn.INFLIGHT, window_s))
            if before is not None:
                earlier = range(math.ceil(window_s / self.period_s) - 1, 0, -1)
                self._samples.extend((now - k * self.period_s, before / ready) for k in earlier)
        if value is not None and ready:
            self._samples.append((now, value / ready))
        while self._samples and self._samples[0][0] <= now - window_s:
            self._samples.popleft()

    def _recommended(self, ratio: float, current: int) -> int:
        knobs = self.knobs
        exact = math.ceil(round(ratio * current, 9))
        if ratio > 1 + knobs.up_fluctuation_tolerance:
            return min(exact, math.ceil(knobs.max_scale_up_rate * current))
        if ratio < 1 - knobs.down_fluctuation_tolerance:
            return max(exact, math.floor(current / knobs.max_scale_down_rate))
        return current

    def _stabilised(self, count: int, view: PolicyView) -> int:
        now, knobs = view.now, self.knobs
        self._recommendations.append((now, count))
        while self._recommendations[0][0] <= now - max(
            knobs.scale_up_cooldown_s, knobs.scale_down_cooldown_s, self.period_s
        ):
            self._recommendations.popleft()
        if count > view.replicas:
            return max(
                [count, *(replicas for at, replicas in self._recommendations if at > now - knobs.scale_up_cooldown_s)]
            )
        if count < view.replicas:
            return min(
                [count, *(replicas for at, replicas in self._recommendations if at > now - knobs.scale_down_cooldown_s)]
            )
        return count
