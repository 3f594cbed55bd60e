"""What has happened to models lately, for who looks at the dashboard: the events that changes of their status are worth.

From the cache, so every replica has them and nobody needs a right to read events, in which other people's workloads speak, too. In memory
alone: of before this process, `kubectl events` tells as long as the cluster keeps them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from halcyon.control.status.events import happenings
from halcyon.dashboard.ports import Event
from halcyon.kube.client import Object
from halcyon.kube.event_recorder import QUIET_S, NewEvent
from halcyon.kube.kinds import Key

KEPT = 10
"""Of a model."""
MODELS = 2000
"""With events that are kept: those that something has happened to last."""
_TELLING = ("conditions", "rollout", "scaling")
"""Parts of the status that events come from."""


class RecentEvents:
    """The last events of each model."""

    def __init__(self, wall: Callable[[], float]) -> None:
        """`wall` is seconds since the epoch."""
        self._wall = wall
        self._of: dict[Key, deque[Event]] = {}

    def changed(self, key: Key, before: Object | None, after: Object | None) -> None:
        """A ModelDeployment has come, changed or gone; what it says when it is seen for the first time is no news."""
        if after is None:
            self._of.pop(key, None)
        elif before is not None:
            old, new = before.get("status") or {}, after.get("status") or {}
            if any(old.get(part) != new.get(part) for part in _TELLING):
                for happening in happenings(old, new):
                    self._keep(key, happening)

    def of(self, key: Key) -> Sequence[Event]:
        """The newest first."""
        return tuple(reversed(self._of.get(key, ())))

    def _keep(self, key: Key, happening: NewEvent) -> None:
        now, kept = self._wall(), self._of.pop(key, None) or deque(maxlen=KEPT)
        made = Event(now, happening.type, happening.reason, happening.message)
        # As events themselves are written: the same one not twice in a while.
        if all(now - one.at >= QUIET_S or one[1:] != made[1:] for one in kept):
            kept.append(made)
        self._of[key] = kept
        if len(self._of) > MODELS:
            del self._of[next(iter(self._of))]
