"""Objects of a model that have lost their owner, as after a restore by Velero or a deletion with --cascade=orphan."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from typing_extensions import override

from halcyon.control.reconcile.adoption import ADOPTION_INTERVAL_S
from halcyon.control.reconcile.children_writer import StaleModel
from halcyon.kube import errors, kinds
from halcyon.kube.client import Object
from halcyon.kube.kinds import Key, Kind
from halcyon.render import names
from halcyon.render.names import Slot
from tests.clocks import DrivenClock
from tests.unit.control.reconcile.reconciled_namespace import Api, Team

KEY = Key("team", "one")
MANAGED = {names.OWNER_LABEL: "one", names.MANAGER_LABEL: names.MANAGER}
SCALING = {"scaling": {"maxReplicas": 5}}


class Patched(Api):
    """An API server whose patches and deletions reach the caches at once, without managedFields as in the real caches."""

    def __init__(self) -> None:
        super().__init__()
        self.refused: set[Kind] = set()
        self.patched: list[Kind] = []
        self.before_patch: Callable[[], None] = lambda: None

    @override
    async def patch(
        self, kind: Kind, namespace: str, name: str, body: Mapping[str, Any], *, subresource: str = ""
    ) -> Object:
        if kind in self.refused:
            raise errors.Refused(403, f"{kind.plural} may not be patched")
        self.before_patch()
        self._check((kind, namespace, name), body["metadata"])
        patched = await super().patch(kind, namespace, name, body, subresource=subresource)
        self.patched.append(kind)
        self.cached(kind, name, patched)
        return patched

    @override
    async def delete(self, kind: Kind, namespace: str, name: str, *, seen: Object | None = None) -> None:
        await super().delete(kind, namespace, name, seen=seen)
        self.caches.children[kind]._store(Key(namespace, name), None)

    def cached(self, kind: Kind, name: str, obj: Object) -> None:
        metadata = {key: value for key, value in obj["metadata"].items() if key != "managedFields"}
        cache = self.caches.children[kind]
        cache._store(Key("team", name), {**obj, "metadata": metadata})
        cache._scopes[""].seen = int(metadata["resourceVersion"])


def patched(team: Team) -> Patched:
    assert isinstance(team.api, Patched)
    return team.api


def children(team: Team) -> dict[tuple[Kind, str], Object]:
    return {(kind, name): obj for (kind, _, name), obj in team.api.objects.items() if kind in kinds.CHILDREN}


def owners(team: Team) -> set[str]:
    """Return the uids of the owners of all children; "" for a child without an owner."""
    references = [obj["metadata"].get("ownerReferences") or [{"uid": ""}] for obj in children(team).values()]
    return {owner["uid"] for each in references for owner in each}


def change(team: Team, kind: Kind, name: str, *, fields: Mapping[str, Any] | None = None, **metadata: Any) -> None:
    """Create an object again, as another writer does it."""
    obj = copy.deepcopy(team.api.objects[kind, "team", name])
    obj["metadata"] = {k: v for k, v in obj["metadata"].items() if k not in {"uid", "resourceVersion"}} | metadata
    obj["metadata"].setdefault(
        "managedFields",
        [{"manager": "velero", "operation": "Update", "apiVersion": kind.api_version, "fieldsV1": {"f:data": {}}}],
    )
    stored = team.api._put((kind, "team", name), obj | dict(fields or {}))
    patched(team).cached(kind, name, stored)


async def restored(before: Mapping[str, Any] | None = None, **spec: Any) -> Team:
    """Return a namespace in which a model and its objects were created again, without owners and with other uids.

    `before` is the spec of the model that was saved, if it isn't `spec`.
    """
    team = Team(api=Patched())
    team.ask("one", **(spec if before is None else before))
    await reconciled(team)
    for kind, name in children(team):
        change(team, kind, name, ownerReferences=[])
    team.ask("one", uid="restored", **spec)
    return team


async def reconciled(team: Team, times: int = 4) -> None:
    for _ in range(times):
        await team.reconciler.reconcile(KEY)


def notes(team: Team, reason: str) -> list[str]:
    return [event["note"] for event, _ in team.recorder._pending if event["reason"] == reason]


async def test_objects_without_an_owner_belong_to_their_model_again() -> None:
    team = await restored()
    before = children(team)
    assert owners(team) == {""}
    await reconciled(team)

    assert owners(team) == {"restored"}
    assert team.api.accepted == {"one": "Accepted"}
    # They are the same objects, so no pod is replaced.
    uids = {child: obj["metadata"]["uid"] for child, obj in before.items()}
    assert uids == {child: obj["metadata"]["uid"] for child, obj in children(team).items()}
    (note,) = notes(team, "Adopted")
    assert {f"{kind.kind} {name}" for kind, name in before} == set(note.partition(": ")[2].split(", "))
    assert team.event_reasons().count("Conflict") == 0


async def test_an_adopted_deployment_keeps_its_pod_template_and_replicas() -> None:
    team = await restored(replicas=4)
    spec = copy.deepcopy(children(team)[kinds.DEPLOYMENT, "one-a"]["spec"])
    await reconciled(team)
    assert children(team)[kinds.DEPLOYMENT, "one-a"]["spec"] == spec
    assert spec["replicas"] == 4


@pytest.mark.parametrize(
    ("scaling", "replicas"),
    [
        ({"maxReplicas": 5}, 4),
        ({"maxReplicas": 3}, 3),
        ({"maxReplicas": 5, "mode": "Paused"}, 1),
        (None, 1),
    ],
    ids=["within the limits", "up to maxReplicas", "not if paused", "not without scaling"],
)
async def test_running_servers_stay_although_the_manifest_has_no_replicas(
    scaling: dict[str, Any] | None, replicas: int
) -> None:
    team = await restored({**SCALING, "replicas": 4}, **({"scaling": scaling} if scaling else {}))
    await team.reconciler.reconcile(KEY)
    assert owners(team) == {"restored"}
    assert team.api.objects[kinds.MODEL_DEPLOYMENT, "team", "one"]["spec"]["replicas"] == replicas


async def test_a_model_s_own_hpa_without_an_owner_is_no_external_one() -> None:
    scaling = {"scaling": {"maxReplicas": 5, "actuator": "HPA"}}
    team = await restored({**scaling, "replicas": 4}, **scaling)
    assert (kinds.HPA, "one") in children(team)
    await team.reconciler.reconcile(KEY)
    assert owners(team) == {"restored"}
    assert team.api.objects[kinds.MODEL_DEPLOYMENT, "team", "one"]["spec"]["replicas"] == 4
    await reconciled(team)
    assert (kinds.HPA, "one") in children(team)


@pytest.mark.parametrize("live", [None, {"uid": "newer"}, {"deletionTimestamp": "2026-01-01T00:00:00Z"}], ids=str)
async def test_no_object_gets_an_owner_that_is_out_of_date(live: dict[str, Any] | None) -> None:
    team = await restored()
    address = (kinds.MODEL_DEPLOYMENT, "team", "one")
    cached = team.api.objects.pop(address)
    if live is not None:
        team.api.objects[address] = {**cached, "metadata": {**cached["metadata"], **live}}
    with pytest.raises(StaleModel):
        await team.reconciler.reconcile(KEY)
    assert owners(team) == {""}


FORGED: dict[str, tuple[Kind, str, dict[str, Any]]] = {
    "no labels": (kinds.SERVICE, "one", {"labels": {}}),
    "no digest": (kinds.DEPLOYMENT, "one-a", {"annotations": {}}),
    "another model": (kinds.SERVICE, "one", {"labels": MANAGED | {names.OWNER_LABEL: "two"}}),
    "another owner": (kinds.SERVICE_ACCOUNT, "one-balancer", {"ownerReferences": [{"kind": "Job", "uid": "j"}]}),
    "its model, but not as its controller": (
        kinds.CONFIG_MAP,
        "one-balancer",
        {"ownerReferences": [names.owner("one", "restored") | {"controller": False}]},
    ),
    "another selector": (
        kinds.DEPLOYMENT,
        "one-a",
        {"fields": {"spec": {"selector": {"matchLabels": {"a": "b"}}, "template": {}}}},
    ),
    "another Role": (kinds.ROLE_BINDING, "one-balancer", {"fields": {"roleRef": {"kind": "Role", "name": "admin"}}}),
    "an immutable ConfigMap": (kinds.CONFIG_MAP, "one-balancer", {"fields": {"immutable": True}}),
    "a deletion": (kinds.SERVICE, "one", {"deletionTimestamp": "2026-01-01T00:00:00Z"}),
}


@pytest.mark.parametrize("case", FORGED)
async def test_an_object_that_halcyon_did_not_write_is_a_conflict(case: str) -> None:
    kind, name, changes = FORGED[case]
    team = await restored()
    await reconciled(team)
    change(team, kind, name, **({"ownerReferences": []} | changes))
    before = copy.deepcopy(children(team)[kind, name])
    await reconciled(team)
    assert children(team)[kind, name] == before
    assert team.api.accepted == {"one": "Conflict"}


async def test_an_object_without_managed_fields_is_reported_and_not_adopted() -> None:
    team = await restored()
    await reconciled(team)
    change(team, kinds.SERVICE, "one", ownerReferences=[], managedFields=[])
    await reconciled(team)
    assert team.api.accepted == {"one": "Forbidden"}
    assert owners(team) == {"", "restored"}


async def test_revisions_and_copies_whose_names_contradict_their_content_are_not_adopted() -> None:
    team = await restored()
    revision = next(name for kind, name in children(team) if kind is kinds.CONTROLLER_REVISION)
    overlay = next(name for kind, name in children(team) if "-overlay-" in name)
    data = children(team)[kinds.CONTROLLER_REVISION, revision]["data"]
    change(team, kinds.CONTROLLER_REVISION, revision, fields={"data": {**data, "key": "other"}})
    change(team, kinds.CONFIG_MAP, overlay, fields={"data": {"overlay.json": "{}"}})
    await reconciled(team)
    assert owners(team) == {""}
    assert team.api.accepted == {"one": "Conflict"}


async def test_a_conflicting_object_prevents_the_adoption_of_others() -> None:
    team = await restored()
    change(team, kinds.SERVICE, "one", labels={})
    await reconciled(team)
    assert owners(team) == {""}
    (note,) = notes(team, "Conflict")
    assert note.startswith("Service one already exists and does not belong")


async def test_objects_of_a_deleted_owner_are_awaited_and_not_adopted() -> None:
    team = await restored()
    change(team, kinds.SERVICE, "one", ownerReferences=[names.owner("one", "deleted")])
    result = await team.reconciler.reconcile(KEY)
    result = await team.reconciler.reconcile(KEY)
    assert owners(team) == {"", "deleted"}
    assert result.requeue_s is not None
    assert result.requeue_s < 1
    (note,) = notes(team, "Conflict")
    assert note == "Halcyon is waiting for the deletion of Service one of a deleted ModelDeployment with the same name"

    await team.api.delete(kinds.SERVICE, "team", "one")
    await reconciled(team)
    assert owners(team) == {"restored"}


async def test_a_rejected_spec_adopts_nothing() -> None:
    team = await restored()
    team.ask("one", uid="restored", runtime={"gpu": {"count": 1, "wrong": 1}})
    await reconciled(team)
    assert team.api.accepted == {"one": "Invalid"}
    assert owners(team) == {""}


async def test_a_rejected_spec_is_reported_although_an_object_has_lost_its_owner() -> None:
    team = await restored()
    await reconciled(team)
    change(team, kinds.SERVICE, "one", ownerReferences=[])
    team.ask("one", uid="restored", runtime={"gpu": {"count": 1, "wrong": 1}})
    await reconciled(team)
    assert team.api.accepted == {"one": "Invalid"}
    assert owners(team) == {"", "restored"}


async def test_an_object_that_changes_after_it_was_checked_is_not_adopted() -> None:
    team = await restored()
    for kind, name in children(team):
        if (kind, name) != (kinds.SERVICE, "one"):
            change(team, kind, name, ownerReferences=[names.owner("one", "restored")])

    def edit() -> None:
        change(team, kinds.SERVICE, "one", labels={"theirs": "1"})

    patched(team).before_patch = edit
    await team.reconciler.reconcile(KEY)
    service = children(team)[kinds.SERVICE, "one"]["metadata"]
    assert (service["labels"], service["ownerReferences"]) == ({"theirs": "1"}, [])
    assert patched(team).patched == []


async def test_an_object_whose_status_changes_meanwhile_is_read_again_and_adopted() -> None:
    team = await restored()
    changes = iter([True, True])

    def update_status() -> None:
        if next(changes, False):
            deployment = copy.deepcopy(children(team)[kinds.DEPLOYMENT, "one-a"])
            team.api._put((kinds.DEPLOYMENT, "team", "one-a"), deployment | {"status": {"replicas": 1}})

    patched(team).before_patch = update_status
    await team.reconciler.reconcile(KEY)
    assert owners(team) == {"restored"}


@pytest.mark.parametrize("error", [errors.Unreachable("a webhook is down"), errors.NotFound(404, "deleted")], ids=repr)
async def test_an_adoption_that_fails_delays_no_other_write_of_the_model(error: errors.HalcyonError) -> None:
    team = await restored()
    await reconciled(team)
    change(team, kinds.SERVICE, "one", ownerReferences=[])
    team.ask("one", uid="restored", replicas=3)

    def fail() -> None:
        raise error

    patched(team).before_patch = fail
    await reconciled(team)
    assert team.api.accepted == {"one": "Conflict"}
    assert children(team)[kinds.DEPLOYMENT, "one-a"]["spec"]["replicas"] == 3


async def test_an_owner_that_is_removed_again_and_again_is_a_conflict_meanwhile() -> None:
    team = await restored()
    now = [1000.0]
    team.reconciler.adoption.clock = DrivenClock(lambda: now[0])
    await reconciled(team)
    patched(team).patched.clear()
    change(team, kinds.SERVICE, "one", ownerReferences=[])
    team.ask("one", uid="restored", replicas=3)
    await reconciled(team)
    assert patched(team).patched == []
    assert team.api.accepted == {"one": "Conflict"}
    # The model's other objects follow its spec.
    assert children(team)[kinds.DEPLOYMENT, "one-a"]["spec"]["replicas"] == 3

    now[0] += ADOPTION_INTERVAL_S
    await reconciled(team)
    assert patched(team).patched == [kinds.SERVICE]
    assert team.api.accepted == {"one": "Accepted"}


async def test_a_rejected_adoption_is_reported_and_no_pod_is_replaced(caplog: pytest.LogCaptureFixture) -> None:
    team = await restored()
    patched(team).refused = {kinds.CONTROLLER_REVISION}
    template = copy.deepcopy(children(team)[kinds.DEPLOYMENT, "one-a"]["spec"]["template"])
    await reconciled(team)
    assert team.api.accepted == {"one": "Forbidden"}
    assert "cannot adopt objects" in caplog.text
    assert kinds.DEPLOYMENT not in patched(team).patched
    assert children(team)[kinds.DEPLOYMENT, "one-a"]["spec"]["template"] == template

    patched(team).refused = set()
    await reconciled(team)
    assert owners(team) == {"restored"}


async def test_no_config_map_of_a_revision_without_an_owner_is_deleted() -> None:
    team = await restored({}, batching={"maxQueueDelay": "5ms"})
    (overlay,) = (name for _, name in children(team) if "-overlay-" in name)
    patched(team).refused = {kinds.CONTROLLER_REVISION}
    await reconciled(team)
    # The overlay is adopted. Pods of the present Deployment mount it.
    assert children(team)[kinds.CONFIG_MAP, overlay]["metadata"]["ownerReferences"][0]["uid"] == "restored"

    patched(team).refused = set()
    await reconciled(team)
    assert owners(team) == {"restored"}
    assert len([name for _, name in children(team) if "-overlay-" in name]) == 2


async def test_the_service_of_servers_without_an_owner_is_not_deleted() -> None:
    team = await restored()
    await reconciled(team)
    owned = {"ownerReferences": [names.owner("one", "restored")]}
    for kind, name, metadata in (
        (kinds.DEPLOYMENT, "one-a", {"ownerReferences": []}),
        (kinds.SERVICE, names.slot_service("one", Slot("a")), owned),
    ):
        obj = copy.deepcopy(children(team)[kind, name])
        obj["metadata"] |= {"name": name.removesuffix("a") + "b"}
        if kind is kinds.DEPLOYMENT:
            obj["spec"]["selector"] = {"matchLabels": names.selector("one", names.SERVER, Slot("b"))}
        team.api.objects[kind, "team", obj["metadata"]["name"]] = obj
        change(team, kind, obj["metadata"]["name"], **metadata)
    patched(team).refused = {kinds.DEPLOYMENT}
    await reconciled(team)
    assert (kinds.SERVICE, "one-server-b") in children(team)
    assert (kinds.DEPLOYMENT, "one-b") in children(team)

    patched(team).refused = set()
    await reconciled(team, 6)
    # Without pods, they are no longer needed.
    assert not {"one-b", "one-server-b"} & {name for _, name in children(team)}


async def test_objects_that_the_spec_no_longer_needs_are_adopted_and_deleted() -> None:
    team = await restored({"runtime": {"gpu": {"count": 0}}}, runtime={"gpu": {"count": 0}}, traffic={"mode": "Direct"})
    assert (kinds.DEPLOYMENT, "one-balancer") in children(team)
    await reconciled(team, 6)
    assert owners(team) == {"restored"}
    assert (kinds.DEPLOYMENT, "one-balancer") not in children(team)
    assert (kinds.SERVICE, "one-headless") in children(team)
