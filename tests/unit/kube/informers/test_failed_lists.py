"""Informers whose lists fail: for hours, or in a namespace that was deleted."""

from __future__ import annotations

import asyncio

import pytest
from typing_extensions import override

from halcyon.kube import errors
from halcyon.kube.client import Object
from halcyon.kube.informers.informer import Informer
from halcyon.kube.kinds import MODEL_DEPLOYMENT, POD, Kind
from tests.unit.kube.informers.test_informer import Script, follow, obj
from tests.unit.kube.virtual_time import VirtualTime, run


def test_a_list_that_fails_for_hours_is_retried_until_it_succeeds() -> None:
    failures = 1100
    informer, _ = follow(Script(*[errors.NotFound(404, "x")] * failures, ([obj("a", 1)], 5)), limit_s=10.0 * failures)

    assert informer.synced.is_set()


class DeletedNamespace(Script):
    """An API server that denies these kinds in the namespace `gone`."""

    def __init__(self, *denied: Kind) -> None:
        super().__init__(([obj("a", 1)], 5))
        self.denied = denied

    @override
    async def list(
        self, kind: Kind, *, namespace: str = "", selector: str = "", metadata_only: bool = False
    ) -> tuple[list[Object], str]:
        if namespace == "gone" and kind in self.denied:
            raise errors.Refused(403, f"{kind.plural} is forbidden")
        return await super().list(kind, namespace=namespace, selector=selector, metadata_only=metadata_only)


@pytest.mark.parametrize(("denied", "is_synced"), [((POD, MODEL_DEPLOYMENT), True), ((POD,), False)])
@pytest.mark.parametrize("others", [("team",), ()])
def test_other_namespaces_do_not_wait_for_a_deleted_one(
    denied: tuple[Kind, ...], is_synced: bool, others: tuple[str, ...]
) -> None:
    async def scenario(_: VirtualTime) -> tuple[bool, bool]:
        informer = Informer(DeletedNamespace(*denied), POD, namespaces=(*others, "gone"))
        running = asyncio.create_task(informer.run())
        await asyncio.sleep(60)
        running.cancel()
        return informer.synced.is_set(), await informer.is_served()

    assert run(scenario) == (is_synced and bool(others), bool(others))
