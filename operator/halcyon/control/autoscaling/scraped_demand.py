"""Estimate of a balancer's counters from the servers' counters, for models without balancers. Pure.

Requests to a new or a terminating pod may be missed. No request is counted twice.
"""

# | balancer counter | derived from                                                                              |
# | ---------------- | ----------------------------------------------------------------------------------------- |
# | requests         | growth of the number of succeeded, failed, canceled and waiting requests in each server   |
# | inflight         | requests that wait in servers, plus the mean number being computed                        |
# |                  | (`signals.mean_in_progress`)                                                              |
# | queued, rejected | 0, because without a balancer no request is queued before a server or rejected            |

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from halcyon.api.documents.observation_report import BalancerSample, PodSample
from halcyon.signals.mean_in_progress import MeanInProgress

_SERVING = {"ready", "maintenance", "unreachable"}
"""States in which a pod receives requests. Without a balancer, pods that are in `maintenance` or `unreachable` still
receive them."""


@dataclass(frozen=True, slots=True)
class _LastSample:
    """Last sample of the counters of one server pod."""

    done: int
    """Number of completed requests: succeeded, failed or canceled."""
    arrived: int
    """Highest sum of completed and waiting requests so far. A single sum may fall, because the two numbers aren't read
    at the same time."""
    busy: MeanInProgress
    """Estimate of the mean number of requests in progress, from the pod's samples of compute time. Time in the queue is
    included if the server has no gauge of waiting requests."""


@dataclass
class ScrapedDemand:
    """Estimate of the demand for one model, with the last sample of each of its pods."""

    requests: int = 0
    """Number of requests that have arrived since the start of the process."""
    _samples: dict[str, _LastSample] = field(default_factory=dict)

    def sample(self, pods: Sequence[PodSample]) -> BalancerSample | None:
        """Return estimated balancer counters after a new sample of each pod; None if most pods report no counters."""
        inflight = 0.0
        samples: dict[str, _LastSample] = {}
        for pod in pods:
            previous, sample = self._samples.get(pod.name), _sample_of(pod)
            if sample is None:
                if previous is not None:  # if the pod reports again, the growth since then counts as arrived requests
                    samples[pod.name] = previous
                continue
            samples[pod.name], arrived = _since(previous, sample)
            self.requests += arrived
            inflight += pod.pending or 0
            if pod.succeeded is not None and pod.compute_us is not None:
                waited_us = (pod.queue_us or 0) if pod.pending is None else 0
                inflight += samples[pod.name].busy.update(pod.at, pod.succeeded, pod.compute_us + waited_us) or 0.0
        self._samples = samples
        serving = [pod for pod in pods if pod.state in _SERVING]
        if 2 * sum(_sample_of(pod) is not None for pod in serving) < len(serving):
            return None
        return BalancerSample(queued=0, inflight=round(inflight), requests=self.requests, rejected=0, errors=0)


def _sample_of(pod: PodSample) -> _LastSample | None:
    if pod.succeeded is None or pod.failed is None:
        return None
    done = pod.succeeded + pod.failed + (pod.canceled or 0)
    return _LastSample(done, done + (pod.pending or 0), MeanInProgress())


def _since(previous: _LastSample | None, sample: _LastSample) -> tuple[_LastSample, int]:
    """Return the newer sample of a pod with its updated state, and the number of requests since the older sample."""
    if previous is None or sample.done < previous.done:
        return sample, 0  # the first sample, which includes the warm-up, or a restarted server
    arrived = max(sample.arrived, previous.arrived)
    return _LastSample(sample.done, arrived, previous.busy), arrived - previous.arrived
