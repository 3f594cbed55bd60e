"""Fixtures of the reliability suite: one API server, and an installation on it with a proxy."""

from collections.abc import Iterator

import pytest

from e2e.cluster.cluster import Cluster
from tests.faults.site import Site, site
from tests.integration.conftest import cluster

__all__ = ["cluster", "installation"]


@pytest.fixture
def installation(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:  # the fixture
    """Install on the API server, with a proxy between the operator and it."""
    with site(cluster, tmp_path_factory.mktemp("site")) as installed:
        yield installed
