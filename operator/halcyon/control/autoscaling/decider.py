"""One model's decision, by its policy, with what is remembered from one to the next.

    policy     actuator   batches seen   decided by
    Planner    any        yes            the planner
    Planner    any        no             the HPA's rules: what one replica can do is not known yet
    Rules      Direct     -              the HPA's rules
    Rules      HPA        -              nobody here: the HPA itself

A planner that knows less than a day of its model's past asks the site's Prometheus for it, where there is one; it decides without
waiting.

Not here: when to decide and what becomes of it (`scaler`), how (`scaling.planner`, `scaling.direct`).
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, MutableMapping
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
"""Source of signals that the operator has read from the servers itself, where there are no agents."""


@dataclass(frozen=True)
class _Ruled:
    """The last decision by the HPA's rules: they are asked at the HPA's pace."""

    at: float
    """Monotonic."""
    verdict: Decision
    written: HpaMemory
    unwritten: HpaMemory

    def is_good(self, now: float, current: int) -> bool:
        """Whether it still stands: it is not old, knew all it needed, and nobody else has written the count."""
        if now - self.at >= algorithm.SYNC_S or self.verdict.unknown:
            return False
        return current in {self.verdict.current, self.verdict.desired}


@dataclass(frozen=True, slots=True)
class _Aimed:
    """The objectives of a model, and what they were made of."""

    spec: Spec
    opened: InForce | None
    batches: Mapping[int, tuple[int, float]] | None
    largest: int | None
    aims: Objectives


@dataclass(slots=True)
class _Model:
    """What is remembered of one model."""

    memory: PlannerMemory | None = None
    """None where nobody plans for it."""
    rows: float = 1.0
    """Mean rows of a request, as they were read last."""
    aimed: _Aimed | None = None
    opened: tuple[Spec, InForce] | None = None
    """Its schedules, as they were looked at last."""
    ruled: _Ruled | None = None


@dataclass
class Decider:
    """Decides, and remembers."""

    sensing: ModelSignals
    kept: MutableMapping[Key, Saved] = field(default_factory=dict)
    """What an earlier process has learnt, of models that were not planned for here yet."""
    histories: HistoryBackfill | None = None
    """None where the site has no Prometheus."""

    _models: dict[Key, _Model] = field(default_factory=dict)
    _epoch: WallClock = field(init=False)
    """What the planner's memories have their times by."""

    def __post_init__(self) -> None:
        """Nothing is remembered yet."""
        self._epoch = self.sensing.epoch

    def decide(self, key: Key, spec: Spec, actuator: Actuator, now: float) -> Decision:
        """The decision for a model that has `scaling`; `now` is monotonic."""
        model = self._models.get(key)
        if model is None:
            model = self._models[key] = _Model()
        made = self._decided(key, model, spec, actuator, now)
        if not routing_mode.is_direct(spec):
            return made
        told = (replace(s, source=SCRAPE) if s.source == Signal("").source else s for s in made.signals)
        return replace(made, signals=tuple(told))

    def _decided(self, key: Key, model: _Model, spec: Spec, actuator: Actuator, now: float) -> Decision:
        if defaults.policy(spec) == "Planner":
            return self._planned(key, model, spec, now)
        model.memory = None
        if actuator is Actuator.DIRECT:
            return self._by_rules(key, model, spec, now)
        return self._left_to_the_hpa(key, spec, now)

    def not_written(self, key: Key) -> None:
        """The last decision could not be written: the rules forget that they have made it."""
        model = self._models.get(key)
        if model is not None and model.ruled is not None:
            model.ruled = replace(model.ruled, at=-math.inf, written=model.ruled.unwritten)

    def memory(self, key: Key) -> PlannerMemory | None:
        """What the planner remembers; None where nobody plans for it."""
        model = self._models.get(key)
        return None if model is None else model.memory

    def history(self, key: Key) -> History | None:
        """The model's past as the planner knows it; None where nobody plans for it."""
        memory = self.memory(key)
        return None if memory is None else memory.history

    def known(self, key: Key, spec: Spec) -> Known | None:
        """What the planner has learnt of a model; None where nobody plans for it, or what a replica can do isn't known yet."""
        model = self._models.get(key)
        if model is None or (memory := model.memory) is None or model.aimed is None:
            return None
        if (line := memory.capacity.line) is None:
            return None
        aims = objectives(spec, largest_seen=model.aimed.largest)
        replica = replica_of(aims, line, model.rows)
        return Known(aims, replica, memory.arrivals.spread.value, memory.margin.value)

    def learn(self, key: Key, history: History) -> None:
        """A model's past, in place of that which the planner knows; whatever else it has learnt stays."""
        model = self._models[key]
        if model.memory is not None:
            model.memory = model.memory.having(history=history)

    def forget(self, key: Key) -> None:
        """The model is gone, or nobody decides for it any more."""
        self._models.pop(key, None)
        self.kept.pop(key, None)
        if self.histories is not None:
            self.histories.forget(key)

    def _planned(self, key: Key, model: _Model, spec: Spec, now: float) -> Decision:
        if self._epoch is not self.sensing.epoch:
            self._follow_clock()
        at = self._epoch.at(now)
        sensed = self.sensing.for_planner(key, spec)
        if sensed is None:
            current = self.sensing.caches.replicas(key)
            why = "no balancer's agent has spoken yet"
            said = f"{decisions.counted(current)}: {why}; the count stays"
            return Decision(at, "Planner", current, current, said, ("unknown",), unknown=why, heard=False)
        gathered, read = sensed.gathered, sensed.gathered.reading
        aims = _aims(model, spec, _open(model, spec, at), read.batches)
        before = self._restored(key) if model.memory is None else model.memory
        planned = plan(at, aims, read, before)
        model.memory, model.rows = planned.memory, read.rows_per_request
        if planned.memory.capacity.line is None and read.replicas > 0 and _is_learning(planned):
            made = self._by_rules(key, model, spec, now, bounds(aims))
            if made.desired is not None:
                # The planner takes over from what they have decided: a hand-over moves nothing.
                hold = replace(planned.memory.hold, needs=((at, made.desired),), held=made.desired)
                model.memory = planned.memory.having(hold=hold)
            return replace(made, look_again_at=planned.look_again_at)
        model.ruled = None
        rate = _rate_signal(read, planned)
        planned = bounded(planned, aims, lambda others: plan(at, others, read, before))
        made = decisions.of_plan(planned, at=at, signals=(rate, *sensed.signals))
        if made.unknown and gathered.unknown:
            # The planner knows that it was told nothing; who was silent is known here.
            why = "; ".join(gathered.unknown)
            made = replace(
                made, unknown=why, said=f"{decisions.counted(planned.count)}: {why}; the last good count stays"
            )
        return made

    def _restored(self, key: Key) -> PlannerMemory:
        """What an earlier process has kept of this very model, else nothing."""
        saved, memory = self.kept.pop(key, None), PlannerMemory()
        if saved is not None and saved.uid == self.sensing.uid(key):
            restored = saved.restored()
            for problem in restored.problems:
                log.warning("a part of the planner's memory begins anew", extra={"key": str(key), "why": problem})
            memory = restored.memory
        if self.histories is not None and len(memory.history.bins) < DAY:
            self.histories.want(key)
        return memory

    def _by_rules(
        self, key: Key, model: _Model, spec: Spec, now: float, limits: tuple[int, int] | None = None
    ) -> Decision:
        """By the HPA's rules, within `limits` (those of the spec where none are given)."""
        current = self.sensing.caches.replicas(key)
        ruled = model.ruled
        if spec.scaling is None:
            raise ValueError(f"{key} has no spec.scaling, so nothing is decided")
        low, high = limits or (spec.scaling.min_replicas, spec.scaling.max_replicas)
        if ruled is not None and ruled.is_good(now, current) and low <= (ruled.verdict.desired or 0) <= high:
            return ruled.verdict
        found = self.sensing.by_rules(key, spec)
        policy = defaults.policy(spec)
        at = self.sensing.epoch.at(now)
        read, signals = found.read, found.signals
        if isinstance(read, Missing):
            said = f"{decisions.counted(current)}: {read.reason}; the count stays"
            why = read.reason
            return Decision(
                at, policy, current, current, said, ("unknown",), signals=signals, unknown=why, heard=found.heard
            )
        planned = policy == "Planner"
        decision = algorithm.desired(
            now,
            current,
            read,
            defaults.targets(spec),
            # Where they stand in for the planner, the pace is not the user's, and who is idle is not theirs to say.
            None if planned else spec.scaling.behavior,
            low=max(low, 1) if planned else low,
            high=high,
            memory=HpaMemory() if ruled is None else ruled.written,
        )
        made = decisions.of_rules(
            decision.count, decision.reasons, decision.say(), at=at, policy=policy, signals=signals
        )
        model.ruled = _Ruled(now, made, decision.memory, decision.unwritten)
        return made

    def _left_to_the_hpa(self, key: Key, spec: Spec, now: float) -> Decision:
        """What the signals ask of it, by the sum that it does itself with what it is served."""
        found = self.sensing.by_rules(key, spec)
        return decisions.of_hpa(
            self.sensing.caches.replicas(key),
            () if isinstance(found.read, Missing) else algorithm.asked(found.read, defaults.targets(spec)),
            at=self.sensing.epoch.at(now),
            signals=found.signals,
            heard=found.heard,
        )

    def _follow_clock(self) -> None:
        """The wall clock was set: what is remembered moves with it, since a step of time is no silence and no flood."""
        by_s = self.sensing.epoch.offset_s - self._epoch.offset_s
        for model in self._models.values():
            if model.memory is not None:
                model.memory = shifted(model.memory, by_s)
        self._epoch = self.sensing.epoch


def _open(model: _Model, spec: Spec, at: float) -> InForce | None:
    """The schedules that are open; None where the spec has none."""
    if spec.scaling is None or not spec.scaling.schedules:
        return None
    held = model.opened
    if held is None or held[0] is not spec or not held[1].holds(at):
        held = model.opened = (spec, in_force(schedules(spec), at))
    return held[1]


def _aims(
    model: _Model, spec: Spec, opened: InForce | None, batches: Mapping[int, tuple[int, float]] | None
) -> Objectives:
    """The objectives in force; they are the same as long as what they are made of is."""
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
        return Signal("requestRate", missing="it is known from the second reading on")
    # The rate's own term is the first.
    return Signal("requestRate", rate, None, planned.terms[0].replicas if planned.terms else None, read.at)
