"""The one decision loop, for all models: who is due, what is served and shown, and whose count is to be written.

A model is decided on when its agents have said something new, at most once a second unless it confirms growth; and without that, when the last
decision wanted to look again. The standby decides too, in the shadow, and writes nothing: its memory is warm when it leads.

Not here: how it is decided (`deciding`), what is known (`sensing`), how /scale is written (`scale_writer`), what becomes of it in
the status (`control.scaling_status`).
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from prometheus_client import CollectorRegistry

from halcyon.api import defaults
from halcyon.api.spec import Spec
from halcyon.control.caches import Caches
from halcyon.control.ceilings import Ceilings
from halcyon.control.client import Kube
from halcyon.control.deciding import Deciding
from halcyon.control.decision_times import DecisionTimes
from halcyon.control.kinds import Key
from halcyon.control.plan import Actuator, Plan
from halcyon.control.queue import Priority
from halcyon.control.rivals import Rivals
from halcyon.control.scale_writer import ScaleWriter
from halcyon.control.scaled import Scaled, Shown
from halcyon.control.sensing import Sensing
from halcyon.control.site_budget import SiteBudget
from halcyon.control.tracing import OFF, Tracer
from halcyon.control.view import Scaling, Signals
from halcyon.scaling import rules, verdict
from halcyon.scaling.observations import FRESH_S, Missing, Value
from halcyon.scaling.planner.result import PlannerMemory
from halcyon.scaling.verdict import Change, Verdict

log = logging.getLogger(__name__)

TICK_S = 0.1
SPACING_S = 0.9
"""Least time between two decisions for one model: agents speak once a second, and out of turn where a load surges."""
REST_S = 4.5
"""The longest time between two, so that none is older than 5 s; agents speak about as often."""
SLICE_S = 0.02
"""Deciding for many lets others have their turn after this long."""
SHOWN_EVERY_S = 10.0
"""What has moved without a change of the count is shown no more often than this,"""
SHOWN_EVERY_LATE_S = 30.0
"""and than this where statuses are late: in a large fleet most of them would tell of nothing but values."""
SETTLED_S = 15.0
"""A process that is younger may not have heard its agents yet: that it knows nothing is no news."""


@dataclass
class Scaler:
    """Decides for every model with `scaling`; writes /scale while it leads."""

    client: Kube
    caches: Caches
    sensing: Sensing
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
    budget: SiteBudget | None = None
    """The site's GPUs; None: no limit but quotas and nodes."""
    tracer: Tracer = OFF

    ceilings: Ceilings = field(init=False)
    deciding: Deciding = field(init=False)
    times: DecisionTimes = field(init=False)
    """What decisions cost, and how old they are."""
    rivals: Rivals = field(default_factory=Rivals)
    decisions: int = 0
    """Decisions made since the start."""

    _models: dict[Key, Scaled] = field(default_factory=dict)
    """Models that are decided for."""
    _batches_shown: dict[Key, float | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Nothing was decided yet."""
        self.deciding = Deciding(self.sensing)
        self.ceilings = Ceilings(self.caches, self.spec_of, self.clock, self.budget)
        self._began = self.clock()
        self._writer = ScaleWriter(
            self.client,
            self.caches,
            self.spec_of,
            self.leads,
            self.clock,
            wrote=lambda model, count: self.rivals.wrote(model.key, count),
            failed=self._not_written,
            again=self._soon,
            ended=self._told_late,
            tracer=self.tracer,
        )
        in_force = self._models.values
        self.times = DecisionTimes(lambda: (self.clock() - m.decided for m in in_force() if m.verdict), self.registry)

    # What others ask for

    async def reading(self, namespace: str, name: str) -> rules.RulesReading | Missing:
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
        found = self.sensing.facts(key)
        return None if found is None else replace(found, mean_batch=self._batches_shown.get(key))

    def shown(self, key: Key) -> Scaling:
        """What a reconcile is told of a model's scaling: as it was when it was news, so that the status rests."""
        model = self._models.get(key) or Scaled(key, math.inf)
        # Who has just begun to lead tells what it has decided in the shadow, and what the leader before it has told.
        made = model.verdict if model.shown is None else model.shown.verdict
        changes = model.changes if model.shown is not None else self._changes_told(key)
        is_young = self.clock() - self._began < SETTLED_S
        return Scaling(
            verdict=made,
            changes=tuple(changes),
            rival=model.rival,
            settling=is_young and (made is None or bool(made.unknown)),
        )

    def scaled(self, key: Key) -> Scaled | None:
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

    def planned(self, key: Key, plan: Plan) -> None:
        """Told by each reconcile: what writes this model's count."""
        model = self._models.get(key)
        if plan.actuator is Actuator.NONE:
            if model is not None:
                self.forget(key)
            return
        if model is None:
            model = self._models[key] = Scaled(key, self.clock())
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
        self._batches_shown.pop(key, None)

    # The loop

    async def run(self) -> None:
        """Decide until cancelled."""
        checked = batches = -math.inf
        settled = False
        try:
            while True:
                await asyncio.sleep(TICK_S)
                now = self.clock()
                if not settled and now - self._began >= SETTLED_S:
                    settled = True
                    self._tell_of_silence()
                if now - checked >= 1.0:
                    checked = now
                    self.sensing.check_clocks()
                    self._share(now)
                    if not self.leads():
                        self._follow()
                if now - batches >= self._shown_every_s:
                    batches = now
                    await self._show_batches()
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

    def _decide(self, model: Scaled) -> None:
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
        # A decision that wants to look soon has something under way; else what changes is heard.
        soon = made.look_again_at - self.sensing.epoch.at(now)
        model.due = now + (max(soon, SPACING_S) if soon < SPACING_S * 2 else REST_S)
        model.verdict, model.decided = made, now
        if spec.scaling.mode != "Active" or made.desired is None:
            model.rival = ""
        elif not self.caches.is_behind(key):  # else the count may be from before our own write
            writer = str(resource["metadata"].get("replicasWriter") or "")
            model.rival = self.rivals.look(key, made.current, made.desired, writer, now)
        if (memory := self.deciding.memory(key)) is not None:
            self.keep(key, str(resource["metadata"].get("uid", "")), memory)
        if self.leads():
            self._tell(model, made, now)
            self._act(model, made)
            if model.writing is None:
                self._told_late(model)

    def _act(self, model: Scaled, made: Verdict) -> None:
        if made.desired == made.current or self._writer.wanted(model) is None or model.writing is not None:
            return  # the first says nearly always what the second would, and costs nothing
        if self.caches.is_behind(model.key):
            model.due = self.clock() + TICK_S  # the count may be another already
            return
        self._writer.begin(model)

    def _not_written(self, model: Scaled) -> None:
        self.deciding.not_written(model.key)
        self._soon(model)

    def _soon(self, model: Scaled) -> None:
        model.due = self.clock() + SPACING_S

    # What is told

    def _tell(self, model: Scaled, made: Verdict, now: float) -> None:
        """Remember a change, and have the status written where it says something new: before the count, if that is to wait for it."""
        if model.shown is None:
            model.changes.extend(self._changes_told(model.key))
            before = self.caches.desired_told(model.key)
        elif made.desired is None and model.shown.verdict.desired is not None:
            before = None  # from now on it is the HPA's: what it hasn't followed yet was no change of its own
        else:
            before = model.asked(model.shown.verdict)
        asked = model.asked(made)
        before = made.current if before is None else before
        # Where the count is only held, nothing was decided.
        if asked is not None and asked != before and not (made.unknown and made.desired is not None):
            why = made.why if made.desired is not None else f"{verdict.counted(asked)}: {made.why or 'by the HPA'}"
            model.changes.appendleft(Change(made.at, before, asked, why))
            model.raised += asked > before
            model.lowered += asked < before
            with self.tracer.span(
                "decide",
                k8s__namespace__name=model.key.namespace,
                halcyon__model=model.key.name,
                halcyon__before=before,
                halcyon__desired=asked,
                halcyon__policy=made.policy,
                halcyon__limited_by=", ".join(made.limited_by),
                halcyon__why=why,
            ):
                pass  # it was made before; how long that took is a metric
        if model.is_news(made, model.rival, now, self._shown_every_s):
            model.shown = Shown(now, made, model.rival)
            if self._writer.goes_first(model):
                model.untold = True  # until the count is written
            else:
                self.enqueue(model.key, Priority.CHANGE if self._writer.wanted(model) is None else Priority.COUNT)

    @property
    def _shown_every_s(self) -> float:
        return SHOWN_EVERY_LATE_S if self._writer.statuses_are_late else SHOWN_EVERY_S

    def _told_late(self, model: Scaled) -> None:
        """No count is being written any more that was to go before its status: the status has its turn."""
        if model.untold:
            model.untold = False
            self.enqueue(model.key, Priority.CHANGE)

    def _changes_told(self, key: Key) -> list[Change]:
        status = (self.caches.resources.get(key) or {}).get("status") or {}
        return verdict.changes_from((status.get("scaling") or {}).get("decisions"))

    def _tell_of_silence(self) -> None:
        """From now on it is news which models nothing was heard of."""
        for model in self._models.values():
            if model.verdict is not None and model.verdict.unknown and self.leads():
                self.enqueue(model.key, Priority.CHANGE)

    async def _show_batches(self) -> None:
        """Have the status of models written whose mean batch has moved."""
        began = self.clock()
        for namespace, name in self.sensing.hub.models():
            if self.clock() - began > SLICE_S:
                await asyncio.sleep(0)
                began = self.clock()
            if not self.leads():
                return
            key = Key(namespace, name)
            if self.caches.resources.get(key) is None:
                continue  # it was deleted, and its balancers are about to end
            now = self.sensing.mean_batch(key)
            if verdict.has_moved(self._batches_shown.get(key), now):
                self._batches_shown[key] = now
                self.enqueue(key, Priority.CHANGE)

    def _follow(self) -> None:
        """A standby reconciles nothing, so it takes from the caches which models are scaled.

        Not by what: when it leads, it writes no count before a reconcile has told it (`planned`).
        """
        for key, _ in self._scaled():
            if key not in self._models:
                self._models[key] = Scaled(key, self.clock())

    def _scaled(self) -> Iterable[tuple[Key, Spec]]:
        """Every model with scaling, and its spec in force."""
        for key in self.caches.resources.keys():  # noqa: SIM118  # an informer is no dict
            spec = self.spec_of(key)
            if spec is not None and spec.scaling is not None:
                yield key, spec
