"""One model's decision, made by its policy, and the memory kept from one decision to the next.

    policy     actuator   batches seen   decided by
    Planner    any        yes            the planner
    Planner    any        no             the HPA's rules: the capacity of one replica is not known yet
    Rules      Direct     -              the HPA's rules
    Rules      HPA        -              the HPA itself, outside this module

A planner that knows less than a day of its model's past requests it from the site's Prometheus, if there is one. It decides
without waiting for the answer.

Out of scope: when to decide and what follows (`loop`), the algorithms (`scaling.planner`, `scaling.hpa`).
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from halcyon.api.spec import Spec, defaults, routing_mode
from halcyon.control.autoscaling.history_backfill import HistoryBackfill
from halcyon.control.autoscaling.model_signals import ModelSignals
from halcyon.control.autoscaling.planner_memory_store import Saved
from halcyon.control.objects.actuator import Actuator
from halcyon.kube.kinds import Key
from halcyon.scaling.hpa import algorithm
from halcyon.scaling.hpa.behavior import HpaMemory
from halcyon.scaling.observations import Missing
from halcyon.scaling.planner.clock_shift import shifted
from halcyon.scaling.planner.forecast.seasonality import DAY, History
from halcyon.scaling.planner.objectives import largest, objectives, schedules, windows
from halcyon.scaling.planner.outputs import Plan, PlannerMemory
from halcyon.scaling.planner.plan import bounds, plan, replica_of
from halcyon.scaling.planner.reading import Objectives, Reading
from halcyon.scaling.planner.whatif import Known
from halcyon.scaling.policy import decision as decisions
from halcyon.scaling.policy.decision import Decision, Signal
from halcyon.scaling.policy.limits import bounded
from halcyon.scaling.schedules import InForce, in_force
from halcyon.signals.clock import WallClock

log = logging.getLogger(__name__)

SCRAPE = "scrape"
"""Source of signals that the operator has scraped from the servers itself, if there are no agents."""


@dataclass(frozen=True)
class _Ruled:
    """The last decision by the HPA's rules, which are evaluated at the HPA's pace."""

    at: float
    """Monotonic, in seconds."""
    verdict: Decision
    written: HpaMemory
    unwritten: HpaMemory

    def is_good(self, now: float, current: int) -> bool:
        """Return whether it is still valid: recent, made with all signals, and replicas weren't written by another writer."""
        if now - self.at >= algorithm.SYNC_INTERVAL_S or self.verdict.unknown:
            return False
        return current in {self.verdict.current, self.verdict.desired}


@dataclass(frozen=True, slots=True)
class _Aimed:
    """The objectives of a model, and their inputs."""

    spec: Spec
    opened: InForce | None
    batches: Mapping[int, tuple[int, float]] | None
    largest: int | None
    aims: Objectives


@dataclass(slots=True)
class _Model:
    """Memory of one model."""

    memory: PlannerMemory | None = None
    """The planner's memory; None if the model isn't planned for."""
    rows: float = 1.0
    """Mean rows of a request, as last read."""
    aimed: _Aimed | None = None
    opened: tuple[Spec, InForce] | None = None
    """Its schedules in force, as last evaluated."""
    ruled: _Ruled | None = None


