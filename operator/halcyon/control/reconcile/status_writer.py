"""Writer of the statuses of ModelDeployments.

Desired replicas are written at once. Other changes wait for up to 10 s, so that one write contains several of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from halcyon.api.conditions import Type
from halcyon.api.timestamps import rfc3339
from halcyon.control.desired.plan import ReconcilePlan
from halcyon.control.reconcile.reconcile_counts import ReconcileCounts
from halcyon.control.state.cluster_state import ClusterState
from halcyon.control.state.scope import Scope
from halcyon.control.status import status
from halcyon.control.status.events import status_events
from halcyon.kube import errors, kinds
from halcyon.kube.client import Kube
from halcyon.kube.clock import Clock
from halcyon.kube.event_recorder import EventRecorder, status_rejected
from halcyon.kube.kinds import Key

STATUS_INTERVAL_S = 10.0
"""Minimum time between two writes of a status if only values have changed, for example signals, in seconds."""
COUNTS_INTERVAL_S = 1.0
"""Minimum time between two writes of a status if pod counts or the generation have changed, but no condition, in
seconds. Pod counts change in steps of one, and the operator's own writes of spec.replicas change the generation."""
STATES_INTERVAL_S = 0.5
"""Minimum time between two writes of a status if conditions or phases have changed, in seconds. A change of the desired
replicas never waits."""


@dataclass
class StatusWriter:
    """Writer of the statuses of all models, and of the events for changes in the statuses."""

    client: Kube
    caches: ClusterState
    events: EventRecorder
    clock: Clock
    counts: ReconcileCounts
    operator: str
    """Name of this release of Halcyon, for status.operator."""

    _written_at: dict[Key, float] = field(default_factory=dict)

    async def write(self, scope: Scope, plan: ReconcilePlan) -> float | None:
        """Write the status if it has changed. Return the delay in seconds if the write has to wait, else None.

        Raises:
            ApiError, Unreachable: the request failed, for example because another ModelDeployment now has this name
                (`Conflicted`).
        """
        stamp = rfc3339(self.clock.wall())
        desired = {"operator": self.operator, **status.make(scope, plan, now=stamp)}
        before, after = _without_times(_without_overlap(scope.status)), _without_times(desired)
        if before == after:
            return None
        since_s = self.clock.monotonic() - self._written_at.get(scope.key, -STATUS_INTERVAL_S)
        if since_s < (interval_s := _min_interval_s(before, after)):
            return interval_s - since_s
        body = {
            "apiVersion": kinds.MODEL_DEPLOYMENT.api_version,
            "kind": kinds.MODEL_DEPLOYMENT.kind,
            "metadata": {"namespace": scope.key.namespace, "name": scope.key.name, "uid": scope.subject.uid},
            "status": desired,
        }
        try:
            written = await self.client.apply(kinds.MODEL_DEPLOYMENT, body, subresource="status")
        except errors.NotFound:
            return None  # it was deleted
        except errors.Refused as error:
            self.events.record(scope.resource, status_rejected(error))
            raise
        self.counts.statuses += 1
        self._written_at[scope.key] = self.clock.monotonic()
        self.caches.own_writes.wrote(scope.key, kinds.MODEL_DEPLOYMENT, written)
        for event in status_events(scope.status, desired, scope.resource.get("spec")):
            self.events.record(scope.resource, event)
        return None

    def forget(self, key: Key) -> None:
        """Drop the state of a model that was deleted."""
        self._written_at.pop(key, None)


_TIMES = {"lastTransitionTime", "observedAt", "decidedAt", "startedAt"}
"""Fields with times. They are ignored when statuses are compared. For example, `startedAt` changes in each reconcile
while a revision can't be written."""


def _without_overlap(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a status without the `OperatorConflict` condition, which only other releases write."""
    conditions = document.get("conditions") or ()
    return {**document, "conditions": [c for c in conditions if c["type"] != Type.OPERATOR_CONFLICT]}


def _without_times(document: Any) -> Any:  # any JSON value
    """Return a status without the fields that have times (`_TIMES`)."""
    if isinstance(document, dict):
        return {k: _without_times(v) for k, v in document.items() if k not in _TIMES}
    if isinstance(document, list):
        return [_without_times(v) for v in document]
    return document


_SOON = {"operator", "selector", "address", "runtimeImage", "revision", "capacity"}
"""Fields of the status whose changes are written within `STATES_INTERVAL_S`. Updates of other fields can wait longer,
except for the parts that `_states` returns."""
_COUNTS = {"total", "ready", "updated", "unschedulable"}


def _min_interval_s(before: Any, after: Any) -> float:  # any JSON values
    """Return the minimum time until a status change is written, in seconds; 0 if desired replicas have changed."""
    if _desired(before) != _desired(after):
        return 0.0
    if _states(before) != _states(after):
        return STATES_INTERVAL_S
    return COUNTS_INTERVAL_S if _counts(before) != _counts(after) else STATUS_INTERVAL_S


def _desired(document: Any) -> Any:  # any JSON value
    """Return the desired replicas in a status. A write of replicas waits until the status has them (`scale_writer`)."""
    return (document.get("scaling") or {}).get("desired")


def _counts(document: Any) -> Any:  # any JSON value
    counts = {k: v for k, v in (document.get("pods") or {}).items() if k in _COUNTS}
    return counts | {"generation": document.get("observedGeneration")}


def _states(document: Any) -> Any:  # any JSON value
    """Return the parts of a status that are written within `STATES_INTERVAL_S`: no values, messages or pod counts."""
    scaling = document.get("scaling") or {}
    return {
        **{k: v for k, v in document.items() if k in _SOON},
        "conditions": [(c["type"], c["status"], c["reason"]) for c in document.get("conditions") or ()],
        "scaling": {k: scaling.get(k) for k in ("actuator", "desired")},
        "missing": [signal["name"] for signal in scaling.get("signals") or () if signal.get("missing")],
        "model": {k: (document.get("model") or {}).get(k) for k in ("name", "versions")},
        "rollout": {k: v for k, v in (document.get("rollout") or {}).items() if k != "message"},
    }
