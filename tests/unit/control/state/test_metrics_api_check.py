"""The server of the metrics API and the tolerance of HPAs: found out once, and kept while the API server fails."""

from __future__ import annotations

import pytest
from typing_extensions import override

from halcyon.control.state.metrics_api_check import MetricsApiCheck
from halcyon.kube import errors
from halcyon.kube.client import Object
from halcyon.kube.kinds import API_SERVICE, Kind
from halcyon.metricsapi.api_service import NAME
from tests.unit.kube.memory_kube import MemoryKube


class NoCertificates:
    """A TLS server whose certificates have not been issued yet."""

    certificates = None


class Failing(MemoryKube):
    """An API server that fails a verb if the test says so."""

    fails: frozenset[str] = frozenset()

    @override
    async def get(self, kind: Kind, namespace: str, name: str) -> Object | None:
        if "get" in self.fails:
            raise errors.Busy(503, "the server is busy")
        return await super().get(kind, namespace, name)

    @override
    async def create(self, kind: Kind, obj: Object, *, namespace: str = "", dry_run: bool = False) -> Object:
        if "create" in self.fails:
            raise errors.Unreachable("no answer")
        return await super().create(kind, obj, namespace=namespace, dry_run=dry_run)


def check(*fails: str, server: str = "halcyon") -> tuple[Failing, MetricsApiCheck]:
    kube = Failing()
    kube.fails = frozenset(fails)
    service = {"namespace": "halcyon-system", "name": server}
    kube.objects[API_SERVICE, "", NAME] = {"metadata": {"name": NAME}, "spec": {"service": service}}
    return kube, MetricsApiCheck(kube, NoCertificates(), namespace="halcyon-system", service="halcyon")


@pytest.mark.parametrize("fails", ["get", "create"])
async def test_a_failed_check_at_the_start_is_unknown_until_one_succeeds(fails: str) -> None:
    kube, found = check(fails)
    assert await found.run_once()
    assert not found.result.known
    kube.fails = frozenset()
    assert await found.run_once()
    assert (found.result.ours, found.result.tolerance, found.result.known) == (True, True, True)


async def test_a_failed_check_keeps_the_last_result() -> None:
    kube, found = check()
    assert await found.run_once()
    before = found.result
    kube.fails = frozenset({"get", "create"})
    assert not await found.run_once()
    assert found.result is before
    kube.fails = frozenset()
    kube.objects[API_SERVICE, "", NAME]["spec"]["service"]["name"] = "keda"
    assert await found.run_once()
    assert (found.result.ours, found.result.known) == (False, True)


async def test_a_tolerance_matters_only_if_halcyon_serves_the_api() -> None:
    _, found = check("create", server="keda")
    assert await found.run_once()
    assert (found.result.ours, found.result.known) == (False, True)
