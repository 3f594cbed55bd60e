"""Analysis of canaries: collects samples of both revisions, and keeps the current verdict on each canary.

data                                           source
failures, executions, time in Triton's queue   Triton's counters, for each pod
response times                                 the balancers' histograms, for each slot; not compared without balancers

A process uses only samples that it has collected itself. So a new leader starts the analysis from scratch. This delays a verdict,
but doesn't make it less reliable.
Out of scope: what follows from a verdict (`canary_progress`), and how it is reached (`halcyon.scaling.canary.analysis`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from halcyon.api.documents.observation_report import SlotLatency
from halcyon.api.spec import Spec, routing_mode
from halcyon.api.spec.rollout import Canary
from halcyon.control.objects import pods
from halcyon.control.rollout.canary_queries import CanaryQueries
from halcyon.control.rollout.rollout_plan import RolloutPlan
from halcyon.control.state.scope import CanaryResult
from halcyon.kube.client import Object
from halcyon.kube.clock import Clock
from halcyon.kube.kinds import Key
from halcyon.render import names
from halcyon.scaling.canary.analysis import judge
from halcyon.scaling.canary.data import CanaryMemory, Rules, Sample
from halcyon.scaling.histogram import Histogram, growth
from halcyon.scaling.observations import BalancerObservation, PodPoint
from halcyon.signals.observation_store import ObservationStore

LOOK_S = 5.0
"""Minimum time between two samples, in seconds. More frequent samples would give no more evidence."""
_WINDOW_S = 20.0


class _Counts(NamedTuple):
    """Triton's counters of a pod since its start."""

    succeeded: float
    failed: float
    executions: float
    queue_us: float


@dataclass
class _Watched:
    """State of the analysis of one canary."""

    stable: str
    canary: str
    rules: Rules
    memory: CanaryMemory = field(default_factory=CanaryMemory)
    counts: dict[str, _Counts] = field(default_factory=dict)
    """Counters of each pod at the last sample."""
    latency: dict[tuple[str, str], SlotLatency] = field(default_factory=dict)
    """Latency histograms by balancer and slot, at the last sample."""
    looked_at: float | None = None
    verdict: CanaryResult | None = None


class RollingOut(Protocol):
    """The part of a plan that the canary analysis reads."""

    @property
    def spec(self) -> Spec | None:
        """The spec in force."""

    @property
    def rollout(self) -> RolloutPlan | None:
        """The rollout of the revision that the spec requests."""


@dataclass
class CanaryAnalysis:
    """Analyses of all canaries in progress."""

    hub: ObservationStore
    clock: Clock
    queries: CanaryQueries | None = None
    """Queries of the site's Prometheus; None if it has none."""
    _watched: dict[Key, _Watched] = field(default_factory=dict)

    def planned(self, key: Key, plan: RollingOut) -> None:
        """Start, continue or end the analysis of a model's canary, depending on the plan."""
        rollout = plan.rollout
        if self.queries is not None:
            self.queries.planned(key, plan.spec, rollout)
        if rollout is None or rollout.canary is None or rollout.good is None or plan.spec is None:
            self._watched.pop(key, None)
            return
        # If the rules change, start from scratch: results under different rules can't be combined.
        asked = (rollout.good.key, rollout.asked.key, _rules(plan.spec))
        known = self._watched.get(key)
        if known is None or (known.stable, known.canary, known.rules) != asked:
            self._watched[key] = _Watched(*asked)

    def deleted(self, key: Key) -> None:
        """Drop the state of a ModelDeployment that was deleted."""
        self._watched.pop(key, None)
        if self.queries is not None:
            self.queries.deleted(key)

    def result(self, key: Key, servers: Iterable[Object]) -> CanaryResult | None:
        """Take a sample if one is due; return the current verdict. None without a canary, or before any request was measured."""
        compared = self._compared(key, servers)
        return compared if self.queries is None else self.queries.judged(key, compared)

    def _compared(self, key: Key, servers: Iterable[Object]) -> CanaryResult | None:
        """Return the verdict of the comparison of both revisions."""
        watched, now = self._watched.get(key), self.clock.monotonic()
        if watched is None:
            return None
        if watched.looked_at is not None and now - watched.looked_at < LOOK_S:
            return watched.verdict
        observation = self.hub.observe(key.namespace, key.name, now, window_s=_WINDOW_S)
        if observation is None:
            return watched.verdict
        watched.looked_at = now
        there = list(servers)
        revisions = {pod["metadata"]["name"]: pods.revision(pod) for pod in there}
        done: dict[str, list[_Counts]] = {watched.stable: [], watched.canary: []}
        counts = {pod.name: found for pod in observation.pods if pod.points and (found := _counts(pod.points[-1]))}
        for name, after in counts.items():
            before = watched.counts.get(name)
            # Skip a pod's first sample, whose counters include the warm-up. If the counters fell, the pod has restarted.
            if (
                before is not None
                and revisions.get(name) in done
                and all(a >= b for a, b in zip(after, before, strict=True))
            ):
                done[revisions[name]].append(_Counts(*(a - b for a, b in zip(after, before, strict=True))))
        watched.counts = counts
        took = _took(watched, observation.balancers, _homes(there))
        stable, canary = (_sample(done[key], took.get(key)) for key in (watched.stable, watched.canary))
        if stable.requests or canary.requests:
            judged = judge(stable, canary, watched.rules, watched.memory)
            watched.memory = judged.memory
            watched.verdict = CanaryResult(watched.canary, judged.action, judged.why)
        return watched.verdict


