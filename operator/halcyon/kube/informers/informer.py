"""Informer: a cache of all objects of one kind, which is filled by a list and updated by a watch.

Each list replaces the whole cache, so objects that were deleted while no watch was running are removed then (kopf's own
watch does not remove them). Reads return cached objects only. Make no decision before `synced` is true.

When a watch ends, the next step depends on the reason:

- If the API server ended it after its time-out, a new watch begins from the last version.
- If the connection broke or the API server failed, a new watch begins from the last version as well. If nothing was
  received for `UNPROVEN_S`, the objects are listed again instead.
- If the version is too old (`Gone`), or the API server refused the watch, the objects are listed again.

An object that cannot be parsed is skipped, and removed from the cache. If a listener fails, the other listeners are
still called.
"""

from __future__ import annotations

import asyncio
import logging
import random
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, MutableMapping
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

from halcyon.kube import errors
from halcyon.kube.client import Kube, Object
from halcyon.kube.informers.malformed_objects import Malformed
from halcyon.kube.informers.packed_objects import PackedObjects
from halcyon.kube.kinds import MODEL_DEPLOYMENT, Key, Kind

log = logging.getLogger(__name__)

STEADY_S = 5.0
"""Time in seconds after which a watch counts as healthy. If a healthy watch ends, the count of successive failures
starts at 0."""

UNPROVEN_S = 300.0
"""Time without an event or bookmark after which the objects are listed again if a watch breaks, in seconds.

A healthy watch receives a bookmark about once a minute. After a restore from a backup, an API server may never reach
the resource version from which a watch continues."""
OBJECT = "object"
"""Value of `part` in `Malformed` if an object cannot be parsed."""
OnChange = Callable[[Key, Object | None, Object | None], None]
"""Function that is called when an object changes. Its arguments are the key, the object before the change (None if it
was added) and the object after it (None if it was deleted)."""


def no_index(_: Object) -> Iterable[str]:
    """Return no index values. This function is for kinds that are only looked up by key."""
    return ()


def drop_managed_fields(obj: Object) -> Object:
    """Return the object without metadata.managedFields.

    These fields take a third of the object's size and are not used.
    """
    obj["metadata"].pop("managedFields", None)
    return obj


@dataclass
class _Scope:
    """State of the watch of one namespace, or of all namespaces if `namespace` is empty."""

    namespace: str
    seen: int = 0
    """Newest resource version that was received for this namespace. It is unrelated to the progress of the watches of
    other namespaces."""
    version: str = ""
    """Resource version from which the next watch continues; empty if a list is needed."""
    proven_at: float = 0.0
    """Monotonic time of the last list, event or bookmark, in seconds."""
    failures: int = 0
    listed: bool = False


