"""Selection of what the status publishes of decisions: changes of replicas and why, values that stay moved, mean batches.

Published values are kept as they were and passed to the reconcile that writes the status. So the status changes only when
there is something new.
"""

from __future__ import annotations

import asyncio
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
from halcyon.scaling.policy import decision
from halcyon.scaling.policy.decision import Change, Decision

STATUS_INTERVAL_S = 10.0
"""Minimum interval between two updates of values alone, without a change of replicas."""
LATE_STATUS_INTERVAL_S = 30.0
"""The same while statuses are late: in a large fleet, most of them would only update values."""
SETTLED_S = 15.0
"""Age below which a process may not have received its agents' reports yet, so that missing data isn't published."""


@dataclass
class StatusUpdates:
    """Requests for status updates. Only the leader publishes, and only what it has decided itself."""

    caches: ClusterState
    signals: ModelSignals
    writer: ScaleWriter
    enqueue: Callable[[Key, Priority], None]
    """Queues a model for a reconcile."""
    leadership: Leadership
    clock: Clock
    tracer: Tracer

    _batches: dict[Key, float | None] = field(default_factory=dict)
    """Mean batches as last published."""
    _settled: bool = False

    def __post_init__(self) -> None:
        """Start the settling time."""
        self._began = self.clock.monotonic()

    @property
    def interval_s(self) -> float:
        """Return the minimum interval between two updates of values alone."""
        return LATE_STATUS_INTERVAL_S if self.writer.statuses_are_late else STATUS_INTERVAL_S

    # Requested by a reconcile

    def reported(self, key: Key) -> Signals | None:
        """Return what is known of a model besides its scaling; the mean batch as last published."""
        found = self.signals.reported(key)
        return None if found is None else replace(found, mean_batch=self._batches.get(key))

    def published(self, model: ModelState) -> PublishedScaling:
        """Return a model's scaling as last published."""
        # A new leader publishes what it has decided as a standby, and the changes published by the previous leader.
        made = model.verdict if model.shown is None else model.shown.verdict
        changes = model.changes if model.shown is not None else self._changes_before(model.key)
        is_young = self.clock.monotonic() - self._began < SETTLED_S
        return PublishedScaling(
            verdict=made,
            changes=tuple(changes),
            rival=model.rival,
            settling=is_young and (made is None or bool(made.unknown)),
        )

    # Reported by the loop

    def decided(self, model: ModelState, made: Decision, now: float) -> None:
        """Record a change, and request a status update if there is something new; after the write to /scale if that goes first."""
        before, asked = self._asked_before(model, made), model.asked(made)
        # If replicas are only held, nothing was decided.
        if asked is not None and asked != before and not (made.unknown and made.desired is not None):
            self._remember(model, made, before, asked)
        if model.is_news(made, model.rival, now, self.interval_s):
            model.shown = PublishedDecision(now, made, model.rival)
            if self.writer.goes_first(model):
                model.untold = True  # until the replicas are written
            else:
                self.enqueue(model.key, Priority.CHANGE if self.writer.wanted(model) is None else Priority.COUNT)

    def write_ended(self, model: ModelState) -> None:
        """Request the status update that had to wait for the write to /scale, which has ended."""
        if model.untold:
            model.untold = False
            self.enqueue(model.key, Priority.CHANGE)

    def settle(self, models: Iterable[ModelState]) -> None:
        """Publish, once after `SETTLED_S`, which models have sent no reports."""
        if self._settled or self.clock.monotonic() - self._began < SETTLED_S:
            return
        self._settled = True
        for model in models:
            if model.verdict is not None and model.verdict.unknown and self.leadership.is_leader:
                self.enqueue(model.key, Priority.CHANGE)

    async def publish_batches(self, slice_s: float) -> None:
        """Request a status update for models whose mean batch has moved; yields to other tasks every `slice_s`."""
        began = self.clock.monotonic()
        for namespace, name in self.signals.hub.models():
            if self.clock.monotonic() - began > slice_s:
                await asyncio.sleep(0)
                began = self.clock.monotonic()
            if not self.leadership.is_leader:
                return
            key = Key(namespace, name)
            if self.caches.resources.get(key) is None:
                continue  # it was deleted, and its balancers are about to end
            now = self.signals.mean_batch(key)
            if decision.has_moved(self._batches.get(key), now):
                self._batches[key] = now
                self.enqueue(key, Priority.CHANGE)

    def forget(self, key: Key) -> None:
        """Drop a deleted model."""
        self._batches.pop(key, None)

    def _asked_before(self, model: ModelState, made: Decision) -> int:
        """Return the desired replicas until now, as the status showed them."""
        if model.shown is None:
            model.changes.extend(self._changes_before(model.key))
            before = self.caches.published_desired(model.key)
        elif made.desired is None and model.shown.verdict.desired is not None:
            before = (
                None  # from now on the HPA decides: a desired value that it hasn't followed is no change of its own
            )
        else:
            before = model.asked(model.shown.verdict)
        return made.current if before is None else before

    def _remember(self, model: ModelState, made: Decision, before: int, asked: int) -> None:
        """Record a change of the desired replicas."""
        why = made.why if made.desired is not None else f"{decision.counted(asked)}: {made.why or 'by the HPA'}"
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

    def _changes_before(self, key: Key) -> list[Change]:
        """Return the changes listed in the status."""
        status = (self.caches.resources.get(key) or {}).get("status") or {}
        return decision.changes_from((status.get("scaling") or {}).get("decisions"))
