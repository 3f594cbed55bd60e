"""The decision loop for all models: decides for each model that is due, publishes the decision and writes the replicas.

A model is due when one of its agents has sent a new report, but at most once a second unless the report confirms
growth. If there is no new report, the model is due at the time set by its last decision. The standby also makes
decisions, so that its memory is current when it becomes the leader. Only the leader publishes and writes.

Out of scope: the values that the metrics API serves (`served_metrics`).
"""

# phase of a decision        module
# read signals and decide    `decider`, with `model_signals`
# add for batch inference    `batch_replicas`
# limit                      `replica_limits`: quotas and the site's GPU budget
# detect external writers    `external_writers`
# store the memory           `planner_memory_store`, for the next process
# publish                    `status_updates`, and `control.status.scaling` in the next reconcile
# write                      `scale_writer`

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, MutableMapping
from dataclasses import dataclass, field

from halcyon.api.spec import Spec
from halcyon.api.timestamps import epoch_seconds
from halcyon.control.acceptance import scaling_mode
from halcyon.control.acceptance.accepted_specs import SpecsInForce, with_scaling
from halcyon.control.autoscaling.batch_replicas import BatchReplicas
from halcyon.control.autoscaling.decider import Decider
from halcyon.control.autoscaling.decision_metrics import DecisionMetrics
from halcyon.control.autoscaling.external_writers import LATELY_S, ExternalWriters
from halcyon.control.autoscaling.limits.replica_limits import ReplicaLimits
from halcyon.control.autoscaling.model_signals import ModelSignals
from halcyon.control.autoscaling.model_state import ModelState
from halcyon.control.autoscaling.planner_memory_store import PlannerMemoryStore
from halcyon.control.autoscaling.scale_writer import ScaleWriter, WriteOutcome
from halcyon.control.autoscaling.status_updates import StatusUpdates
from halcyon.control.desired.plan import ReconcilePlan
from halcyon.control.objects.actuator import Actuator
from halcyon.control.state.cluster_state import ClusterState
from halcyon.control.state.scope import PublishedScaling, Signals
from halcyon.kube.client import Object
from halcyon.kube.clock import Clock
from halcyon.kube.event_recorder import NewEvent
from halcyon.kube.kinds import Key
from halcyon.kube.leader_election import Leadership
from halcyon.scaling.policy.decision import MAX_DECISION_INTERVAL_S, MIN_DECISION_INTERVAL_S, Decision

log = logging.getLogger(__name__)

TICK_S = 0.1
CHECK_INTERVAL_S = 1.0
"""Interval of checks that concern all models, in seconds: the clocks, the site's GPU budget, and a standby's list of
models."""
SLICE_S = 0.02
"""Seconds after which a round of decisions pauses so that other asyncio tasks can run."""


