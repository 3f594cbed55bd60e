"""Models in the simulator with one wrong setting each, healthy models, and the advice that the rules give on them.

Signals take the way that the operator's take: a sample every 30 s, evidence every five minutes, and the selection.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from halcyon.api.spec import Spec
from halcyon.api.spec.parse import parse
from halcyon.api.types import duration_s, quantity
from halcyon.control.advice.evidence import ModelEvidence, Window, executed, is_measured, with_learnt
from halcyon.control.advice.rules import RULES, opinions
from halcyon.control.advice.selection import Advice, AdviceSelection
from halcyon.render.server_maxconn import server_connections
from halcyon.scaling.planner.plan import replica_of
from halcyon.scaling.planner.whatif import Known
from halcyon_simulator.engine.case import Case, ServiceLaw
from halcyon_simulator.engine.load import Profile, arrivals
from halcyon_simulator.engine.policy_view import PolicyView, SampleColumn
from halcyon_simulator.engine.run import Trajectory, simulate
from halcyon_simulator.policies.halcyon import HalcyonPolicy

EPOCH_S = 1_790_000_000.0
SAMPLE_INTERVAL_S, SAMPLES = 30.0, 10
_SCORED_S = 600.0
"""Seconds at the end of a run in which gains are measured."""
_NO_OBJECTIVE_S = 60.0
_RAMP = ((60.0, 0.1), (60.0, 0.3), (60.0, 0.6))
"""Load at the start, as seconds and share of the later rate, so that batches of several sizes are executed."""
_SOURCE = {"source": {"persistentVolumeClaim": {"claimName": "models"}}}


@dataclass(frozen=True)
class Model:
    """A model in the simulator: its settings, the time of its batches, and its load."""

    name: str
    settings: Mapping[str, Any]
    """The specification without `model`."""
    t0_s: float
    row_s: float
    rps: float
    duration_s: float = 1800.0
    own_batch: int = 1
    """Largest batch in the model's own configuration."""
    gpu_instances: float | None = None
    """Instances that the GPU executes at full speed. None: its utilisation isn't known."""
    host_s: float = 0.0
    """Time of a batch on one CPU; with more CPUs it takes less."""
    start_s: float = 30.0
    load: tuple[tuple[float, float], ...] = _RAMP
    """Load before `rps`, as seconds and share of it."""

    @property
    def spec(self) -> Spec:
        """The specification."""
        return parse("staged", {"model": _SOURCE, **self.settings})

    @property
    def law(self) -> ServiceLaw:
        """Time of a batch with these settings."""
        spec = self.spec
        batching, limits = spec.batching, spec.runtime.resources.limits
        delay = batching.max_queue_delay if batching else None
        cores = float(quantity(limits.cpu)) if limits is not None and limits.cpu is not None else 1.0
        return ServiceLaw(
            self.t0_s + self.host_s / cores,
            self.row_s,
            (batching.max_batch_size if batching else None) or self.own_batch,
            (spec.runtime.instances_per_gpu or 1) * max(spec.runtime.gpus, 1),
            delay_s=duration_s(delay) if delay else 0.0,
            # The simulator's lock is one for all replicas.
            lock=self.gpu_instances if spec.scaling is not None and spec.scaling.max_replicas == 1 else None,
        )

    def case(self) -> Case:
        """Return the case for the simulator."""
        scaling, law, spec = self.spec.scaling, self.law, self.spec
        assert scaling is not None, self.name
        rest_s = self.duration_s - sum(seconds for seconds, _ in self.load)
        steps = ((seconds, self.rps * share) for seconds, share in (*self.load, (rest_s, 1.0)))
        latency = scaling.targets.latency
        return Case(
            self.name,
            arrivals(Profile.steps(*steps), rng=np.random.default_rng(7)),
            self.duration_s,
            law,
            slo_s=duration_s(latency) if latency else _NO_OBJECTIVE_S,
            start_s=self.start_s,
            low=scaling.min_replicas,
            high=scaling.max_replicas,
            first=scaling.min_replicas,
            queue_limit=400,
            slots=server_connections(spec) * spec.traffic.balancer_replicas,
        )

    def following(self, advice: Advice) -> Model:
        """Return the model with the advised value."""
        rule = next(rule for rule in RULES if rule.name == advice.rule)
        value: Any = int(advice.finding.value) if rule.is_number else advice.finding.value
        return replace(self, settings=_with(self.settings, rule.field.split(".")[1:], value))


def _with(document: Mapping[str, Any], path: list[str], value: Any) -> dict[str, Any]:
    below = value if len(path) == 1 else _with(document.get(path[0]) or {}, path[1:], value)
    return {**document, path[0]: below}


