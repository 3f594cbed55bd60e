"""Metrics of the Rules policy: queue depth, GPU utilisation and concurrency of a model, computed from its observation.

The HPA, or `algorithm`, compares them with the user's targets. Each value is a total for the whole model, with a target
of type AverageValue: the replicas are the value divided by the target. Out of scope: computing the replicas.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from halcyon.api.spec.defaults import ResolvedTargets
from halcyon.scaling.observations import (
    MAX_AGE_S,
    BalancerObservation,
    Missing,
    Observation,
    PodObservation,
    Value,
    fresh,
    mean,
    mean_of_sum,
    newest,
    total_rate,
)

WINDOW_S = 15.0
"""Averaging window of the metrics, in seconds. It is the HPA's default sync period, so each second is counted about
once."""
QUEUE_DEPTH: Final = "queueDepth"
GPU_UTILIZATION: Final = "gpuUtilization"
CONCURRENCY: Final = "concurrency"
METRIC: Final = "metric"


@dataclass(frozen=True)
class RulesReading:
    """Metrics of one model at one time, for the Rules policy."""

    at: float
    """Time at which the values were measured."""
    replicas: int
    """Number of pods that aren't terminating, ready or not: status.replicas, but at most spec.replicas."""
    queue_depth: Value | Missing
    """Number of queued requests of the model, plus rejected requests per second."""
    gpu_utilization: Value | Missing | None
    """GPU utilisation in percent, summed over pods; None if the user set no target for it."""
    waiting: float | None = None
    """Number of queued requests as measured: `queue_depth` without rejected requests and estimates. The value is None
    if unknown."""
    gpu_mean: float | None = None
    """Mean GPU utilisation in percent of the ready pods that report it; None if unknown, or if no pod is ready."""
    concurrency: Value | Missing | None = None
    """Number of requests in progress or waiting, plus the number of rejected requests per second; None if the user set
    no target for concurrency."""
    metric: Value | Missing | None = None
    """Result of the query that the site configures for the model; None if the user set no target for it."""


def read(observation: Observation, *, targets: ResolvedTargets, replicas: int) -> RulesReading:
    """Compute the metrics from the observation of a model that has `replicas` pods."""
    target = targets.gpu_utilization
    depth, gpu = queue_depth(observation, target=targets.queue_depth, replicas=replicas), None
    if target is not None:
        gpu = gpu_utilization(observation, target=target, replicas=replicas)
    gpus = _known_gpus(observation)
    return RulesReading(
        at=observation.at,
        replicas=replicas,
        queue_depth=depth,
        gpu_utilization=gpu,
        waiting=None if isinstance(depth, Missing) else _waiting(observation),
        gpu_mean=sum(gpus) / len(gpus) if gpus and not isinstance(gpu, Missing) else None,
        concurrency=None if targets.concurrency is None else concurrency(observation),
    )


def concurrency(observation: Observation) -> Value | Missing:
    """Return the requests waiting in balancers or in progress in pods, plus the requests rejected per second.

    Both are means over the last 15 s, measured at the balancers alone. A balancer counts a request in Triton's queue as
    in progress.
    """
    silence = _silence_reason(observation)
    if silence:
        return Missing(silence)
    now = observation.at
    active = [b.points for b in observation.balancers if fresh(b.points, now, lambda p: p.queued)]
    if not active:
        return Missing(f"no balancer reports its requests: HAProxy of {_names(observation.balancers)} does not respond")
    rejected = total_rate(active, now, WINDOW_S, lambda p: p.rejected)
    if rejected is None:
        return Missing("only one report of each balancer so far: the rate of rejected requests needs two")
    held = mean_of_sum(active, now, WINDOW_S, lambda p: p.queued + p.inflight) or 0.0
    return Value(held + rejected, _at(observation))


def queue_depth(observation: Observation, *, target: int, replicas: int) -> Value | Missing:
    """Return the requests queued in balancers and ready pods, plus the requests rejected per second.

    Both are means of the last 15 s. One rejected request per second counts as one queued request, because it would be
    in the queue if it had been accepted. A starting pod has no queue, because its requests still wait in the balancers.
    The queue of a pod that does not report it is estimated by `filled`.
    """
    silence = _silence_reason(observation)
    if silence:
        return Missing(silence)
    now = observation.at
    active = [b for b in observation.balancers if fresh(b.points, now, lambda p: p.queued)]
    if not active:
        return Missing(f"no balancer reports its queue: HAProxy of {_names(observation.balancers)} does not respond")
    rejected = total_rate((b.points for b in active), now, WINDOW_S, lambda p: p.rejected)
    if rejected is None:
        return Missing("only one report of each balancer so far: the rate of rejected requests needs two")
    ready = [pod for pod in observation.pods if pod.ready]
    missing = sum(fresh(pod.points, now, lambda p: p.pending) is None for pod in ready)
    if ready and missing == len(ready):
        return Missing(f"no ready pod reports its queue: {_names(ready)}")
    waiting = rejected + _waiting(observation)
    return Value(filled(waiting, missing=missing, target=target, replicas=max(replicas, len(ready))), _at(observation))