@dataclass
class Decider:
    """Decisions of all models, and the memory they need."""

    signals: ModelSignals
    histories: HistoryBackfill | None = None
    """Import of past arrivals; None if the site has no Prometheus."""

    _saved: dict[Key, Saved] = field(default_factory=dict)
    """Memories saved by an earlier process, of models that this process has not planned for yet."""
    _models: dict[Key, _Model] = field(default_factory=dict)
    _epoch: WallClock = field(init=False)
    """Clock of the times in the planner's memories."""

    def __post_init__(self) -> None:
        """Take over the clock of the signals."""
        self._epoch = self.signals.epoch

    def restore(self, saved: Mapping[Key, Saved]) -> None:
        """Take over memories that an earlier process has saved, for models that this process has not planned for yet."""
        self._saved = dict(saved)

    def decide(self, key: Key, spec: Spec, actuator: Actuator, now: float) -> Decision:
        """Decide for a model that has `scaling`; `now` is monotonic."""
        model = self._models.get(key)
        if model is None:
            model = self._models[key] = _Model()
        made = self._decided(key, model, spec, actuator, now)
        if not routing_mode.is_direct(spec):
            return made
        signals = (replace(s, source=SCRAPE) if s.source == Signal("").source else s for s in made.signals)
        return replace(made, signals=tuple(signals))

    def _decided(self, key: Key, model: _Model, spec: Spec, actuator: Actuator, now: float) -> Decision:
        if defaults.policy(spec) == "Planner":
            return self._planned(key, model, spec, now)
        model.memory = None
        if actuator is Actuator.DIRECT:
            return self._by_rules(key, model, spec, now)
        return self._left_to_the_hpa(key, spec, now)

    def not_written(self, key: Key) -> None:
        """Make the rules forget their last decision, because it could not be written."""
        model = self._models.get(key)
        if model is not None and model.ruled is not None:
            model.ruled = replace(model.ruled, at=-math.inf, written=model.ruled.unwritten)

    def memory(self, key: Key) -> PlannerMemory | None:
        """Return the planner's memory; None if the model isn't planned for."""
        model = self._models.get(key)
        return None if model is None else model.memory

    def history(self, key: Key) -> History | None:
        """Return the model's past as the planner knows it; None if the model isn't planned for."""
        memory = self.memory(key)
        return None if memory is None else memory.history

    def known(self, key: Key, spec: Spec) -> Known | None:
        """Return what the planner has learnt; None if the model isn't planned for, or a replica's capacity isn't known yet."""
        model = self._models.get(key)
        if model is None or (memory := model.memory) is None or model.aimed is None:
            return None
        if (line := memory.capacity.line) is None:
            return None
        aims = objectives(spec, largest_seen=model.aimed.largest)
        replica = replica_of(aims, line, model.rows)
        return Known(aims, replica, memory.arrivals.spread.value, memory.headroom.value)

    def learn(self, key: Key, history: History) -> None:
        """Replace the past that the planner knows of a model; everything else that it has learnt stays."""
        model = self._models[key]
        if model.memory is not None:
            model.memory = model.memory.with_changes(history=history)

    def forget(self, key: Key) -> None:
        """Drop a model that was deleted or is no longer autoscaled."""
        self._models.pop(key, None)
        self._saved.pop(key, None)
        if self.histories is not None:
            self.histories.forget(key)

    def _planned(self, key: Key, model: _Model, spec: Spec, now: float) -> Decision:
        if self._epoch is not self.signals.epoch:
            self._follow_clock()
        at = self._epoch.at(now)
        sensed = self.signals.for_planner(key, spec)
        if sensed is None:
            current = self.signals.caches.replicas(key)
            why = "no balancer's agent has reported yet"
            said = f"{decisions.counted(current)}: {why}; the count stays"
            return Decision(at, "Planner", current, current, said, ("unknown",), unknown=why, has_reports=False)
        gathered, read = sensed.gathered, sensed.gathered.reading
        aims = _aims(model, spec, _open(model, spec, at), read.batches)
        before = self._restored(key) if model.memory is None else model.memory
        planned = plan(at, aims, read, before)
        model.memory, model.rows = planned.memory, read.rows_per_request
        if planned.memory.capacity.line is None and read.replicas > 0 and _is_learning(planned):
            made = self._by_rules(key, model, spec, now, bounds(aims))
            if made.desired is not None:
                # The planner continues from the rules' decision, so that the hand-over doesn't change replicas.
                hold = replace(planned.memory.hold, needs=((at, made.desired),), held=made.desired)
                model.memory = planned.memory.with_changes(hold=hold)
            return replace(made, next_decision_at=planned.next_decision_at)
        model.ruled = None
        rate = _rate_signal(read, planned)
        planned = bounded(planned, aims, lambda others: plan(at, others, read, before))
        made = decisions.of_plan(planned, at=at, signals=(rate, *sensed.signals))
        if made.unknown and gathered.unknown:
            # The planner only knows that data is missing; which agent was silent is known here.
            why = "; ".join(gathered.unknown)
            made = replace(
                made,
                unknown=why,
                text=f"{decisions.counted(planned.count)}: {why}; the last valid number of replicas is kept",
            )
        return made

    def _restored(self, key: Key) -> PlannerMemory:
        """Return the memory that an earlier process has saved of this very model, else an empty one."""
        saved, memory = self._saved.pop(key, None), PlannerMemory()
        if saved is not None and saved.uid == self.signals.uid(key):
            restored = saved.restored()
            for problem in restored.problems:
                log.warning(
                    "a part of the planner's memory could not be restored; it starts empty",
                    extra={"key": str(key), "why": problem},
                )
            memory = restored.memory
        if self.histories is not None and len(memory.history.bins) < DAY:
            self.histories.want(key)
        return memory

    def _by_rules(
        self, key: Key, model: _Model, spec: Spec, now: float, limits: tuple[int, int] | None = None
    ) -> Decision:
        """Decide by the HPA's rules, within `limits` (default: those of the spec)."""
        current = self.signals.caches.replicas(key)
        ruled = model.ruled
        if spec.scaling is None:
            raise ValueError(f"{key} has no spec.scaling, so nothing is decided")
        low, high = limits or (spec.scaling.min_replicas, spec.scaling.max_replicas)
        if ruled is not None and ruled.is_good(now, current) and low <= (ruled.verdict.desired or 0) <= high:
            return ruled.verdict
        found = self.signals.by_rules(key, spec)
        policy = defaults.policy(spec)
        at = self.signals.epoch.at(now)
        read, signals = found.read, found.signals
        if isinstance(read, Missing):
            said = f"{decisions.counted(current)}: {read.reason}; the count stays"
            why = read.reason
            return Decision(
                at,
                policy,
                current,
                current,
                said,
                ("unknown",),
                signals=signals,
                unknown=why,
                has_reports=found.has_reports,
            )
        planned = policy == "Planner"
        decision = algorithm.desired(
            now,
            current,
            read,
            defaults.targets(spec),
            # If the rules stand in for the planner, the user's pace doesn't apply, and they must not decide that a model is idle.
            None if planned else spec.scaling.behavior,
            low=max(low, 1) if planned else low,
            high=high,
            memory=HpaMemory() if ruled is None else ruled.written,
        )
        made = decisions.of_rules(
            decision.count, decision.reasons, decision.describe(), at=at, policy=policy, signals=signals
        )
        model.ruled = _Ruled(now, made, decision.memory, decision.unwritten)
        return made

    def _left_to_the_hpa(self, key: Key, spec: Spec, now: float) -> Decision:
        """Return what the signals ask of the HPA, computed as the HPA does from the metrics it is served."""
        found = self.signals.by_rules(key, spec)
        return decisions.of_hpa(
            self.signals.caches.replicas(key),
            () if isinstance(found.read, Missing) else algorithm.asked(found.read, defaults.targets(spec)),
            at=self.signals.epoch.at(now),
            signals=found.signals,
            has_reports=found.has_reports,
        )

    def _follow_clock(self) -> None:
        """Shift all memories after the wall clock was set: a step of time is neither a silence nor a burst of requests."""
        by_s = self.signals.epoch.offset_s - self._epoch.offset_s
        for model in self._models.values():
            if model.memory is not None:
                model.memory = shifted(model.memory, by_s)
        self._epoch = self.signals.epoch


