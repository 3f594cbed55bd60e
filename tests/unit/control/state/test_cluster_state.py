"""What the caches tell the queue, and what they keep, when objects come and go."""

from __future__ import annotations

from typing import Any

import pytest

from halcyon.control.objects import pods
from halcyon.control.state.lookups import ready_balancers
from halcyon.kube import kinds
from halcyon.kube.client import Object
from halcyon.kube.kinds import Key
from halcyon.render import names
from tests.unit.control.scope_builders import PVC, resource
from tests.unit.control.state.manual_caches import DIGITS, ManualCaches, labelled

FILES = Key("team", "files")


def from_config_map(name: str = "digits", source: str = "files") -> Object:
    model = resource({"model": {"source": {"configMap": {"name": source, "items": [{"key": "a", "path": "1/a"}]}}}})
    model["metadata"]["name"] = name
    return model


def test_a_relabelled_child_concerns_the_old_owner_and_the_new_one() -> None:
    world = ManualCaches()
    services = world.caches.children[kinds.SERVICE]
    world.store(services, labelled(kinds.SERVICE, "digits", "digits"))
    world.queued.clear()

    world.store(services, labelled(kinds.SERVICE, "digits", "other"))

    assert sorted(world.queued) == [DIGITS, Key("team", "other")]


def test_a_child_without_an_owner_concerns_no_model() -> None:
    world = ManualCaches()
    obj = labelled(kinds.SERVICE, "digits", "digits")
    obj["metadata"]["labels"] = None
    world.store(world.caches.children[kinds.SERVICE], obj)

    assert world.queued == []


async def test_the_content_of_a_config_map_is_read_once_per_version() -> None:
    world = ManualCaches()
    world.store(world.caches.resources, from_config_map())
    await world.config_map(FILES)
    await world.look()
    world.kube.objects.clear()
    await world.look()

    assert world.scopes.sources._contents.keys() == {FILES}


async def test_a_config_maps_content_is_forgotten_with_its_last_model() -> None:
    world = ManualCaches()
    await world.config_map(FILES)
    for name in ("digits", "second"):
        world.store(world.caches.resources, from_config_map(name))
        await world.look(Key("team", name))
    assert world.scopes.sources._contents.keys() == {FILES}

    world.caches.resources._store(Key("team", "second"), None)
    assert world.scopes.sources._contents.keys() == {FILES}

    world.caches.resources._store(DIGITS, None)
    assert world.scopes.sources._contents == {}


async def test_a_config_maps_content_is_forgotten_when_the_model_changes_its_source() -> None:
    world = ManualCaches()
    world.store(world.caches.resources, from_config_map())
    await world.config_map(FILES)
    await world.look()

    world.store(world.caches.resources, resource({"model": {"source": PVC}}))

    assert world.scopes.sources._contents == {}


def written(manager: str, time: str, *fields: str, subresource: str = "") -> dict[str, Any]:
    """An entry of managedFields: who set these fields of the spec."""
    entry = {"manager": manager, "operation": "Update", "time": f"2026-01-01T00:{time}Z", "fieldsV1": {}}
    if fields:
        entry["fieldsV1"] = {"f:spec": {f"f:{name}": {} for name in fields}}
    return entry | ({"subresource": subresource} if subresource else {})


def test_the_times_of_annotations_are_kept_of_managed_fields() -> None:
    def annotated(time: str, *names: str) -> dict[str, Any]:
        fields: dict[str, Any] = {"f:metadata": {"f:annotations": {".": {}, **{f"f:{name}": {} for name in names}}}}
        return {"manager": "kubectl-annotate", "time": f"2026-11-28T{time}:00Z", "fieldsV1": fields}

    obj = resource()
    promote = "serving.halcyon.dev/promote"
    obj["metadata"]["managedFields"] = [annotated("02:00", promote, "example.com/a"), annotated("01:00", promote)]
    kept = ManualCaches().caches.resources.project(obj)
    assert kept["metadata"]["annotatedAt"] == {promote: "2026-11-28T02:00:00Z"}


