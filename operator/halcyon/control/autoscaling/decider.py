"""Scaling decisions for models by their policies, with the state that is kept from one decision to the next.

If the planner has less than a day of a model's history, more is requested from the site's Prometheus in the background.
Out of scope: when decisions are made and carried out (`loop`), and the algorithms (`scaling.planner`, `scaling.hpa`).
"""

# policy     actuator   batches observed   decided by
# Planner    any        yes                the planner
# Planner    any        no                 the HPA's rules, because the capacity of a replica isn't known yet
# Planner    any        partly unknown     the HPA's rules, upwards only, `PARTIAL_AFTER_S` after a balancer's last report
# Rules      Direct     -                  the HPA's rules
# Rules      HPA        -                  the HPA itself, outside this module; the HPA's rules if the mode isn't Active

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from halcyon.api.spec import Spec, defaults, routing_mode
from halcyon.api.spec.scaling import Behavior
from halcyon.control.autoscaling.history_backfill import HistoryBackfill
from halcyon.control.autoscaling.model_signals import ModelSignals, PlannerInput
from halcyon.control.autoscaling.planner_memory.entries import Saved
from halcyon.control.autoscaling.planner_memory.kept_memories import KeptMemories
from halcyon.control.objects.actuator import Actuator
from halcyon.control.state.measured_capacities import MeasuredCapacities
from halcyon.control.state.scope import Measured
from halcyon.kube.kinds import Key
from halcyon.scaling.hpa import algorithm
from halcyon.scaling.hpa.behavior import HpaMemory, carried_out
from halcyon.scaling.observations import Missing
from halcyon.scaling.planner.clock_shift import shifted
from halcyon.scaling.planner.forecast.season_models import DAY
from halcyon.scaling.planner.forecast.seasonality import History
from halcyon.scaling.planner.objectives import Serving, largest, objectives, schedules, windows
from halcyon.scaling.planner.outputs import PlannerMemory
from halcyon.scaling.planner.plan import bounds, plan, replica_of
from halcyon.scaling.planner.reading import Objectives
from halcyon.scaling.planner.whatif import Known
from halcyon.scaling.policy import decision as decisions
from halcyon.scaling.policy.decision import Decision, Signal
from halcyon.scaling.policy.limits import bounded, kept, with_bound_reasons
from halcyon.scaling.schedules import InForce, in_force
from halcyon.signals.clock import WallClock
from halcyon.signals.observation_store import EXPIRE_TIMEOUT_S

PARTIAL_AFTER_S = 30.0
"""Seconds for which a ready balancer that doesn't report prevents scaling up. After that, the load that the other
balancers report may add replicas. It never removes any, because the silent balancer may receive many requests."""

SCRAPE = "scrape"
"""Name of the signal source for models without agents, whose servers are scraped by the operator itself."""


@dataclass(frozen=True)
class _RulesDecision:
    """Last decision by the HPA's rules. It applies until the next one, one sync interval of an HPA later."""

    at: float
    """Monotonic time of the decision, in seconds."""
    decision: Decision
    memory: HpaMemory
    """Memory of the HPA's rules, without this change of the replicas, because writing the change may fail."""
    is_lost: bool = False
    """Whether writing the replicas failed."""

    def is_valid(self, now: float, current: int) -> bool:
        """Return whether the decision still applies at the time `now` with `current` replicas.

        It must be recent and based on known signals, and no other writer may have changed the replicas since.
        """
        is_recent = not self.is_lost and now - self.at < algorithm.SYNC_INTERVAL_S
        return is_recent and not self.decision.unknown and current in {self.decision.current, self.decision.desired}

    def resumed(self, current: int, behavior: Behavior | None) -> HpaMemory:
        """Return the rules' memory for the next decision, including the part of this decision that was carried out."""
        before, desired = self.decision.current, self.decision.desired
        at, desired = self.at, before if desired is None else desired
        return carried_out(self.memory, at=at, before=before, recommended=desired, current=current, behavior=behavior)