def _open(model: _Model, spec: Spec, at: float) -> InForce | None:
    """Return the schedules in force; None if the spec has none."""
    if spec.scaling is None or not spec.scaling.schedules:
        return None
    held = model.opened
    if held is None or held[0] is not spec or not held[1].holds(at):
        held = model.opened = (spec, in_force(schedules(spec), at))
    return held[1]


def _aims(
    model: _Model, spec: Spec, opened: InForce | None, batches: Mapping[int, tuple[int, float]] | None
) -> Objectives:
    """Return the objectives in force; the same object as long as their inputs are the same."""
    held = model.aimed
    if held is not None and held.spec is spec and held.opened is opened and held.batches is batches:
        return held.aims
    seen = largest(batches)
    if held is not None and held.spec is spec and held.opened is opened and held.largest == seen:
        aims = held.aims
    else:
        aims = objectives(spec, largest_seen=seen, windows=windows(opened) if opened else ())
    model.aimed = _Aimed(spec, opened, batches, seen, aims)
    return aims


def _is_learning(planned: Plan) -> bool:
    return any(limit.name == "learning" for limit in planned.limits)


def _rate_signal(read: Reading, planned: Plan) -> Signal:
    rate = planned.memory.arrivals.rate()
    if rate is None:
        return Signal("requestRate", missing="it is unknown until the second reading")
    # The rate's own part is the first.
    return Signal("requestRate", rate, None, planned.parts[0].replicas if planned.parts else None, read.at)
