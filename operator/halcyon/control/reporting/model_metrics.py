"""Metrics of each model on the /metrics page. They are built for each scrape, so that deleted models have no series.

Only the leader exports them: otherwise a sum over both replicas of the operator would count each model twice. The page
is built in slices, between which other tasks run. For 5,000 models it takes so long that decisions must not wait for
it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from halcyon.api.spec import Spec, defaults
from halcyon.api.timestamps import epoch_seconds
from halcyon.control.acceptance.accepted_specs import SpecsInForce
from halcyon.control.autoscaling.loop import Autoscaler
from halcyon.control.autoscaling.model_state import ModelState
from halcyon.control.reporting.gpu_costs import GpuCosts
from halcyon.control.reporting.start_time_metrics import PodStart, StartTimes
from halcyon.control.state.cluster_state import ClusterState
from halcyon.kube import kinds
from halcyon.kube.client import Object
from halcyon.kube.clock import Clock, in_slices
from halcyon.kube.kinds import Key
from halcyon.kube.leader_election import Leadership
from halcyon.monitoring import per_model_metrics
from halcyon.monitoring.metric import Metric, head, label_pairs, line
from halcyon.scaling.gpu_cost import Spent
from halcyon.scaling.policy.decision import Signal

ROLLING = frozenset({"Progressing", "Blocked"})
"""Phases of a rollout that is in progress."""
GPU_STATES = ("starting", "busy", "idle", "unknown")
ExtraLabels = tuple[tuple[str, str], ...]
"""Additional labels of a sample as pairs of name and value. The labels that identify the model are not among them."""
Samples = Iterator[tuple[Metric, ExtraLabels, float]]


@dataclass(frozen=True)
class ModelFacts:
    """Data about one model from which its metrics are computed."""

    resource: Object
    spec: Spec | None
    """The accepted spec; None if no spec was accepted yet."""
    scaled: ModelState | None
    """State of the model's autoscaling; None if it isn't autoscaled."""
    start: PodStart | None
    spent: Spent | None = None
    """GPU time of the model since this process started; None if it wasn't counted."""
    per_hour: float | None = None
    """Cost per hour of the GPUs that the model holds; None if unknown."""
    held: int | None = None
    """Number of GPUs of the model's pods that have a node; None if unknown, or if the pods have no GPUs."""


@dataclass(frozen=True)
class ModelMetrics:
    """Builder of the /metrics page with the metrics of all models."""

    caches: ClusterState
    specs: SpecsInForce
    autoscaler: Autoscaler
    starts: StartTimes
    costs: GpuCosts
    leadership: Leadership
    clock: Clock
    batches: Callable[[], Iterable[Object]] = tuple
    """Function that returns all BatchInferences; none if they aren't known."""

    async def page(self) -> str:
        """Return the /metrics page in the Prometheus text format. On the standby, the page is empty."""
        if not self.leadership.is_leader:
            return ""
        lines: dict[Metric, list[str]] = {metric: [] for metric in per_model_metrics.METRICS}
        async for key in in_slices(self.caches.resources.all_keys(), self.clock):
            resource = self.caches.resources.get(key)
            if resource is None:
                continue  # the model was deleted
            with self.caches.malformed.skipping_errors(kinds.MODEL_DEPLOYMENT.kind, key, "metrics"):
                for metric, text in self._lines(key, resource):
                    lines[metric].append(text)
        for batch in self.batches():
            lines[per_model_metrics.BATCH_CONDITION] += batch_conditions(batch)
        return "".join(head(metric) + "".join(texts) for metric, texts in lines.items() if texts)

    def _lines(self, key: Key, resource: Object) -> list[tuple[Metric, str]]:
        """Return all lines of a model. They are collected before their use, so an error leaves out the whole model."""
        model_labels = label_pairs(zip(per_model_metrics.OF, key, strict=True))
        costs = self.costs.spent(key), self.costs.per_hour(key), self.costs.held(key)
        facts = ModelFacts(resource, self.specs.get(key), self.autoscaler.state(key), self.starts.last(key), *costs)
        return [
            (metric, line(metric.name, f"{model_labels},{label_pairs(extra)}" if extra else model_labels, value))
            for metric, extra, value in samples(facts)
        ]


def samples(facts: ModelFacts) -> Samples:
    """Yield the metric, the additional labels and the value of each sample of a model whose value is known."""
    status: dict[str, Any] = facts.resource.get("status") or {}
    for condition in status.get("conditions") or ():
        yield per_model_metrics.CONDITION, _condition_labels(condition), 1
    replicas = status.get("pods") or {}
    counts = (per_model_metrics.REPLICAS, per_model_metrics.READY, per_model_metrics.UNSCHEDULABLE)
    for metric, name in zip(counts, ("total", "ready", "unschedulable"), strict=True):
        if name in replicas:
            yield metric, (), replicas[name]
    for failure in replicas.get("failures") or ():
        yield per_model_metrics.FAILED, (("reason", str(failure["reason"])),), failure["pods"]
    if facts.spec is not None:
        yield from _spec_samples(facts.spec, facts.resource)
    rollout = status.get("rollout") or {}
    if rollout.get("phase") in ROLLING and (began_at := epoch_seconds(rollout.get("startedAt"))) is not None:
        yield per_model_metrics.ROLLOUT_START, (), began_at
    yield from _gpu_samples(facts)
    if facts.scaled is not None:
        yield from _scaling_samples(facts.scaled, status.get("scaling") or {})
    if facts.start is not None:
        yield per_model_metrics.START, (), facts.start.seconds
        yield per_model_metrics.START_TIME, (), facts.start.ready_at