@dataclass(frozen=True, slots=True)
class _CachedObjectives:
    """Scaling objectives of a model, and the inputs from which they were computed."""

    inputs: tuple[Spec, InForce | None, Measured, Serving | None]
    batches: Mapping[int, tuple[int, float]] | None
    largest: int | None
    aims: Objectives


@dataclass(slots=True)
class _Model:
    """State of one model that is kept from one scaling decision to the next."""

    memory: PlannerMemory | None = None
    """Memory of the model's planner; None if the planner doesn't decide for the model."""
    rows: float = 1.0
    """Mean number of rows per request, from the planner's last reading."""
    objectives: _CachedObjectives | None = None
    active: tuple[Spec, InForce] | None = None
    """Schedules that were active at the last decision, and the spec that contains them."""
    rules_decision: _RulesDecision | None = None
    partial_since: float | None = None
    """Monotonic time since which the load has been unknown, in seconds; None if it is known."""
    reported: Decision | None = None
    """Last decision that was based on reports; None if no agent has reported yet."""


@dataclass
class Decider:
    """Component that makes the scaling decisions for all models, with the state that it needs."""

    signals: ModelSignals
    histories: HistoryBackfill | None = None
    """Import of past request rates from Prometheus; None if the site has no Prometheus."""

    _kept: KeptMemories = field(default_factory=KeptMemories)
    """Memories of planners that don't decide at present."""
    _is_restored: bool = False
    _models: defaultdict[Key, _Model] = field(default_factory=lambda: defaultdict(_Model))
    _epoch: WallClock = field(init=False)
    """Clock to which the times in the planners' memories refer."""

    def __post_init__(self) -> None:
        """Use the clock of `signals`, and subscribe to deletions of models in its caches."""
        self._epoch = self.signals.epoch
        self._measured = MeasuredCapacities(self.signals.caches)
        self.signals.caches.resources.listeners.append(lambda key, _, after: None if after else self.forget(key))

    def restore(self, saved: Mapping[Key, Saved]) -> None:
        """Adopt the planner memories of an earlier process, also for planners that started before this call."""
        for key, entry in () if self._is_restored else saved.items():
            if key in self._models and entry.uid == self.signals.uid(key):
                self._models[key].memory = None
        self._is_restored = True
        self._kept.restore(saved)

    def decide(self, key: Key, spec: Spec, actuator: Actuator, now: float) -> Decision:
        """Return a new decision for a model whose spec has `scaling`; `now` is monotonic, in seconds."""
        model = self._models[key]
        decision = self._by_policy(key, model, spec, actuator, now)
        if decision.has_reports:
            model.reported = decision
        elif (last := model.reported) is not None and last.unknown and last.policy == decision.policy:
            # The store has dropped the last reports. The reason why the load was unknown before still applies.
            text = _unchanged_text(decision.current, last.unknown)
            decision = replace(last, at=decision.at, current=decision.current, desired=decision.desired, text=text)
        if not routing_mode.is_direct(spec):
            return decision
        signals = (replace(s, source=SCRAPE) if s.source == Signal("").source else s for s in decision.signals)
        return replace(decision, signals=tuple(signals))

    def _by_policy(self, key: Key, model: _Model, spec: Spec, actuator: Actuator, now: float) -> Decision:
        if defaults.policy(spec) == "Planner":
            return self._by_planner(key, model, spec, now)
        self._keep_memory(key, model)
        # In another mode than Active, the model's HPA computes nothing, because it is shut.
        is_hpa = actuator is not Actuator.DIRECT and spec.scaling is not None and spec.scaling.mode == "Active"
        return self._by_hpa(key, spec, now) if is_hpa else self._by_rules(key, model, spec, now)

    def not_written(self, key: Key) -> None:
        """Invalidate the last decision by the HPA's rules, because its replicas could not be written."""
        model = self._models.get(key)
        if model is not None and model.rules_decision is not None:
            model.rules_decision = replace(model.rules_decision, is_lost=True)

    def memory(self, key: Key) -> PlannerMemory | None:
        """Return the planner's memory of a model; None if the planner doesn't decide for it."""
        model = self._models.get(key)
        return None if model is None else model.memory

    def history(self, key: Key) -> History | None:
        """Return the history of arrivals in a planner's memory; None if the planner doesn't decide for the model."""
        memory = self.memory(key)
        return None if memory is None else memory.history

    def knowledge(self, key: Key, spec: Spec) -> Known | None:
        """Return the planner's knowledge of a model for what-if calculations; None if its capacity is unknown."""
        model = self._models.get(key)
        if model is None or (memory := model.memory) is None or model.objectives is None:
            return None
        line, replica = memory.capacity.line, memory.evidence.replica()
        served = model.objectives.aims
        aims = replace(objectives(spec), max_batch=served.max_batch, instances=served.instances)
        if replica is None and line is not None:
            replica = replica_of(aims, line, model.rows)
        return None if replica is None else Known(aims, replica, memory.arrivals.spread.value, memory.headroom.value)

    def max_replicas(self, key: Key, spec: Spec) -> int:
        """Return the current maximum replicas of a model: the spec's, or that of an active schedule if it is lower."""
        model, scaling = self._models.get(key), spec.scaling
        if model is None or model.memory is None or model.objectives is None:
            return 0 if scaling is None else scaling.max_replicas
        return bounds(model.objectives.aims)[1]

    def learn(self, key: Key, history: History) -> None:
        """Replace the history of arrivals in a model's planner memory. The rest of the memory stays."""
        model = self._models[key]
        if model.memory is not None:
            model.memory = model.memory.with_changes(history=history)

    def stop(self, key: Key) -> None:
        """Drop the state of a model that is no longer autoscaled, except for what its planner has learnt."""
        if (model := self._models.pop(key, None)) is not None:
            self._keep_memory(key, model)
        self._measured.forget(key)
        if self.histories is not None:
            self.histories.forget(key)

    def forget(self, key: Key) -> None:
        """Drop the state of a deleted model."""
        self.stop(key)
        self._kept.forget(key)

    def _keep_memory(self, key: Key, model: _Model) -> None:
        if model.memory is not None:
            self._kept.keep(key, self.signals.uid(key), model.memory)
            model.memory = None

    def _by_planner(self, key: Key, model: _Model, spec: Spec, now: float) -> Decision:
        if self._epoch is not self.signals.epoch:
            self._follow_clock()
        at = self._epoch.at(now)
        planner_input = self.signals.for_planner(key, spec)
        if planner_input is None:
            return self._without_reports(key, model, spec, at)
        result, reading = planner_input.result, planner_input.result.reading
        before = self._restored(key, at) if model.memory is None else model.memory
        active = _active_schedules(model, spec, at)
        inputs = spec, active, self._measured.of(key, spec), planner_input.smallest
        aims = _aims(model, inputs, reading.batches, before)
        planned = plan(at, aims, reading, before)
        model.memory, model.rows = planned.memory, reading.rows_per_request
        evidence = planned.memory.evidence
        is_unknown = planned.memory.capacity.line is None and (evidence.replica() or evidence.provisional()) is None
        if is_unknown and reading.replicas > 0 and any(limit.name == "learning" for limit in planned.limits):
            decision = self._by_rules(key, model, spec, now, bounds(aims))
            if decision.desired is not None:
                # Let the planner continue from the rules' decision, so that the change from rules to planner keeps the replicas.
                hold = replace(planned.memory.hold, needs=((at, decision.desired),), held=decision.desired)
                model.memory = planned.memory.with_changes(hold=hold)
            return replace(decision, next_decision_at=planned.next_decision_at)
        if (increase := self._by_known_load(key, model, spec, now, planner_input)) is not None:
            return replace(increase, capacity=decisions.capacity_of(model.memory, aims, reading.rows_per_request))
        rate = decisions.rate_signal(planned, reading.at, "; ".join(result.unknown) if reading.arrived is None else "")
        planned = bounded(planned, aims, lambda others: plan(at, others, reading, before))
        capacity = decisions.capacity_of(planned.memory, aims, reading.rows_per_request)
        decision = decisions.of_plan(planned, at=at, signals=(rate, *planner_input.signals), capacity=capacity)
        if decision.unknown and result.unknown:
            # The planner's reason is only that data is missing; the reading has the agents that didn't report.
            why = "; ".join(result.unknown)
            texts = (why, "the last valid number of replicas is kept", *(limit.why for limit in planned.limits[1:]))
            text = f"{decisions.counted(planned.count)}: {'; '.join(texts)}"
            decision = replace(decision, unknown=why, text=text)
        # The limits of the spec and of schedules apply without signals too, so replicas outside them are changed.
        is_outside = decision.unknown and planned.count != planned.current
        return replace(decision, unknown="") if is_outside else decision

    def _without_reports(self, key: Key, model: _Model, spec: Spec, at: float) -> Decision:
        """Return the present replicas within the limits of the spec and of open schedules, because no agent reports."""
        active = _active_schedules(model, spec, at)
        aims = objectives(spec, windows=windows(active) if active else ())
        since = "yet" if model.memory is None else f"for at least {EXPIRE_TIMEOUT_S / 60:.0f} minutes"
        return kept(self.signals.caches.replicas(key), aims, f"no balancer agent has reported {since}", at=at)

    def _by_known_load(self, key: Key, model: _Model, spec: Spec, now: float, values: PlannerInput) -> Decision | None:
        """Return a decision that adds replicas for the load of the balancers that report, while another is silent.

        It is made by the HPA's rules once the silence has lasted `PARTIAL_AFTER_S`. A model at zero is started at once
        if a balancer holds a request. The planner continues from this decision. Return None if the load is known, or if
        it needs no more replicas.
        """
        result = values.result
        if result.reading.inflight is not None or model.memory is None or model.objectives is None:
            model.partial_since, model.rules_decision = None, None
            return None
        model.partial_since = now if model.partial_since is None else model.partial_since
        current, (low, high) = result.reading.replicas, bounds(model.objectives.aims)
        why = "; ".join(result.unknown)
        if current == 0 < high and result.held > 0:
            at, first, memory = self.signals.epoch.at(now), max(low, 1), model.memory
            zero = memory.zero.started(at, first)
            model.memory = memory.with_changes(hold=memory.hold.at_least(at, first), zero=zero)
            return decisions.of_held(first, result.held, at=at, signals=values.signals, why=why)
        # Without a replica, the rules would start one without a request. Below the minimum, the planner's limit decides.
        if now - model.partial_since < PARTIAL_AFTER_S or not max(low, 1) <= current < high:
            return None
        decision = self._by_rules(key, model, spec, now, (current, high))
        if decision.unknown or decision.desired is None or decision.desired <= current:
            return None
        hold = replace(model.memory.hold, needs=((decision.at, decision.desired),), held=decision.desired)
        model.memory = model.memory.with_changes(hold=hold)
        text = str(decision.text).replace(decisions.RULES_REASON, decisions.SILENT_REASON)
        return replace(decision, current=current, text=f"{text} ({why})")

    def _restored(self, key: Key, at: float) -> PlannerMemory:
        """Return the memory with which the planner begins. If it has little history, request more from Prometheus."""
        memory = self._kept.take(key, self.signals.uid(key), at)
        if self.histories is not None and len(memory.history.bins) < DAY:
            self.histories.enqueue(key)
        return memory

    def _by_rules(
        self, key: Key, model: _Model, spec: Spec, now: float, limits: tuple[int, int] | None = None
    ) -> Decision:
        """Return a decision by the HPA's rules. `limits` are the minimum and maximum replicas (default: the spec's)."""
        current = self.signals.caches.replicas(key)
        last = model.rules_decision
        if spec.scaling is None:
            raise ValueError(f"{key} has no spec.scaling, so nothing is decided")
        low, high = limits or (spec.scaling.min_replicas, spec.scaling.max_replicas)
        if last is not None and last.is_valid(now, current) and low <= (last.decision.desired or 0) <= high:
            return replace(last.decision, current=current)
        rules_input, policy, at = self.signals.by_rules(key, spec), defaults.policy(spec), self.signals.epoch.at(now)
        reading, signals = rules_input.reading, rules_input.signals
        if isinstance(reading, Missing):
            why, text = reading.reason, _unchanged_text(current, reading.reason)
            decision = Decision(at, policy, current, current, text, ("unknown",), (), signals, unknown=why)
            return replace(decision, has_reports=rules_input.has_reports)
        is_planner = policy == "Planner"
        # If the rules replace the planner, spec.scaling.behavior doesn't apply, and they must not scale to zero.
        behavior = None if is_planner else spec.scaling.behavior
        memory = HpaMemory() if last is None else last.resumed(current, behavior)
        low, aims = max(low, 1) if is_planner else low, defaults.targets(spec)
        proposal = algorithm.desired(now, current, reading, aims, behavior, low=low, high=high, memory=memory)
        text = proposal.describe()
        if is_planner and model.objectives is not None:
            text = with_bound_reasons(text, proposal.reasons.limits, model.objectives.aims)
        decision = decisions.of_rules(proposal.count, proposal.reasons, text, at=at, policy=policy, signals=signals)
        model.rules_decision = _RulesDecision(now, decision, proposal.unwritten)
        return decision

    def _by_hpa(self, key: Key, spec: Spec, now: float) -> Decision:
        """Return a decision for a model that its HPA scales: the replicas for each signal, but no desired replicas."""
        values, at = self.signals.by_rules(key, spec), self.signals.epoch.at(now)
        current, targets, reading = self.signals.caches.replicas(key), defaults.targets(spec), values.reading
        needs = () if isinstance(reading, Missing) else algorithm.signal_proposals(reading, targets)
        return decisions.of_hpa(current, needs, at=at, signals=values.signals, has_reports=values.has_reports)

    def _follow_clock(self) -> None:
        """Shift the times in all memories after the wall clock was set, so that no planner sees a gap."""
        by_s = self.signals.epoch.offset_s - self._epoch.offset_s
        for model in self._models.values():
            if model.memory is not None:
                model.memory = shifted(model.memory, by_s)
        self._kept.shift(by_s)
        self._epoch = self.signals.epoch


