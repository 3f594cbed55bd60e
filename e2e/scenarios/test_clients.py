"""NVIDIA's own clients against a model's address: what they ask before and beside inference is answered, and they do their work."""

import re
from collections.abc import Callable

import pytest

from demo import models
from demo.kube import Kube
from demo.models import GRPC_PORT, HTTP_PORT
from e2e.clients import programs

pytestmark = pytest.mark.more

BALANCED, DIRECT = "measured", "measured-directly"
PORTS = {"http": HTTP_PORT, "grpc": GRPC_PORT}


@pytest.fixture(scope="module")
def measured(served: Callable[..., str]) -> None:
    """Serve a model of two replicas behind a balancer, and one without balancers."""
    served(models.variant(BALANCED, replicas=2, gpus=0), replicas=2)
    direct = models.variant(DIRECT, gpus=0)
    direct["spec"]["traffic"] = {"mode": "Direct"}
    served(direct)


@pytest.mark.usefixtures("measured")
@pytest.mark.parametrize("protocol", sorted(PORTS))
@pytest.mark.parametrize("name", [BALANCED, DIRECT])
def test_perf_analyzer_measures_a_model(kube: Kube, name: str, protocol: str) -> None:
    address = kube.must_address(name, PORTS[protocol])
    # However unsteady the machine, a measurement ends with the third window.
    quick = ("--measurement-interval=500", "--max-trials=3", "--stability-percentage=999", "--concurrency-range=4")
    report = programs.perf_analyzer("-m", name, "-u", address, "-i", protocol, *quick)
    print(report)
    client, server = (int(count) for count in re.findall(r"(?:Request|Inference) count: (\d+)", report))
    assert client > 0
    # Of the one pod whose statistics they are.
    assert 0 < server <= 1.5 * client


@pytest.mark.usefixtures("measured")
@pytest.mark.parametrize("protocol", sorted(PORTS))
@pytest.mark.parametrize("name", [BALANCED, DIRECT])
def test_the_model_client_of_pytriton_infers(kube: Kube, name: str, protocol: str) -> None:
    url = f"{protocol}://{kube.must_address(name, PORTS[protocol])}"
    answer = programs.model_client(url, name, name="pixels", rows=3, width=64)
    assert answer["model"] == name
    assert {shape[0] for shape in answer["shapes"].values()} == {3}
