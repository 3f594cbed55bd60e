"""A balancer's counters, derived from the servers' counters, for models that clients reach without a balancer. Pure.

| balancer counter | derived from                                                                              |
| ---------------- | ----------------------------------------------------------------------------------------- |
| requests         | growth of each server's answered, failed and waiting requests                             |
| inflight         | requests that wait in servers, plus those being computed: the compute time per second     |
| queued, refused  | 0: no request waits in front of a server, and none is rejected                            |

A request that arrives between two samples of a pod that is new or terminating may be missed. None is counted twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from halcyon.api.documents.observation_report import BalancerSample, PodSample

_SERVING = {"ready", "maintenance", "unreachable"}
"""States of pods that get requests: without a balancer, no pod can be taken out."""


@dataclass(frozen=True, slots=True)
class _Seen:
    """The last sample of a pod."""

    at: float
    done: int
    came: int
    """Highest sum of `done` and waiting requests so far: the two aren't read at the same moment."""
    compute_us: int | None


@dataclass
class ScrapedDemand:
    """Demand of one model, with the last sample of each of its pods."""

    requests: int = 0
    """Counter of arrived requests."""
    _seen: dict[str, _Seen] = field(default_factory=dict)

    def sample(self, pods: Sequence[PodSample]) -> BalancerSample | None:
        """Return the counters after one more sample of each pod; None if most of the serving pods report nothing."""
        inflight = 0.0
        seen: dict[str, _Seen] = {}
        for pod in pods:
            before, now = self._seen.get(pod.name), _look(pod)
            if now is None:
                if before is not None:
                    seen[pod.name] = before  # it may answer again, and what it has counted meanwhile has arrived
                continue
            seen[pod.name], came, busy = _since(before, now)
            self.requests += came
            inflight += busy + (pod.pending or 0)
        self._seen = seen
        serving = [pod for pod in pods if pod.state in _SERVING]
        if 2 * sum(_look(pod) is not None for pod in serving) < len(serving):
            return None
        return BalancerSample(queued=0, inflight=round(inflight), requests=self.requests, rejected=0, errors=0)


def _look(pod: PodSample) -> _Seen | None:
    if pod.succeeded is None or pod.failed is None:
        return None
    done = pod.succeeded + pod.failed
    return _Seen(pod.at, done, done + (pod.pending or 0), pod.compute_us)


def _since(before: _Seen | None, now: _Seen) -> tuple[_Seen, int, float]:
    """Return the sample to remember, the requests that arrived between the two, and the mean number computed at a time."""
    if before is None or now.done < before.done:
        return now, 0, 0.0  # its warm-up, or a server that has restarted
    came = max(now.came, before.came)
    busy = 0.0
    if now.compute_us is not None and before.compute_us is not None and now.at > before.at:
        busy = max(now.compute_us - before.compute_us, 0) / 1e6 / (now.at - before.at)
    return _Seen(now.at, now.done, came, now.compute_us), came - before.came, busy
