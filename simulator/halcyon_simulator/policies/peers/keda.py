"""KEDA and its HTTP add-on: an HPA without `behavior` from 1 to N, and the KEDA operator's own loop between 0 and 1.

Source: the project's facts on autoscaling, sections 2.1 to 2.3.

| replicas | active              | result                                           |
| -------- | ------------------- | ------------------------------------------------ |
| 0        | yes                 | max(1, minReplicaCount)                          |
| > 0      | no, for a cooldown  | 0, if minReplicaCount is 0                       |
| > 0      | otherwise           | the HPA's result, at its syncs                   |
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from halcyon.scaling.hpa.algorithm import SYNC_INTERVAL_S, TOLERANCE
from halcyon_simulator.engine.case import Case
from halcyon_simulator.engine.policy_view import PolicyView, SampleColumn
from halcyon_simulator.policies.peers.hpa import UTILISATION
from halcyon_simulator.policies.peers.hpa_controller import HpaController, Pace, average_value, behavior
from halcyon_simulator.policies.peers.metrics import Metric, at_once, living_pods, total, usable
from halcyon_simulator.policies.peers.parameters import Count, NotNegative, Positive, Window


@dataclass(frozen=True)
class KedaKnobs:
    """Settings of a ScaledObject with one Prometheus trigger. The case sets the replica limits."""

    metric: Metric = "inflight"
    """Metric that the query of the trigger returns."""
    target: Positive | None = None
    """`threshold`, per replica. Default: max_batch x instances, or 85 percent for `utilisation`."""
    polling_interval_s: Count = 30
    """`pollingInterval` of the loop between 0 and 1, in seconds."""
    cooldown_period_s: NotNegative = 300.0
    """`cooldownPeriod`: time in seconds from the last active poll until scaling to 0."""
    activation_threshold: NotNegative = 0.0
    """`activationThreshold`: the trigger is active if the metric is above it."""
    use_cached_metrics: bool = False
    """`useCachedMetrics`: True if the HPA receives the value of the last poll instead of sending its own query."""
    ignore_null_values: bool = True
    """`ignoreNullValues`: True if a missing metric counts as 0. If False, it is an error and the replicas don't
    change."""
    behavior: Pace = "none"
    """`advanced.horizontalPodAutoscalerConfig.behavior`: omitted (none), or `{}`."""
    up_window_s: Window | None = None
    """`scaleUp.stabilizationWindowSeconds` in seconds. Default: 0. It requires `behavior={}`."""
    down_window_s: Window | None = None
    """`scaleDown.stabilizationWindowSeconds` in seconds. Default: 300. It requires `behavior={}`."""
    tolerance: NotNegative = TOLERANCE
    """`--horizontal-pod-autoscaler-tolerance`: largest relative deviation from the target that is ignored."""
    sync_s: Count = int(SYNC_INTERVAL_S)
    """`--horizontal-pod-autoscaler-sync-period`: interval between two syncs, in seconds."""
    window_s: Positive = 15.0
    """Window in seconds over which `utilisation` is measured."""


@dataclass(frozen=True)
class KedaHttpKnobs:
    """Settings of an HTTPScaledObject, whose interceptor holds requests at 0 replicas. The case sets the limits."""

    metric: Literal["concurrency", "rate"] = "concurrency"
    """`scalingMetric`: pending requests, or requests per second."""
    target: Positive | None = None
    """`targetValue` per replica. KEDA's default of 100 ignores batches. Default here: max_batch x instances requests,
    or the requests per second of a replica with full batches."""
    window_s: Positive = 60.0
    """`requestRate.window`: window over which the request rate is measured, in seconds."""
    scaledown_period_s: NotNegative = 300.0
    """`scaledownPeriod`: time in seconds from the last active poll until scaling to 0."""
    polling_interval_s: Count = 30
    """KEDA's `pollingInterval` in seconds, for detecting idleness. Scaling up from 0 doesn't wait for a poll, because
    KEDA streams activity immediately; in the simulation, it takes at most 1 s."""
    tolerance: NotNegative = TOLERANCE
    """`--horizontal-pod-autoscaler-tolerance`: largest relative deviation from the target that is ignored."""
    sync_s: Count = int(SYNC_INTERVAL_S)
    """`--horizontal-pod-autoscaler-sync-period`: interval between two syncs, in seconds."""


class _ScaledObject:
    """KEDA's operator and the HPA that it creates, for one metric."""

    def __init__(
        self,
        case: Case,
        autoscaler: HpaController,
        read: Callable[[PolicyView], float | None],
        *,
        target: float,
        tolerance: float,
        sync_s: int,
        polling_interval_s: int,
        cooldown_s: float,
        activation: float = 0.0,
        pushed: bool = False,
        cached: bool = False,
    ) -> None:
        self.period_s = float(sync_s)
        if case.low == 0 or cached:
            self.period_s = 1.0 if pushed else float(math.gcd(sync_s, polling_interval_s))
        self._zero = case.low == 0
        self._autoscaler, self._read = autoscaler, read
        self._target, self._tolerance, self._activation = target, tolerance, activation
        self._sync_s, self._poll_s, self._cooldown_s = sync_s, polling_interval_s, cooldown_s
        self._pushed, self._cached = pushed, cached
        self._polled: float | None = None
        self._active_s: float | None = None

    def desired(self, view: PolicyView) -> int:
        """Return the desired replicas after the operator's poll or the HPA's sync, whichever is due."""
        value = self._read(view)
        active = value is not None and value > self._activation
        poll = view.now % self._poll_s == 0
        if poll:
            self._polled = value
            if active:
                self._active_s = view.now
        if view.replicas == 0:
            if not active or not (poll or self._pushed):
                return 0
            self._active_s = view.now
            return self._autoscaler.low
        if self._zero and poll and value is not None and not active and self._cooled(view.now):
            return 0
        if view.now % self._sync_s != 0:
            return view.replicas
        metric_value = self._polled if self._cached else value
        proposal = average_value(metric_value, self._target, pods=living_pods(view), tolerance=self._tolerance)
        return self._autoscaler.synced(view, proposal)

    def _cooled(self, now: float) -> bool:
        """Return True if the cooldown is over, or if the trigger has never been active."""
        return self._active_s is None or now - self._active_s > self._cooldown_s