def _rules(spec: Spec) -> Rules:
    """Return the limits of a spec, for the tests."""
    limits = (spec.rollout.canary or Canary()).analysis
    return Rules(
        error_margin=limits.max_failure_increase / 100,
        # Our balancers report response times if they route to it.
        latency_ratio=None if routing_mode.is_direct(spec) else (100 + limits.max_latency_increase) / 100,
        queue_ratio=(100 + limits.max_queue_time_increase) / 100,
        min_requests=limits.min_requests,
    )


def _counts(point: PodPoint) -> _Counts | None:
    """Return the counters of one report; None unless all of them are known."""
    values = (point.succeeded, point.failed, point.executions, point.queue_us)
    known = [value for value in values if value is not None]
    return _Counts(*known) if len(known) == len(values) else None


def _homes(servers: Iterable[Object]) -> dict[str, str]:
    """Return the revision of each slot. A slot with pods of two revisions is omitted, because its responses come from both."""
    found: dict[str, set[str]] = {}
    for pod in servers:
        found.setdefault(pod["metadata"]["labels"].get(names.SLOT_LABEL, ""), set()).add(pods.revision(pod))
    return {slot: next(iter(keys)) for slot, keys in found.items() if len(keys) == 1}


def _took(watched: _Watched, balancers: Iterable[BalancerObservation], homes: dict[str, str]) -> dict[str, Histogram]:
    """Return the histogram of response times of each revision since the last sample, summed over all balancers."""
    before = watched.latency
    watched.latency = {(balancer.agent, slot.slot): slot for balancer in balancers for slot in balancer.latency}
    found: dict[str, Histogram] = {}
    for key, now in watched.latency.items():
        revision, then = homes.get(key[1]), before.get(key)
        # Skip the first sample of a histogram, which has counts from before the canary. If counts fell, the balancer has restarted.
        if revision is None or then is None or then.bounds_ms != now.bounds_ms:
            continue
        grown = growth(then.counts, now.counts)
        if grown is None:
            continue
        more, known = Histogram(tuple(bound / 1000 for bound in now.bounds_ms), grown), found.get(revision)
        # Balancers of two versions may have different bounds. Use only histograms with the bounds of the first.
        if known is None or known.bounds_s == more.bounds_s:
            found[revision] = more if known is None else known + more
    return found


def _sample(done: Iterable[_Counts], latency: Histogram | None) -> Sample:
    """Return the sample of a revision: the sum of the counters over its pods, with the response times."""
    sums = [round(sum(column)) for column in zip(*done, strict=True)] or [0, 0, 0, 0]
    succeeded, failed, executions, queue_us = sums
    return Sample(requests=succeeded + failed, failures=failed, batches=executions, latency=latency, queue_us=queue_us)
