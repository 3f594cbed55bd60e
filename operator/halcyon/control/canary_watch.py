"""Watches canaries: what both revisions have done from look to look, by Triton's own counters, and the judge's word on it.

Evidence is gathered from the first look of this process on: a new leader begins anew, which costs time and no safety. Latency is not
judged: no agent tells it by pod. Not here: what is made of a verdict (`canary`), how it is reached (`halcyon.scaling.canary`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from halcyon.control import pods
from halcyon.control.canary import CanaryVerdict
from halcyon.control.client import Object
from halcyon.control.kinds import Key
from halcyon.control.rollout import Rollout
from halcyon.scaling.canary import judge
from halcyon.scaling.canary_data import Memory, Rules, Sample
from halcyon.scaling.observations import PodPoint
from halcyon.signals.hub import Hub

LOOK_S = 5.0
"""Looks come no more often: many short windows tell no more than one."""
_WINDOW_S = 20.0
_RULES = Rules(latency_ratio=None)


class _Counts(NamedTuple):
    """Triton's counters of a pod, since its start."""

    succeeded: float
    failed: float
    executions: float
    queue_us: float


@dataclass
class _Watched:
    """One canary."""

    stable: str
    canary: str
    memory: Memory = field(default_factory=Memory)
    counts: dict[str, _Counts] = field(default_factory=dict)
    """Of each pod at the last look."""
    looked_at: float | None = None
    verdict: CanaryVerdict | None = None


@dataclass
class CanaryWatch:
    """The verdicts on all canaries under way."""

    hub: Hub
    clock: Callable[[], float]
    """Monotonic, in seconds."""
    _watched: dict[Key, _Watched] = field(default_factory=dict)

    def planned(self, key: Key, rollout: Rollout | None) -> None:
        """A reconcile has decided: watch this canary, or none."""
        if rollout is None or rollout.canary is None or rollout.good is None:
            self._watched.pop(key, None)
            return
        known, pair = self._watched.get(key), (rollout.good.key, rollout.asked.key)
        if known is None or (known.stable, known.canary) != pair:
            self._watched[key] = _Watched(*pair)

    def forget(self, key: Key) -> None:
        """The ModelDeployment is gone."""
        self._watched.pop(key, None)

    def verdict(self, key: Key, servers: Iterable[Object]) -> CanaryVerdict | None:
        """What is known of the canary now; None where there is none, or nothing was measured yet."""
        watched, now = self._watched.get(key), self.clock()
        if watched is None:
            return None
        if watched.looked_at is not None and now - watched.looked_at < LOOK_S:
            return watched.verdict
        observation = self.hub.observe(key.namespace, key.name, now, window_s=_WINDOW_S)
        if observation is None:
            return watched.verdict
        watched.looked_at = now
        revisions = {pod["metadata"]["name"]: pods.revision(pod) for pod in servers}
        done: dict[str, list[_Counts]] = {watched.stable: [], watched.canary: []}
        counts = {pod.name: found for pod in observation.pods if pod.points and (found := _counts(pod.points[-1]))}
        for name, after in counts.items():
            before = watched.counts.get(name)
            # A pod seen for the first time has answered its own warm-up; one whose counters fell has started anew.
            if (
                before is not None
                and revisions.get(name) in done
                and all(a >= b for a, b in zip(after, before, strict=True))
            ):
                done[revisions[name]].append(_Counts(*(a - b for a, b in zip(after, before, strict=True))))
        watched.counts = counts
        stable, canary = _sample(done[watched.stable]), _sample(done[watched.canary])
        if stable.requests or canary.requests:
            judged = judge(stable, canary, _RULES, watched.memory)
            watched.memory = judged.memory
            watched.verdict = CanaryVerdict(watched.canary, judged.action, judged.why)
        return watched.verdict


def _counts(point: PodPoint) -> _Counts | None:
    """The counters, where all of them are known."""
    told = (point.succeeded, point.failed, point.executions, point.queue_us)
    known = [value for value in told if value is not None]
    return _Counts(*known) if len(known) == len(told) else None


def _sample(done: Iterable[_Counts]) -> Sample:
    """What the pods of a revision have done together."""
    sums = [round(sum(column)) for column in zip(*done, strict=True)] or [0, 0, 0, 0]
    succeeded, failed, executions, queue_us = sums
    return Sample(requests=succeeded + failed, failures=failed, batches=executions, queue_us=queue_us)
