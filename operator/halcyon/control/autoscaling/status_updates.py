"""What of the decisions is news: a change of the count and why, values that stay moved, mean batches.

What is news is remembered as it was then, and told to the reconcile that writes the status. So the status rests where nothing is.
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
from halcyon.kube.kinds import Key
from halcyon.kube.tracing import Tracer
from halcyon.kube.work_queue import Priority
from halcyon.scaling.policy import decision
from halcyon.scaling.policy.decision import Change, Decision

STATUS_INTERVAL_S = 10.0
"""What has moved without a change of the count is shown no more often than this,"""
SHOWN_EVERY_LATE_S = 30.0
"""and than this where statuses are late: in a large fleet most of them would tell of nothing but values."""
SETTLED_S = 15.0
"""A process that is younger may not have heard its agents yet: that it knows nothing is no news."""


@dataclass
class StatusUpdates:
    """Has statuses written where there is news. Only the leader tells, of what it has decided itself."""

    caches: ClusterState
    sensing: ModelSignals
    writer: ScaleWriter
    enqueue: Callable[[Key, Priority], None]
    """Has a model reconciled."""
    leads: Callable[[], bool]
    clock: Callable[[], float]
    """Monotonic, in seconds."""
    tracer: Tracer

    _batches: dict[Key, float | None] = field(default_factory=dict)
    """Mean batches as they were told."""
    _settled: bool = False

    def __post_init__(self) -> None:
        """From now on agents are waited for."""
        self._began = self.clock()

    @property
    def every_s(self) -> float:
        """The least time between two tellings of values alone."""
        return SHOWN_EVERY_LATE_S if self.writer.statuses_are_late else STATUS_INTERVAL_S

    # What a reconcile asks for

    def facts(self, key: Key) -> Signals | None:
        """What is known of a model beside its scaling; the mean batch as it was when it was news."""
        found = self.sensing.facts(key)
        return None if found is None else replace(found, mean_batch=self._batches.get(key))

    def shown(self, model: ModelState) -> PublishedScaling:
        """A model's scaling as it was when it was news."""
        # Who has just begun to lead tells what it has decided in the shadow, and what the leader before it has told.
        made = model.verdict if model.shown is None else model.shown.verdict
        changes = model.changes if model.shown is not None else self._changes_before(model.key)
        is_young = self.clock() - self._began < SETTLED_S
        return PublishedScaling(
            verdict=made,
            changes=tuple(changes),
            rival=model.rival,
            settling=is_young and (made is None or bool(made.unknown)),
        )

    # What the loop tells

    def decided(self, model: ModelState, made: Decision, now: float) -> None:
        """Remember a change, and have the status written where it says something new: before the count, if that is to wait for it."""
        before, asked = self._asked_before(model, made), model.asked(made)
        # Where the count is only held, nothing was decided.
        if asked is not None and asked != before and not (made.unknown and made.desired is not None):
            self._remember(model, made, before, asked)
        if model.is_news(made, model.rival, now, self.every_s):
            model.shown = PublishedDecision(now, made, model.rival)
            if self.writer.goes_first(model):
                model.untold = True  # until the count is written
            else:
                self.enqueue(model.key, Priority.CHANGE if self.writer.wanted(model) is None else Priority.COUNT)

    def not_waiting(self, model: ModelState) -> None:
        """No count is being written any more that was to go before its status: the status has its turn."""
        if model.untold:
            model.untold = False
            self.enqueue(model.key, Priority.CHANGE)

    def settle(self, models: Iterable[ModelState]) -> None:
        """Once, after `SETTLED_S`: from then on it is news which models nothing was heard of."""
        if self._settled or self.clock() - self._began < SETTLED_S:
            return
        self._settled = True
        for model in models:
            if model.verdict is not None and model.verdict.unknown and self.leads():
                self.enqueue(model.key, Priority.CHANGE)

    async def show_batches(self, slice_s: float) -> None:
        """Have the status of models written whose mean batch has moved; others have their turn every `slice_s`."""
        began = self.clock()
        for namespace, name in self.sensing.hub.models():
            if self.clock() - began > slice_s:
                await asyncio.sleep(0)
                began = self.clock()
            if not self.leads():
                return
            key = Key(namespace, name)
            if self.caches.resources.get(key) is None:
                continue  # it was deleted, and its balancers are about to end
            now = self.sensing.mean_batch(key)
            if decision.has_moved(self._batches.get(key), now):
                self._batches[key] = now
                self.enqueue(key, Priority.CHANGE)

    def gone(self, key: Key) -> None:
        """The model is gone."""
        self._batches.pop(key, None)

    def _asked_before(self, model: ModelState, made: Decision) -> int:
        """The count that was asked for until now, as the status told it."""
        if model.shown is None:
            model.changes.extend(self._changes_before(model.key))
            before = self.caches.desired_told(model.key)
        elif made.desired is None and model.shown.verdict.desired is not None:
            before = None  # from now on it is the HPA's: what it hasn't followed yet was no change of its own
        else:
            before = model.asked(model.shown.verdict)
        return made.current if before is None else before

    def _remember(self, model: ModelState, made: Decision, before: int, asked: int) -> None:
        """Another count was decided."""
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
        """The changes that the status tells."""
        status = (self.caches.resources.get(key) or {}).get("status") or {}
        return decision.changes_from((status.get("scaling") or {}).get("decisions"))
