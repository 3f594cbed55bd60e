"""A namespace's GPUs while several of its models are reconciled at once: their requests interleave in every way that matters."""

from __future__ import annotations

import contextlib
from dataclasses import replace

import pytest

from halcyon.api.policy.site_policy import SitePolicy
from halcyon.kube import errors
from halcyon.kube.kinds import Key
from halcyon.render import names
from tests.unit.control.reconcile.reconciled_namespace import Team
from tests.unit.render.rendered import SITE

LIMIT = 4


class Limited(Team):
    """A namespace whose models may have four GPUs."""

    def __init__(self) -> None:
        policy = SitePolicy.model_validate({"limits": {"gpusPerNamespace": LIMIT}})
        super().__init__(replace(SITE, policy=policy))

    def want(self, name: str, gpus: int) -> None:
        """Somebody writes a model of one replica."""
        self.ask(name, runtime={"gpu": {"count": gpus}})


async def test_models_that_are_created_at_once_pass_no_limit() -> None:
    team, models = Limited(), ("one", "two", "three")
    for name in models:
        team.want(name, 2)
    await team.reconcile(*models)

    assert team.api.asked == {"one", "two"}  # the third is refused before anything is looked for
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
    ("where", "error"),
    [
        ("GET", errors.Unreachable("reset")),
        ("ControllerRevision", errors.Busy(500, "later")),
        ("Deployment", errors.Refused(403, "denied")),
    ],
)
async def test_a_model_of_which_no_server_was_written_gives_its_share_back(where: str, error: Exception) -> None:
    team = Limited()
    team.want("one", 4)
    team.api.errors[where] = error
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