@dataclass
class Autoscaler:
    """Autoscaler of all models with `spec.scaling`.

    It decides for each model. While this replica of the operator is the leader, it also writes the replicas to /scale.
    """

    caches: ClusterState
    specs: SpecsInForce
    signals: ModelSignals
    decider: Decider
    limits: ReplicaLimits
    writer: ScaleWriter
    updates: StatusUpdates
    decision_metrics: DecisionMetrics
    """Metrics of the duration and the age of decisions."""
    models: MutableMapping[Key, ModelState]
    """State of the autoscaled models. `decision_metrics` reads the ages of their decisions from it."""
    leadership: Leadership
    clock: Clock
    memories: PlannerMemoryStore | None = None
    """Store that receives the planner's memory after each decision; None if memories aren't stored."""
    events: Callable[[Object, NewEvent], object] | None = None
    """Recorder of events; None if events aren't recorded."""
    batches: BatchReplicas | None = None
    """Component that adds replicas for batch inference to decisions; None if there is no batch inference."""
    external_writers: ExternalWriters = field(default_factory=ExternalWriters)
    decisions: int = 0
    """Number of decisions since the start of the process."""

    def __post_init__(self) -> None:
        """Subscribe to the agents' reports, which make models due."""
        self.signals.hub.subscribe(
            lambda namespace, name, confirms: self.report_received(Key(namespace, name), confirms=confirms)
        )

    # Requested by other components

    def reported(self, key: Key) -> Signals | None:
        """Return the agents' data about a model for the status; its mean batch size is the last published one."""
        return self.updates.reported(key)

    def published(self, key: Key) -> PublishedScaling:
        """Return a model's last published scaling decision. It stays the same until the next one is published."""
        return self.updates.published(self.models.get(key) or ModelState(key, math.inf))

    def state(self, key: Key) -> ModelState | None:
        """Return a model's state for /metrics; None if it is not autoscaled."""
        return self.models.get(key)

    # Reported by other components

    def report_received(self, key: Key, *, confirms: bool = False) -> None:
        """Record a report of one of the model's agents. `confirms`: it confirms growth in the agent's previous one."""
        if (model := self.models.get(key)) is not None:
            model.has_report = True
            model.confirmed |= confirms

    def planned(self, key: Key, plan: ReconcilePlan) -> None:
        """Adopt the actuator in a reconcile's plan: start, continue or stop making decisions for the model."""
        model = self.models.get(key)
        if plan.actuator is Actuator.NONE:
            if model is not None:
                self.stop(key)
            return
        if model is None:
            model = self.models[key] = ModelState(key, self.clock.monotonic())
        if model.actuator is Actuator.NONE:
            model.due = max(self.clock.monotonic(), model.attempted_at + MIN_DECISION_INTERVAL_S)
        model.actuator = plan.actuator

    def deleted(self, key: Key) -> None:
        """Drop the state of a deleted model."""
        self.stop(key)
        for part in (self.decider, self.signals, self.updates):
            part.forget(key)

    def stop(self, key: Key) -> None:
        """Stop making decisions for a model, and drop its state."""
        if (model := self.models.pop(key, None)) is not None:
            model.actuator = Actuator.NONE  # a write that still waits for the status is dropped
            self._end_age(model, self.clock.monotonic())
        self.decider.stop(key)
        self.limits.forget(key)
        self.external_writers.forget(key)

    # The loop

    async def run(self) -> None:
        """Run the decision loop until cancelled."""
        checked_at = published_at = -math.inf
        self.updates.start()
        try:
            while True:
                await asyncio.sleep(TICK_S)
                now = self.clock.monotonic()
                self.updates.settle(self.models.values())
                if now - checked_at >= CHECK_INTERVAL_S:
                    checked_at = now
                    self._check_all(now)
                if now - published_at >= self.updates.interval_s:
                    published_at = now
                    await self.updates.publish_batches(SLICE_S)
                await self._round()
        finally:
            for model in self.models.values():
                if model.writing is not None:
                    model.writing.cancel()

    def _check_all(self, now: float) -> None:
        self.signals.check_clocks()
        self._allocate_budget(now)
        if not self.leadership.is_leader:
            self._add_models()

    def _allocate_budget(self, now: float) -> None:
        """Allocate the site's GPU budget. Models whose grant has grown become due at once."""
        if self.limits.budget is None:
            return
        decided = {m.key for m in self.models.values() if m.decision is not None and m.decision.desired is not None}
        for key in self.limits.share(decided):
            if (model := self.models.get(key)) is not None:
                model.due = now

    def _add_models(self) -> None:
        """Add the models with `spec.scaling` from the caches, because no reconcile runs on a standby.

        Their actuator stays NONE, so that a new leader writes no replicas before a reconcile has set it (`planned`).
        """
        for key, _ in with_scaling(self.caches, self.specs):
            if key not in self.models:
                self.models[key] = ModelState(key, self.clock.monotonic())

    async def _round(self) -> None:
        """Decide for each model that is due now, starting with the oldest decision."""
        started = self.clock.monotonic()
        due = [
            model
            for model in self.models.values()
            if model.due <= started or (model.has_report and model.may_be_decided(started, MIN_DECISION_INTERVAL_S))
        ]
        for model in sorted(due, key=lambda model: model.decided):
            if self.models.get(model.key) is not model:
                continue  # it was stopped while other tasks ran
            model.has_report = model.confirmed = False
            model.attempted_at = self.clock.monotonic()
            model.first_attempt_at = min(model.first_attempt_at, model.attempted_at)
            try:
                self._turn(model)
            except Exception:
                # A failure for one model must not stop the others. Its replicas stay, because its last decision becomes stale.
                log.exception("cannot decide", extra={"key": str(model.key)})
                model.due = self.clock.monotonic() + MAX_DECISION_INTERVAL_S
            ended = self.clock.monotonic()
            if model.decided == model.attempted_at:
                self.decision_metrics.add_duration(ended - model.attempted_at)
            if ended - started > SLICE_S:
                await asyncio.sleep(0)
                started = self.clock.monotonic()

    # One model's turn

    def _turn(self, model: ModelState) -> None:
        """Make a decision for one model and carry it out. The phases are in the table at the top of this module."""
        key, now = model.key, model.attempted_at
        spec, resource = self.specs.get(key), self.caches.resources.get(key)
        uid = "" if resource is None else str(resource["metadata"].get("uid", ""))
        if resource is None or uid != (model.uid or uid):
            # On a standby no reconcile reports the deletion. A new object of the same name begins without a state.
            self.deleted(key)
            return
        model.uid = uid
        if spec is None or spec.scaling is None:
            model.due = now + MAX_DECISION_INTERVAL_S
            if spec is not None and not self.leadership.is_leader:
                self.stop(key)  # on a standby no reconcile reports that scaling was removed
            return
        decision = self.decider.decide(key, spec, model.actuator, now)
        if self.batches is not None:
            decision = self.batches.with_batch_replicas(key, spec, decision)
        decision = self.limits.apply(key, spec, decision)
        self._set_decision(model, decision, now)
        model.external_writer = self._external_writer(model, spec, resource, decision, now)
        manual = self.external_writers.take_manual(key)
        if self.leadership.is_leader:
            self._save_memory(key, resource)
            if manual is not None and not model.external_writer and decision.desired not in {None, manual}:
                self._report_revert(key, resource, manual, decision)
            self.updates.decided(model, decision, now)
            self._write(model, decision)
            if model.writing is None:
                self.updates.write_ended(model)

    def _set_decision(self, model: ModelState, decision: Decision, now: float) -> None:
        """Store a new decision as the model's current one, and set when the next one is due."""
        self.decisions += 1
        self._end_age(model, now)
        model.due = now + decision.next_decision_s
        model.decision, model.decided = decision, now

    def _end_age(self, model: ModelState, now: float) -> None:
        """Count the final age of a model's current decision, or of its missing one."""
        if math.isfinite(model.age_began_at):
            self.decision_metrics.add_age(now - model.age_began_at)

    def _external_writer(self, model: ModelState, spec: Spec, resource: Object, decision: Decision, now: float) -> str:
        """Return a message about another writer that competes for the model's replicas; empty if there is none."""
        if decision.desired is None or not scaling_mode.is_active(resource, spec):
            self.external_writers.pause(model.key)
            return ""
        if not self.leadership.is_leader:
            # A standby can't distinguish the leader's writes from those of another writer.
            return self.external_writers.adopt(model.key, self.caches.published_conflict(model.key), now)
        if self.caches.own_writes.is_behind(model.key) or model.key in self.writer.unanswered:
            # The cached replicas may be older or newer than the operator's last write.
            return model.external_writer
        meta = resource["metadata"]
        written_at = epoch_seconds(meta.get("replicasWrittenAt"))
        # An older entry of managedFields doesn't name the writer of a change that was made through /scale.
        is_recent = written_at is not None and self.clock.wall() - written_at <= LATELY_S
        manager = str(meta["replicasWriter"]) if is_recent else ""
        return self.external_writers.compare(model.key, decision.current, decision.desired, manager, now)

    def _report_revert(self, key: Key, resource: Object, manual: int, decision: Decision) -> None:
        """Record an event about a manual change of the replicas to `manual`, which scaling reverts."""
        if self.events is not None:
            text = (
                f"spec.replicas was set to {manual}, but spec.scaling.mode is Active, so scaling sets it to {decision.desired}. To keep "
                f"{manual}, run halcyon scale {key.name} {manual} --pause. To limit scaling, set spec.scaling.minReplicas or maxReplicas"
            )
            self.events(resource, NewEvent("Normal", "ManualScaleReverted", text))

    def _save_memory(self, key: Key, resource: Object) -> None:
        """Offer the planner's memory of a model to the store, for the operator's next process."""
        if self.memories is not None and (memory := self.decider.memory(key)) is not None:
            self.memories.offer(key, str(resource["metadata"].get("uid", "")), memory)

    def _write(self, model: ModelState, decision: Decision) -> None:
        """Start a task that writes the desired replicas, unless Halcyon must not write them or a write is running."""
        if decision.desired == decision.current or model.writing is not None:
            return  # the usual case
        if self.writer.replicas_to_write(model) is None:
            return
        if self.caches.own_writes.is_behind(model.key):
            model.due = self.clock.monotonic() + TICK_S  # the cached replicas may be out of date
            return
        model.writing = asyncio.create_task(self._write_replicas(model), name=f"scale {model.key}")
        model.writing.add_done_callback(lambda _: self._write_ended(model))

    async def _write_replicas(self, model: ModelState) -> None:
        """Write the desired replicas of a model. If that fails or is only partly done, decide again soon."""
        result = await self.writer.write(model)
        if result.replicas is not None and self.models.get(model.key) is model:
            self.external_writers.wrote(model.key, result.replicas)
        if result.outcome is WriteOutcome.FAILED:
            self.decider.not_written(model.key)
        if result.outcome in {WriteOutcome.FAILED, WriteOutcome.PARTLY_WRITTEN}:
            model.due = self.clock.monotonic() + MIN_DECISION_INTERVAL_S

    def _write_ended(self, model: ModelState) -> None:
        model.writing = None
        self.updates.write_ended(model)
