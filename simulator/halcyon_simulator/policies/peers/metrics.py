"""Metrics of the peers from the view's signals: requests, utilisation, queue time, and the concurrency of a replica.

A missing value is None; each peer describes its own reaction. A frozen signal is treated as fresh, as every peer does.
Out of scope: targets and replicas.
"""

from __future__ import annotations

import math
from typing import Literal

from halcyon_simulator.engine.case import ServiceLaw
from halcyon_simulator.engine.policy_view import PolicyView, SampleColumn

Metric = Literal["inflight", "queue", "utilisation"]
"""`inflight`: requests in the system, including waiting ones. `queue`: waiting requests. `utilisation`: percent of the GPU's time, summed over
replicas."""


def at_once(service: ServiceLaw) -> int:
    """Return the requests that one replica computes at once: full batches on every instance.

    This is the default target of every peer that counts requests. The peers' own absolute defaults (100 for KubeAI, Knative and the
    HTTP add-on, 2 for Ray Serve, 1 for Cortex) ignore Triton's batches; a user who installs one sets this first.
    """
    return service.max_batch * service.instances


def total(metric: Metric, view: PolicyView, service: ServiceLaw, *, window_s: float) -> float | None:
    """Return the current metric over all replicas; a gauge's newest sample, or utilisation over `window_s`."""
    if metric == "utilisation":
        return busy_percent(view, service, window_s=window_s)
    return usable(view.value(SampleColumn.INFLIGHT if metric == "inflight" else SampleColumn.WAITING))


def busy_percent(view: PolicyView, service: ServiceLaw, *, window_s: float) -> float | None:
    """Return the percent of the window in which an instance computed, summed over replicas.

    With several instances it is their mean. This favours the peers slightly over a GPU's own gauge, which is full when any instance is busy.
    """
    busy = usable(view.rate(SampleColumn.BUSY_S, window_s))
    return None if busy is None else 100 * busy / service.instances


def queue_us(view: PolicyView, *, window_s: float, ready: int) -> float | None:
    """Return the mean over ready replicas of (increase of queue time in us) / (1 + increase of responses) in the window.

    Source: Triton's k8s-onprem sample (`avg_time_queue_us`), facts 3.9. Replicas are treated as equally loaded, because the view has
    totals only.
    """
    queued, answered = (usable(view.rate(signal, window_s)) for signal in (SampleColumn.QUEUE_S, SampleColumn.ANSWERED))
    if queued is None or answered is None or ready == 0:
        return None
    return queued * window_s * 1e6 / (ready + answered * window_s)


def usable(value: float | None) -> float | None:
    """Return a value that a peer can use: None for NaN and infinities, 0 for a value that noise made negative."""
    return None if value is None or not math.isfinite(value) else max(0.0, value)


def ready_pods(view: PolicyView) -> int:
    """Return the ready pods from the API server: at once, independent of the signals' lag."""
    return sum(pod.phase == "ready" for pod in view.pods)


def living_pods(view: PolicyView) -> int:
    """Return a Deployment's status.replicas: pods that exist and are not being deleted."""
    return sum(pod.phase != "draining" for pod in view.pods)
