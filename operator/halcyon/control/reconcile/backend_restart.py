"""Restart of pods whose Triton backend is proven to be dead.

Triton itself still reports "ready", and never restarts the backend.

A pod is restarted in place, so that it keeps its node and GPU. The operator changes an annotation of the pod. The
container receives the annotation through a volume of the downward API, and exits (`server_start`). The kubelet then
restarts the container.

Only one pod at a time is restarted while other pods serve. After two restarts, or if the API server rejects one, the
pod is evicted. A backoff delays each attempt.
"""

# restarted before | another pod is restarting | other pods serve | since its last restart | action
# any              | yes                       | yes              | any                    | none: one at a time
# 0 or 1           | no, or none serves        |                  | < backoff              | none: wait
# 0 or 1           | no, or none serves        |                  | >= backoff             | restart
# 2                | no, or none serves        |                  | >= backoff             | evict

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from halcyon.api.timestamps import rfc3339
from halcyon.control.objects import pods
from halcyon.control.state.scope import Scope
from halcyon.kube import errors, kinds
from halcyon.kube.client import Kube, Object
from halcyon.kube.clock import Clock
from halcyon.kube.event_recorder import EventRecorder, NewEvent
from halcyon.kube.kinds import Key
from halcyon.render import names

log = logging.getLogger(__name__)

MAX_RESTARTS = 2
"""Number of restarts of a pod after which the pod is replaced if its backend dies again."""
RESTART_TIMEOUT_S = 20.0
"""Time within which the container must have restarted, in seconds. After that, the restart counts as failed."""
MIN_BACKOFF_S, MAX_BACKOFF_S = 10.0, 300.0
FORGET_S = 600.0
"""Time without a restart or a replacement after which earlier restarts of a model's pods no longer count, in seconds. A
restart whose pod isn't ready after this time counts as failed."""
_POLL_INTERVAL_S = 2.0


@dataclass
class Order:
    """Restarts that the operator has requested for one pod."""

    at: float
    restart_count: int
    """Restart count of the container at the time when the operator last requested a restart."""
    count: int = 1


@dataclass
class Record:
    """Restarts and replacements of a model's pods that the operator has requested."""

    at: float
    orders: dict[str, Order] = field(default_factory=dict)
    replaced: int = 0
    busy_at: float = -math.inf
    """Monotonic time at which a restart was last seen in progress, in seconds. A slow start takes minutes."""


@dataclass
class BackendRestart:
    """Repairer of pods with a dead backend. It restarts or replaces one pod per model at a time."""

    client: Kube
    events: EventRecorder
    clock: Clock

    _records: dict[Key, Record] = field(default_factory=dict)

    async def repair(self, scope: Scope) -> float | None:
        """Restart or replace one pod with a dead backend, if its backoff has passed and no restart is in progress.

        Returns:
            Delay until the next call, in seconds; None if no pod has a dead backend.

        Raises:
            ApiError, Unreachable: the request failed, but may succeed later.
        """
        now = self.clock.monotonic()
        live = {str(p["metadata"]["name"]): p for p in scope.pods if pods.is_live(p)}
        reported = scope.signals.dead if scope.signals else {}
        dead = {name: reported[name] for name in sorted(reported) if name in live}
        record = self._records.get(scope.key, Record(now))
        record.orders = {name: order for name, order in record.orders.items() if name in live}
        restarting = {name for name, order in record.orders.items() if _is_restarting(live[name], order, dead, now)}
        if restarting:
            record.busy_at = now
        elif now - max(record.at, record.busy_at) > FORGET_S:
            self._records.pop(scope.key, None)
            record = Record(now)
        if not dead:
            return None
        self._records[scope.key] = record
        if restarting and any(pods.is_ready(pod) and name not in dead for name, pod in live.items()):
            return _POLL_INTERVAL_S
        due = {name: record_due(record, name) for name in dead if name not in restarting}
        repairable = [name for name, at in due.items() if at <= now]
        if not repairable:
            return max(min(due.values(), default=now + _POLL_INTERVAL_S) - now, 0.1)
        await self._restart_or_evict(scope, record, live[repairable[0]], dead[repairable[0]], now)
        return _POLL_INTERVAL_S

    async def _restart_or_evict(self, scope: Scope, record: Record, pod: Object, reason: str, now: float) -> None:
        name = str(pod["metadata"]["name"])
        order = record.orders.get(name)
        evicts = order is not None and order.count >= MAX_RESTARTS
        try:
            if evicts:
                await self.client.evict(scope.key.namespace, pod)
            else:
                value = rfc3339(self.clock.wall(), "microseconds")
                body = {"metadata": {"uid": pod["metadata"]["uid"], "annotations": {names.RESTART_ANNOTATION: value}}}
                await self.client.patch(kinds.POD, scope.key.namespace, name, body)
        except (errors.Busy, errors.NotFound, errors.Conflicted) as error:
            log.info(
                "a pod with a dead backend cannot be restarted or evicted yet; retrying",
                extra={"key": str(scope.key), "pod": name, "error": str(error)},
            )
            return
        except errors.Refused as error:
            # For example by an admission policy. Other pods are repaired meanwhile, and the reconcile goes on.
            record.orders[name] = Order(now, _restarts(pod), max(MAX_RESTARTS, order.count + 1 if order else 0))
            action = f"the API server rejected the restart of its container; the pod is replaced instead: {error}"
            if evicts:
                action = f"the API server rejected the eviction of the pod: {error}"
        else:
            if evicts:
                record.replaced += 1
                action = f"the pod is being replaced, because its backend died again after {MAX_RESTARTS} restarts"
            else:
                record.orders[name] = Order(now, _restarts(pod), 1 if order is None else order.count + 1)
                action = "the pod receives no requests, and its container is being restarted"
        record.at = now
        message = f"the backend of pod {name} is dead: {reason}; {action}"
        self.events.record(scope.resource, NewEvent("Warning", "BackendDied", message))
        log.warning(
            "the backend of a pod is dead; restarting or replacing the pod",
            extra={"key": str(scope.key), "pod": name, "reason": reason, "done": action},
        )

    def forget(self, key: Key) -> None:
        """Drop the state of a model that was deleted."""
        self._records.pop(key, None)


def record_due(record: Record, name: str) -> float:
    """Return the monotonic time from which a pod may be restarted or replaced, in seconds.

    Each earlier restart of the pod and each replacement of a pod of the model doubles the wait.
    """
    order = record.orders.get(name)
    failed = (order.count if order else 0) + record.replaced
    since = order.at if order else record.at
    return since + min(MIN_BACKOFF_S * 2 ** (failed - 1), MAX_BACKOFF_S) if failed else since


def _is_restarting(pod: Object, order: Order, dead: Mapping[str, str], now: float) -> bool:
    """Return whether a restart of the pod is in progress: it isn't ready again, and the restart hasn't failed yet."""
    if not pods.is_ready(pod):
        return now - order.at <= FORGET_S
    has_restarted = _restarts(pod) != order.restart_count
    return pod["metadata"]["name"] in dead and not has_restarted and now - order.at < RESTART_TIMEOUT_S


def _restarts(pod: Object) -> int:
    return sum(int(c["restartCount"]) for c in pod["status"]["containerStatuses"] if c["name"] == names.TRITON)
