"""Fixtures of the integration tests: one real API server per run of pytest, and a new namespace for each test."""

import os
import re
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.cluster import cluster as clusters
from e2e.cluster.cluster import Cluster
from e2e.cluster.kubectl import Kubectl
from e2e.cluster.options import Options
from e2e.cluster.places import names
from e2e.cluster.processes import wait_until
from tests.integration.operator_process import Operator, running
from tests.integration.operator_space import Space
from tests.integration.waiting import PATIENCE

_NAME = re.compile(r"test6?-(\d+)")


def _end_clusters_of_dead_runs() -> None:
    """Remove clusters of runs that were killed with SIGKILL, and so couldn't do it themselves."""
    for name in names():
        match = _NAME.fullmatch(name)
        if match and not Path("/proc", match[1]).exists():
            clusters.down(name)


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """Start etcd, API server, controllers, scheduler, and KWOK with a node with 8 GPUs; takes 5 s.

    See docs/cluster.md.
    """
    _end_clusters_of_dead_runs()
    name = f"test-{os.getpid()}"
    try:
        yield clusters.up(name, Options(control_plane_only=True))
    finally:
        clusters.down(name)


@pytest.fixture
def namespace(cluster: Cluster) -> Iterator[str]:
    """Create a namespace in which pods can be created at once. Its deletion continues during the next test."""
    name = f"t-{uuid.uuid4().hex[:8]}"
    cluster.api.create("/api/v1/namespaces", {"metadata": {"name": name}})
    for path in ("serviceaccounts/default", "configmaps/kube-root-ca.crt"):
        wait_until(
            lambda path=path: cluster.api.exists(f"/api/v1/namespaces/{name}/{path}"),  # type: ignore[misc]
            goal=f"namespace {name} has {path}",
            limit_s=10 * PATIENCE,
            every_s=0.01,
        )
    yield name
    cluster.api.call("DELETE", f"/api/v1/namespaces/{name}")


@pytest.fixture
def kubectl(cluster: Cluster, namespace: str) -> Kubectl:
    """Return kubectl in the test's namespace: `kubectl("get", "pods")`."""
    return Kubectl(programs=cluster.bin, kubeconfig=cluster.kubeconfig, namespace=namespace)


@pytest.fixture(scope="module")
def operator(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Operator]:
    """Start one operator for all tests of a module, whose log must contain no error at the end."""
    with running(cluster, tmp_path_factory.mktemp("operator")) as started:
        yield started


@pytest.fixture
def space(cluster: Cluster, namespace: str, operator: Operator) -> Space:
    """Return the test's namespace, with a running operator."""
    assert operator.process is not None
    return Space(cluster.api, namespace)
