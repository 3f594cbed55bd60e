"""The one decision loop, for all models: who is due, what is served and shown, and whose count is to be written.

A model is decided on when its agents have said something new, at most once a second unless it confirms growth; and without that, when the last
decision wanted to look again. The standby decides too, in the shadow, and writes nothing: its memory is warm when it leads.

Not here: how it is decided (`deciding`), what is known (`sensing`), how /scale is written (`scale_writer`), what of it is told
(`telling`) and what becomes of that in the status (`scaling_status`).
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
from halcyon.scaling.observations import FRESH_S, Missing, Value
from halcyon.scaling.planner.outputs import PlannerMemory
from halcyon.scaling.policy.decision import REST_S, SPACING_S, Decision

log = logging.getLogger(__name__)

TICK_S = 0.1
SLICE_S = 0.02
"""Deciding for many lets others have their turn after this long."""


@dataclass
class Autoscaler:
    """Decides for every model with `scaling`; writes /scale while it leads."""

    client: Kube
    caches: ClusterState
    sensing: ModelSignals
    spec_of: Callable[[Key], Spec | None]
    """The spec in force."""
    enqueue: Callable[[Key, Priority], None]
    leads: Callable[[], bool]
    """Whether this replica leads."""
    led: Callable[[], bool]
    """Whether anybody does."""
    clock: Callable[[], float]
    """Monotonic, in seconds."""
    keep: Callable[[Key, str, PlannerMemory], None] = field(default=lambda *_: None)
    """Given key, uid and what was learnt with every decision, to be kept for the process after this one."""
    registry: CollectorRegistry = field(default_factory=CollectorRegistry)
    budget: GpuBudget | None = None
    """The site's GPUs; None: no limit but quotas and nodes."""
    tracer: Tracer = OFF

    ceilings: ReplicaLimits = field(init=False)
    deciding: Decider = field(init=False)
    times: DecisionMetrics = field(init=False)
    """What decisions cost, and how old they are."""
    rivals: ExternalWriters = field(default_factory=ExternalWriters)
    decisions: int = 0
    """Decisions made since the start."""

    _models: dict[Key, ModelState] = field(default_factory=dict)
    """Models that are decided for."""

    def __post_init__(self) -> None:
        """Nothing was decided yet."""
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

    # What others ask for

    async def reading(self, namespace: str, name: str) -> metrics.RulesReading | Missing:
        """What the metrics API serves for the policy Rules."""
        key = Key(namespace, name)
        return self.sensing.by_rules(key, self.spec_of(key)).read

    async def desired(self, namespace: str, name: str) -> Value | Missing:
        """What the metrics API serves for the policy Planner: the count to have now.

        The standby's own decisions may differ by one from the leader's, and an HPA that asks now the one, now the other would
        turn the count around: while there is a leader, it answers with what that has written into the status, or with the
        count that it has raised since.
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
        if age > FRESH_S:
            return Missing(f"the last decision is {age:.0f} s old; the limit is {FRESH_S:.0f} s")
        if model.verdict.unknown:
            return Missing(model.verdict.unknown)
        if not self.leads() and self.led():
            told = self.caches.desired_told(key)
            if told is None:
                return Missing("the leader has decided nothing yet")
            return Value(float(max(told, self.caches.count_ahead(key))), now)
        return Value(float(model.verdict.desired), now)

    def facts(self, key: Key) -> Signals | None:
        """What a reconcile is told of a model beside its scaling; the mean batch as it was when it was news."""
        return self._telling.facts(key)

    def shown(self, key: Key) -> PublishedScaling:
        """What a reconcile is told of a model's scaling: as it was when it was news, so that the status rests."""
        return self._telling.shown(self._models.get(key) or ModelState(key, math.inf))

    def scaled(self, key: Key) -> ModelState | None:
        """What /metrics is told of a model; None where nobody decides for it."""
        return self._models.get(key)

    def unheard(self) -> list[Key]:
        """Models with scaling, and with balancers, whose metrics this replica can't serve yet."""
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

    # What others tell

    def heard(self, key: Key, *, confirms: bool = False) -> None:
        """One of its agents has spoken; `confirms`: right after it had spoken before."""
        if (model := self._models.get(key)) is not None:
            model.heard = True
            model.confirmed |= confirms

    def planned(self, key: Key, plan: ReconcilePlan) -> None:
        """Told by each reconcile: what writes this model's count."""
        model = self._models.get(key)
        if plan.actuator is Actuator.NONE:
            if model is not None:
                self.forget(key)
            return
        if model is None:
            model = self._models[key] = ModelState(key, self.clock())
        if model.actuator is Actuator.NONE:
            model.due = max(self.clock(), model.tried + SPACING_S)
        model.actuator = plan.actuator

    def forget(self, key: Key) -> None:
        """Nobody decides for it any more."""
        model = self._models.pop(key, None)
        if model is not None and model.verdict is not None:
            self.times.ended(self.clock() - model.decided)
        self.deciding.forget(key)
        self.ceilings.forget(key)
        self.rivals.forget(key)

    def gone(self, key: Key) -> None:
        """The model is gone."""
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
        """Whoever the site's budget leaves more than before is decided for at once."""
        if self.ceilings.budget is None:
            return
        deciding = {m.key for m in self._models.values() if m.verdict is not None and m.verdict.desired is not None}
        for key in self.ceilings.share(deciding):
            if (model := self._models.get(key)) is not None:
                model.due = now

    async def _round(self) -> None:
        """Everybody who is due, oldest decision first."""
        began = self.clock()
        due = [m for m in self._models.values() if m.due <= began or (m.heard and m.may_be_decided(began, SPACING_S))]
        for model in sorted(due, key=lambda model: model.decided):
            model.heard = model.confirmed = False
            model.tried = self.clock()
            try:
                self._decide(model)
            except Exception:
                # One model's surprise is not the others' standstill. Its count holds: what it has decided grows stale.
                log.exception("cannot decide", extra={"key": str(model.key)})
                model.due = self.clock() + REST_S
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
            self.gone(key)  # nobody else tells a standby
            return
        if spec is None or spec.scaling is None:
            model.due = now + REST_S
            return
        made = self.ceilings.over(key, spec, self.deciding.decide(key, spec, model.actuator, now))
        self.decisions += 1
        if model.verdict is not None:
            self.times.ended(now - model.decided)
        model.due = now + made.next_look_s
        model.verdict, model.decided = made, now
        if spec.scaling.mode != "Active" or made.desired is None:
            model.rival = ""
            self.rivals.rest(key)
        elif not self.caches.is_behind(key):  # else the count may be from before our own write
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
            return  # the first says nearly always what the second would, and costs nothing
        if self.caches.is_behind(model.key):
            model.due = self.clock() + TICK_S  # the count may be another already
            return
        self._writer.begin(model)

    def _not_written(self, model: ModelState) -> None:
        self.deciding.not_written(model.key)
        self._soon(model)

    def _not_waiting(self, model: ModelState) -> None:
        self._telling.not_waiting(model)

    def _soon(self, model: ModelState) -> None:
        model.due = self.clock() + SPACING_S

    def _follow(self) -> None:
        """A standby reconciles nothing, so it takes from the caches which models are scaled.

        Not by what: when it leads, it writes no count before a reconcile has told it (`planned`).
        """
        for key, _ in self._scaled():
            if key not in self._models:
                self._models[key] = ModelState(key, self.clock())

    def _scaled(self) -> Iterable[tuple[Key, Spec]]:
        """Every model with scaling, and its spec in force."""
        for key in self.caches.resources.keys():  # noqa: SIM118  # an informer is no dict
            spec = self.spec_of(key)
            if spec is not None and spec.scaling is not None:
                yield key, spec
