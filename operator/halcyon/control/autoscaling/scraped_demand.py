"""What a balancer would have counted, from what the servers count: for models whose clients meet them without one. Pure.

| a balancer tells | here it is                                                                          |
| ---------------- | ----------------------------------------------------------------------------------- |
| requests         | growth of what each server has answered, failed, and has waiting                    |
| inflight         | what waits in servers, and what they compute: the time that is computed per second  |
| queued, refused  | 0: nothing waits before a server, and nobody refuses                                |

A request that comes between two looks at a pod that is new, or that ends, may be missed: none is counted twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from halcyon.api.documents.observation_report import BalancerSample, PodSample

_SERVING = {"ready", "maintenance", "unreachable"}
"""States of pods that get requests: nobody can take one out."""


@dataclass(frozen=True, slots=True)
class _Seen:
    """The last look at a pod."""

    at: float
    done: int
    came: int
    """The most that `done` and what waits have been together: the two aren't read in one moment."""
    compute_us: int | None


@dataclass
class ScrapedDemand:
    """Remembers the last look at each pod of one model."""

    requests: int = 0
    """Counter."""
    _seen: dict[str, _Seen] = field(default_factory=dict)

    def sample(self, pods: Sequence[PodSample]) -> BalancerSample | None:
        """What came since the looks before, by one look at each pod; None where most that serve don't tell."""
        inflight = 0.0
        seen: dict[str, _Seen] = {}
        for pod in pods:
            before, now = self._seen.get(pod.name), _look(pod)
            if now is None:
                if before is not None:
                    seen[pod.name] = before  # it may answer again, and what it has counted meanwhile has come
                continue
            seen[pod.name], came, busy = _since(before, now)
            self.requests += came
            inflight += busy + (pod.pending or 0)
        self._seen = seen
        serving = [pod for pod in pods if pod.state in _SERVING]
        if 2 * sum(_look(pod) is not None for pod in serving) < len(serving):
            return None
        return BalancerSample(queued=0, inflight=round(inflight), requests=self.requests, refused=0, errors=0)


def _look(pod: PodSample) -> _Seen | None:
    if pod.succeeded is None or pod.failed is None:
        return None
    done = pod.succeeded + pod.failed
    return _Seen(pod.at, done, done + (pod.pending or 0), pod.compute_us)


def _since(before: _Seen | None, now: _Seen) -> tuple[_Seen, int, float]:
    """What to remember, requests that came between two looks, and how many were computed at a time."""
    if before is None or now.done < before.done:
        return now, 0, 0.0  # its warm-up, or a server that has started anew
    came = max(now.came, before.came)
    busy = 0.0
    if now.compute_us is not None and before.compute_us is not None and now.at > before.at:
        busy = max(now.compute_us - before.compute_us, 0) / 1e6 / (now.at - before.at)
    return _Seen(now.at, now.done, came, now.compute_us), came - before.came, busy