def _active_schedules(model: _Model, spec: Spec, at: float) -> InForce | None:
    """Return the schedules that are active at the time `at`; None if the spec has no schedules."""
    if spec.scaling is None or not spec.scaling.schedules:
        return None
    cached = model.active
    if cached is None or cached[0] is not spec or not cached[1].holds(at):
        cached = model.active = (spec, in_force(schedules(spec), at))
    return cached[1]


def _aims(
    model: _Model,
    inputs: tuple[Spec, InForce | None, Measured, Serving | None],
    batches: Mapping[int, tuple[int, float]] | None,
    memory: PlannerMemory,
) -> Objectives:
    """Return the scaling objectives that apply now. The result is the same object as before if no input has changed."""
    cached, (spec, active, measured, serving) = model.objectives, inputs
    is_same = cached is not None and all(before is now for before, now in zip(cached.inputs, inputs, strict=True))
    if cached is not None and is_same and cached.batches is batches:
        return cached.aims
    largest_seen, line = largest(batches), measured.line
    if largest_seen is None or not memory.capacity.is_outweighed:
        # A few batches of a revision may all be small. Until there are more, use the last revision's largest, or a measured one.
        earlier = (None if cached is None else cached.largest, None if line is None else line.max_batch_size)
        largest_seen = max(filter(None, (largest_seen, *earlier)), default=None)
    if cached is not None and is_same and cached.largest == largest_seen:
        aims = cached.aims
    else:
        aims = objectives(
            spec,
            serving=serving,
            largest_seen=largest_seen,
            windows=windows(active) if active else (),
            measured_batches=None if line is None else line.batch_times(),
            measured_answers=None if line is None else line.answers(),
        )
    model.objectives = _CachedObjectives(inputs, batches, largest_seen, aims)
    return aims


def _unchanged_text(current: int, why: str) -> str:
    return f"{decisions.counted(current)}: {why}; the replicas stay as they are"
