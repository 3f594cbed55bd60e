"""Detection of a pod whose backend is dead, so that it can be taken out. Pure.

Triton does not restart a Python stub that died: every request then fails after a second, while readiness stays 200 (measured on
2.51). The sign of it is `nv_inference_request_failure{reason="BACKEND"}` rising without any success.
A model that answers bad input with an error counts in the same way. So at most one pod is taken out per interval, and never
the last.

    failures since the last sample | successes | pods that serve | since the last one | pod to take out
    none                           | any       | any             | any                | none
    some                           | some      | any             | any                | none; sample again soon
    some                           | none      | 1               | any                | none: it is the last one
    some                           | none      | 2 or more       | < interval         | none: wait
    some                           | none      | 2 or more       | >= interval        | the pod with the most failures
    unknown, or counters restarted             | any             | any                | none
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from collections.abc import Set as AbstractSet

    from halcyon.balancer.runtime.server_assignment import Endpoint
    from halcyon.balancer.telemetry.sampler import ScrapedPod

EJECTION_INTERVAL_S = 30.0
"""Minimum time between two pods that are taken out."""


@dataclass(frozen=True)
class Outcomes:
    """Counters of one pod's process."""

    succeeded: int | None
    backend_failed: int | None


@dataclass(frozen=True)
class Ejection:
    """Result of one sample."""

    dead: str | None
    """The pod to take out now."""
    suspects: frozenset[str]
    """Pods with failures since the last sample: sample again soon."""


class DeadBackends:
    """The pods of one model that were taken out, and the counters of the last sample.

    The agent takes such pods out of its balancer. Without a balancer a reconcile evicts them.
    """

    def __init__(self, pods: frozenset[str] = frozenset()) -> None:
        self.pods = pods
        """Pods that were taken out and still exist."""
        self._outcomes: dict[str, Outcomes] = {}
        self._last_s: float | None = None

    def look(self, endpoints: Iterable[Endpoint], seen: Mapping[str, ScrapedPod], now: float) -> Ejection:
        """Judge a new sample of the pods; a pod that is found dead is one of `pods` from now on.

        Args:
            endpoints: all pods.
            seen: what was read of them.
            now: monotonic, in seconds.
        """
        listed = tuple(endpoints)
        after = {
            pod: Outcomes(found.metrics.succeeded, found.metrics.backend_failed)
            for pod, found in seen.items()
            if found.metrics is not None
        }
        self.pods &= {endpoint.pod for endpoint in listed}
        serving = {e.pod for e in listed if e.serving and not e.terminating} - self.pods
        verdict = judge(self._outcomes, after, serving=serving, last_s=self._last_s, now=now)
        if verdict.dead is not None:
            self.pods |= {verdict.dead}
            self._last_s = now
        # A pod that didn't respond this time is compared with its previous response.
        self._outcomes = {pod: one for pod, one in {**self._outcomes, **after}.items() if pod in seen}
        return verdict


def judge(
    before: Mapping[str, Outcomes],
    after: Mapping[str, Outcomes],
    *,
    serving: AbstractSet[str],
    last_s: float | None,
    now: float,
    interval_s: float = EJECTION_INTERVAL_S,
) -> Ejection:
    """Compare two samples of the same pods.

    Args:
        before: counters at the last sample, by pod.
        after: counters now.
        serving: pods that take requests now (pods in maintenance don't).
        last_s: when a pod was last taken out; None for never.
        now: seconds of the same clock.
        interval_s: minimum time between two pods that are taken out.
    """
    failures: dict[str, int] = {}
    without_success: set[str] = set()
    for pod in serving & before.keys() & after.keys():
        failed = _rise(before[pod].backend_failed, after[pod].backend_failed)
        succeeded = _rise(before[pod].succeeded, after[pod].succeeded)
        if failed:
            failures[pod] = failed
            if succeeded == 0:
                without_success.add(pod)
    may = len(serving) > 1 and (last_s is None or now - last_s >= interval_s)
    dead = max(sorted(without_success), key=lambda pod: failures[pod], default=None) if may else None
    return Ejection(dead, frozenset(failures))


def _rise(before: int | None, after: int | None) -> int | None:
    if before is None or after is None or after < before:
        return None
    return after - before
