"""Recent events of models for the dashboard, derived from changes in their status.

The status is in the cache of every replica of the operator. So the operator needs no permission to read Events, which
would include Events of other workloads. The recent events are kept only in memory; `kubectl events` shows older ones
while the cluster keeps them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from halcyon.control.status.events import status_events
from halcyon.dashboard.ports import Event
from halcyon.kube.client import Object
from halcyon.kube.clock import Clock
from halcyon.kube.event_recorder import QUIET_S, NewEvent
from halcyon.kube.kinds import Key

MAX_EVENTS = 10
"""Maximum number of events that are kept per model."""
MAX_MODELS = 2000
"""Maximum number of models whose events are kept. The models with the most recent events are kept."""
_STATUS_PARTS = ("conditions", "rollout", "scaling")
"""Fields of the status from which events are derived."""


class RecentEvents:
    """Most recent events of each model."""

    def __init__(self, clock: Clock) -> None:
        """Initialize without any events."""
        self._clock = clock
        self._events: dict[Key, deque[Event]] = {}

    def changed(self, key: Key, before: Object | None, after: Object | None) -> None:
        """Record the events that a change of a ModelDeployment causes.

        If it is deleted, or created again, its events are dropped. Its first appearance in the cache causes no event.
        """
        if after is None or (before is not None and before["metadata"].get("uid") != after["metadata"].get("uid")):
            self._events.pop(key, None)
        elif before is not None:
            old, new = before.get("status") or {}, after.get("status") or {}
            if any(old.get(part) != new.get(part) for part in _STATUS_PARTS):
                for event in status_events(old, new, after.get("spec")):
                    self._add(key, event)

    def of(self, key: Key) -> Sequence[Event]:
        """Return a model's recent events, newest first."""
        return tuple(reversed(self._events.get(key, ())))

    def _add(self, key: Key, event: NewEvent) -> None:
        now, events = self._clock.wall(), self._events.pop(key, None) or deque(maxlen=MAX_EVENTS)
        entry = Event(now, event.type, event.reason, event.message)
        # As with Kubernetes Events, the same event isn't repeated within `QUIET_S`.
        if all(now - earlier.at >= QUIET_S or earlier[1:] != entry[1:] for earlier in events):
            events.append(entry)
        self._events[key] = events
        if len(self._events) > MAX_MODELS:
            del self._events[next(iter(self._events))]