@pytest.mark.parametrize(
    ("entries", "writer"),
    [
        ([], ""),
        (None, ""),
        ([written("kubectl", "01:00", "model")], ""),
        ([written("kubectl", "01:00", "model", "replicas")], "kubectl"),
        ([written("kubectl", "01:00", "replicas"), written("argocd", "02:00", "replicas")], "argocd"),
        ([written("argocd", "02:00", "replicas"), written("kubectl", "01:00", "replicas")], "argocd"),
        ([written("kubectl", "01:00", "replicas"), written("argocd", "02:00", "scaling")], "kubectl"),
        (
            [written("kubectl", "01:00", "model"), written("halcyon", "02:00", "replicas", subresource="scale")],
            "halcyon",
        ),
        ([written("halcyon", "03:00"), written("kubectl", "01:00", "replicas")], "kubectl"),
    ],
)
def test_the_last_writer_of_the_replicas_is_kept_of_managed_fields_alone(entries: Any, writer: str) -> None:
    obj = resource()
    obj["metadata"]["managedFields"] = entries
    kept = ManualCaches().caches.resources.project(obj)

    assert kept["metadata"]["replicasWriter"] == writer
    assert bool(kept["metadata"]["replicasWrittenAt"]) == bool(writer)
    assert "managedFields" not in kept["metadata"]


def component_pod(
    name: str, component: str, *, owner: str = "digits", ready: bool = True, going: bool = False
) -> Object:
    return pods.project(
        {
            "metadata": {
                "namespace": "team",
                "name": name,
                "uid": name,
                "resourceVersion": "1",
                "labels": {names.OWNER_LABEL: owner, names.COMPONENT_LABEL: component},
                "deletionTimestamp": "2026-01-01T00:00:00Z" if going else None,
            },
            "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": str(ready)}]},
        }
    )


def test_ready_balancers_are_distinguished_from_servers_and_those_of_others() -> None:
    world = ManualCaches()
    for obj in (
        component_pod("b-0", names.BALANCER),
        component_pod("b-1", names.BALANCER, ready=False),
        component_pod("b-2", names.BALANCER, going=True),
        component_pod("b-3", names.BALANCER, owner="other"),
        component_pod("s-0", names.SERVER),
    ):
        world.store(world.caches.pods, obj)

    assert ready_balancers(world.caches, DIGITS) == {"b-0"}
    assert [p["metadata"]["name"] for p in world.caches.pods.find("team", "digits")] == ["s-0"]


def test_a_balancer_pod_wakes_no_reconcile_and_a_server_pod_does() -> None:
    world = ManualCaches()
    world.store(world.caches.pods, component_pod("b-0", names.BALANCER))
    assert world.queued == []

    world.store(world.caches.pods, component_pod("s-0", names.SERVER))
    assert world.queued == [DIGITS]


async def test_a_failing_balancer_wakes_a_reconcile_that_sees_it() -> None:
    world = ManualCaches()
    world.store(world.caches.resources, resource())
    world.store(world.caches.pods, component_pod("b-0", names.BALANCER))
    world.queued.clear()

    ended = component_pod("b-0", names.BALANCER, ready=False)
    last = {"terminated": {"exitCode": 1, "reason": "Error", "message": "cannot list resource"}}
    agent = {"name": "agent", "restartCount": 2, "state": {"running": {}}, "lastState": last}
    ended["status"]["initContainerStatuses"] = [agent]
    world.store(world.caches.pods, ended)

    assert world.queued == [DIGITS]
    seen = await world.scopes.build(DIGITS, uncached={}, rejected="")
    assert seen is not None
    assert (
        seen.balancer_failure
        == "pod b-0: container agent terminated: Error (exit code 1): cannot list resource, 2 restarts"
    )


def test_the_cache_keeps_no_second_copy_of_an_applied_model() -> None:
    world = ManualCaches()
    model = from_config_map()
    model["metadata"] |= {
        "resourceVersion": "7",
        "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{}", "note": "kept"},
    }
    world.caches.resources._take(model)
    kept = world.caches.resources.get(DIGITS)
    assert kept is not None
    assert kept["metadata"]["annotations"] == {"note": "kept"}
    assert kept["spec"] == from_config_map()["spec"]
