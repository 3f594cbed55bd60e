"""Fixtures of the scenarios: one cluster with real pods, the chart and the digits model, removed at the end.

With HALCYON_E2E_KEEP=1 the cluster stays up, and the next run uses it.
"""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from demo import coldstart, models, setup
from demo.coldstart import ColdStart
from demo.kube import Kube
from demo.models import DIGITS
from demo.setup import Installed
from e2e import interrupts
from tests import figures

NAME = "e2e"
# The demo's figures are for the default of 15 s. Here it would only make the tests slower.
HPA_SYNC = "5s"
SCALE_DOWN_AFTER_S = 5
_HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip the scenarios without root, which a node needs. The cluster reports other missing requirements."""
    if os.geteuid() != 0:
        for item in items:
            if item.path.is_relative_to(_HERE) and "installed" in getattr(item, "fixturenames", ()):
                item.add_marker(pytest.mark.skip(reason="the embedded cluster's node needs root"))


@pytest.fixture(scope="session")
def installed() -> Iterator[Installed]:
    """Install images, cluster and chart. This takes 30 s if images and programs are built already."""
    keep = os.environ.get("HALCYON_E2E_KEEP") == "1"
    try:
        with interrupts.heeded():
            cluster = setup.install(
                NAME, hpa_sync=HPA_SYNC, step=lambda title: print(f"scenarios: {title}", flush=True)
            )
            if keep:
                _clear(cluster.kube)
            else:
                figures.record("helm_install_wait_s", cluster.helm_s)
            yield cluster
    finally:
        if not keep:
            setup.remove(NAME, step=lambda title: print(f"scenarios: {title}", flush=True))


def _clear(kube: Kube) -> None:
    names = kube("get", "modeldeployments", "-o", "jsonpath={.items[*].metadata.name}").split()
    models.delete(kube, *names)


@pytest.fixture(scope="session")
def kube(installed: Installed) -> Kube:
    """Return kubectl and Helm for the cluster, and addresses in it."""
    return installed.kube


@pytest.fixture(scope="session")
def digits(kube: Kube) -> ColdStart:
    """Serve the digits model as in the demo, with a faster scale-down, and return the durations of its start.

    All other models are created later: its start is measured on an idle cluster, and the others use its ConfigMap, too.
    """
    documents = models.documents() | {"ModelDeployment": models.digits(scale_down_after_s=SCALE_DOWN_AFTER_S)}
    manifest = "\n---\n".join(map(models.as_text, documents.values()))
    return coldstart.cold_start(kube, DIGITS, manifest=manifest)


@pytest.fixture(scope="module")
def served(kube: Kube, digits: ColdStart) -> Iterator[Callable[..., str]]:  # noqa: ARG001  # it comes first
    """Apply a ModelDeployment, wait until it is served, and delete it when the module ends."""
    names: list[str] = []

    def apply(document: dict[str, Any], *, replicas: int = 1) -> str:
        name = str(document["metadata"]["name"])
        names.append(name)
        kube.apply(document)
        models.wait_until_served(kube, name, replicas=replicas)
        return name

    yield apply
    models.delete(kube, *names, wait=False)
