"""Publication of scaling decisions in the status: when a decision, a value or a mean batch size is published.

Reconciles write the status for many reasons. They receive the last published values, not the current ones. Otherwise
each of them would write slightly different values.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from halcyon.control.autoscaling.model_signals import ModelSignals
from halcyon.control.autoscaling.model_state import ModelState, PublishedDecision
from halcyon.control.autoscaling.scale_writer import ScaleWriter
from halcyon.control.state.cluster_state import ClusterState
from halcyon.control.state.scope import PublishedScaling, Signals
from halcyon.kube.clock import Clock
from halcyon.kube.kinds import Key
from halcyon.kube.leader_election import Leadership
from halcyon.kube.tracing import Tracer
from halcyon.kube.work_queue import Priority
from halcyon.scaling.policy import decision as decisions
from halcyon.scaling.policy.decision import Change, Decision

STATUS_INTERVAL_S = 10.0
"""Minimum time between two status updates if only values have changed and not the replicas, in seconds."""
LATE_STATUS_INTERVAL_S = 30.0
"""Minimum time between two status updates without a change of the replicas while status writes are late, in seconds. It
is longer because most status writes are such updates, and the API server is overloaded."""
SETTLED_S = 15.0
"""Time after the start of the decision loop during which missing data isn't published, in seconds. Agents can send
reports only once the caches are filled, which is when the loop starts."""


@dataclass
class StatusUpdates:
    """Component that requests status updates to publish the decisions of a leader. A standby requests none."""

    caches: ClusterState
    signals: ModelSignals
    writer: ScaleWriter
    enqueue: Callable[[Key, Priority], None]
    """Function that queues a model for a reconcile."""
    leadership: Leadership
    clock: Clock
    tracer: Tracer

    _batches: dict[Key, float | None] = field(default_factory=dict)
    """Last published mean batch size of each model."""
    _settled: bool = False
    _began: float = math.inf
    """Monotonic time at which the decision loop started, in seconds; infinite before that."""

    def start(self) -> None:
        """Record that the decision loop starts now."""
        self._began = self.clock.monotonic()

    @property
    def interval_s(self) -> float:
        """Minimum time between two status updates if only values have changed, in seconds."""
        return LATE_STATUS_INTERVAL_S if self.writer.statuses_are_late else STATUS_INTERVAL_S

    # Requested by a reconcile

    def reported(self, key: Key) -> Signals | None:
        """Return the agents' data about a model for the status; its mean batch size is the last published one."""
        signals = self.signals.reported(key)
        return None if signals is None else replace(signals, mean_batch=self._batches.get(key))

    def published(self, model: ModelState) -> PublishedScaling:
        """Return the last published scaling decision of a model."""
        # A new leader publishes its last decision as a standby, and the changes that the previous leader has published.
        decision = model.decision if model.shown is None else model.shown.decision
        changes = model.changes if model.shown is not None else self._changes_before(model.key)
        is_young = self.clock.monotonic() - self._began < SETTLED_S
        return PublishedScaling(
            decision=decision,
            changes=tuple(changes),
            external_writer=model.external_writer,
            settling=is_young and (decision is None or bool(decision.unknown)),
        )

    # Reported by the loop

    def decided(self, model: ModelState, decision: Decision, now: float) -> None:
        """Record a change of the desired replicas, and request a status update if the decision must be published.

        If the replicas are written before the status, `write_ended` requests the update instead.
        """
        before, desired = self._desired_before(model, decision), model.desired_of(decision)
        # Replicas that are only kept because data is missing were not decided.
        if desired is not None and desired != before and not (decision.unknown and decision.desired is not None):
            self._record_change(model, decision, before, desired)
        if model.must_be_published(decision, model.external_writer, now, self.interval_s):
            model.shown = PublishedDecision(now, decision, model.external_writer)
            if self.writer.writes_before_status(model):
                model.is_status_held = True  # until the replicas are written
            else:
                is_write_due = self.writer.replicas_to_write(model) is not None
                self.enqueue(model.key, Priority.COUNT if is_write_due else Priority.CHANGE)

    def write_ended(self, model: ModelState) -> None:
        """Request the status update that had to wait for the end of a write to /scale, if there is one."""
        if model.is_status_held:
            model.is_status_held = False
            self.enqueue(model.key, Priority.CHANGE)

    def settle(self, models: Iterable[ModelState]) -> None:
        """Request status updates for models without data, once: `SETTLED_S` after the start of the decision loop."""
        if self._settled or self.clock.monotonic() - self._began < SETTLED_S:
            return
        self._settled = True
        for model in models:
            if model.decision is not None and model.decision.unknown and self.leadership.is_leader:
                self.enqueue(model.key, Priority.CHANGE)

    async def publish_batches(self, slice_s: float) -> None:
        """Request status updates for models whose mean batch size has changed. Pause every `slice_s` seconds.

        A standby requests none, but keeps the sizes, so that they stay in the statuses when it becomes the leader.
        """
        began = self.clock.monotonic()
        for key in [key for key in self._batches if self.caches.resources.get(key) is None]:
            del self._batches[key]
        for namespace, name in self.signals.hub.models():
            if self.clock.monotonic() - began > slice_s:
                await asyncio.sleep(0)
                began = self.clock.monotonic()
            key = Key(namespace, name)
            if self.caches.resources.get(key) is None:
                continue  # the model was deleted, but its balancers still report
            mean_batch = self.signals.mean_batch(key)
            if decisions.has_moved(self._batches.get(key), mean_batch):
                self._batches[key] = mean_batch
                if self.leadership.is_leader:
                    self.enqueue(key, Priority.CHANGE)

    def forget(self, key: Key) -> None:
        """Drop the state of a deleted model."""
        self._batches.pop(key, None)

    def _desired_before(self, model: ModelState, decision: Decision) -> int:
        """Return the desired replicas before this decision: the published number, or else the current replicas."""
        if model.shown is None:
            model.changes.extend(self._changes_before(model.key))
            before = self.caches.published_desired(model.key)
        elif decision.desired is None and model.shown.decision.desired is not None:
            before = None  # the HPA decides from now on, so the planner's last number doesn't count
        else:
            before = model.desired_of(model.shown.decision)
        return decision.current if before is None else before

    def _record_change(self, model: ModelState, decision: Decision, before: int, desired: int) -> None:
        """Record a change of the desired replicas from `before` to `desired`, in memory and as a trace span."""
        hpa_why = f"{decisions.counted(desired)}: {decision.why or 'by the HPA'}"
        why = decision.why if decision.desired is not None else hpa_why
        model.changes.appendleft(Change(decision.at, before, desired, why))
        model.raised += desired > before
        model.lowered += desired < before
        with self.tracer.span(
            "decide",
            k8s__namespace__name=model.key.namespace,
            halcyon__model=model.key.name,
            halcyon__before=before,
            halcyon__desired=desired,
            halcyon__policy=decision.policy,
            halcyon__limited_by=", ".join(decision.limited_by),
            halcyon__why=why,
        ):
            pass  # an empty span: the decision was made before, and its duration is a metric

    def _changes_before(self, key: Key) -> list[Change]:
        """Return the changes to the desired replicas that the status lists."""
        status = (self.caches.resources.get(key) or {}).get("status") or {}
        return decisions.changes_from((status.get("scaling") or {}).get("decisions"))