def _waiting(observation: Observation) -> float:
    """Return the mean number of requests queued in balancers and ready pods over the last 15 s.

    Balancers and pods whose queue is unknown are left out.
    """
    now = observation.at
    active = [b.points for b in observation.balancers if fresh(b.points, now, lambda p: p.queued)]
    ready = [pod.points for pod in observation.pods if pod.ready and fresh(pod.points, now, lambda p: p.pending)]
    queued = mean_of_sum(active, now, WINDOW_S, lambda p: p.queued) or 0.0
    return queued + (mean_of_sum(ready, now, WINDOW_S, lambda p: p.pending) or 0.0)


def gpu_utilization(observation: Observation, *, target: int, replicas: int) -> Value | Missing:
    """Return the GPU utilisation in percent, summed over ready pods, each averaged over the last 15 s.

    The utilisation of pods without a value is estimated by `filled`. So while no pod is ready, the signal proposes the
    present replicas instead of counting as missing.
    """
    silence = _silence_reason(observation)
    if silence:
        return Missing(silence)
    ready, gpus = [pod for pod in observation.pods if pod.ready], _known_gpus(observation)
    if ready and not gpus:
        return Missing(f"no ready pod reports nv_gpu_utilization: {_names(ready)}")
    missing = max(replicas - len(gpus), 0)
    return Value(filled(sum(gpus), missing=missing, target=target, replicas=replicas), _at(observation))


def _known_gpus(observation: Observation) -> list[float]:
    """Return the GPU utilisation in percent of each ready pod that reports it, as a mean of the last 15 s."""
    now, ready = observation.at, [pod for pod in observation.pods if pod.ready]
    reporting = [pod for pod in ready if fresh(pod.points, now, lambda p: p.gpu)]
    return [mean(pod.points, now, WINDOW_S, lambda p: p.gpu) or 0.0 for pod in reporting]


def filled(known: float, *, missing: int, target: float, replicas: int) -> float:
    """Return the total of a metric over all pods if `missing` of `replicas` pods have no value.

    This is the HPA's rule for Pods metrics: a missing value counts as 0 for a scale-up, and as the target for a
    scale-down. If this would reverse the direction of scaling, the replicas don't change. S is the sum of the known
    values, m the number of pods without a value, T the target and n the number of replicas:

    - If S / T > n, the total is S, and the model is scaled up: the known pods alone exceed the target.
    - If (S + m T) / T <= n, the total is S + m T, and the model is scaled down, although the other pods count as being
      at the target.
    - Otherwise the total is n T, and nothing changes.

    The total equals max(S, min(S + m T, n T)), which is continuous in S, and equals S if no value is missing. There is
    one difference from the HPA. For a scale-down, the HPA leaves out pods that are not ready. Here they count as being
    at the target, so starting pods never cause a scale-down.
    """
    return max(known, min(known + missing * target, replicas * target))


def _silence_reason(observation: Observation) -> str | None:
    """Return the reason why there is no recent sample; None if there is one."""
    latest = newest(observation)
    if observation.balancers and latest is not None and observation.at - latest <= MAX_AGE_S:
        return None
    if observation.silent:
        agents = ", ".join(f"{name} for {age:.0f} s" for name, age in observation.silent[:3])
        return f"no reports from the balancers' agents: {agents}; a value older than {MAX_AGE_S:.0f} s is not used"
    if observation.balancers:
        return f"agents report, but no sample is newer than {MAX_AGE_S:.0f} s"
    return "no balancer agent has reported yet"


def _at(observation: Observation) -> float:
    latest = newest(observation)
    return observation.at if latest is None else latest


def _names(sources: list[PodObservation] | tuple[BalancerObservation, ...]) -> str:
    names = sorted(source.name if isinstance(source, PodObservation) else source.agent for source in sources)
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
