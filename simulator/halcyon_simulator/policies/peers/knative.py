"""Knative's pod autoscaler (KPA) with the metric concurrency.

Source: the project's facts on autoscaling, section 3.1 (knative/serving 98e5ef90). KPA counts only ready pods and not
starting ones, so a slow start keeps it in panic mode. It doesn't start in panic mode, because the run begins with an
autoscaler that has been running for a while. The activator and target-burst-capacity are not simulated, because they
change the path of requests and not the replicas.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from halcyon_simulator.engine.case import Case
from halcyon_simulator.engine.policy_view import PolicyView, SampleColumn
from halcyon_simulator.policies.peers.metrics import at_once, ready_pods, usable
from halcyon_simulator.policies.peers.parameters import NotNegative, Positive


@dataclass(frozen=True)
class KpaKnobs:
    """Settings in the ConfigMap config-autoscaler, in seconds and percent."""

    target: Positive | None = None
    """`container-concurrency-target-default`: maximum requests in flight per replica. Knative's default of 100 ignores
    batches. Default here: max_batch x instances."""
    target_percentage: Positive = 70.0
    """`container-concurrency-target-percentage`: targeted percentage of `target`."""
    stable_window_s: Positive = 60.0
    """`stable-window`: length of the window outside panic mode, in seconds."""
    panic_window_percentage: Positive = 10.0
    """`panic-window-percentage`: length of the panic window in percent of the stable window."""
    panic_threshold_percentage: Positive = 200.0
    """`panic-threshold-percentage`: panic mode starts if the panic window's result exceeds this percentage of the ready
    pods."""
    max_scale_up_rate: Positive = 1000.0
    """`max-scale-up-rate`: maximum factor on the number of ready pods per tick."""
    max_scale_down_rate: Positive = 2.0
    """`max-scale-down-rate`: maximum divisor of the number of ready pods per tick."""
    scale_down_delay_s: NotNegative = 0.0
    """`scale-down-delay`: time in seconds for which the result must be lower before the replicas decrease."""
    scale_to_zero_grace_period_s: NotNegative = 30.0
    """`scale-to-zero-grace-period`: time in seconds without requests, after the stable window, until scaling to 0. Used
    only if the case's minimum is 0."""
    tick_s: Positive = 2.0
    """Interval between the autoscaler's ticks, in seconds."""


class Kpa:
    """Autoscaler of one Knative revision.

    | in panic mode | over the threshold | result                                                                |
    | ------------- | ------------------ | --------------------------------------------------------------------- |
    | no            | no                 | the stable window's result                                            |
    | any           | yes                | panic mode (re)starts: the larger of both results, without decreases  |
    | yes           | not for a window   | panic mode ends                                                       |

    If both windows are empty (no samples), the replicas don't change. If only the panic window is empty, only the
    stable window has a result.
    """

    def __init__(self, knobs: KpaKnobs, case: Case) -> None:
        self.knobs = knobs
        self.period_s = knobs.tick_s
        self._low = case.low
        concurrency = knobs.target or float(at_once(case.service))
        self._target = max(0.01, concurrency * knobs.target_percentage / 100)
        self._panic_s: float | None = None
        self._most_in_panic = 0
        self._recommendations: list[tuple[float, int]] = []
        self._idle_since_s: float | None = None

    def desired(self, view: PolicyView) -> int:
        """Return the desired replicas after a tick."""
        knobs = self.knobs
        stable = usable(view.mean(SampleColumn.INFLIGHT, knobs.stable_window_s))
        panic = usable(
            view.mean(SampleColumn.INFLIGHT, max(1.0, knobs.stable_window_s * knobs.panic_window_percentage / 100))
        )
        if stable is None and panic is None:
            return view.replicas
        ready = max(1, ready_pods(view))
        by_stable, by_panic = self._needed(stable, ready), self._needed(panic, ready)
        is_above = _pods(panic, self._target) / ready >= knobs.panic_threshold_percentage / 100
        if is_above:
            self._panic_s = view.now
        elif self._panic_s is not None and self._panic_s + knobs.stable_window_s < view.now:
            self._panic_s, self._most_in_panic = None, 0
        count = by_stable
        if self._panic_s is not None:
            self._most_in_panic = max(self._most_in_panic, by_stable, by_panic)
            count = self._most_in_panic
        return self._to_zero(self._delayed(count, view.now), view)

    def _needed(self, mean: float | None, ready: int) -> int:
        """Return the pods needed for the mean of a window, within the change that one tick allows."""
        least = math.floor(ready / self.knobs.max_scale_down_rate)
        return min(max(_pods(mean, self._target), least), math.ceil(self.knobs.max_scale_up_rate * ready))

    def _delayed(self, count: int, now: float) -> int:
        delay_s = self.knobs.scale_down_delay_s
        self._recommendations = [
            *((at, replicas) for at, replicas in self._recommendations if at > now - delay_s),
            (now, count),
        ]
        return max(replicas for _, replicas in self._recommendations)

    def _to_zero(self, count: int, view: PolicyView) -> int:
        """Return `count`; if it is 0 before the end of the grace period, the current replicas."""
        if count > 0 or self._low > 0 or view.replicas == 0:
            self._idle_since_s = None
            return count
        if self._idle_since_s is None:
            self._idle_since_s = view.now
        graced = view.now - self._idle_since_s >= self.knobs.scale_to_zero_grace_period_s
        return 0 if graced else view.replicas


def _pods(mean: float | None, target: float) -> int:
    # Knative rounds its averages to 6 digits, so that rounding errors add no pod.
    return 0 if mean is None else math.ceil(round(mean, 6) / target)
