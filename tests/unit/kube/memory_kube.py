"""An in-memory stand-in for the API server: objects, versions and conflicts, and faults set by a test.

It implements only what an elector, a recorder and an informer need. Other tests use a real API server.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncGenerator, Callable, Mapping
from typing import Any

from typing_extensions import override

from halcyon.kube import errors
from halcyon.kube.client import FIELD_MANAGER, Kube, Object
from halcyon.kube.kinds import Kind
from tests.unit.control.copies import copied

Fault = Callable[[str], str]
"""Function from the verb to `ok`, `refuse` (an error before the write), `lose` (an error after it), `hang` or `hang
after`."""


def no_fault(_: str) -> str:
    """Return no fault."""
    return "ok"


def _merge(old: Any, new: Any) -> Any:  # any JSON value
    if not isinstance(new, Mapping):
        return new
    merged = {k: v for k, v in old.items() if new.get(k, ...) is not None} if isinstance(old, dict) else {}
    return merged | {k: _merge(merged.get(k), v) for k, v in new.items() if v is not None}


class MemoryKube(Kube):
    """Objects by kind, namespace and name."""

    def __init__(self) -> None:
        self.objects: dict[tuple[Kind, str, str], Object] = {}
        self._versions = itertools.count(2)

    def seen_by(self, fault: Fault) -> Faulty:
        """Return a connection with faults to the same objects."""
        return Faulty(self, fault)

    def _put(self, key: tuple[Kind, str, str], obj: Object) -> Object:
        stored = copied(obj)
        number = str(next(self._versions))
        stored["metadata"].setdefault("uid", f"uid-{number}")
        stored["metadata"]["resourceVersion"] = number
        self.objects[key] = stored
        return copied(stored)

    def _check(self, key: tuple[Kind, str, str], conditions: Mapping[str, Any]) -> None:
        """Raise `Conflicted` if the object has another uid or resourceVersion than these conditions, as the API server does."""
        stored = self.objects.get(key)
        if stored is None and "uid" in conditions:
            raise errors.Conflicted(409, f"uid mismatch: no {key[0].plural} {key[2]}")
        for field in ("uid", "resourceVersion"):
            if stored is not None and field in conditions and conditions[field] != stored["metadata"][field]:
                raise errors.Conflicted(409, f"{key[0].plural} {key[2]} has another {field}")

    @override
    async def get(self, kind: Kind, namespace: str, name: str) -> Object | None:
        return copied(self.objects.get((kind, namespace, name)))

    @override
    async def create(self, kind: Kind, obj: Object, *, namespace: str = "", dry_run: bool = False) -> Object:
        meta = obj["metadata"]
        name = meta.get("name") or f"{meta['generateName']}{next(self._versions)}"
        if dry_run:
            return copied(obj)
        if (kind, namespace, name) in self.objects:
            raise errors.Conflicted(409, f"{kind.plural} {name} already exists")
        return self._put((kind, namespace, name), obj)

    @override
    async def patch(
        self, kind: Kind, namespace: str, name: str, body: Mapping[str, Any], *, subresource: str = ""
    ) -> Object:
        stored = self.objects[kind, namespace, name]
        version = body.get("metadata", {}).get("resourceVersion")
        if version is not None and version != stored["metadata"]["resourceVersion"]:
            raise errors.Conflicted(409, f"{kind.plural} {name} is not {version}")
        return self._put((kind, namespace, name), _merge(stored, body))

    @override
    async def apply(self, kind: Kind, obj: Object, *, subresource: str = "", manager: str = FIELD_MANAGER) -> Object:
        # Merging is not simulated: how server-side apply merges is tested with a real API server in tests/integration.
        raise NotImplementedError

    @override
    async def scale(self, kind: Kind, obj: Object, *, before: int, after: int, version: str | None = None) -> Object:
        key = (kind, obj["metadata"]["namespace"], obj["metadata"]["name"])
        stored = self.objects[key]
        if version not in {None, stored["metadata"]["resourceVersion"]}:
            raise errors.Conflicted(409, f"{kind.plural} {key[2]} is not {version}")
        if (stored["metadata"]["uid"], stored["spec"]["replicas"]) != (obj["metadata"]["uid"], before):
            raise errors.Conflicted(409, f"{kind.plural} {key[2]} has not {before} replicas")
        return self._put(key, _merge(stored, {"spec": {"replicas": after}}))

    @override
    async def delete(self, kind: Kind, namespace: str, name: str, *, seen: Object | None = None) -> None:
        if seen is not None and (kind, namespace, name) in self.objects:
            self._check((kind, namespace, name), seen["metadata"])
        self.objects.pop((kind, namespace, name), None)

    @override
    async def evict(self, namespace: str, pod: Object) -> None:
        raise NotImplementedError

    @override
    async def list(
        self, kind: Kind, *, namespace: str = "", selector: str = "", metadata_only: bool = False
    ) -> tuple[list[Object], str]:
        raise NotImplementedError

    @override
    def watch(
        self, kind: Kind, *, since: str, namespace: str = "", selector: str = "", metadata_only: bool = False
    ) -> AsyncGenerator[tuple[str, Object], None]:
        raise NotImplementedError


class Faulty(MemoryKube):
    """A connection with faults to the objects of another client."""

    def __init__(self, behind: MemoryKube, fault: Fault) -> None:
        super().__init__()
        self._behind = behind
        self._fault = fault
        self.objects = behind.objects
        self._versions = behind._versions

    async def _before(self, verb: str) -> str:
        fate = self._fault(verb)
        if fate == "hang":
            await asyncio.Event().wait()
        if fate == "refuse":
            raise errors.Unreachable(f"{verb}: no answer")
        return fate

    async def _after(self, verb: str, fate: str) -> None:
        if fate == "hang after":
            await asyncio.Event().wait()
        if fate == "lose":
            raise errors.Unreachable(f"{verb}: the answer was lost")

    @override
    async def get(self, kind: Kind, namespace: str, name: str) -> Object | None:
        fate = await self._before("get")
        obj = await super().get(kind, namespace, name)
        await self._after("get", fate)
        return obj

    @override
    async def create(self, kind: Kind, obj: Object, *, namespace: str = "", dry_run: bool = False) -> Object:
        fate = await self._before("create")
        created = await super().create(kind, obj, namespace=namespace, dry_run=dry_run)
        await self._after("create", fate)
        return created

    @override
    async def patch(
        self, kind: Kind, namespace: str, name: str, body: Mapping[str, Any], *, subresource: str = ""
    ) -> Object:
        fate = await self._before("patch")
        patched = await super().patch(kind, namespace, name, body, subresource=subresource)
        await self._after("patch", fate)
        return patched
