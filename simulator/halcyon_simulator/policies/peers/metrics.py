"""Metrics of the peers, computed from the view's signals: requests, utilization, queue time, and concurrency.

A missing value is None; each peer's docstring describes its reaction. A frozen signal is treated as current, as by
every peer. Out of scope: targets and replicas.
"""

from __future__ import annotations

import math
from typing import Literal

from halcyon_simulator.engine.case import ServiceLaw
from halcyon_simulator.engine.policy_view import PolicyView, SampleColumn

Metric = Literal["inflight", "queue", "utilisation"]
"""Metric that a peer uses. `inflight`: requests in the system, including waiting ones. `queue`: waiting requests.
`utilisation`: percentage of time in which the GPU is busy, summed over replicas."""


def at_once(service: ServiceLaw) -> int:
    """Return the number of requests that one replica computes at once: full batches on every instance.

    This is the default target of every peer that counts requests. The defaults of the peers themselves ignore Triton's
    batches, so a user would change them first. These defaults are 100 for KubeAI, Knative and the HTTP add-on, 2 for
    Ray Serve, and 1 for Cortex.
    """
    return service.max_batch * service.instances


def total(metric: Metric, view: PolicyView, service: ServiceLaw, *, window_s: float) -> float | None:
    """Return the metric summed over all replicas.

    It is the newest sample of a gauge, or the utilization over `window_s` seconds.
    """
    if metric == "utilisation":
        return busy_percent(view, service, window_s=window_s)
    return usable(view.value(SampleColumn.INFLIGHT if metric == "inflight" else SampleColumn.WAITING))


def busy_percent(view: PolicyView, service: ServiceLaw, *, window_s: float) -> float | None:
    """Return the percentage of the window in which instances were computing, summed over replicas.

    If a replica has several instances, their mean is used. This favours the peers slightly, because a real GPU metric
    is 100 % if any instance is busy.
    """
    busy = usable(view.rate(SampleColumn.BUSY_S, window_s))
    return None if busy is None else 100 * busy / service.instances


def queue_us(view: PolicyView, *, window_s: float, ready: int) -> float | None:
    """Return the mean queue time of requests in microseconds, as Triton's k8s-onprem sample computes it.

    This is the mean over ready replicas of (increase of queue time) / (1 + increase of responses) in the window. The
    view has only totals, so all replicas are treated as equally loaded. Source: `avg_time_queue_us` in the sample; the
    project's facts on autoscaling, section 3.9.
    """
    queued, answered = (usable(view.rate(signal, window_s)) for signal in (SampleColumn.QUEUE_S, SampleColumn.ANSWERED))
    if queued is None or answered is None or ready == 0:
        return None
    return queued * window_s * 1e6 / (ready + answered * window_s)


def usable(value: float | None) -> float | None:
    """Return a value in a form that a peer can use.

    The result is None for NaN and infinities, and 0 if noise made the value negative.
    """
    return None if value is None or not math.isfinite(value) else max(0.0, value)


def ready_pods(view: PolicyView) -> int:
    """Return the number of ready pods in the API server, without the lag of the signals."""
    return sum(pod.phase == "ready" for pod in view.pods)


def living_pods(view: PolicyView) -> int:
    """Return the number of pods that exist and aren't being deleted, which is status.replicas of a Deployment."""
    return sum(pod.phase != "draining" for pod in view.pods)
