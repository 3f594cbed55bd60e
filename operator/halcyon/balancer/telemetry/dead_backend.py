"""Detection of pods whose Triton backend is dead, so that they can be taken out of the balancer. Pure.

Triton does not restart the Python stub process of a model if it dies. Every request then fails after a second, while readiness stays
200 (measured on 2.51). In this state `nv_inference_request_failure{reason="BACKEND"}` rises, and no request succeeds.

A healthy model that returns errors for invalid input looks the same. Therefore at most one pod is taken out per interval, and never the
last one.

    failures since the last sample | successes | pods that serve | since the last removal | pod to take out
    none                           | any       | any             | any                    | none
    some                           | some      | any             | any                    | none; sample again soon
    some                           | none      | 1               | any                    | none: it is the last one
    some                           | none      | 2 or more       | < interval             | none: wait
    some                           | none      | 2 or more       | >= interval            | the pod with the most failures
    unknown, or counters restarted             | any             | any                    | none
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
"""Minimum time between two removals of a pod, in seconds."""


@dataclass(frozen=True)
class Outcomes:
    """TritonCounters of successful and failed requests of one Triton process."""

    succeeded: int | None
    backend_failed: int | None


@dataclass(frozen=True)
class Ejection:
    """Result of comparing two samples."""

    dead: str | None
    """Name of the pod to take out now; None if there is none."""
    suspects: frozenset[str]
    """Names of pods with failures since the last sample, which should be sampled again soon."""


class DeadBackends:
    """Pods of one model that were taken out, and the counters of the last sample.

    The agent sends no more requests to these pods. If a model has no balancer, the operator evicts them instead.
    """

    def __init__(self, pods: frozenset[str] = frozenset()) -> None:
        self.pods = pods
        """Names of pods that were taken out and still exist."""
        self._outcomes: dict[str, Outcomes] = {}
        self._last_s: float | None = None

    def look(self, endpoints: Iterable[Endpoint], seen: Mapping[str, ScrapedPod], now: float) -> Ejection:
        """Compare a new sample of the pods with the last one; add a pod with a dead backend to `pods`.

        Args:
            endpoints: all pods.
            seen: sample by pod name.
            now: monotonic time, in seconds.
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
        # For a pod that did not respond, keep the counters of its previous response for the next comparison.
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
    """Compare two samples, and return the pod to take out.

    Args:
        before: counters at the last sample, by pod.
        after: counters now, by pod.
        serving: names of pods that take requests now; pods in maintenance do not.
        last_s: time at which a pod was last taken out, in seconds; None if there was none.
        now: current time, in seconds of the same clock.
        interval_s: minimum time between two removals, in seconds.
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
