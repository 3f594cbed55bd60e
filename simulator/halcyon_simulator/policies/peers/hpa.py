"""Peers that consist only of a HorizontalPodAutoscaler, with the metric and the `behavior` of their projects.

The algorithm is in `hpa_controller`. If a metric is missing, none of them changes the replicas.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from halcyon.api.spec.scaling import Behavior, ScalingPolicy, ScalingRules
from halcyon.scaling.hpa.algorithm import SYNC_INTERVAL_S, TOLERANCE
from halcyon_simulator.engine.case import Case
from halcyon_simulator.engine.policy_view import PolicyView
from halcyon_simulator.policies.peers.hpa_controller import HpaController, Pace, average_value, behavior, pods_mean
from halcyon_simulator.policies.peers.metrics import (
    Metric,
    at_once,
    busy_percent,
    living_pods,
    queue_us,
    ready_pods,
    total,
)
from halcyon_simulator.policies.peers.parameters import Count, NotNegative, Positive, Range, Window

UTILISATION = 85.0
"""Target utilization, in percent, that a user would set for a GPU, as in Triton's GKE sample."""


@dataclass(frozen=True)
class HpaKnobs:
    """Settings of a HorizontalPodAutoscaler on an External metric with an AverageValue target.

    Source: the project's facts on autoscaling, sections 1.1 to 1.5.
    """

    metric: Metric = "inflight"
    """Metric that the HPA uses."""
    target: Positive | None = None
    """`averageValue` per replica: requests, or percent for `utilisation`. Default: max_batch x instances, or 85
    percent."""
    behavior: Pace = "none"
    """`spec.behavior`: omitted (none), or `{}`."""
    up_window_s: Window | None = None
    """`scaleUp.stabilizationWindowSeconds` in seconds. Default: 0. It requires `behavior={}`."""
    down_window_s: Window | None = None
    """`scaleDown.stabilizationWindowSeconds` in seconds. Default: 300. It requires `behavior={}`."""
    tolerance: NotNegative = TOLERANCE
    """`--horizontal-pod-autoscaler-tolerance`: largest relative deviation from the target that is ignored."""
    sync_s: Positive = SYNC_INTERVAL_S
    """`--horizontal-pod-autoscaler-sync-period`: interval between two syncs, in seconds."""
    window_s: Positive = 15.0
    """Window in seconds over which `utilisation` is measured; 15 s is a common scrape interval."""


class Hpa:
    """HPA with or without the field `behavior`."""

    def __init__(self, knobs: HpaKnobs, case: Case, *, name: str = "hpa") -> None:
        self.knobs = knobs
        self.period_s = knobs.sync_s
        self._service = case.service
        self._target = knobs.target or (UTILISATION if knobs.metric == "utilisation" else float(at_once(case.service)))
        pace = behavior(name, knobs.behavior, up_window_s=knobs.up_window_s, down_window_s=knobs.down_window_s)
        self._autoscaler = HpaController(case, pace)

    def desired(self, view: PolicyView) -> int:
        """Return the desired replicas after a sync."""
        value = total(self.knobs.metric, view, self._service, window_s=self.knobs.window_s)
        pods = living_pods(view)
        proposal = average_value(value, self._target, pods=pods, tolerance=self.knobs.tolerance)
        return self._autoscaler.synced(view, proposal)


@dataclass(frozen=True)
class WvaKnobs:
    """Settings of the HPA in the chart of llm-d's workload-variant-autoscaler (WVA).

    Source: the project's facts on autoscaling, section 3.4. WVA itself can't be used with Triton: it reads the KV cache
    usage and vLLM's queue, which Triton doesn't have. Only the `behavior` in its chart can be simulated, here with
    requests in flight as the metric.
    """

    target: Positive | None = None
    """Requests in flight per replica. Default: max_batch x instances. (WVA's own metric is the desired replicas, with a
    target of 1.)"""
    stabilization_window_s: Window = 240
    """`stabilizationWindowSeconds` for scaling up and for scaling down, in seconds."""
    pods: Annotated[int, Range(1, 100000)] = 10
    """`policies[0].value` of type Pods in both directions: maximum change in `pods_period_s` seconds."""
    pods_period_s: Annotated[int, Range(1, 1800)] = 150
    """`policies[0].periodSeconds`: time in seconds in which at most `pods` pods are added or removed."""
    tolerance: NotNegative = TOLERANCE
    """`--horizontal-pod-autoscaler-tolerance`: largest relative deviation from the target that is ignored."""
    sync_s: Positive = SYNC_INTERVAL_S
    """`--horizontal-pod-autoscaler-sync-period`: interval between two syncs, in seconds."""


class Wva:
    """HPA with a stabilization window of four minutes in both directions."""

    def __init__(self, knobs: WvaKnobs, case: Case) -> None:
        self.knobs = knobs
        self.period_s = knobs.sync_s
        self._service = case.service
        self._target = knobs.target or float(at_once(case.service))
        rules = ScalingRules(
            stabilization_window_seconds=knobs.stabilization_window_s,
            policies=(ScalingPolicy(type="Pods", value=knobs.pods, period_seconds=knobs.pods_period_s),),
        )
        self._autoscaler = HpaController(case, Behavior(scale_up=rules, scale_down=rules))

    def desired(self, view: PolicyView) -> int:
        """Return the desired replicas after a sync."""
        value = total("inflight", view, self._service, window_s=self.period_s)
        proposal = average_value(value, self._target, pods=living_pods(view), tolerance=self.knobs.tolerance)
        return self._autoscaler.synced(view, proposal)


