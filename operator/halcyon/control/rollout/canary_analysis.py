"""Analysis of canaries: samples of the stable revision and of the canary, and the current result of each canary.

The balancers count failures and response times, for each slot. Triton counts executions and the time in its queue, for
each pod. Without balancers, Triton's failures are used, and response times are not compared.

Triton counts a request as successful even if the model answers it with an error. Balancers count errors by the status
of each response.

A sample is taken when an agent reports, so the result is as recent as the reports. A changed result queues the model
for a reconcile. A process uses only samples that it has collected itself, so a new leader starts the analysis from
scratch. This delays the result, but doesn't make it less reliable. Out of scope: the consequences of a result
(`canary_progress`), and the statistics (`halcyon.scaling.canary.analysis`).
"""

# data                                           source
# failures                                       the balancers' counters, for each slot; else Triton's, for each pod
# executions, time in Triton's queue             Triton's counters, for each pod
# response times                                 the balancers' histograms, for each slot; not compared without balancers

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
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
from halcyon.scaling.observations import PodPoint
from halcyon.signals.observation_store import ObservationStore

MIN_SAMPLE_INTERVAL_S = 0.9
"""Minimum time between two samples, in seconds. It is the minimum time between two reports of an agent
(`SendInterval.min_s`)."""
MAX_SAMPLE_DELAY_S = 5.0
"""Maximum time for which a sample is postponed until both revisions have answered requests, in seconds."""
_WINDOW_S = 20.0


class _Counts(NamedTuple):
    """Counters of one pod that Triton has kept since the pod's start."""

    succeeded: float
    failed: float
    executions: float
    queue_us: float
    compute_us: float
    """Total execution time of the requests, in microseconds; NaN if unknown."""

    def since(self, before: _Counts | None) -> _Counts | None:
        """Return the growth of the counters since the sample `before`.

        Return None for a pod's first sample, which includes the warm-up, and if the pod has restarted.
        """
        if before is None or any(now < then for now, then in zip(self, before, strict=True)):
            return None
        return _Counts(*(now - then for now, then in zip(self, before, strict=True)))


@dataclass
class _Watched:
    """State of the analysis of one canary."""

    stable: str
    canary: str
    rules: Rules
    memory: CanaryMemory = field(default_factory=CanaryMemory)
    counts: dict[str, _Counts] = field(default_factory=dict)
    """Counters of each pod at the last sample, by pod."""
    latency: dict[tuple[str, str], SlotLatency] = field(default_factory=dict)
    """Latency histograms at the last sample, by balancer and slot."""
    servers: tuple[Object, ...] = ()
    """Server pods of the model at the last reconcile. Each change of the pods causes a reconcile."""
    answers_since: dict[str, float] = field(default_factory=dict)
    """Monotonic time of the first sample that shows answered requests of a pod, in seconds, by pod."""
    attempted_at: float = -math.inf
    """Monotonic time of the last attempt to take a sample, in seconds."""
    sampled_at: float = -math.inf
    """Monotonic time at which the last sample ended, in seconds."""
    result: CanaryResult | None = None

    def growths(self, counts: Mapping[str, _Counts], revisions: Mapping[str, str], now: float) -> dict[str, _Counts]:
        """Return the growth of the counters since the last sample, by pod of the two revisions.

        Note which pods have answered requests. The counters of a pod that is new or has restarted count from here on.
        """
        growths: dict[str, _Counts] = {}
        for name, after in counts.items():
            since = after.since(self.counts.get(name))
            if since is None:
                self.counts[name] = after
            elif revisions.get(name) in {self.stable, self.canary}:
                growths[name] = since
        answering = [name for name, since in growths.items() if since.succeeded or since.failed]
        self.answers_since = {**dict.fromkeys(answering, now), **self.answers_since}
        return growths

    def samples(
        self,
        growths: Mapping[str, _Counts],
        responses: Mapping[str, _Responses],
        revisions: Mapping[str, str],
        now: float,
    ) -> tuple[Sample, Sample]:
        """Return the samples of the stable revision and of the canary.

        Failures are those that the balancers have counted if they count them for both revisions.
        """
        by_revision: dict[str, list[_Counts]] = {self.stable: [], self.canary: []}
        for name, counts in growths.items():
            by_revision[revisions[name]].append(counts)
        newest = max((at for pod, at in self.answers_since.items() if revisions.get(pod) == self.canary), default=now)
        of_stable, of_canary = responses.get(self.stable), responses.get(self.canary)
        stable = _sample(by_revision[self.stable], of_stable, math.inf)
        canary = _sample(by_revision[self.canary], of_canary, now - newest)
        if of_stable is None or of_canary is None or of_stable.failed is None or of_canary.failed is None:
            return stable, canary
        return _with_failures(stable, of_stable), _with_failures(canary, of_canary)


