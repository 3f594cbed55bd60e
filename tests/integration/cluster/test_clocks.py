"""A machine whose clock is an hour off, against a real API server."""

from __future__ import annotations

import time

import pytest

from e2e.cluster.cluster import Cluster
from halcyon.kube import kinds
from halcyon.kube.client import connect
from halcyon.kube.clock import ClusterClock

pytestmark = pytest.mark.more


@pytest.mark.parametrize("ahead_s", [3600.0, -3600.0])
async def test_the_operator_has_the_time_of_the_api_server(cluster: Cluster, ahead_s: float) -> None:
    clock = ClusterClock(lambda: time.time() + ahead_s)
    client = await connect(str(cluster.kubeconfig), clock=clock)
    try:
        await client.get(kinds.CONFIG_MAP, "default", "kube-root-ca.crt")
        assert abs(clock.wall() - time.time()) < 10
    finally:
        await client.close()