@dataclass(frozen=True)
class KserveKnobs:
    """Settings of KServe's autoscaler class `hpa`: a Resource metric in whole percent, and `behavior: {}`.

    Source: the project's facts on autoscaling, section 3.3. KServe's metric is CPU, which is unrelated to the load of a
    GPU server. GPU utilization is used instead, which favours KServe.
    """

    target: Positive = 80.0
    """`scaleTarget`: utilization of a replica in percent."""
    down_window_s: Window | None = None
    """`scaleDown.stabilizationWindowSeconds` in seconds. Default: 300."""
    tolerance: NotNegative = TOLERANCE
    """`--horizontal-pod-autoscaler-tolerance`: largest relative deviation from the target that is ignored."""
    sync_s: Positive = SYNC_INTERVAL_S
    """`--horizontal-pod-autoscaler-sync-period`: interval between two syncs, in seconds."""
    window_s: Positive = 15.0
    """Window in seconds over which the utilization is measured: the resolution of metrics-server."""


class Kserve:
    """HPA on utilization. Starting pods count as 0 percent when scaling up, and are ignored when scaling down."""

    def __init__(self, knobs: KserveKnobs, case: Case) -> None:
        self.knobs = knobs
        self.period_s = knobs.sync_s
        self._service = case.service
        pace = behavior("kserve", "{}", up_window_s=None, down_window_s=knobs.down_window_s)
        self._autoscaler = HpaController(case, pace)

    def desired(self, view: PolicyView) -> int:
        """Return the desired replicas after a sync."""
        ready = ready_pods(view)
        busy = busy_percent(view, self._service, window_s=self.knobs.window_s)
        proposal = pods_mean(
            # The controller rounds percentages down to whole numbers.
            None if busy is None or ready == 0 else float(int(busy / ready)),
            self.knobs.target,
            ready=ready,
            missing=0,
            unready=living_pods(view) - ready,
            current=view.replicas,
            tolerance=self.knobs.tolerance,
        )
        return self._autoscaler.synced(view, proposal)


@dataclass(frozen=True)
class TritonGkeKnobs:
    """Settings of the HPA in Triton's GKE sample: External metric `duty_cycle`, summed over pods, with AverageValue 85.

    Source: the project's facts on autoscaling, section 3.9.
    """

    target: Positive = UTILISATION
    """`targetAverageValue`: utilization of a GPU in percent."""
    cap: Count | None = None
    """maxReplicas, which is 3 in the sample. Default: the case's limit."""
    tolerance: NotNegative = TOLERANCE
    """`--horizontal-pod-autoscaler-tolerance`: largest relative deviation from the target that is ignored."""
    sync_s: Positive = SYNC_INTERVAL_S
    """`--horizontal-pod-autoscaler-sync-period`: interval between two syncs, in seconds."""
    window_s: Positive = 15.0
    """Window in seconds over which the utilization is measured. The delay of Cloud Monitoring is not simulated, which
    favours the sample."""


class TritonGke:
    """HPA on utilization without the field `behavior`."""

    def __init__(self, knobs: TritonGkeKnobs, case: Case) -> None:
        self.knobs = knobs
        self.period_s = knobs.sync_s
        self._service = case.service
        self._autoscaler = HpaController(case, None, high=knobs.cap)

    def desired(self, view: PolicyView) -> int:
        """Return the desired replicas after a sync."""
        busy = busy_percent(view, self._service, window_s=self.knobs.window_s)
        proposal = average_value(busy, self.knobs.target, pods=living_pods(view), tolerance=self.knobs.tolerance)
        return self._autoscaler.synced(view, proposal)


@dataclass(frozen=True)
class TritonOnpremKnobs:
    """Settings of the HPA in Triton's k8s-onprem sample: the Pods metric `avg_time_queue_us`.

    Source: the project's facts on autoscaling, section 3.9.
    """

    target_us: Positive = 50.0
    """`averageValue`: microseconds that a request waits in Triton's queue."""
    cap: Count | None = None
    """maxReplicas, which is 3 in the sample. Default: the case's limit."""
    tolerance: NotNegative = TOLERANCE
    """`--horizontal-pod-autoscaler-tolerance`: largest relative deviation from the target that is ignored."""
    sync_s: Positive = SYNC_INTERVAL_S
    """`--horizontal-pod-autoscaler-sync-period`: interval between two syncs, in seconds."""
    window_s: Positive = 30.0
    """Window of the Prometheus query, in seconds."""


class TritonOnprem:
    """HPA on queue time without the field `behavior`.

    A starting pod has no sample, and an unschedulable pod is ignored.
    """

    def __init__(self, knobs: TritonOnpremKnobs, case: Case) -> None:
        self.knobs = knobs
        self.period_s = knobs.sync_s
        self._autoscaler = HpaController(case, None, high=knobs.cap)

    def desired(self, view: PolicyView) -> int:
        """Return the desired replicas after a sync."""
        ready = ready_pods(view)
        proposal = pods_mean(
            queue_us(view, window_s=self.knobs.window_s, ready=ready),
            self.knobs.target_us,
            ready=ready,
            missing=sum(pod.phase == "starting" for pod in view.pods),
            unready=sum(pod.phase == "unschedulable" for pod in view.pods),
            current=view.replicas,
            tolerance=self.knobs.tolerance,
        )
        return self._autoscaler.synced(view, proposal)
