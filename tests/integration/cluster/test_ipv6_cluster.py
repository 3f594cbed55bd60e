"""A model on a control plane whose API server, pods and Services have IPv6 addresses only."""

from __future__ import annotations

import ipaddress
import os
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.cluster import cluster as clusters
from e2e.cluster.cluster import Cluster
from e2e.cluster.options import Options
from halcyon.balancer.discovery import endpoint_slices
from halcyon.kube import kinds
from tests.integration.operator_process import running
from tests.integration.operator_space import Space
from tests.integration.waiting import until

pytestmark = pytest.mark.more


@pytest.fixture(scope="module")
def ipv6_cluster() -> Iterator[Cluster]:
    name = f"test6-{os.getpid()}"
    try:
        yield clusters.up(name, Options(control_plane_only=True, ipv6=True))
    finally:
        clusters.down(name)


def test_a_model_is_served_with_ipv6_addresses_alone(ipv6_cluster: Cluster, tmp_path: Path) -> None:
    assert ipv6_cluster.url.startswith("https://[::1]:")
    with running(ipv6_cluster, tmp_path):
        space = Space(ipv6_cluster.api, f"t-{uuid.uuid4().hex[:8]}")
        space.make()
        space.serve(replicas=2)
        pods = [pod["status"]["podIP"] for pod in space.every(kinds.POD)]
        assert len(pods) == 4, "two servers and two balancers"
        assert {ipaddress.ip_address(ip).version for ip in pods} == {6}
        assert {tuple(service["spec"]["ipFamilies"]) for service in space.every(kinds.SERVICE)} == {("IPv6",)}
        # What the agents read is what the EndpointSlice controller writes there.
        path = f"/apis/discovery.k8s.io/v1/namespaces/{space.namespace}/endpointslices"
        merged = until(
            lambda: endpoint_slices.merge(
                endpoint_slices.of_slice(endpoint_slice, slots={"m-a": "a", "m-server-a": "a"})
                for endpoint_slice in (space.api.call("GET", path).body or {})["items"]
            ),
            lambda endpoints: len(endpoints) == 2,
            goal="both servers are endpoints",
        )
        assert {ipaddress.ip_address(endpoint.address).version for endpoint in merged} == {6}
        space.scale(1)
        space.wait_settled()
        space.end()