class _Advised(HalcyonPolicy):
    """Halcyon's planner, with the advice that the operator would give beside it."""

    def __init__(self, model: Model, case: Case) -> None:
        super().__init__(case)
        spec = model.spec
        if spec.scaling is not None and spec.scaling.targets.latency is None:
            self.objectives = replace(self.objectives, latency_s=None)
        self.selection, self.shown_at = AdviceSelection(), list[float]()
        self.evidence: list[ModelEvidence] = []
        self._model, self._spec, self._law = model, spec, case.service
        self._window, self._samples, self._measured, self._sampled_s = Window(), 0, False, 0.0

    def desired(self, view: PolicyView) -> int:
        """Return the planner's desired replicas, and take a sample if one is due."""
        count = super().desired(view)
        if view.now - self._sampled_s >= SAMPLE_INTERVAL_S:
            self._sampled_s = view.now
            self._sample(view)
            self._samples += 1
            if self._samples % SAMPLES == 0:
                self._select(view.now)
        return count

    def _sample(self, view: PolicyView) -> None:
        ready, busy = round(view.value(SampleColumn.READY) or 0), view.rate(SampleColumn.BUSY_S, 15.0)
        at_once = self._model.gpu_instances
        on_gpu = 1 - (self._law.t0_s - self._model.t0_s) / self._law.seconds(1)
        self._window.add(
            view.now,
            ready,
            view.mean(SampleColumn.WAITING, 15.0),
            min(busy * on_gpu / ready / at_once, 1.0) if at_once and busy is not None and ready else None,
            view.rate(SampleColumn.ANSWERED, 15.0),
            view.rate(SampleColumn.QUEUE_S, 15.0),
            executed(self.memory),
        )

    def _select(self, now: float) -> None:
        memory, known = self.memory, None
        if (line := memory.capacity.line) is not None:
            replica = replica_of(self.objectives, line, 1.0)
            known = Known(self.objectives, replica, memory.arrivals.spread.value, memory.headroom.value)
        self._measured |= is_measured(memory)
        means = replace(self._window.evidence(self._spec), start_s=self._model.start_s)
        self.evidence.append(with_learnt(means, memory, known, measured=self._measured))
        before, shown_rules = self.selection, frozenset(advice.rule for advice in self.selection.shown)
        self.selection = before.updated(EPOCH_S + now, opinions(self.evidence[-1], shown_rules))
        if self.selection.shown != before.shown:
            self.shown_at.append(now)


@dataclass(frozen=True)
class Run:
    """A simulated model."""

    trajectory: Trajectory
    advice: tuple[Advice, ...]
    """Advice at the end."""
    evidence: tuple[ModelEvidence, ...]
    shown_at: tuple[float, ...]
    """Seconds at which the advice has changed."""


def run(model: Model) -> Run:
    """Simulate a model."""
    case = model.case()
    policy = _Advised(model, case)
    trajectory = simulate(case, policy)
    return Run(trajectory, policy.selection.shown, tuple(policy.evidence), tuple(policy.shown_at))


Gain = Callable[[Model, Run, Run], float]
"""Share that the second run gains over the first, as in `AdviceFinding.share`."""


def capacity(model: Model, before: Run, after: Run) -> float:
    """Return the gain in answers per second."""
    end = int(model.duration_s)
    rates = [run.trajectory.answered[end] - run.trajectory.answered[end - int(_SCORED_S)] for run in (before, after)]
    return float(1 - rates[0] / rates[1])


def latency(model: Model, before: Run, after: Run) -> float:
    """Return the gain in the mean latency."""
    means = []
    for run in (before, after):
        at, latency_s = run.trajectory.arrivals, run.trajectory.latency_s
        means.append(
            np.mean(latency_s[(at > model.duration_s - _SCORED_S) & (at < model.duration_s) & np.isfinite(latency_s)])
        )
    return float(1 - means[1] / means[0])


def replicas(model: Model, before: Run, after: Run) -> float:
    """Return the gain in the time that replicas were held."""
    begin = model.duration_s - _SCORED_S
    spent = [run.trajectory.pods.gpu_seconds(begin, model.duration_s) for run in (before, after)]
    return 1 - spent[1] / spent[0]


def in_objective(_model: Model, before: Run, after: Run) -> float:
    """Return the gain in the share of requests within the objective in force."""
    return _within(after) - _within(before)


def _within(run: Run) -> float:
    spec = run.evidence[-1].spec
    latency_s = duration_s(str(spec.scaling.targets.latency)) if spec.scaling else 0.0
    return float(np.mean(run.trajectory.latency_s <= latency_s))


def answered_from_zero(_model: Model, before: Run, after: Run) -> float:
    """Return the gain in the share of the requests that waited for a start and were answered within queueTimeout."""
    starts = [float(run.trajectory.pods.ready_s[0] - run.trajectory.pods.held_s[0]) for run in (before, after)]
    timeouts_s = [duration_s(str(run.evidence[-1].spec.traffic.queue_timeout)) for run in (before, after)]
    return float(starts[1] <= timeouts_s[1]) - float(starts[0] <= timeouts_s[0])