class Keda(_ScaledObject):
    """KEDA with one Prometheus trigger."""

    def __init__(self, knobs: KedaKnobs, case: Case) -> None:
        self.knobs = knobs
        utilisation = knobs.metric == "utilisation"
        pace = behavior("keda", knobs.behavior, up_window_s=knobs.up_window_s, down_window_s=knobs.down_window_s)

        def read(view: PolicyView) -> float | None:
            value = total(knobs.metric, view, case.service, window_s=knobs.window_s)
            return 0.0 if value is None and knobs.ignore_null_values else value

        super().__init__(
            case,
            HpaController(case, pace),
            read,
            target=knobs.target or (UTILISATION if utilisation else float(at_once(case.service))),
            tolerance=knobs.tolerance,
            sync_s=knobs.sync_s,
            polling_interval_s=knobs.polling_interval_s,
            cooldown_s=knobs.cooldown_period_s,
            activation=knobs.activation_threshold,
            cached=knobs.use_cached_metrics,
        )


class KedaHttp(_ScaledObject):
    """KEDA's HTTP add-on. A missing metric is an error of its scaler, so the replicas don't change."""

    def __init__(self, knobs: KedaHttpKnobs, case: Case) -> None:
        self.knobs = knobs
        concurrency = knobs.metric == "concurrency"

        def read(view: PolicyView) -> float | None:
            if concurrency:
                return usable(view.value(SampleColumn.INFLIGHT))
            return usable(view.rate(SampleColumn.ARRIVED, knobs.window_s))

        super().__init__(
            case,
            HpaController(case, None),
            read,
            target=knobs.target or (float(at_once(case.service)) if concurrency else case.service.peak_rps),
            tolerance=knobs.tolerance,
            sync_s=knobs.sync_s,
            polling_interval_s=knobs.polling_interval_s,
            cooldown_s=knobs.scaledown_period_s,
            pushed=True,
        )
