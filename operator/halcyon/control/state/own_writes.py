"""Writes of ours that the caches have yet to see: no decision is made for a ModelDeployment before they have (read your writes)."""

from __future__ import annotations

from collections.abc import Callable

from halcyon.kube.client import Object
from halcyon.kube.clock import Clock
from halcyon.kube.informer import Informer
from halcyon.kube.kinds import Key, Kind

READ_YOUR_WRITES_TIMEOUT_S = 5.0
"""Time after which the cache is trusted although the event of our own write hasn't arrived."""


class OwnWrites:
    """The latest write of ours to each object that its cache has yet to see, by the ModelDeployment that it is for."""

    def __init__(self, cache_of: Callable[[Kind], Informer], clock: Clock) -> None:
        """Start with none; `cache_of` returns the cache of a kind."""
        self._cache_of, self._clock = cache_of, clock
        self._waiting: dict[Key, dict[tuple[Kind, Key], tuple[int, float]]] = {}

    def wrote(self, owner: Key, kind: Kind, obj: Object) -> None:
        """Record a write of ours: no decision for `owner` is made before the cache has seen it."""
        meta = obj["metadata"]
        key = Key(meta.get("namespace", ""), meta["name"])
        version = int(meta["resourceVersion"])
        if not self._cache_of(kind).has_seen(key, version):
            self._waiting.setdefault(owner, {})[kind, key] = (version, self._clock.monotonic())

    def is_behind(self, owner: Key) -> bool:
        """Return whether the caches have yet to see a write of ours for this ModelDeployment."""
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
        """Drop the writes for a ModelDeployment that was deleted."""
        self._waiting.pop(owner, None)
