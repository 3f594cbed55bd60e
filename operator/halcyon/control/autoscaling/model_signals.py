"""Current signals of a model for the decider, from agents' reports and from the pods in the caches.

Out of scope: decisions (`decider`), sources of GPU utilisation other than the agents (`gpu_utilization`), and the
computation of signals from reports (`signals.planner_reading`, `scaling.hpa.metrics`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from halcyon.api.documents.observation_report import PodState
from halcyon.api.spec import Spec, defaults
from halcyon.api.spec.defaults import ResolvedTargets
from halcyon.api.spec.scaling import Targets
from halcyon.control.autoscaling.sources.gpu_utilization import AGENTS, GpuUtilization, GpuUtilizationSources
from halcyon.control.autoscaling.sources.model_pods import ModelPods
from halcyon.control.state.cluster_state import ClusterState
from halcyon.control.state.scope import Signals
from halcyon.kube.clock import Clock
from halcyon.kube.kinds import Key
from halcyon.scaling.frozen import immutable
from halcyon.scaling.gpu_cost import ReportedWork
from halcyon.scaling.hpa import metrics
from halcyon.scaling.observations import Missing, Observation, Value
from halcyon.scaling.planner.objectives import Serving
from halcyon.scaling.policy.decision import Signal
from halcyon.signals import gpu_work
from halcyon.signals.clock import WallClock
from halcyon.signals.observation_store import ObservationStore
from halcyon.signals.planner_reading import OBSERVATION_WINDOW_S, ReadingResult, SignalMemory, reading
from halcyon.signals.prometheus.source import SOURCE as PROMETHEUS
from halcyon.signals.prometheus.source import Sampled

BATCH_WINDOW_S = 15.0
_SHOWN_WINDOW_S = 15.0
"""Time over which published means are computed, in seconds. The dashboard uses the same time."""
_Samples = tuple[tuple[float, float], ...]
"""Samples of a signal as pairs of time and value, oldest first."""
_RULES_WINDOW_S = 20.0
"""Maximum age of reports that the Rules policy uses, in seconds. The policy averages over 15 s, so it also needs the
last report before that time."""


@immutable(frozen=True, slots=True)
class PlannerInput:
    """Input of the planner for a model, and the signals to publish with the decision."""

    result: ReadingResult
    signals: tuple[Signal, ...]
    smallest: Serving | None
    """Smallest batch size and instances of the ready pods; None if unknown."""


@immutable(frozen=True, slots=True)
class RulesInput:
    """Input of the Rules policy for a model, and the signals to publish with the decision."""

    reading: metrics.RulesReading | Missing
    signals: tuple[Signal, ...]
    """Signals to publish: queueDepth, and each of gpuUtilization, metric and concurrency that has a target."""
    has_reports: bool
    """Whether any agent has reported on the model."""


@immutable(frozen=True, slots=True)
class _Means:
    """Means of the published values over the last `_SHOWN_WINDOW_S` seconds. A mean is None if the value is unknown."""

    waiting: float | None = None
    """Mean number of queued requests."""
    gpu: float | None = None
    """Mean GPU utilisation of the ready pods, in percent."""
    source: str = ""
    """Source of the GPU utilisation. If it changes, the mean starts again with the new source's samples."""
    waiting_samples: _Samples = ()
    gpu_samples: _Samples = ()

    def with_values(self, now: float, waiting: float | None, gpu: float | None, source: str) -> _Means:
        waiting_samples = _with_sample(self.waiting_samples, now, waiting)
        gpu_samples = _with_sample(self.gpu_samples if source == self.source else (), now, gpu)
        return _Means(_mean(waiting_samples), _mean(gpu_samples), source, waiting_samples, gpu_samples)


def _with_sample(samples: _Samples, now: float, value: float | None) -> _Samples:
    """Return the samples from which a mean is computed, with a new sample of `value`; none if `value` is unknown.

    They are the samples in the window of `_SHOWN_WINDOW_S` seconds, and the last one before it.
    """
    if value is None:
        return ()
    begin = now - _SHOWN_WINDOW_S
    first = next((n for n, (at, _) in enumerate(samples) if at > begin), len(samples))
    return (*samples[max(first - 1, 0) :], (now, value))


