"""A cache of one kind: list, then watch, with replace semantics.

Objects that vanish while no watch runs are noticed at the next list (kopf's own watching doesn't notice them). Readers
get what is cached and nothing else; nobody may decide before `synced`.

An object that can't be read is passed over: it is not in the cache, and one that was goes. A listener that fails does so alone.
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
"""A watch that lasted this long was a good one: what ends it is no sequel to an earlier failure."""

OBJECT = "object"
"""The part of `Malformed` that says whether an object could be read."""
OnChange = Callable[[Key, Object | None, Object | None], None]
"""Key, the object before and after; None where there was or is none."""


def no_index(_: Object) -> Iterable[str]:
    """For kinds that nobody looks up but by key."""
    return ()


def drop_managed_fields(obj: Object) -> Object:
    """Without managedFields, a third of an object that nobody here reads."""
    obj["metadata"].pop("managedFields", None)
    return obj


@dataclass
class _Scope:
    """One watched namespace, or all (empty), of a kind."""

    namespace: str
    seen: int = 0
    """The newest version; what one namespace has brought says nothing of another."""
    failures: int = 0
    listed: bool = False


@dataclass
class Informer:
    """The objects of one kind."""

    client: Kube
    kind: Kind
    selector: str = ""
    metadata_only: bool = False
    namespaces: tuple[str, ...] = ()
    """Each is watched by itself, for rights in some namespaces are none to all; empty: all, with one watch."""
    project: Callable[[Object], Object] = drop_managed_fields
    """What is kept of an object."""
    index: Callable[[Object], Iterable[str]] = no_index
    """Words under which an object is found, within its namespace."""
    listeners: list[OnChange] = field(default_factory=list)
    malformed: Malformed = field(default_factory=Malformed)
    """Is told which objects can't be read, or have made a listener fail."""

    def __post_init__(self) -> None:
        """Begin empty and not synced."""
        self._objects: dict[Key, Object] = {}
        self._index: dict[tuple[str, str], set[Key]] = defaultdict(set)
        self._unreadable: set[Key] = set()
        """Keys of objects that are there and can't be read."""
        self._scopes = {namespace: _Scope(namespace) for namespace in self.namespaces or ("",)}
        self.changes = 0
        """How often an object came, changed or went: who has asked since the last change has the same answers still."""
        self.synced = asyncio.Event()

    def __len__(self) -> int:
        """Objects that it holds."""
        return len(self._objects)

    def get(self, key: Key) -> Object | None:
        """The object, or None where the cache has none. Not to be changed by the caller."""
        return self._objects.get(key)

    def find(self, namespace: str, word: str) -> list[Object]:
        """Objects of a namespace under an index word, by name."""
        return [self._objects[key] for key in sorted(self._index.get((namespace, word), ()))]

    def keys(self) -> list[Key]:
        """Every key."""
        return list(self._objects)

    def has_seen(self, key: Key, version: int) -> bool:
        """Whether the cache is at least as new as this write of an object.

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
                told = {"kind": self.kind.plural, "error": str(error), "retry_s": round(delay, 1)}
                if isinstance(error, errors.Gone) and scope.failures == 1:
                    # Usual after a while without changes; only where it comes again at once is something wrong.
                    log.info("the watch is too old; listing again", extra=told | {"retry_s": 0})
                    continue
                # A single one costs nothing: a busy API server leaves a bookmark out, a connection ends.
                log.log(logging.INFO if scope.failures == 1 else logging.WARNING, "cannot watch", extra=told)
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
        """Watch until the API server ends it; the version to go on from.

        Raises:
            ApiError, Unreachable: it failed, or ended at once and brought nothing.
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
        """None if it has none: nothing can be known of such an object."""
        try:
            return _key(obj)
        except (KeyError, TypeError, AttributeError) as error:
            self.malformed.note(
                self.kind.kind, Key("", ""), OBJECT, f"its metadata can't be read: {error!r}", error=error
            )
            return None

    def _take(self, obj: Object) -> Key | None:
        """Keep an object as it is now; its key, also if it can't be read."""
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
        """It is gone."""
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
