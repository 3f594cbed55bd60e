"""What the caches tell the queue, and what they keep, when objects come and go."""

from __future__ import annotations

import json
from typing import Any

from halcyon.control import kinds
from halcyon.control.accepted import Accepted
from halcyon.control.caches import Caches
from halcyon.control.client import Object
from halcyon.control.informer import Informer
from halcyon.control.kinds import Key, Kind
from halcyon.render import names
from tests.unit.control.memory_kube import MemoryKube
from tests.unit.control.objects import PVC, resource
from tests.unit.render.rendered import SITE

DIGITS = Key("team", "digits")
FILES = Key("team", "files")


class World:
    """Caches that are filled by hand, and the keys that they have enqueued."""

    def __init__(self) -> None:
        self.kube = MemoryKube()
        self.queued: list[Key] = []
        self.caches = Caches(self.kube, enqueue=self.queued.append)
        self._version = 100

    def store(self, informer: Informer, obj: Object) -> None:
        """As a watch would."""
        self._version += 1
        stored = {**obj, "metadata": {**obj["metadata"], "resourceVersion": str(self._version)}}
        informer._store(Key(stored["metadata"]["namespace"], stored["metadata"]["name"]), stored)

    async def config_map(self, key: Key) -> None:
        """A ConfigMap with a model: what the API server has, and what the cache knows of it."""
        body = {"metadata": {"namespace": key.namespace, "name": key.name}, "data": {"a": "x" * 1000}}
        made = await self.kube.create(kinds.CONFIG_MAP, body, namespace=key.namespace)
        self.caches.config_maps._store(key, made)

    async def look(self, key: Key = DIGITS) -> None:
        """What a reconcile does first."""
        await self.caches.view(key, SITE, found={}, refused="")


def labelled(kind: Kind, name: str, owner: str, **fields: Any) -> Object:
    labels = {names.OWNER_LABEL: owner}
    return {"kind": kind.kind, "metadata": {"namespace": "team", "name": name, "labels": labels}, **fields}


def from_config_map(name: str = "digits", source: str = "files") -> Object:
    made = resource({"model": {"source": {"configMap": {"name": source, "items": [{"key": "a", "path": "1/a"}]}}}})
    made["metadata"]["name"] = name
    return made


def test_a_child_whose_label_is_changed_concerns_the_old_owner_and_the_new_one() -> None:
    world = World()
    services = world.caches.children[kinds.SERVICE]
    world.store(services, labelled(kinds.SERVICE, "digits", "digits"))
    world.queued.clear()

    world.store(services, labelled(kinds.SERVICE, "digits", "other"))

    assert sorted(world.queued) == [DIGITS, Key("team", "other")]


def test_a_child_without_an_owner_concerns_nobody() -> None:
    world = World()
    obj = labelled(kinds.SERVICE, "digits", "digits")
    obj["metadata"]["labels"] = None
    world.store(world.caches.children[kinds.SERVICE], obj)

    assert world.queued == []


async def test_the_content_of_a_config_map_is_read_once_per_version() -> None:
    world = World()
    world.store(world.caches.resources, from_config_map())
    await world.config_map(FILES)
    await world.look()
    world.kube.objects.clear()
    await world.look()

    assert world.caches._contents.keys() == {FILES}


async def test_the_content_of_a_config_map_is_forgotten_with_the_last_model_that_names_it() -> None:
    world = World()
    await world.config_map(FILES)
    for name in ("digits", "second"):
        world.store(world.caches.resources, from_config_map(name))
        await world.look(Key("team", name))
    assert world.caches._contents.keys() == {FILES}

    world.caches.resources._store(Key("team", "second"), None)
    assert world.caches._contents.keys() == {FILES}

    world.caches.resources._store(DIGITS, None)
    assert world.caches._contents == {}


async def test_the_content_of_a_config_map_is_forgotten_when_the_model_takes_another_source() -> None:
    world = World()
    world.store(world.caches.resources, from_config_map())
    await world.config_map(FILES)
    await world.look()

    world.store(world.caches.resources, resource({"model": {"source": PVC}}))

    assert world.caches._contents == {}


def test_a_spec_in_force_is_forgotten_with_its_config_map() -> None:
    world = World()
    accepted = Accepted(world.caches)
    data = {"accepted.json": json.dumps({"model": {"source": PVC}})}
    maps = world.caches.children[kinds.CONFIG_MAP]
    world.store(maps, labelled(kinds.CONFIG_MAP, names.balancer("digits"), "digits", data=data))
    assert accepted(DIGITS) is not None

    world.store(maps, labelled(kinds.CONFIG_MAP, "digits-overlay-x", "digits"))
    maps._store(Key("team", "digits-overlay-x"), None)
    assert accepted._parsed.keys() == {DIGITS}

    maps._store(Key("team", names.balancer("digits")), None)
    assert accepted._parsed == {}
    assert accepted(DIGITS) is None