def batch_conditions(batch: Object) -> list[str]:
    """Return the line of each condition of a BatchInference. Malformed parts are left out, so that no other line is lost."""
    meta, spec, status = (_mapping(batch.get(part)) for part in ("metadata", "spec", "status"))
    labels = (
        ("namespace", str(meta.get("namespace"))),
        ("model_deployment", str(spec.get("modelDeployment") or "")),
        ("batch", str(meta.get("name"))),
    )
    conditions = status.get("conditions")
    return [
        line(per_model_metrics.BATCH_CONDITION.name, label_pairs((*labels, *_condition_labels(condition))), 1)
        for condition in (conditions if isinstance(conditions, list) else ())
        if isinstance(condition, dict)
    ]


def _condition_labels(condition: Mapping[str, Any]) -> ExtraLabels:
    return tuple((name, str(condition.get(name))) for name in ("type", "status", "reason"))


def _mapping(value: Any) -> Mapping[str, Any]:  # any JSON value
    return value if isinstance(value, dict) else {}


def _gpu_samples(facts: ModelFacts) -> Samples:
    if facts.held is not None:
        yield per_model_metrics.GPUS, (), facts.held
    if facts.spent is not None:
        for state in GPU_STATES:
            yield per_model_metrics.GPU_SECONDS, (("state", state),), getattr(facts.spent, state)
        yield per_model_metrics.INFERENCES, (), facts.spent.inferences
    if facts.per_hour is not None:
        yield per_model_metrics.COST, (), facts.per_hour


def _spec_samples(spec: Spec, resource: Object) -> Samples:
    # The spec in force doesn't keep spec.replicas.
    count = int((resource.get("spec") or {}).get("replicas", 1))
    yield per_model_metrics.SPEC_REPLICAS, (), defaults.bounded_replicas(spec.model_copy(update={"replicas": count}))
    if spec.scaling is None:
        return
    yield per_model_metrics.MIN, (), spec.scaling.min_replicas
    yield per_model_metrics.MAX, (), spec.scaling.max_replicas
    targets = defaults.targets(spec)
    yield per_model_metrics.QUEUE_TARGET, (), targets.queue_depth
    if (objective_s := defaults.objective_s(spec)) is not None:
        yield per_model_metrics.LATENCY_TARGET, (), objective_s
    if targets.gpu_utilization is not None:
        yield per_model_metrics.GPU_TARGET, (), targets.gpu_utilization / 100


def _scaling_samples(scaled: ModelState, published: Mapping[str, Any]) -> Samples:
    for direction, count in (("up", scaled.raised), ("down", scaled.lowered)):
        yield per_model_metrics.CHANGES, (("direction", direction),), count
    decision = scaled.decision
    if decision is None:
        return
    # If an HPA decides, only the status has its replicas and limits. While scaling is disabled, only the status has the minimum.
    is_by_hpa = decision.desired is None or "off" in decision.limited_by
    if (desired := published.get("desired") if is_by_hpa else decision.desired) is not None:
        yield per_model_metrics.DESIRED, (), desired
    for part in {part.name: part for part in decision.parts}.values():
        yield per_model_metrics.PART, (("part", part.name),), part.replicas
    for limit in dict.fromkeys(published.get("limitedBy") or () if is_by_hpa else decision.limited_by):
        yield per_model_metrics.LIMITED, (("limit", limit),), 1
    if decision.capacity is not None and decision.capacity.rps is not None:
        yield per_model_metrics.CAPACITY, (("source", decision.capacity.name),), decision.capacity.rps
    if decision.capacity is not None and (sustained := decision.capacity.sustained_rps) is not None:
        yield per_model_metrics.SUSTAINED, (), sustained
    if decision.capacity is not None and (line := decision.capacity.line) is not None:
        yield per_model_metrics.SERVICE_TIME, (("part", "constant"),), line.t0_s
        yield per_model_metrics.SERVICE_TIME, (("part", "row"),), line.row_s
    for signal in decision.signals:
        yield from _signal_samples(signal)


def _signal_samples(signal: Signal) -> Samples:
    name = ("signal", signal.name)
    yield per_model_metrics.SIGNAL_MISSING, (name,), float(bool(signal.missing))
    if signal.value is None:
        return
    if signal.at is not None:
        yield per_model_metrics.SIGNAL_TIME, (name, ("source", signal.source)), signal.at
    if signal.name == "requestRate":
        yield per_model_metrics.REQUEST_RATE, (), signal.value
    elif signal.name == "queueDepth" and signal.shown is not None:
        yield per_model_metrics.QUEUE, (), signal.shown
    elif signal.name == "gpuUtilization" and signal.shown is not None:
        yield per_model_metrics.GPU_UTILIZATION, (), signal.shown / 100