class RollingOut(Protocol):
    """Parts of a reconcile plan that the canary analysis reads."""

    @property
    def spec(self) -> Spec | None:
        """Accepted spec; None if no spec has ever been accepted."""

    @property
    def rollout(self) -> RolloutPlan | None:
        """Rollout of the revision that the spec requests; None if no spec has ever been accepted."""


@dataclass
class CanaryAnalysis:
    """Analyses of all canaries in progress."""

    hub: ObservationStore
    clock: Clock
    queries: CanaryQueries | None = None
    """Queries of the site's Prometheus; None if the site has no Prometheus."""
    requeue: Callable[[Key], None] = lambda _: None
    """Function that is called with the key of a model when the result of its canary has changed."""
    _watched: dict[Key, _Watched] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Subscribe to the agents' reports."""
        self.hub.subscribe(lambda namespace, name, _: self._reported(Key(namespace, name)))

    def planned(self, key: Key, plan: RollingOut) -> None:
        """Start, continue or end the analysis of a model's canary, according to the plan."""
        rollout = plan.rollout
        if self.queries is not None:
            self.queries.planned(key, plan.spec, rollout)
        if rollout is None or rollout.canary is None or rollout.good is None or plan.spec is None:
            self._watched.pop(key, None)
            return
        # If the rules change, start from scratch: results under different rules can't be combined.
        identity = (rollout.good.key, rollout.requested.key, _rules(plan.spec))
        watched = self._watched.get(key)
        if watched is None or (watched.stable, watched.canary, watched.rules) != identity:
            self._watched[key] = _Watched(*identity)

    def deleted(self, key: Key) -> None:
        """Drop the state of a ModelDeployment that was deleted."""
        self._watched.pop(key, None)
        if self.queries is not None:
            self.queries.deleted(key)

    def result(self, key: Key, servers: Iterable[Object]) -> CanaryResult | None:
        """Take a sample if one is due, and return the result; None if there is no canary or no measurement."""
        watched = self._watched.get(key)
        if watched is not None:
            watched.servers = tuple(servers)
            self._take_sample(key, watched)
        comparison = None if watched is None else watched.result
        return comparison if self.queries is None else self.queries.combined_result(key, comparison)

    def _reported(self, key: Key) -> None:
        watched = self._watched.get(key)
        if watched is None:
            return
        before = watched.result and watched.result.action
        self._take_sample(key, watched)
        if watched.result is not None and watched.result.action != before:
            self.requeue(key)

    def _take_sample(self, key: Key, watched: _Watched) -> None:
        """Take a sample if one is due, and update the result of the canary from it."""
        now = self.clock.monotonic()
        if now - watched.attempted_at < MIN_SAMPLE_INTERVAL_S:
            return
        observation = self.hub.observe(key.namespace, key.name, now, window_s=_WINDOW_S)
        if observation is None:
            return
        watched.attempted_at = now
        counts = {pod.name: values for pod in observation.pods if pod.points and (values := _counts(pod.points[-1]))}
        histograms = {(agent.agent, slot.slot): slot for agent in observation.balancers for slot in agent.latency}
        responses = _responses_since(watched.latency, histograms, _slot_revisions(watched.servers, self.clock.wall()))
        revisions = {pod["metadata"]["name"]: pods.revision(pod) for pod in watched.servers}
        growths = watched.growths(counts, revisions, now)
        stable, canary = watched.samples(growths, responses, revisions, now)
        if not (stable.requests and canary.requests) and now - watched.sampled_at < MAX_SAMPLE_DELAY_S:
            # Wait for requests to both revisions. Counters and histograms that are new count from here on.
            watched.latency = {**histograms, **watched.latency}
            return
        watched.counts, watched.latency, watched.sampled_at = counts, histograms, now
        if stable.requests or canary.requests:
            outcome = judge(stable, canary, watched.rules, watched.memory)
            watched.memory = outcome.memory
            watched.result = CanaryResult(watched.canary, outcome.action, outcome.why)


