"""The certificates that a replica serves, also while it may not read the front proxy's CA."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime
from email.utils import format_datetime

import pytest
from typing_extensions import override

from halcyon.kube import errors
from halcyon.kube.clock import ClusterClock
from halcyon.kube.kinds import CONFIG_MAP, SECRET, Kind, Object
from halcyon.metricsapi.certificates import CA_LIFE, SPREAD, Certificates, load, make_ca
from halcyon.metricsapi.serving_certificate import ServingCertificate
from tests.clocks import SplitClock
from tests.unit.kube.memory_kube import MemoryKube

FRONT_PROXY = (CONFIG_MAP, "kube-system", "extension-apiserver-authentication")


class ApiServer(MemoryKube):
    """API server with the empty Secret of the chart, which may deny reads of kube-system."""

    def __init__(self) -> None:
        super().__init__()
        self.denied = True
        self.objects[SECRET, "halcyon-system", "halcyon-tls"] = {
            "metadata": {"name": "halcyon-tls", "resourceVersion": "1"}
        }
        data = {"requestheader-client-ca-file": make_ca(datetime.now(UTC)).cert_pem}
        self.objects[FRONT_PROXY] = {"metadata": {"name": FRONT_PROXY[2], "resourceVersion": "1"}, "data": data}

    @override
    async def get(self, kind: Kind, namespace: str, name: str) -> Object | None:
        if self.denied and namespace == "kube-system":
            raise errors.Refused(403, 'configmaps is forbidden: cannot get resource "configmaps" in API group ""')
        return await super().get(kind, namespace, name)


def test_a_replica_serves_without_the_front_proxys_ca(caplog: pytest.LogCaptureFixture) -> None:
    server, changes = ApiServer(), list[None]()
    served = ServingCertificate(
        server,
        namespace="halcyon-system",
        secret="halcyon-tls",
        names=("halcyon.halcyon-system.svc",),
        on_change=lambda: changes.append(None),
    )
    for _ in range(3):
        asyncio.run(served.refresh(leading=True))
    assert served.tls is not None, "agents need the port, whoever calls the metrics API"
    assert not served.front_proxy
    assert len(changes) == 1
    assert [record.message for record in caplog.records] == ["the CA of the front proxy can't be read"]
    server.denied = False
    asyncio.run(served.refresh(leading=True))
    assert served.front_proxy is not None
    known = served.front_proxy
    server.denied = True
    asyncio.run(served.refresh(leading=True))
    assert served.front_proxy is known, "the API server may still call"


def test_certificates_have_the_time_of_the_cluster() -> None:
    server, week_s = ApiServer(), 7 * 24 * 3600.0
    server.denied = False
    clock = ClusterClock(lambda: time.time() + week_s)
    clock.responded(format_datetime(datetime.now(UTC)))
    served = ServingCertificate(
        server,
        namespace="halcyon-system",
        secret="halcyon-tls",
        names=("halcyon.halcyon-system.svc",),
        on_change=lambda: None,
        clock=clock,
    )
    asyncio.run(served.refresh(leading=True))
    assert served.certificates is not None
    assert load(served.certificates.serving.cert_pem).not_valid_before_utc < datetime.now(UTC)


def test_a_rotation_of_the_ca_ends_when_the_new_one_signs(caplog: pytest.LogCaptureFixture) -> None:
    server, now = ApiServer(), time.time()
    server.denied = False
    served = ServingCertificate(
        server,
        namespace="halcyon-system",
        secret="halcyon-tls",
        names=("halcyon.halcyon-system.svc",),
        on_change=lambda: None,
        clock=SplitClock(lambda: 0.0, lambda: now),
    )

    def refresh() -> Certificates:
        asyncio.run(served.refresh(leading=True))
        assert served.certificates is not None
        return served.certificates

    first = refresh()
    now += (CA_LIFE * 0.7).total_seconds()
    published = refresh()
    assert (published.ca, published.next_ca is None) == (first.ca, False)
    now += 2 * SPREAD.total_seconds()
    rotated = refresh()
    assert (rotated.ca, rotated.former_cas) == (published.next_ca, (first.ca.cert_pem,))
    caplog.clear()
    caplog.set_level("INFO")
    assert refresh() == rotated
    assert not caplog.records