@dataclass
class Informer:
    """Cache of the objects of one kind."""

    client: Kube
    kind: Kind
    selector: str = ""
    metadata_only: bool = False
    namespaces: tuple[str, ...] = ()
    """Namespaces to watch, each with its own watch, for an operator that has permissions only in these. If it is empty,
    one watch covers all namespaces."""
    project: Callable[[Object], Object] = drop_managed_fields
    """Function that returns the part of an object to keep in the cache."""
    index: Callable[[Object], Iterable[str]] = no_index
    """Function that returns the index values by which `find` finds an object within its namespace."""
    listeners: list[OnChange] = field(default_factory=list)
    optional: bool = False
    """Whether one of several namespaces counts as empty while the operator may not list the kind there."""
    packed: bool = False
    """Whether the cache keeps the objects as compressed JSON, because there are many and they are read rarely."""
    malformed: Malformed = field(default_factory=Malformed)
    """Record of objects that cannot be parsed, or for which a listener failed."""

    def __post_init__(self) -> None:
        """Create an informer whose cache is empty and not synced."""
        self._objects: MutableMapping[Key, Object] = PackedObjects() if self.packed else {}
        self._index: dict[tuple[str, str], set[Key]] = defaultdict(set)
        self._unreadable: set[Key] = set()
        """Keys of the objects that exist but cannot be parsed."""
        self._scopes = {namespace: _Scope(namespace) for namespace in self.namespaces or ("",)}
        self.changes = 0
        """Number of additions, changes and removals so far. While this number is unchanged, the results of reads are
        unchanged as well."""
        self.synced = asyncio.Event()

    def __len__(self) -> int:
        """Return the number of cached objects."""
        return len(self._objects)

    def get(self, key: Key) -> Object | None:
        """Return the cached object; None if there is none. The caller must not modify it."""
        return self._objects.get(key)

    def version(self, key: Key) -> Any:  # compared only
        """Return the resourceVersion of a cached object; None if there is none.

        While it doesn't change, `get` returns an equal object.
        """
        if isinstance(self._objects, PackedObjects):
            return self._objects.version(key)
        return None if (obj := self._objects.get(key)) is None else _version(obj)

    def find(self, namespace: str, word: str) -> list[Object]:
        """Return the objects in the namespace that have this index value, sorted by name."""
        return [self._objects[key] for key in sorted(self._index.get((namespace, word), ()))]

    def all_keys(self) -> list[Key]:
        """Return the keys of all cached objects."""
        return list(self._objects)

    def has_seen(self, key: Key, version: int) -> bool:
        """Return True if the cache includes the write of this object that resulted in this resource version.

        Resource versions of objects of one kind may be compared as integers (KEP-5504).
        """
        scope = self._scopes.get(key.namespace if self.namespaces else "")
        if scope is not None and scope.seen >= version:
            return True
        return (cached := self.version(key)) is not None and int(cached) >= version

    async def is_served(self) -> bool | None:
        """Return whether the API server has the kind and lets this client list it in a namespace; None if it is too busy."""
        served: set[bool | None] = set()
        for namespace in self._scopes:
            try:
                await self.client.list(self.kind, namespace=namespace, selector=self.selector, metadata_only=True)
                served.add(True)
            except errors.NotFound:
                return False
            except (errors.ApiError, errors.Unreachable) as error:
                served.add(False if isinstance(error, errors.Refused) else None)
                log.warning("cannot check for a kind", extra={"kind": self.kind.plural, "error": str(error)})
        return True if True in served else None if None in served else False

    async def run(self) -> None:
        """List and watch the objects until the task is cancelled."""
        async with asyncio.TaskGroup() as group:
            for scope in self._scopes.values():
                group.create_task(self._keep(scope), name=f"informer-{self.kind.plural}-{scope.namespace}")

    async def _keep(self, scope: _Scope) -> None:
        scope.version = ""
        while True:
            try:
                if not scope.version:
                    await self._replace(scope)
                while True:
                    await self._follow(scope)
            except Exception as error:
                scope.failures += 1
                is_transient = isinstance(error, errors.Unreachable | errors.Busy)
                if not is_transient or asyncio.get_running_loop().time() - scope.proven_at >= UNPROVEN_S:
                    scope.version = ""
                delay = min(0.2 * 2 ** min(scope.failures, 6), 10.0) * random.uniform(0.5, 1.0)  # noqa: S311  # jitter
                context = {"kind": self.kind.plural, "error": str(error), "retry_s": round(delay, 1)}
                if isinstance(error, errors.Gone) and scope.failures == 1:
                    # This is normal after some time without changes. Only a repetition at once is a failure.
                    log.info("the resource version is too old; listing again", extra=context | {"retry_s": 0})
                    continue
                # A single failure is harmless: a busy API server may omit a bookmark, or a connection may end.
                log.log(logging.INFO if scope.failures == 1 else logging.WARNING, "cannot watch", extra=context)
                if not isinstance(error, errors.HalcyonError):
                    log.exception("unexpected event; the objects are listed again")
                if not scope.listed and await self._is_gone(scope.namespace, error):
                    log.warning(
                        "a namespace in which nothing may be listed counts as empty",
                        extra={"namespace": scope.namespace},
                    )
                    self._mark_listed(scope)
                await asyncio.sleep(delay)

    async def _replace(self, scope: _Scope) -> None:
        pages = self.client.pages(
            self.kind, namespace=scope.namespace, selector=self.selector, metadata_only=self.metadata_only
        )
        present: set[Key] = set()
        version = ""
        async with aclosing(pages) as stream:
            async for items, listed_at in stream:
                present |= {key for item in items if (key := self._take(item)) is not None}
                version = listed_at
        cached = [*self._objects, *self._unreadable]
        for key in [k for k in cached if k not in present and scope.namespace in {"", k.namespace}]:
            self._drop(key)
        scope.seen = 0  # after a restore from a backup, the versions begin with a smaller number
        self._proceed(scope, version)
        self._mark_listed(scope)

    def _mark_listed(self, scope: _Scope) -> None:
        scope.listed = True
        if all(each.listed for each in self._scopes.values()):
            self.synced.set()

    async def _is_gone(self, namespace: str, error: Exception) -> bool:
        """Return whether a namespace, one of several, counts as empty after a denial.

        It does if the kind is optional. It also does if it seems to be deleted: not even models may be listed there.
        The operator's Role is deleted with the namespace. The caches of the other namespaces must not wait for it.
        """
        if len(self._scopes) == 1 or not _is_denial(error):
            return False
        try:
            await self.client.list(MODEL_DEPLOYMENT, namespace=namespace, metadata_only=True)
        except errors.HalcyonError as denial:
            return _is_denial(denial)
        return self.optional

    def _proceed(self, scope: _Scope, version: str) -> None:
        """Record that the cache includes all changes up to this resource version."""
        scope.seen = max(scope.seen, int(version))
        scope.version, scope.proven_at = version, asyncio.get_running_loop().time()

    async def _follow(self, scope: _Scope) -> None:
        """Watch until the API server ends the watch.

        Raises:
            ApiError, Unreachable: the watch failed, or ended at once without an event.
        """
        clock = asyncio.get_running_loop().time
        since, began = scope.version, clock()
        try:
            await self._watch(scope, since)
        finally:
            lasted = clock() - began
            if lasted >= STEADY_S:
                scope.failures = 0
        if scope.version == since and lasted < STEADY_S:
            raise errors.Unreachable(f"watch {self.kind.plural}: ended after {lasted:.1f} s without an event")
        scope.failures = 0

    async def _watch(self, scope: _Scope, since: str) -> None:
        events = self.client.watch(
            self.kind, since=since, namespace=scope.namespace, selector=self.selector, metadata_only=self.metadata_only
        )
        async with aclosing(events) as stream:
            async for kind, obj in stream:
                if kind == "BOOKMARK":
                    pass
                elif kind != "DELETED":
                    self._take(obj)
                elif (key := self._key(obj)) is not None:
                    self._drop(key)
                self._proceed(scope, obj["metadata"]["resourceVersion"])

    def _key(self, obj: Object) -> Key | None:
        """Return the key of an object. Return None if its metadata cannot be parsed, and record this in `malformed`."""
        try:
            return _key(obj)
        except (KeyError, TypeError, AttributeError) as error:
            self.malformed.note(
                self.kind.kind, Key("", ""), OBJECT, f"its metadata cannot be read: {error!r}", error=error
            )
            return None

    def _take(self, obj: Object) -> Key | None:
        """Store the object in the cache. Return its key, even if the rest of the object cannot be parsed."""
        key = self._key(obj)
        if key is None:
            return None
        stored: Object | None = None
        with self.malformed.skipping_errors(self.kind.kind, key, OBJECT):
            projected = self.project(obj)
            hash(_version(projected))
            hash(frozenset(self.index(projected)))
            if isinstance(self._objects, PackedObjects):
                self._objects.check(projected)
            stored = projected
        if stored is None:
            self._unreadable.add(key)
        else:
            self._unreadable.discard(key)
        self._store(key, stored)
        return key

    def _drop(self, key: Key) -> None:
        """Remove a deleted object from the cache."""
        self._unreadable.discard(key)
        self._store(key, None)
        self.malformed.forget(self.kind.kind, key)

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
                with self.malformed.skipping_errors(self.kind.kind, key, f"listener {number}"):
                    listener(key, before, obj)


def _key(obj: Object) -> Key:
    meta = obj["metadata"]
    # Interned, because several objects of a model have the same name, and all caches have the same namespaces.
    return Key(sys.intern(meta.get("namespace", "")), sys.intern(meta["name"]))


def _version(obj: Object) -> Any:  # compared only
    return obj["metadata"]["resourceVersion"]


def _is_denial(error: Exception) -> bool:
    return isinstance(error, errors.Refused) and error.status == 403
