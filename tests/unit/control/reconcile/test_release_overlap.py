"""Two releases that watch the same namespace: one manages each model, and the other leaves it alone and says so."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from typing_extensions import override

from halcyon.control.reconcile.release_overlap import CHECK_INTERVAL_S, ReleaseOverlap
from halcyon.kube import errors, kinds
from halcyon.kube.client import Object
from halcyon.kube.kinds import Kind
from halcyon.kube.leader_election import DURATION_S
from tests.clocks import DrivenClock
from tests.unit.control.scope_builders import resource
from tests.unit.kube.memory_kube import MemoryKube

OWN, OTHER = "halcyon-system/halcyon", "team-a/gpu"


class Releases(MemoryKube):
    """An API server with Leases, which records what is applied."""

    def __init__(self) -> None:
        super().__init__()
        self.applied: list[tuple[str, Object]] = []
        self.reads = 0
        self.error: Exception | None = None

    @override
    async def get(self, kind: Kind, namespace: str, name: str) -> Object | None:
        self.reads += 1
        if self.error is not None:
            raise self.error
        return await super().get(kind, namespace, name)

    @override
    async def apply(self, kind: Kind, obj: Object, *, subresource: str = "", manager: str = "halcyon") -> Object:
        assert subresource == "status"
        self.applied.append((manager, obj))
        return obj

    def renew(self, release: str, holder: str = "pod-0") -> None:
        namespace, _, name = release.partition("/")
        lease = {"metadata": {"namespace": namespace, "name": name}, "spec": {"holderIdentity": holder}}
        self._put((kinds.LEASE, namespace, name), lease)


class Watched:
    """A release that looks at a model."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.kube = Releases()
        self.subject = ReleaseOverlap(self.kube, DrivenClock(lambda: self.now), OWN)

    async def look(self, named: str = OTHER, conditions: list[Any] | None = None) -> str:
        status = {"operator": named, "conditions": conditions or [], "conflictingOperator": OTHER}
        return await self.subject.manager(resource(status=status))


@pytest.mark.parametrize("named", ["", OWN])
async def test_a_model_of_no_other_release_is_managed_without_a_request(named: str) -> None:
    watched = Watched()

    assert await watched.look(named) == ""
    assert watched.kube.reads == 0


async def test_a_model_of_a_running_release_is_left_alone_with_a_condition(
    caplog: pytest.LogCaptureFixture,
) -> None:
    watched = Watched()
    conditions: list[Any] = []
    for _ in range(20):
        watched.kube.renew(OTHER)
        assert await watched.look(conditions=conditions) == OTHER
        ((manager, applied),) = watched.kube.applied
        conditions = applied["status"]["conditions"]
        watched.now += 15.0

    assert manager == "halcyon-overlap"
    assert applied["status"].keys() == {"conditions", "conflictingOperator"}
    assert applied["status"]["conflictingOperator"] == OWN
    (condition,) = conditions
    assert (condition["type"], condition["status"], condition["reason"]) == (
        "OperatorConflict",
        "True",
        "ReleaseOverlap",
    )
    assert condition["message"].startswith(f"{OWN} also watches this namespace, but {OTHER} manages the model.")
    assert len([r for r in caplog.records if r.levelno == logging.WARNING]) == 1


async def test_a_release_that_does_not_renew_its_lease_is_succeeded() -> None:
    watched = Watched()
    watched.kube.renew(OTHER)
    assert await watched.look() == OTHER
    watched.now += DURATION_S - 1
    assert await watched.look() == OTHER
    watched.now += CHECK_INTERVAL_S + 1

    assert await watched.look() == ""


@pytest.mark.parametrize("state", ["released", "missing", "forbidden", "no release's name"])
async def test_a_release_that_was_uninstalled_is_succeeded_at_once(state: str) -> None:
    watched = Watched()
    if state == "released":
        watched.kube.renew(OTHER, holder="")
    if state == "forbidden":
        watched.kube.error = errors.Refused(403, "forbidden")

    assert await watched.look("x" if state == "no release's name" else OTHER) == ""


async def test_an_api_server_that_fails_decides_nothing() -> None:
    watched = Watched()
    watched.kube.error = errors.Busy(503, "busy")
    with pytest.raises(errors.Busy):
        await watched.look()


async def test_many_models_cost_one_read_of_the_lease() -> None:
    watched = Watched()
    watched.kube.renew(OTHER)
    for _ in range(100):
        await watched.look()

    assert watched.kube.reads == 1


async def test_the_condition_of_a_release_that_is_gone_is_removed() -> None:
    watched = Watched()
    condition = {"type": "OperatorConflict", "status": "True", "message": "another release"}
    watched.kube.renew(OTHER)
    await watched.look(OWN, [condition])
    assert watched.kube.applied == []
    watched.kube.renew(OTHER, holder="")
    watched.now += CHECK_INTERVAL_S
    await watched.look(OWN, [condition])

    ((manager, body),) = watched.kube.applied
    assert (manager, body["status"]) == ("halcyon-overlap", {})


async def test_the_condition_of_an_older_release_stays_while_it_runs() -> None:
    """The API server prunes conflictingOperator if its CRD is older, and an older release doesn't write it."""
    watched = Watched()
    watched.kube.renew(OTHER)
    condition = {"type": "OperatorConflict", "status": "True", "message": f"{OTHER} also watches this namespace"}
    status = {"operator": OWN, "conditions": [condition]}
    assert await watched.subject.manager(resource(status=status)) == ""
    assert watched.kube.applied == []
    watched.kube.renew(OTHER, holder="")
    watched.now += CHECK_INTERVAL_S
    await watched.subject.manager(resource(status=status))
    assert [body["status"] for _, body in watched.kube.applied] == [{}]
