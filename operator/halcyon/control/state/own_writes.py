"""The operator's own writes that the caches don't show yet.

Until they do, no decision is made for the affected ModelDeployments.
"""

from __future__ import annotations

from collections.abc import Callable

from halcyon.kube.client import Object
from halcyon.kube.clock import Clock
from halcyon.kube.informers.informer import Informer
from halcyon.kube.kinds import Key, Kind

READ_YOUR_WRITES_TIMEOUT_S = 5.0
"""Maximum seconds to wait until a cache shows the operator's own write. After that, decisions use the cache as it is."""


class OwnWrites:
    """The operator's latest write to each object, by ModelDeployment, if the cache doesn't show the write yet."""

    def __init__(self, cache_of: Callable[[Kind], Informer], clock: Clock) -> None:
        """Initialize without any writes. `cache_of` returns the cache of a kind."""
        self._cache_of, self._clock = cache_of, clock
        self._waiting: dict[Key, dict[tuple[Kind, Key], tuple[int, float]]] = {}

    def wrote(self, owner: Key, kind: Kind, obj: Object) -> None:
        """Record a write by the operator. No decision on `owner` is made before the cache shows the write."""
        meta = obj["metadata"]
        key = Key(meta.get("namespace", ""), meta["name"])
        version = int(meta["resourceVersion"])
        if not self._cache_of(kind).has_seen(key, version):
            self._waiting.setdefault(owner, {})[kind, key] = (version, self._clock.monotonic())

    def version(self, owner: Key, kind: Kind, key: Key) -> str | None:
        """Return the resourceVersion of the last write to an object; None if the cache shows it, or there is none."""
        waiting = self._waiting.get(owner, {}).get((kind, key))
        return None if waiting is None else str(waiting[0])

    def is_behind(self, owner: Key) -> bool:
        """Return whether the caches don't show all of the operator's writes for this ModelDeployment yet."""
        waiting = self._waiting.get(owner)
        if not waiting:
            return False
        now = self._clock.monotonic()
        for (kind, key), (version, since) in list(waiting.items()):
            if now - since > READ_YOUR_WRITES_TIMEOUT_S or self._cache_of(kind).has_seen(key, version):
                del waiting[kind, key]
        if not waiting:
            del self._waiting[owner]
        return bool(waiting)

    def forget(self, owner: Key) -> None:
        """Drop the recorded writes for a ModelDeployment that was deleted."""
        self._waiting.pop(owner, None)
