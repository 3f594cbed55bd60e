"""The server of the metrics API as the operator knows it, while the API server answers and while it doesn't."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime

import pytest
from typing_extensions import override

from halcyon.control.state.metrics_api_check import MetricsApiCheck
from halcyon.kube import errors
from halcyon.kube.kinds import API_SERVICE, Kind, Object
from halcyon.metricsapi.api_service import NAME
from halcyon.metricsapi.certificates import Certificates, renewed
from tests.unit.kube.memory_kube import MemoryKube


@dataclass
class NoCertificates:
    certificates: Certificates | None = None


class Scene:
    """A check whose requests fail while `down` is set, and whose next `failures` requests fail."""

    def __init__(self, server: str | None) -> None:
        self.down, self.failures, self.kube = False, 0, MemoryKube()
        self.certificates = NoCertificates()
        self.serve(server)
        client = self.kube.seen_by(lambda verb: "refuse" if verb == "get" and self._fails() else "ok")
        self.check = MetricsApiCheck(client, self.certificates, namespace="halcyon-system", service="halcyon")

    def _fails(self) -> bool:
        self.failures, left = max(self.failures - 1, 0), self.failures
        return self.down or left > 0

    @property
    def ca_bundle(self) -> str | None:
        bundle: str | None = self.kube.objects[API_SERVICE, "", NAME]["spec"].get("caBundle")
        return bundle

    def serve(self, server: str | None) -> None:
        self.kube.objects.pop((API_SERVICE, "", NAME), None)
        if server is not None:
            namespace, _, name = server.partition("/")
            spec = {"service": {"namespace": namespace, "name": name}}
            self.kube.objects[API_SERVICE, "", NAME] = {"metadata": {"name": NAME}, "spec": spec}

    def run(self) -> bool:
        return asyncio.run(self.check.run_once())


@pytest.mark.parametrize("server", ["halcyon-system/halcyon", "keda/keda-metrics", None])
def test_a_server_stays_known_while_the_api_server_does_not_answer(server: str | None) -> None:
    scene = Scene(server)
    assert scene.run()
    known = scene.check.result
    assert known.ours == (server == "halcyon-system/halcyon")
    scene.down = True
    assert not scene.run(), "each model would get another actuator, and lose its HPA"
    assert scene.check.result == known
    scene.down = False
    scene.serve("another/server")
    assert scene.run()
    assert (scene.check.result.ours, scene.check.result.why) == (
        False,
        "external.metrics.k8s.io is served by another/server",
    )


def test_a_server_is_unknown_until_the_api_server_answers() -> None:
    scene = Scene("halcyon-system/halcyon")
    scene.down = True
    assert scene.run()
    assert scene.check.result.why.startswith("it is unknown who serves external.metrics.k8s.io: ")
    assert not scene.run()
    assert not scene.check.is_certain
    scene.down = False
    assert scene.run()
    assert scene.check.result.ours
    assert scene.check.is_certain


def test_the_certificate_of_another_server_stays_after_a_failed_request() -> None:
    """The server of the last result may be replaced by then."""
    scene = Scene("halcyon-system/halcyon")
    scene.certificates.certificates = renewed(None, ["halcyon"], datetime.now(UTC))
    scene.run()
    assert scene.ca_bundle
    scene.serve("keda/keda-metrics")
    scene.failures = 1
    scene.run()
    assert scene.check.result.ours, "the last result stays"
    assert scene.ca_bundle is None


@pytest.mark.parametrize(
    "error",
    [errors.Refused(403, "a policy denies HPAs"), errors.NotFound(404, "namespaces team-a not found")],
    ids=["denied", "no namespace"],
)
def test_a_denied_check_is_an_answer(error: errors.ApiError) -> None:
    """Otherwise each new leader would wait, in a cluster whose rules or rights deny it for ever."""

    class Denied(MemoryKube):
        @override
        async def get(self, kind: Kind, namespace: str, name: str) -> Object | None:
            raise errors.Refused(403, "apiservices is forbidden")

        @override
        async def create(self, kind: Kind, obj: Object, *, namespace: str = "", dry_run: bool = False) -> Object:
            raise error

    check = MetricsApiCheck(Denied(), NoCertificates(), namespace="halcyon-system", service="halcyon")
    asyncio.run(check.run_once())
    assert check.is_certain
    assert (check.result.ours, check.result.tolerance) == (False, None)


def test_the_tolerance_is_used_after_an_upgrade_of_the_api_server() -> None:
    class Upgraded(MemoryKube):
        """An API server that drops the field until it is upgraded."""

        old = True

        @override
        async def create(self, kind: Kind, obj: Object, *, namespace: str = "", dry_run: bool = False) -> Object:
            return {**obj, "spec": {"behavior": {}}} if self.old else obj

    kube = Upgraded()
    check = MetricsApiCheck(kube, NoCertificates(), namespace="halcyon-system", service="halcyon")
    asyncio.run(check.run_once())
    assert not check.result.tolerance
    kube.old = False

    assert asyncio.run(check.run_once())
    assert check.result.tolerance
