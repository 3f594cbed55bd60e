"""A cache of one kind: list, then watch, with replace semantics.

Objects that vanish while no watch runs are noticed at the next list (kopf's own watching doesn't notice them). Readers
get what is cached and nothing else. No decision may be made before `synced`.

An object that can't be read is skipped: it is removed from the cache if it was there. A failing listener doesn't affect the others.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import defaultdict
from collections.abc import Callable, Iterable
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

from halcyon.kube import errors
from halcyon.kube.client import Kube, Object
from halcyon.kube.kinds import Key, Kind
from halcyon.kube.malformed_objects import Malformed

log = logging.getLogger(__name__)

STEADY_S = 5.0
"""Duration after which a watch counts as healthy: its end is not a further failure in a row."""

OBJECT = "object"
"""The part in `Malformed` for whether an object could be read."""
OnChange = Callable[[Key, Object | None, Object | None], None]
"""Listener that receives the key, and the object before and after; None if there was or is none."""


def no_index(_: Object) -> Iterable[str]:
    """Return no index values, for kinds that are only looked up by key."""
    return ()


def drop_managed_fields(obj: Object) -> Object:
    """Return the object without managedFields, which are a third of it and unused here."""
    obj["metadata"].pop("managedFields", None)
    return obj


@dataclass
class _Scope:
    """One watched namespace of a kind, or all if empty."""

    namespace: str
    seen: int = 0
    """The newest resource version. Each namespace has its own: events of one prove nothing about another."""
    failures: int = 0
    listed: bool = False


@dataclass
class Informer:
    """The cached objects of one kind."""

    client: Kube
    kind: Kind
    selector: str = ""
    metadata_only: bool = False
    namespaces: tuple[str, ...] = ()
    """Namespaces, each with its own watch because rights in some namespaces don't cover all; empty: all, with one watch."""
    project: Callable[[Object], Object] = drop_managed_fields
    """Returns the part of an object that is kept."""
    index: Callable[[Object], Iterable[str]] = no_index
    """Words under which an object is found, within its namespace."""
    listeners: list[OnChange] = field(default_factory=list)
    malformed: Malformed = field(default_factory=Malformed)
    """Record of the objects that can't be read, or have made a listener fail."""

    def __post_init__(self) -> None:
        """Start empty and not synced."""
        self._objects: dict[Key, Object] = {}
        self._index: dict[tuple[str, str], set[Key]] = defaultdict(set)
        self._unreadable: set[Key] = set()
        """Keys of objects that exist and can't be read."""
        self._scopes = {namespace: _Scope(namespace) for namespace in self.namespaces or ("",)}
        self.changes = 0
        """Number of additions, changes and removals. While it is the same, lookups return the same."""
        self.synced = asyncio.Event()

    def __len__(self) -> int:
        """Return the number of cached objects."""
        return len(self._objects)

    def get(self, key: Key) -> Object | None:
        """Return the object, or None if the cache has none. The caller must not change it."""
        return self._objects.get(key)

    def find(self, namespace: str, word: str) -> list[Object]:
        """Return the objects of a namespace under an index value, sorted by name."""
        return [self._objects[key] for key in sorted(self._index.get((namespace, word), ()))]

    def all_keys(self) -> list[Key]:
        """Return every key."""
        return list(self._objects)

    def has_seen(self, key: Key, version: int) -> bool:
        """Return whether the cache is at least as new as this write of an object.

        Resource versions of one kind may be compared as integers (KEP-5504).
        """
        scope = self._scopes.get(key.namespace if self.namespaces else "")
        if scope is not None and scope.seen >= version:
            return True
        obj = self._objects.get(key)
        return obj is not None and int(obj["metadata"]["resourceVersion"]) >= version

    async def run(self) -> None:
        """List and watch until cancelled."""
        async with asyncio.TaskGroup() as group:
            for scope in self._scopes.values():
                group.create_task(self._keep(scope), name=f"informer-{self.kind.plural}-{scope.namespace}")

    async def _keep(self, scope: _Scope) -> None:
        while True:
            try:
                version = await self._replace(scope)
                while True:
                    version = await self._follow(scope, version)
            except (errors.ApiError, errors.Unreachable) as error:
                scope.failures += 1
                delay = min(0.2 * 2**scope.failures, 10.0) * random.uniform(0.5, 1.0)  # noqa: S311  # jitter
                context = {"kind": self.kind.plural, "error": str(error), "retry_s": round(delay, 1)}
                if isinstance(error, errors.Gone) and scope.failures == 1:
                    # Usual after a while without changes. Something is wrong only if it happens again at once.
                    log.info("the resource version is too old; listing again", extra=context | {"retry_s": 0})
                    continue
                # A single failure is harmless: a busy API server leaves a bookmark out, or a connection ends.
                log.log(logging.INFO if scope.failures == 1 else logging.WARNING, "cannot watch", extra=context)
                await asyncio.sleep(delay)

    async def _replace(self, scope: _Scope) -> str:
        items, version = await self.client.list(
            self.kind, namespace=scope.namespace, selector=self.selector, metadata_only=self.metadata_only
        )
        present = set()
        for item in items:
            if (key := self._take(item)) is not None:
                present.add(key)
        there = [*self._objects, *self._unreadable]
        for key in [k for k in there if k not in present and scope.namespace in {"", k.namespace}]:
            self._drop(key)
        scope.seen = max(scope.seen, int(version))
        scope.listed = True
        if all(each.listed for each in self._scopes.values()):
            self.synced.set()
        return version

    async def _follow(self, scope: _Scope, version: str) -> str:
        """Watch until the API server ends it. Return the resource version to continue from.

        Raises:
            ApiError, Unreachable: if it failed, or ended at once without an event.
        """
        clock = asyncio.get_running_loop().time
        since, began = version, clock()
        try:
            version = await self._watch(scope, since)
        finally:
            lasted = clock() - began
            if lasted >= STEADY_S:
                scope.failures = 0
        if version == since and lasted < STEADY_S:
            raise errors.Unreachable(f"watch {self.kind.plural}: ended after {lasted:.1f} s without an event")
        scope.failures = 0
        return version

    async def _watch(self, scope: _Scope, version: str) -> str:
        events = self.client.watch(
            self.kind,
            since=version,
            namespace=scope.namespace,
            selector=self.selector,
            metadata_only=self.metadata_only,
        )
        async with aclosing(events) as stream:
            async for kind, obj in stream:
                version = obj["metadata"]["resourceVersion"]
                scope.seen = max(scope.seen, int(version))
                if kind == "BOOKMARK":
                    continue
                if kind != "DELETED":
                    self._take(obj)
                elif (key := self._key(obj)) is not None:
                    self._drop(key)
        return version

    def _key(self, obj: Object) -> Key | None:
        """Return the key; None if it can't be read, because then the object can't be identified."""
        try:
            return _key(obj)
        except (KeyError, TypeError, AttributeError) as error:
            self.malformed.note(
                self.kind.kind, Key("", ""), OBJECT, f"its metadata cannot be read: {error!r}", error=error
            )
            return None

    def _take(self, obj: Object) -> Key | None:
        """Store the current object. Return its key, also if the rest of it can't be read."""
        key = self._key(obj)
        if key is None:
            return None
        kept: Object | None = None
        with self.malformed.passed_over(self.kind.kind, key, OBJECT):
            made = self.project(obj)
            hash(_version(made))
            hash(frozenset(self.index(made)))
            kept = made
        if kept is None:
            self._unreadable.add(key)
        else:
            self._unreadable.discard(key)
        self._store(key, kept)
        return key

    def _drop(self, key: Key) -> None:
        """Remove an object that was deleted."""
        self._unreadable.discard(key)
        self.malformed.clear(self.kind.kind, key, OBJECT)
        self._store(key, None)

    def _store(self, key: Key, obj: Object | None) -> None:
        before = self._objects.get(key)
        if before is not None and obj is not None and _version(before) == _version(obj):
            return
        if before is not None:
            for word in self.index(before):
                words = self._index[key.namespace, word]
                words.discard(key)
                if not words:
                    del self._index[key.namespace, word]
        if obj is None:
            self._objects.pop(key, None)
        else:
            self._objects[key] = obj
            for word in self.index(obj):
                self._index[key.namespace, word].add(key)
        if before is not None or obj is not None:
            self.changes += 1
            for number, listener in enumerate(self.listeners):
                with self.malformed.passed_over(self.kind.kind, key, f"listener {number}"):
                    listener(key, before, obj)


def _key(obj: Object) -> Key:
    meta = obj["metadata"]
    return Key(meta.get("namespace", ""), meta["name"])


def _version(obj: Object) -> Any:  # compared only
    return obj["metadata"]["resourceVersion"]
