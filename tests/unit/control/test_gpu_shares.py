"""A namespace's GPUs while several of its models are reconciled at once: their requests interleave in every way that matters."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from dataclasses import replace
from typing import Any

import pytest
from typing_extensions import override

from halcyon.api.site_policy import SitePolicy
from halcyon.control import errors
from halcyon.control.caches import Caches
from halcyon.control.client import FIELD_MANAGER, Object
from halcyon.control.events import Recorder
from halcyon.control.kinds import Key, Kind
from halcyon.control.namespace_gpus import NamespaceGpus
from halcyon.control.reconcile import Reconciler
from halcyon.render import names, server
from tests.unit.control.memory_kube import MemoryKube
from tests.unit.control.objects import PVC, resource
from tests.unit.render.rendered import SITE

LIMIT = 4


class Api(MemoryKube):
    """Every write is seen by the caches at once; GETs wait for `answer`, where there is one, and writes are refused as asked."""

    def __init__(self) -> None:
        super().__init__()
        self.caches = Caches(self, enqueue=lambda _: None)
        self.asked: set[str] = set()
        """Models of which something was looked for."""
        self.answer: asyncio.Event | None = None
        self.errors: dict[str, Exception] = {}
        """By kind: what a write of it is answered with."""
        self.accepted: dict[str, str] = {}
        """The reason of the condition Accepted, by model."""
        self.most = 0
        """GPUs that the Deployments of servers have asked for together, at the most."""

    @override
    async def get(self, kind: Kind, namespace: str, name: str) -> Object | None:
        self.asked.add(name.partition("-")[0])
        if self.answer is not None:
            await self.answer.wait()
        if error := self.errors.get("GET"):
            raise error
        return await super().get(kind, namespace, name)

    @override
    async def apply(
        self, kind: Kind, obj: Object, *, force: bool = True, subresource: str = "", manager: str = FIELD_MANAGER
    ) -> Object:
        await asyncio.sleep(0)
        name = obj["metadata"]["name"]
        if subresource == "status":
            (accepted,) = (c for c in obj["status"]["conditions"] if c["type"] == "Accepted")
            self.accepted[name] = accepted["reason"]
            return obj | {"metadata": obj["metadata"] | {"resourceVersion": "1"}}
        if error := self.errors.get(kind.kind):
            raise error
        stored = self._put((kind, "team", name), obj)
        self.caches.children[kind]._store(Key("team", name), stored)
        self.caches.children[kind]._scopes[""].seen = int(stored["metadata"]["resourceVersion"])
        self.most = max(self.most, self.gpus())
        return stored

    def gpus(self) -> int:
        """GPUs of all Deployments of servers."""
        deployments = [obj for (kind, _, _), obj in self.objects.items() if kind.kind == "Deployment"]
        return sum(server.gpus(d["spec"]["template"]) * d["spec"]["replicas"] for d in deployments)


class Team:
    """A namespace whose models may have four GPUs."""

    def __init__(self) -> None:
        self.api = Api()
        caches = self.api.caches
        caches.resources._scopes[""].seen = 1
        self.gpus = caches.gpus = NamespaceGpus(caches, lambda _: None, limited=True)
        caches.claims._store(
            Key("team", "models"), {"metadata": {"namespace": "team", "name": "models", "resourceVersion": "1"}}
        )
        later = itertools.count(1000.0, 60.0).__next__
        site = replace(SITE, policy=SitePolicy.model_validate({"limits": {"gpusPerNamespace": LIMIT}}))
        self.reconciler = Reconciler(
            self.api,
            caches,
            Recorder(self.api, instance="op", clock=later),
            lambda: site,
            later,
            on_plan=lambda *_: None,
            on_gone=self.gpus.gone,
            shares=self.gpus,
        )

    def ask(self, name: str, gpus: int, **spec: Any) -> None:
        """Somebody writes a ModelDeployment."""
        made = resource({"model": {"source": PVC}, "replicas": 1, "runtime": {"gpu": {"count": gpus}}} | spec)
        version = int((self.api.caches.resources.get(Key("team", name)) or made)["metadata"].get("resourceVersion", 0))
        made["metadata"] |= {"name": name, "uid": f"u-{name}", "resourceVersion": str(version + 1)}
        self.api.caches.resources._store(Key("team", name), made)

    async def reconcile(self, *wanted: str) -> None:
        """All of them at once; everything that each looks for is answered once all have asked."""
        self.api.asked.clear()
        self.api.answer = asyncio.Event()
        working = [asyncio.create_task(self.reconciler.reconcile(Key("team", name))) for name in wanted]
        for _ in range(100):
            await asyncio.sleep(0)
        self.api.answer.set()
        await asyncio.gather(*working)

    @property
    def accepted(self) -> list[str]:
        """Models whose spec was accepted."""
        return sorted(name for name, reason in self.api.accepted.items() if reason == "Accepted")


async def test_models_that_are_created_at_once_pass_no_limit() -> None:
    team, models = Team(), ("one", "two", "three")
    for name in models:
        team.ask(name, 2)
    await team.reconcile(*models)

    assert team.api.asked == {"one", "two"}  # the third is refused before anything is looked for
    for _ in range(2):
        await team.reconcile(*models)
        assert team.accepted == ["one", "two"]
    assert team.api.most == LIMIT


async def test_models_that_take_more_gpus_at_once_pass_no_limit() -> None:
    team = Team()
    for name in ("one", "two"):
        team.ask(name, 1)
    await team.reconcile("one", "two")
    for name in ("one", "two"):
        team.ask(name, 3)
    await team.reconcile("one", "two")
    await team.reconcile("two", "one")

    assert team.accepted == ["one"]
    assert (team.api.gpus(), team.api.most) == (LIMIT, LIMIT)


async def test_what_an_edit_gives_up_is_taken_by_nobody_before_it_is_written() -> None:
    team = Team()
    team.ask("one", 4)
    await team.reconcile("one")
    team.ask("one", 1)
    team.ask("two", 3)
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
    team = Team()
    team.ask("one", 4)
    team.api.errors[where] = error
    with contextlib.suppress(errors.Unreachable, errors.Busy):
        await team.reconcile("one")
    team.api.errors.clear()
    team.ask("two", 4)
    await team.reconcile("two")
    await team.reconcile("one")

    assert team.accepted == ["two"]
    assert team.api.most == LIMIT


async def test_a_server_whose_answer_was_lost_keeps_its_share() -> None:
    team = Team()
    team.ask("one", 4)
    team.api.errors["Deployment"] = errors.Unreachable("reset")
    with pytest.raises(errors.Unreachable):
        await team.reconcile("one")
    team.api.errors.clear()
    team.ask("two", 4)
    await team.reconcile("two")
    await team.reconcile("one")

    assert team.accepted == ["one"]


async def test_a_deleted_model_s_share_is_free_when_its_servers_are_gone() -> None:
    team = Team()
    team.ask("one", 4)
    await team.reconcile("one")
    team.api.caches.resources._store(Key("team", "one"), None)
    team.ask("two", 4)
    await team.reconcile("one", "two")
    assert team.api.accepted["two"] == "PolicyDenied"

    for kind, _, name in list(team.api.objects):
        if name == names.server("one", names.SLOT_A):
            team.api.caches.children[kind]._store(Key("team", name), None)
    await team.reconcile("one")
    await team.reconcile("two")
    assert team.api.accepted["two"] == "Accepted"