def _rules(spec: Spec) -> Rules:
    """Return the limits in a spec for the statistical tests of the canary analysis."""
    limits = (spec.rollout.canary or Canary()).analysis
    return Rules(
        error_margin=limits.max_failure_increase / 100,
        # Our balancers report response times if they route to it.
        latency_ratio=None if routing_mode.is_direct(spec) else (100 + limits.max_latency_increase) / 100,
        queue_ratio=(100 + limits.max_queue_time_increase) / 100,
        min_requests=limits.min_requests,
    )


def _counts(point: PodPoint) -> _Counts | None:
    """Return the counters in one report. Return None if any of them except the execution time is unknown."""
    if point.succeeded is None or point.failed is None or point.executions is None or point.queue_us is None:
        return None
    compute_us = math.nan if point.compute_us is None else point.compute_us
    return _Counts(point.succeeded, point.failed, point.executions, point.queue_us, compute_us)


def _slot_revisions(servers: Iterable[Object], now: float) -> dict[str, str]:
    """Return the revision of each slot. Slots with pods of two revisions are left out, because both send responses.

    `now` is in seconds since the epoch. Pods that have ended or are lost send no responses.
    """
    revisions: dict[str, set[str]] = {}
    for pod in servers:
        if pods.is_ended_or_lost(pod, now):
            continue
        revisions.setdefault(pod["metadata"]["labels"].get(names.SLOT_LABEL, ""), set()).add(pods.revision(pod))
    return {slot: next(iter(keys)) for slot, keys in revisions.items() if len(keys) == 1}


@dataclass(frozen=True)
class _Responses:
    """Responses of one revision's servers in a period: their latencies and failures."""

    latency: Histogram
    failed: int | None
    """Number of failed responses; None if any balancer doesn't report it."""


def _responses_since(
    before: Mapping[tuple[str, str], SlotLatency],
    after: Mapping[tuple[str, str], SlotLatency],
    revisions: Mapping[str, str],
) -> dict[str, _Responses]:
    """Return the responses of each revision since the last sample, summed over all balancers."""
    responses: dict[str, _Responses] = {}
    for key, current in after.items():
        revision, previous = revisions.get(key[1]), before.get(key)
        # Skip the first sample of a histogram, which has counts from before the canary. If counts fell, the balancer has restarted.
        if revision is None or previous is None or previous.bounds_ms != current.bounds_ms:
            continue
        counts = growth(previous.counts, current.counts)
        if counts is None:
            continue
        latency, total = Histogram(tuple(bound / 1000 for bound in current.bounds_ms), counts), responses.get(revision)
        failed = None if previous.failed is None or current.failed is None else max(current.failed - previous.failed, 0)
        if total is None:
            responses[revision] = _Responses(latency, failed)
        elif total.latency.bounds_s == latency.bounds_s:
            # Balancers of two versions may have different bounds. Use only histograms with the bounds of the first.
            failures = None if failed is None or total.failed is None else failed + total.failed
            responses[revision] = _Responses(total.latency + latency, failures)
    return responses


def _sample(growths: Iterable[_Counts], responses: _Responses | None, newest_s: float) -> Sample:
    """Return the sample of a revision: the sum of the counters over its pods, and the response times."""
    sums = [sum(column) for column in zip(*growths, strict=True)] or [0.0] * len(_Counts._fields)
    succeeded, failed, executions, queue_us = (round(value) for value in sums[:-1])
    return Sample(
        requests=succeeded + failed,
        failures=failed,
        batches=executions,
        latency=None if responses is None else responses.latency,
        queue_us=queue_us,
        compute_us=None if math.isnan(sums[-1]) else round(sums[-1]),
        timed=succeeded,
        newest_s=newest_s,
    )


def _with_failures(sample: Sample, responses: _Responses) -> Sample:
    """Return the sample with the numbers of requests and failures that the balancers have counted."""
    total = responses.latency.total
    # Triton's counts are from other moments, so only the ratio of requests to batches is taken from them.
    batches = round((sample.batches or 0) * total / sample.requests) if sample.requests else None
    # The counters are read one after the other while responses arrive, so they can disagree slightly.
    return replace(sample, requests=total, failures=min(responses.failed or 0, total), batches=batches)