def _mean(samples: _Samples) -> float | None:
    """Return the mean over the window that ends at the newest sample. Each value applies until the next sample."""
    if len(samples) < 2:
        return samples[0][1] if samples else None
    begin = max(samples[-1][0] - _SHOWN_WINDOW_S, samples[0][0])
    integral = sum(value * (end - max(at, begin)) for (at, value), (end, _) in pairwise(samples))
    spent_s = samples[-1][0] - begin
    return integral / spent_s if spent_s > 0 else samples[-1][1]


@dataclass(slots=True)
class _Model:
    """State of one model that is kept between two readings of its signals."""

    memory: SignalMemory = field(default_factory=SignalMemory)
    means: _Means = field(default_factory=_Means)
    pods: ModelPods = field(default_factory=ModelPods)


@dataclass
class ModelSignals:
    """Current signals of all models, with the state that is kept between two readings."""

    caches: ClusterState
    hub: ObservationStore
    clock: Clock
    sampled: Callable[[str, str], Sampled | None] | None = None
    """Function that returns the GPU utilisation of a pod, given its namespace and name, from the site's Prometheus. It
    is None if the site has no Prometheus."""
    queried: Callable[[Key, str], Value | Missing] | None = None
    """Function that returns the result of one of the site's queries for a model, given the query's name. It is None if
    the site has no Prometheus."""

    _models: defaultdict[Key, _Model] = field(default_factory=lambda: defaultdict(_Model))
    _utilization: GpuUtilizationSources = field(default_factory=GpuUtilizationSources)

    def __post_init__(self) -> None:
        """Measure the offset between the monotonic clock and the wall clock, and subscribe to deletions of models."""
        self.epoch = WallClock.of(monotonic_s=self.clock.monotonic(), wall_s=self.clock.wall())
        # On a standby, no reconcile reports the deletion of a model without scaling.
        self.caches.resources.listeners.append(lambda key, _, after: None if after else self.forget(key))

    def check_clocks(self) -> None:
        """Measure the offset between the clocks again, in case the wall clock was set."""
        self.epoch = self.epoch.checked(monotonic_s=self.clock.monotonic(), wall_s=self.clock.wall())

    def uid(self, key: Key) -> str:
        """Return the uid of the ModelDeployment; empty if there is no such ModelDeployment."""
        return str(((self.caches.resources.get(key) or {}).get("metadata") or {}).get("uid", ""))

    def by_rules(self, key: Key, spec: Spec | None) -> RulesInput:
        """Return the signals of a model for the Rules policy."""
        reading, observation, source = self._by_rules(key, spec)
        signals = () if spec is None else self._signals(reading, source, defaults.targets(spec))
        return RulesInput(reading, signals, has_reports=observation is not None)

    def for_planner(self, key: Key, spec: Spec) -> PlannerInput | None:
        """Return the planner's reading of a model, and the signals to publish; None if no agent has reported on it."""
        snapshot = self.hub.snapshot(key.namespace, key.name, self.clock.monotonic())
        if snapshot is None:
            return None
        model = self._models[key]
        facts = model.pods.facts(self.caches, key, spec)
        reading_result = reading(
            snapshot,
            replicas=self.caches.replicas(key),
            pods=facts.pods,
            epoch=self.epoch,
            memory=model.memory,
            balancers=facts.balancers,
            revision=facts.revision,
            revision_pods=facts.of_revision,
        )
        model.memory = reading_result.memory
        source, seen_at = AGENTS, reading_result.reading.at
        if reading_result.reading.gpu is None and spec.runtime.gpus:
            ready = [str(pod.name) for pod in reading_result.reading.pods if pod.phase == "ready"]
            observation = self.hub.observe(key.namespace, key.name, snapshot.at, window_s=OBSERVATION_WINDOW_S)
            substitute = self._substitute(key, spec, observation, ready)
            if substitute is not None:
                total = sum(substitute.values) * len(ready) / len(substitute.values)
                reading_result = replace(reading_result, reading=replace(reading_result.reading, gpu=total))
                source, seen_at = substitute.source, self.epoch.at(substitute.at)
        metric = self._metric(key, spec)
        if isinstance(metric, Value):
            reading_result = replace(reading_result, reading=replace(reading_result.reading, metric=metric.value))
        current = reading_result.reading
        count = sum(pod.phase == "ready" for pod in current.pods)
        # The mean of each pod, not of the sum: the sum changes with the number of pods.
        gpu = None if current.gpu is None or not count else current.gpu / count
        model.means = model.means.with_values(snapshot.at, current.waiting, gpu, source)
        shown = _shown(model.means, spec, reading_result, source, seen_at, ready=count)
        if metric is not None:
            signal = replace(self._signal("metric", defaults.targets(spec).metric, metric), source=PROMETHEUS)
            shown = (*shown, replace(signal, shown=signal.value))
        return PlannerInput(reading_result, shown, facts.smallest)

    def _substitute(
        self, key: Key, spec: Spec, observation: Observation | None, ready: Sequence[str]
    ) -> GpuUtilization | None:
        def instances(pod: str) -> int:
            settings = self._models[key].pods.facts(self.caches, key, spec).settings.get(pod)
            return spec.runtime.instances if settings is None else settings.instances

        return self._utilization.substitute(key, spec, observation, ready, self.sampled, instances=instances)

    def _metric(self, key: Key, spec: Spec) -> Value | Missing | None:
        """Return the result of the site's query that the spec names; None if the spec names no query."""
        metric = None if spec.scaling is None else spec.scaling.targets.metric
        if metric is None:
            return None
        return Missing("this site has no Prometheus") if self.queried is None else self.queried(key, metric.query)

    def reported(self, key: Key) -> Signals | None:
        """Return the agents' data for the status: load errors, versions and dead backends."""
        observation = self.hub.observe(key.namespace, key.name, self.clock.monotonic(), window_s=_RULES_WINDOW_S)
        if observation is None:
            return None
        return Signals(
            load_errors={p.name: p.load_error for p in observation.pods if p.load_error},
            versions=tuple(sorted({v for p in observation.pods for v in p.versions})),
            dead=_failures(observation, "maintenance"),
            restarting=_failures(observation, "starting"),
            failing=_failures(observation, "ready"),
        )

    def reported_work(self, key: Key, spec: Spec) -> ReportedWork | None:
        """Return the ready pods' mean GPU utilisation and each pod's count of rows; None if no agent has reported."""
        snapshot = self.hub.snapshot(key.namespace, key.name, self.clock.monotonic())
        if snapshot is None:
            return None
        work = gpu_work.reported_work(snapshot)
        values: Sequence[float] = work.gpus
        if not values or 2 * len(values) < len(work.ready):
            observation = self.hub.observe(key.namespace, key.name, snapshot.at, window_s=OBSERVATION_WINDOW_S)
            substitute = self._substitute(key, spec, observation, work.ready)
            values = () if substitute is None else substitute.values
        return ReportedWork(min(sum(values) / len(values) / 100, 1.0) if values else None, work.rows)

    def mean_batch(self, key: Key) -> float | None:
        """Return the mean batch size of a model over the last `BATCH_WINDOW_S`; None if unknown."""
        return self.hub.mean_batch(key.namespace, key.name, self.clock.monotonic(), BATCH_WINDOW_S)

    def _signals(
        self, reading: metrics.RulesReading | Missing, source: str, targets: ResolvedTargets
    ) -> tuple[Signal, ...]:
        if isinstance(reading, Missing):
            return (Signal("queueDepth", target=targets.queue_depth, missing=reading.reason),)
        signals = [replace(self._signal("queueDepth", targets.queue_depth, reading.queue_depth), shown=reading.waiting)]
        if reading.gpu_utilization is not None:
            signal = self._signal("gpuUtilization", targets.gpu_utilization, reading.gpu_utilization)
            if reading.gpu_mean is None:
                signal = replace(signal, value=None, at=None)  # no pod is ready, so nothing is measured
            signals.append(replace(signal, source=source, shown=reading.gpu_mean))
        if reading.metric is not None:
            metric = replace(self._signal("metric", targets.metric, reading.metric), source=PROMETHEUS)
            signals.append(replace(metric, shown=metric.value))
        if reading.concurrency is not None:
            concurrency = self._signal("concurrency", targets.concurrency, reading.concurrency)
            signals.append(replace(concurrency, shown=concurrency.value))
        return tuple(signals)

    def forget(self, key: Key) -> None:
        """Drop the state of a deleted model."""
        self._models.pop(key, None)
        self._utilization.forget(key)

    def _by_rules(self, key: Key, spec: Spec | None) -> tuple[metrics.RulesReading | Missing, Observation | None, str]:
        """Return the input of the Rules policy, the observation behind it, and the source of the GPU utilisation."""
        if spec is None:
            return Missing(f"there is no ModelDeployment {key} whose spec was accepted"), None, AGENTS
        observation = self.hub.observe(key.namespace, key.name, self.clock.monotonic(), window_s=_RULES_WINDOW_S)
        if observation is None:
            return Missing("no balancer agent has reported yet"), None, AGENTS
        status = (self.caches.resources.get(key) or {}).get("status") or {}
        # After a scale-down, status still counts the pods that are ending.
        total = min(int(status.get("replicas") or 0), self.caches.replicas(key))
        targets = defaults.targets(spec)
        reading = replace(metrics.read(observation, targets=targets, replicas=total), metric=self._metric(key, spec))
        ready = [pod.name for pod in observation.pods if pod.ready]
        substitute = self._substitute(key, spec, observation, ready)
        if substitute is None or targets.gpu_utilization is None:
            return reading, observation, AGENTS
        utilization = metrics.filled(
            sum(substitute.values),
            missing=max(total - len(substitute.values), 0),
            target=targets.gpu_utilization,
            replicas=total,
        )
        mean = sum(substitute.values) / len(substitute.values)
        return (
            replace(reading, gpu_utilization=Value(utilization, substitute.at), gpu_mean=mean),
            observation,
            substitute.source,
        )

    def _signal(self, name: str, target: float | None, value: Value | Missing) -> Signal:
        signal = Signal(name, target=target)
        if isinstance(value, Missing):
            return replace(signal, missing=value.reason)
        return replace(signal, value=value.value, at=self.epoch.at(value.at))


