"""A namespace's GPUs while several of its models are reconciled at once: their requests interleave in every way that matters."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import Any

import pytest
from typing_extensions import override

from halcyon.api.policy.site_policy import SitePolicy
from halcyon.kube import errors, kinds
from halcyon.kube.client import FIELD_MANAGER, Object
from halcyon.kube.kinds import Key, Kind
from halcyon.render import gpu, names
from tests.unit.control.reconcile.reconciled_namespace import Api, Team
from tests.unit.render.rendered import SITE

LIMIT = 4


class Limited(Team):
    """A namespace whose models may have four GPUs."""

    def __init__(self, api: Api | None = None) -> None:
        policy = SitePolicy.model_validate({"limits": {"gpusPerNamespace": LIMIT}})
        super().__init__(replace(SITE, policy=policy), api=api)

    def want(self, name: str, gpus: int) -> None:
        """Somebody writes a model of one replica."""
        self.ask(name, runtime={"gpu": {"count": gpus}})


async def test_models_that_are_created_at_once_pass_no_limit() -> None:
    team, models = Limited(), ("one", "two", "three")
    for name in models:
        team.want(name, 2)
    await team.reconcile(*models)

    assert team.api.models_read == {"one", "two"}  # the third is refused before anything is looked for
    for _ in range(2):
        await team.reconcile(*models)
        assert team.accepted == ["one", "two"]
    assert team.api.most == LIMIT


async def test_models_that_take_more_gpus_at_once_pass_no_limit() -> None:
    team = Limited()
    for name in ("one", "two"):
        team.want(name, 1)
    await team.reconcile("one", "two")
    for name in ("one", "two"):
        team.want(name, 3)
    await team.reconcile("one", "two")
    await team.reconcile("two", "one")

    assert team.accepted == ["one"]
    assert (team.api.gpus(), team.api.most) == (LIMIT, LIMIT)


async def test_gpus_that_an_edit_returns_stay_reserved_until_it_is_written() -> None:
    team = Limited()
    team.want("one", 4)
    await team.reconcile("one")
    team.want("one", 1)
    team.want("two", 3)
    await team.reconcile("one", "two")
    assert team.api.accepted == {"one": "Accepted", "two": "PolicyDenied"}
    await team.reconcile("two")

    assert team.accepted == ["one", "two"]
    assert team.api.most == LIMIT


@pytest.mark.parametrize(
    ("failing", "error"),
    [
        ("GET", errors.Unreachable("reset")),
        ("ControllerRevision", errors.Busy(500, "later")),
        ("Deployment", errors.Refused(403, "denied")),
    ],
)
async def test_a_model_of_which_no_server_was_written_gives_its_share_back(failing: str, error: Exception) -> None:
    team = Limited()
    team.want("one", 4)
    team.api.errors[failing] = error
    with contextlib.suppress(errors.Unreachable, errors.Busy):
        await team.reconcile("one")
    team.api.errors.clear()
    team.want("two", 4)
    await team.reconcile("two")
    await team.reconcile("one")

    assert team.accepted == ["two"]
    assert team.api.most == LIMIT


async def test_a_server_whose_answer_was_lost_keeps_its_share() -> None:
    team = Limited()
    team.want("one", 4)
    team.api.errors["Deployment"] = errors.Unreachable("reset")
    with pytest.raises(errors.Unreachable):
        await team.reconcile("one")
    team.api.errors.clear()
    team.want("two", 4)
    await team.reconcile("two")
    await team.reconcile("one")

    assert team.accepted == ["one"]


async def test_a_deleted_model_s_share_is_free_when_its_servers_are_gone() -> None:
    team = Limited()
    team.want("one", 4)
    await team.reconcile("one")
    team.delete("one")
    team.want("two", 4)
    await team.reconcile("one", "two")
    assert team.api.accepted["two"] == "PolicyDenied"

    for kind, _, name in list(team.api.objects):
        if name == names.server("one", names.SLOT_A):
            team.api.caches.children[kind]._store(Key("team", name), None)
    await team.reconcile("one")
    await team.reconcile("two")
    assert team.api.accepted["two"] == "Accepted"


class Denying(Api):
    """An API server with a policy that rejects server pods with one GPU."""

    denies: bool = False

    @override
    async def apply(self, kind: Kind, obj: Object, *, subresource: str = "", manager: str = FIELD_MANAGER) -> Object:
        if self.denies and kind is kinds.DEPLOYMENT and gpu.count(obj["spec"]["template"]) == 1:
            raise errors.Refused(403, "the policy requires two GPUs")
        return await super().apply(kind, obj, subresource=subresource, manager=manager)


async def test_servers_of_a_rejected_revision_take_only_reserved_gpus() -> None:
    api, key = Denying(), Key("team", "one")
    team = Limited(api)
    team.ask("one", scaling={"maxReplicas": 2}, runtime={"gpu": {"count": 2}})
    for _ in range(3):
        await team.reconciler.reconcile(key)
    small: dict[str, Any] = {"scaling": {"maxReplicas": 4}, "runtime": {"gpu": {"count": 1}}}
    api.denies = True
    team.ask("one", replicas=1, **small)
    for _ in range(2):
        await team.reconciler.reconcile(key)
    for replicas, running in ((2, 2), (4, 2), (1, 1)):
        team.ask("one", replicas=replicas, **small)
        for _ in range(2):
            await team.reconciler.reconcile(key)
        assert team.api.gpus() == 2 * running
    assert team.api.accepted["one"] == "Forbidden"
    assert team.api.most == LIMIT

    api.denies = False
    team.ask("one", replicas=4, **small)
    for _ in range(3):
        await team.reconciler.reconcile(key)
    assert team.api.accepted["one"] == "Accepted"


async def test_gpus_are_returned_although_another_object_is_rejected_for_ever() -> None:
    team = Limited()
    team.api.errors["PodDisruptionBudget"] = errors.Refused(403, "a policy denies PodDisruptionBudgets")
    team.want("one", 4)
    await team.reconcile("one")
    team.want("one", 1)
    await team.reconcile("one")
    team.want("two", 3)
    await team.reconcile("two")

    assert team.api.accepted == {"one": "Forbidden", "two": "Accepted"}
    assert (team.api.gpus(), team.api.most) == (LIMIT, LIMIT)
