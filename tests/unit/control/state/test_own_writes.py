"""Writes of ours that the caches have yet to see."""

from __future__ import annotations

from halcyon.kube import kinds
from halcyon.kube.kinds import Key
from tests.unit.control.scope_builders import resource
from tests.unit.control.state.manual_caches import DIGITS, ManualCaches


def test_the_caches_are_stale_until_they_have_our_own_write_of_replicas() -> None:
    world = ManualCaches()
    world.store(world.caches.resources, resource())
    model = resource()
    model["metadata"]["resourceVersion"] = "500"
    assert not world.caches.own_writes.is_behind(DIGITS)

    world.caches.own_writes.wrote(DIGITS, kinds.MODEL_DEPLOYMENT, model)
    assert world.caches.own_writes.is_behind(DIGITS)
    assert not world.caches.own_writes.is_behind(Key("team", "other"))

    world.caches.resources._store(DIGITS, model)
    assert not world.caches.own_writes.is_behind(DIGITS)
