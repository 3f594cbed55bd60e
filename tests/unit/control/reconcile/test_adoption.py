"""Objects of a model that have lost their owner references, as after a restore by Velero or a deletion with --cascade=orphan."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from typing_extensions import override

from halcyon.kube import errors, kinds
from halcyon.kube.client import Object
from halcyon.kube.kinds import Key, Kind
from halcyon.render import names
from tests.unit.control.reconcile.reconciled_namespace import Api, Team

KEY = Key("team", "one")
MANAGED = {names.OWNER_LABEL: "one", names.MANAGER_LABEL: names.MANAGER}


class Patched(Api):
    """An API server whose patches reach the caches at once."""

    refuses = False

    @override
    async def patch(
        self, kind: Kind, namespace: str, name: str, body: Mapping[str, Any], *, subresource: str = ""
    ) -> Object:
        if self.refuses:
            raise errors.Refused(403, "patch is not permitted")
        self._check((kind, namespace, name), body["metadata"])
        patched = await super().patch(kind, namespace, name, body, subresource=subresource)
        cache = self.caches.children[kind]
        cache._store(Key(namespace, name), patched)
        cache._scopes[""].seen = int(patched["metadata"]["resourceVersion"])
        return patched


def children(team: Team) -> dict[tuple[Kind, str], Object]:
    return {(kind, name): obj for (kind, _, name), obj in team.api.objects.items() if kind in kinds.CHILDREN}


def owners(team: Team) -> set[str]:
    """Return the uids of the owners of all children; "" for a child without an owner."""
    references = [obj["metadata"].get("ownerReferences") or [{"uid": ""}] for obj in children(team).values()]
    return {owner["uid"] for each in references for owner in each}


async def restored(**spec: Any) -> Team:
    """Return a namespace in which a model and its objects were created again, without owners and with other uids."""
    team = Team(api=Patched())
    team.ask("one", **spec)
    for _ in range(3):
        await team.reconciler.reconcile(KEY)
    for (kind, name), obj in children(team).items():
        metadata = {k: v for k, v in obj["metadata"].items() if k not in {"ownerReferences", "uid"}}
        team.seen(kind, name, {**obj, "metadata": metadata})
    team.ask("one", uid="restored", **spec)
    return team


async def test_objects_without_an_owner_belong_to_their_model_again() -> None:
    team = await restored()
    before = children(team)
    assert owners(team) == {""}
    for _ in range(4):
        await team.reconciler.reconcile(KEY)

    assert owners(team) == {"restored"}
    assert team.api.accepted == {"one": "Accepted"}
    # They are the same objects, so no pod is replaced.
    assert {child: obj["metadata"]["uid"] for child, obj in before.items()} == {
        child: obj["metadata"]["uid"] for child, obj in children(team).items()
    }


async def test_replicas_of_an_adopted_deployment_stay() -> None:
    team = await restored(replicas=4)
    spec = dict(children(team)[kinds.DEPLOYMENT, "one-a"]["spec"])
    for _ in range(4):
        await team.reconciler.reconcile(KEY)
    assert children(team)[kinds.DEPLOYMENT, "one-a"]["spec"] == spec
    assert spec["replicas"] == 4


@pytest.mark.parametrize("live", [None, {"uid": "newer"}, {"deletionTimestamp": "2026-01-01T00:00:00Z"}], ids=str)
async def test_no_object_gets_an_owner_that_is_out_of_date(live: dict[str, Any] | None) -> None:
    team = await restored()
    address = (kinds.MODEL_DEPLOYMENT, "team", "one")
    cached = team.api.objects.pop(address)
    if live is not None:
        team.api.objects[address] = {**cached, "metadata": {**cached["metadata"], **live}}
    await team.reconciler.reconcile(KEY)
    assert owners(team) == {""}


@pytest.mark.parametrize(
    "labels", [{}, MANAGED, MANAGED | {names.OWNER_LABEL: "two"}], ids=["none", "no digest", "another model"]
)
async def test_an_object_that_halcyon_did_not_write_is_a_conflict(labels: dict[str, str]) -> None:
    team = await restored()
    for _ in range(4):
        await team.reconciler.reconcile(KEY)
    service = children(team)[kinds.SERVICE, "one"]
    digest = service["metadata"]["annotations"] if labels != MANAGED else {}
    metadata = {"namespace": "team", "name": "one", "labels": labels, "annotations": digest}
    team.seen(kinds.SERVICE, "one", {**service, "metadata": metadata})
    await team.reconciler.reconcile(KEY)
    assert team.api.accepted == {"one": "Conflict"}
    assert "ownerReferences" not in children(team)[kinds.SERVICE, "one"]["metadata"]


async def test_a_rejected_adoption_is_reported_as_a_conflict() -> None:
    team = await restored()
    assert isinstance(team.api, Patched)
    team.api.refuses = True
    await team.reconciler.reconcile(KEY)
    assert team.api.accepted == {"one": "Conflict"}