def _settings(
    *,
    batch: int | None = None,
    delay: str | None = None,
    instances: int | None = None,
    cpu: str | None = None,
    objective: str | None = None,
    low: int = 1,
    high: int = 1,
    gpu: bool = True,
    timeout: str | None = None,
) -> dict[str, Any]:
    runtime: dict[str, Any] = {"gpu": {"count": 1}} if gpu else {}
    if instances is not None:
        runtime["instancesPerGPU"] = instances
    if cpu is not None:
        runtime["resources"] = {"limits": {"cpu": cpu}}
    batching = {"maxBatchSize": batch, "maxQueueDelay": delay}
    settings: dict[str, Any] = {
        "runtime": runtime,
        "scaling": {"minReplicas": low, "maxReplicas": high}
        | ({"targets": {"latency": objective}} if objective else {}),
    }
    if batching_settings := {name: value for name, value in batching.items() if value is not None}:
        settings["batching"] = batching_settings
    return settings | ({"traffic": {"queueTimeout": timeout}} if timeout else {})


FAULTS: tuple[tuple[str, Gain, Model], ...] = (
    ("DelayOnlyCosts", latency, Model("delay-line", _settings(batch=32, delay="50ms"), 0.020, 0.002, 8)),
    ("DelayOnlyCosts", latency, Model("delay-floor", _settings(batch=16, delay="100ms", instances=2), 0.03, 0.0, 20)),
    ("BatchAlwaysFull", capacity, Model("full-line", _settings(batch=4), 0.080, 0.006, 70)),
    ("BatchAlwaysFull", capacity, Model("full-floor", _settings(batch=8, objective="1s"), 0.050, 0.0002, 400)),
    ("BatchSizeMissing", capacity, Model("missing", _settings(), 0.080, 0.002, 400, own_batch=64)),
    ("GPUIdle", replicas, Model("idle-fleet", _settings(batch=1, high=12), 0.050, 0.0, 120, gpu_instances=3)),
    ("GPUIdle", capacity, Model("idle-batches", _settings(batch=8, instances=2), 0.080, 0.006, 260, gpu_instances=4)),
    ("CPULimited", capacity, Model("host", _settings(batch=1, cpu="1"), 0.01, 0.0, 40, gpu_instances=1, host_s=0.04)),
    (
        "ObjectiveBelowBatch",
        replicas,
        Model("tight", _settings(batch=32, objective="60ms", high=30), 0.020, 0.002, 1500),
    ),
    (
        "ObjectiveBelowBatch",
        in_objective,
        Model("unattainable", _settings(batch=1, objective="40ms", high=4), 0.050, 0.0, 30),
    ),
    (
        "MinReplicasIdle",
        replicas,
        Model("idle-minimum", _settings(batch=8, low=4, high=8), 0.080, 0.006, 2, duration_s=90_000),
    ),
    (
        "QueueTimeoutTooShort",
        answered_from_zero,
        Model("short-timeout", _settings(batch=8, low=0, high=4, timeout="20s"), 0.080, 0.006, 5, start_s=60.0),
    ),
)
"""Staged faults: the rule that applies, how its gain is measured, and the model."""

_HEALTHY: tuple[tuple[dict[str, Any], float, float, float | None, int], ...] = (
    (_settings(batch=8, high=8), 0.080, 0.006, None, 1),
    (_settings(batch=8, objective="500ms", high=8), 0.080, 0.006, 1, 1),
    (_settings(batch=32, high=8), 0.020, 0.002, 1, 1),
    (_settings(batch=32, delay="2ms", objective="300ms", high=8), 0.020, 0.002, None, 1),
    (_settings(batch=1, high=8), 0.050, 0.0, 1, 1),
    (_settings(batch=1, instances=4, objective="400ms", high=8), 0.050, 0.0, 4, 1),
    (_settings(batch=16, instances=2, delay="1ms", high=8), 0.010, 0.001, 2, 1),
    (_settings(batch=4, cpu="4", gpu=False, high=8), 0.040, 0.030, None, 1),
)
LOADS = (0.1, 0.5, 0.8, 3.0)
"""Loads of the healthy models, as a share of one replica's peak rate."""


def healthy() -> tuple[Model, ...]:
    """Return 8 models with settings that fit, each under four loads."""
    models = []
    for number, (settings, t0_s, row_s, at_once, own) in enumerate(_HEALTHY):
        model = Model(f"healthy-{number}", settings, t0_s, row_s, 1, own_batch=own, gpu_instances=at_once)
        models += [replace(model, name=f"{model.name}-{load:g}", rps=load * model.law.peak_rps) for load in LOADS]
    return tuple(models)
