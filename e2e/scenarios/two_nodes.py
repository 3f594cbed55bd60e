"""Fixtures of the scenarios on two nodes: a cluster of its own, the chart with its defaults and one model."""

from collections.abc import Iterator

import pytest

from demo import models, setup
from demo.kube import Kube
from demo.setup import Installed
from e2e import interrupts
from e2e.scenarios import node_pair
from e2e.scenarios.conftest import HPA_SYNC


@pytest.fixture(scope="module")
def installed() -> Iterator[Installed]:
    """Install images, a cluster of two nodes and the chart."""

    def step(title: str) -> None:
        print(f"two nodes: {title}", flush=True)

    try:
        with interrupts.heeded():
            yield setup.install(node_pair.CLUSTER, hpa_sync=HPA_SYNC, nodes=2, step=step)
    finally:
        setup.remove(node_pair.CLUSTER, step=step)


@pytest.fixture(scope="module")
def pair(installed: Installed) -> Kube:
    """Serve the model, and return its cluster."""
    kube = installed.kube
    kube.apply(models.documents()["ConfigMap"], node_pair.document())
    models.wait_until_served(kube, node_pair.MODEL, replicas=node_pair.SERVERS)
    return kube
