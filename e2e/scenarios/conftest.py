"""What the scenarios share: one cluster with real pods, the chart on it, and the digits model; all gone at the end.

With HALCYON_E2E_KEEP=1 the cluster is left up, and the next run takes it as it is.
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
# The default of 15 s is what the demo's figures are for; here it would only be waited for.
HPA_SYNC = "5s"
SCALE_DOWN_AFTER_S = 5
_HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Without root there is no node; the cluster says what else is missing."""
    if os.geteuid() != 0:
        for item in items:
            if item.path.is_relative_to(_HERE) and "installed" in getattr(item, "fixturenames", ()):
                item.add_marker(pytest.mark.skip(reason="the embedded cluster's node needs root"))


@pytest.fixture(scope="session")
def installed() -> Iterator[Installed]:
    """Images, cluster and chart: about 30 s where images and programs are built already."""
    keep = os.environ.get("HALCYON_E2E_KEEP") == "1"
    try:
        with interrupts.heeded():
            on = setup.install(NAME, hpa_sync=HPA_SYNC, step=lambda title: print(f"scenarios: {title}", flush=True))
            if keep:
                _clear(on.kube)
            else:
                figures.record("helm_install_wait_s", on.helm_s)
            yield on
    finally:
        if not keep:
            setup.remove(NAME, step=lambda title: print(f"scenarios: {title}", flush=True))


def _clear(kube: Kube) -> None:
    left = kube("get", "modeldeployments", "-o", "jsonpath={.items[*].metadata.name}").split()
    models.delete(kube, *left)


@pytest.fixture(scope="session")
def kube(installed: Installed) -> Kube:
    """kubectl and helm on the cluster, and addresses in it."""
    return installed.kube


@pytest.fixture(scope="session")
def digits(kube: Kube) -> ColdStart:
    """The digits model with its HPA, as in the demo but quick to scale down; what its start took.

    All other models come after it: its start is measured while nothing else happens, and its ConfigMap is theirs too.
    """
    documents = models.documents() | {"ModelDeployment": models.digits(scale_down_after_s=SCALE_DOWN_AFTER_S)}
    manifest = "\n---\n".join(map(models.as_text, documents.values()))
    return coldstart.cold_start(kube, DIGITS, manifest=manifest)


@pytest.fixture(scope="module")
def served(kube: Kube, digits: ColdStart) -> Iterator[Callable[..., str]]:  # noqa: ARG001  # it comes first
    """Apply a ModelDeployment and wait until it is served; deleted when the module ends."""
    names: list[str] = []

    def apply(document: dict[str, Any], *, replicas: int = 1) -> str:
        name = str(document["metadata"]["name"])
        names.append(name)
        kube.apply(document)
        models.wait_until_served(kube, name, replicas=replicas)
        return name

    yield apply
    models.delete(kube, *names, wait=False)
