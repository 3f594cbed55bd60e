"""KubeAI's model autoscaler: the mean of the requests in flight over ten minutes.

Source: the project's facts on autoscaling, section 3.2 (kubeai 2f32ef49).
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass

from halcyon_simulator.engine.case import Case
from halcyon_simulator.engine.policy_view import PolicyView, SampleColumn
from halcyon_simulator.policies.peers.metrics import at_once, usable
from halcyon_simulator.policies.peers.parameters import NotNegative, Positive


@dataclass(frozen=True)
class KubeaiKnobs:
    """Fields of the Model and of KubeAI's `modelAutoscaling`. The case sets minReplicas and maxReplicas."""

    target: Positive | None = None
    """`targetRequests`: requests in flight per replica. KubeAI's default of 100 ignores batches. Default here:
    max_batch x instances."""
    interval_s: Positive = 10.0
    """`interval` between two decisions, in seconds."""
    time_window_s: Positive = 600.0
    """`timeWindow` of the mean in seconds, with 60 samples."""
    scale_down_delay_s: NotNegative = 30.0
    """`scaleDownDelaySeconds`: time for which all results must be lower before the replicas decrease."""


class Kubeai:
    """Autoscaler of one model in KubeAI.

    It starts from a saved state in which the window is filled with the earlier load. If a metric is missing, there is
    no sample and no change. At 0 replicas, a waiting request causes a scale-up to 1 at once.
    """

    def __init__(self, knobs: KubeaiKnobs, case: Case) -> None:
        self.knobs = knobs
        self.period_s = knobs.interval_s
        # KubeAI's proxy scales up from 0 at once, so a shorter interval is needed only at 0.
        if case.low == 0 and knobs.interval_s.is_integer():
            self.period_s = 1.0
        self._target = knobs.target or float(at_once(case.service))
        self._samples: deque[float] = deque(maxlen=max(1, math.ceil(knobs.time_window_s / knobs.interval_s)))
        self._needed = math.ceil(knobs.scale_down_delay_s / knobs.interval_s)
        self._lower = 0

    def desired(self, view: PolicyView) -> int:
        """Return the desired replicas after a decision."""
        value = usable(view.value(SampleColumn.INFLIGHT))
        current = view.replicas
        # A tick of the interval itself is due, even if its time isn't an exact multiple, as with 0.1 s.
        if self.period_s != self.knobs.interval_s and view.now % self.knobs.interval_s != 0:
            return 1 if current == 0 and value else current
        if value is None:
            return current
        if not self._samples:
            before = usable(view.mean(SampleColumn.INFLIGHT, self.knobs.time_window_s))
            self._samples.extend([value if before is None else before] * (self._samples.maxlen or 1))
        self._samples.append(value)
        mean = math.fsum(self._samples) / len(self._samples)
        count = math.ceil(round(mean / self._target, 9))
        if current == 0 and value:
            count = max(1, count)
        if count >= current:
            self._lower = 0
            return count
        self._lower += 1
        if self._lower < self._needed:
            return current
        self._lower = 0
        return count