def _shown(
    means: _Means, spec: Spec, result: ReadingResult, source: str, gpu_at: float | None, *, ready: int
) -> tuple[Signal, ...]:
    """Return the signals to publish: queueDepth, concurrency if it has a target, and gpuUtilization if pods have GPUs.

    queueDepth and gpuUtilization are means over 15 s, because single values vary too much to be readable.
    """
    reading = result.reading
    targets = spec.scaling.targets if spec.scaling else Targets()
    if reading.waiting is None:
        why = "; ".join(result.unknown) or "the value is unknown"
        queue = Signal("queueDepth", target=targets.queue_depth, missing=why)
    else:
        queue = Signal("queueDepth", means.waiting, targets.queue_depth, at=reading.at, shown=means.waiting)
    signals: tuple[Signal, ...] = (queue,)
    if targets.concurrency is not None:
        value = reading.concurrency
        concurrency = Signal("concurrency", value, targets.concurrency, at=reading.at, shown=value)
        if value is None:
            concurrency = replace(concurrency, at=None, missing="; ".join(result.unknown) or "the value is unknown")
        signals = (queue, concurrency)
    if spec.runtime.gpus == 0 or (reading.gpu is None and targets.gpu_utilization is None):
        return signals
    if means.gpu is None:
        why = "too few ready pods report the GPU utilisation, and no other source has it" if ready else ""
        return *signals, Signal("gpuUtilization", target=targets.gpu_utilization, source=source, missing=why)
    total = means.gpu * ready
    return *signals, Signal("gpuUtilization", total, targets.gpu_utilization, at=gpu_at, source=source, shown=means.gpu)


def _failures(observation: Observation, state: PodState) -> dict[str, str]:
    """Return the backend failures of the pods in the given state, by pod. In `maintenance`, every pod has failed."""
    return {
        pod.name: pod.backend_failure or "the balancer agent reported no reason"
        for pod in observation.pods
        if pod.state == state and (pod.backend_failure or state == "maintenance")
    }
