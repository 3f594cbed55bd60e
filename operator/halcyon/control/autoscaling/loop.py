"""The one decision loop for all models: which are due now, what is served and published, and whose replicas are written.

A model is decided when its agents send a new report, at most once a second unless the report confirms growth. Without a
report it is decided again at the time that its last decision set. The standby decides too but writes nothing, so its memory is
warm when it becomes the leader.

Out of scope: how a decision is made (`decider`), its inputs (`model_signals`), the write to /scale (`scale_writer`), which
decisions are published (`status_updates`) and how the status shows them (`control.status.scaling`).
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from prometheus_client import CollectorRegistry

from halcyon.api.spec import Spec, defaults
from halcyon.control.autoscaling.decider import Decider
from halcyon.control.autoscaling.decision_metrics import DecisionMetrics
from halcyon.control.autoscaling.external_writers import ExternalWriters
from halcyon.control.autoscaling.gpu_budget import GpuBudget
from halcyon.control.autoscaling.model_signals import ModelSignals
from halcyon.control.autoscaling.model_state import ModelState
from halcyon.control.autoscaling.replica_limits import ReplicaLimits
from halcyon.control.autoscaling.scale_writer import ScaleWriter
from halcyon.control.autoscaling.status_updates import StatusUpdates
from halcyon.control.desired.plan import ReconcilePlan
from halcyon.control.objects.actuator import Actuator
from halcyon.control.state.cluster_state import ClusterState
from halcyon.control.state.scope import PublishedScaling, Signals
from halcyon.kube.client import Kube
from halcyon.kube.kinds import Key
from halcyon.kube.tracing import OFF, Tracer
from halcyon.kube.work_queue import Priority
from halcyon.scaling.hpa import metrics
from halcyon.scaling.observations import MAX_AGE_S, Missing, Value
from halcyon.scaling.planner.outputs import PlannerMemory
from halcyon.scaling.policy.decision import MAX_DECISION_INTERVAL_S, MIN_DECISION_INTERVAL_S, Decision

log = logging.getLogger(__name__)

TICK_S = 0.1
SLICE_S = 0.02
"""Time after which a round of decisions yields to other tasks."""


@dataclass
class Autoscaler:
    """The autoscaler: decides for every model with `scaling`, and writes /scale while this replica leads."""

    client: Kube
    caches: ClusterState
    sensing: ModelSignals
    spec_of: Callable[[Key], Spec | None]
    """The spec in force."""
    enqueue: Callable[[Key, Priority], None]
    leads: Callable[[], bool]
    """Whether this replica leads."""
    led: Callable[[], bool]
    """Whether any replica leads."""
    clock: Callable[[], float]
    """Monotonic, in seconds."""
    keep: Callable[[Key, str, PlannerMemory], None] = field(default=lambda *_: None)
    """Receives key, uid and planner memory with every decision, to be kept for the next process."""
    registry: CollectorRegistry = field(default_factory=CollectorRegistry)
    budget: GpuBudget | None = None
    """The site's GPU budget; None: no limit but quotas and nodes."""
    tracer: Tracer = OFF

    ceilings: ReplicaLimits = field(init=False)
    deciding: Decider = field(init=False)
    times: DecisionMetrics = field(init=False)
    """Duration and age of decisions."""
    rivals: ExternalWriters = field(default_factory=ExternalWriters)
    decisions: int = 0
    """Decisions made since the start."""

    _models: dict[Key, ModelState] = field(default_factory=dict)
    """State of the autoscaled models."""

    def __post_init__(self) -> None:
        """Create the decider, the limits, the writer and the metrics."""
        self.deciding = Decider(self.sensing)
        self.ceilings = ReplicaLimits(self.caches, self.spec_of, self.clock, self.budget)
        self._writer = ScaleWriter(
            self.client,
            self.caches,
            self.spec_of,
            self.leads,
            self.clock,
            wrote=lambda model, count: self.rivals.wrote(model.key, count),
            failed=self._not_written,
            again=self._soon,
            ended=self._not_waiting,
            tracer=self.tracer,
        )
        self._telling = StatusUpdates(
            self.caches, self.sensing, self._writer, self.enqueue, self.leads, self.clock, self.tracer
        )
        in_force = self._models.values
        self.times = DecisionMetrics(lambda: (self.clock() - m.decided for m in in_force() if m.verdict), self.registry)

    # Requested by other components

    async def reading(self, namespace: str, name: str) -> metrics.RulesReading | Missing:
        """Return what the metrics API serves for the policy Rules."""
        key = Key(namespace, name)
        return self.sensing.by_rules(key, self.spec_of(key)).read

    async def desired(self, namespace: str, name: str) -> Value | Missing:
        """Return what the metrics API serves for the policy Planner: the desired replicas.

        The standby's own decisions may differ by one from the leader's, and an HPA that polls both in turn would make replicas
        flap. While there is a leader, the standby therefore returns what the leader has written into the status, or the higher
        replicas that it has written since.
        """
        key = Key(namespace, name)
        spec, now = self.spec_of(key), self.clock()
        if spec is None or spec.scaling is None or defaults.policy(spec) != "Planner":
            return Missing(f"ModelDeployment {key} is not scaled by the policy Planner")
        model = self._models.get(key)
        if spec.scaling.mode != "Active" or (model is not None and model.rival):
            return Value(self.caches.replicas(key), now)
        if model is None or model.verdict is None or model.verdict.desired is None:
            return Missing("nothing was decided yet")
        age = now - model.decided
        if age > MAX_AGE_S:
            return Missing(f"the last decision is {age:.0f} s old; the limit is {MAX_AGE_S:.0f} s")
        if model.verdict.unknown:
            return Missing(model.verdict.unknown)
        if not self.leads() and self.led():
            told = self.caches.desired_told(key)
            if told is None:
                return Missing("the leader has decided nothing yet")
            return Value(float(max(told, self.caches.count_ahead(key))), now)
        return Value(float(model.verdict.desired), now)

    def facts(self, key: Key) -> Signals | None:
        """Return what a reconcile needs of a model besides its scaling; the mean batch as last published."""
        return self._telling.facts(key)

    def shown(self, key: Key) -> PublishedScaling:
        """Return a model's scaling for a reconcile, as last published, so that the status stays unchanged in between."""
        return self._telling.shown(self._models.get(key) or ModelState(key, math.inf))

    def scaled(self, key: Key) -> ModelState | None:
        """Return a model's state for /metrics; None if it is not autoscaled."""
        return self._models.get(key)

    def unheard(self) -> list[Key]:
        """Return the models with scaling whose metrics this replica can't serve yet."""
        found = []
        for key, spec in self._scaled():
            if defaults.policy(spec) == "Planner":
                model = self._models.get(key)
                if model is None or model.verdict is None or model.verdict.unknown:
                    found.append(key)
            elif isinstance(read := self.sensing.by_rules(key, spec).read, Missing) or Missing in {
                type(read.queue_depth),
                type(read.gpu_utilization),
            }:
                found.append(key)
        return found

    # Reported by other components

    def heard(self, key: Key, *, confirms: bool = False) -> None:
        """Note that an agent of the model has reported; `confirms`: the report confirms growth in the one right before it."""
        if (model := self._models.get(key)) is not None:
            model.heard = True
            model.confirmed |= confirms

    def planned(self, key: Key, plan: ReconcilePlan) -> None:
        """Take over what writes this model's replicas; called by each reconcile."""
        model = self._models.get(key)
        if plan.actuator is Actuator.NONE:
            if model is not None:
                self.forget(key)
            return
        if model is None:
            model = self._models[key] = ModelState(key, self.clock())
        if model.actuator is Actuator.NONE:
            model.due = max(self.clock(), model.tried + MIN_DECISION_INTERVAL_S)
        model.actuator = plan.actuator

    def forget(self, key: Key) -> None:
        """Stop deciding for a model."""
        model = self._models.pop(key, None)
        if model is not None and model.verdict is not None:
            self.times.ended(self.clock() - model.decided)
        self.deciding.forget(key)
        self.ceilings.forget(key)
        self.rivals.forget(key)

    def gone(self, key: Key) -> None:
        """Drop a deleted model."""
        self.forget(key)
        self.sensing.forget(key)
        self._telling.gone(key)

    # The loop

    async def run(self) -> None:
        """Decide until cancelled."""
        checked = batches = -math.inf
        try:
            while True:
                await asyncio.sleep(TICK_S)
                now = self.clock()
                self._telling.settle(self._models.values())
                if now - checked >= 1.0:
                    checked = now
                    self.sensing.check_clocks()
                    self._share(now)
                    if not self.leads():
                        self._follow()
                if now - batches >= self._telling.every_s:
                    batches = now
                    await self._telling.show_batches(SLICE_S)
                await self._round()
        finally:
            for model in self._models.values():
                if model.writing is not None:
                    model.writing.cancel()

    def _share(self, now: float) -> None:
        """Share the site's budget, and make models that may have more of it than before due at once."""
        if self.ceilings.budget is None:
            return
        deciding = {m.key for m in self._models.values() if m.verdict is not None and m.verdict.desired is not None}
        for key in self.ceilings.share(deciding):
            if (model := self._models.get(key)) is not None:
                model.due = now

    async def _round(self) -> None:
        """Decide for every model that is due now, oldest decision first."""
        began = self.clock()
        due = [
            m
            for m in self._models.values()
            if m.due <= began or (m.heard and m.may_be_decided(began, MIN_DECISION_INTERVAL_S))
        ]
        for model in sorted(due, key=lambda model: model.decided):
            model.heard = model.confirmed = False
            model.tried = self.clock()
            try:
                self._decide(model)
            except Exception:
                # One model's failure must not stop the others. Its replicas hold, since its last decision grows stale.
                log.exception("cannot decide", extra={"key": str(model.key)})
                model.due = self.clock() + MAX_DECISION_INTERVAL_S
            ended = self.clock()
            if model.decided == model.tried:
                self.times.took(ended - model.tried)
            if ended - began > SLICE_S:
                await asyncio.sleep(0)
                began = self.clock()

    def _decide(self, model: ModelState) -> None:
        key, now = model.key, model.tried
        spec, resource = self.spec_of(key), self.caches.resources.get(key)
        if resource is None:
            self.gone(key)  # a standby isn't notified otherwise
            return
        if spec is None or spec.scaling is None:
            model.due = now + MAX_DECISION_INTERVAL_S
            return
        made = self.ceilings.over(key, spec, self.deciding.decide(key, spec, model.actuator, now))
        self.decisions += 1
        if model.verdict is not None:
            self.times.ended(now - model.decided)
        model.due = now + made.next_decision_s
        model.verdict, model.decided = made, now
        if spec.scaling.mode != "Active" or made.desired is None:
            model.rival = ""
            self.rivals.rest(key)
        elif not self.caches.is_behind(key):  # else the cached replicas may be from before our own write
            writer = str(resource["metadata"].get("replicasWriter") or "")
            model.rival = self.rivals.look(key, made.current, made.desired, writer, now)
        if (memory := self.deciding.memory(key)) is not None:
            self.keep(key, str(resource["metadata"].get("uid", "")), memory)
        if self.leads():
            self._telling.decided(model, made, now)
            self._act(model, made)
            if model.writing is None:
                self._telling.not_waiting(model)

    def _act(self, model: ModelState, made: Decision) -> None:
        if made.desired == made.current or self._writer.wanted(model) is None or model.writing is not None:
            return  # the first check nearly always decides, and costs nothing
        if self.caches.is_behind(model.key):
            model.due = self.clock() + TICK_S  # the replicas may have changed already
            return
        self._writer.begin(model)

    def _not_written(self, model: ModelState) -> None:
        self.deciding.not_written(model.key)
        self._soon(model)

    def _not_waiting(self, model: ModelState) -> None:
        self._telling.not_waiting(model)

    def _soon(self, model: ModelState) -> None:
        model.due = self.clock() + MIN_DECISION_INTERVAL_S

    def _follow(self) -> None:
        """Take the scaled models from the caches, because a standby reconciles nothing.

        The actuator stays NONE: a new leader writes no replicas before a reconcile has set it (`planned`).
        """
        for key, _ in self._scaled():
            if key not in self._models:
                self._models[key] = ModelState(key, self.clock())

    def _scaled(self) -> Iterable[tuple[Key, Spec]]:
        """Yield every model with scaling, and its spec in force."""
        for key in self.caches.resources.keys():  # noqa: SIM118  # an informer is no dict
            spec = self.spec_of(key)
            if spec is not None and spec.scaling is not None:
                yield key, spec
