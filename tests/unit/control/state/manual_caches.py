"""Caches that a test fills, and objects for them."""

from __future__ import annotations

from typing import Any

from halcyon.control.state.cluster_state import ClusterState
from halcyon.kube import kinds
from halcyon.kube.client import Object
from halcyon.kube.informers.informer import Informer
from halcyon.kube.kinds import Key, Kind
from halcyon.render import names
from tests.unit.control.reconcilers import scope_builder
from tests.unit.kube.memory_kube import MemoryKube

DIGITS = Key("team", "digits")


class ManualCaches:
    """Caches that a test fills, and the keys that they have enqueued."""

    def __init__(self) -> None:
        self.kube = MemoryKube()
        self.queued: list[Key] = []
        self.caches = ClusterState(self.kube, enqueue=self.queued.append)
        self.scopes = scope_builder(self.kube, self.caches)
        self._version = 100

    def store(self, informer: Informer, obj: Object) -> None:
        """Store an object, as a watch would."""
        self._version += 1
        stored = {**obj, "metadata": {**obj["metadata"], "resourceVersion": str(self._version)}}
        informer._store(Key(stored["metadata"]["namespace"], stored["metadata"]["name"]), stored)

    async def config_map(self, key: Key) -> None:
        """Create a ConfigMap with a model in the API server, and its entry in the cache."""
        body = {"metadata": {"namespace": key.namespace, "name": key.name}, "data": {"a": "x" * 1000}}
        created = await self.kube.create(kinds.CONFIG_MAP, body, namespace=key.namespace)
        self.caches.config_maps._store(key, created)

    async def look(self, key: Key = DIGITS) -> None:
        """Run the reads at the start of a reconcile."""
        await self.scopes.build(key, uncached={}, rejected="")


def labelled(kind: Kind, name: str, owner: str, **fields: Any) -> Object:
    labels = {names.OWNER_LABEL: owner}
    return {"kind": kind.kind, "metadata": {"namespace": "team", "name": name, "labels": labels}, **fields}
