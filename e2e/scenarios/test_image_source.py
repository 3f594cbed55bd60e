"""A model in an image, with real pods: it serves from there, another image rolls it, and an image that nobody has stops nothing."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

from demo import models, setup
from demo.kube import Kube, wait_for
from demo.models import HTTP_PORT
from e2e import model_image
from e2e.cluster import cluster as clusters
from e2e.scenarios.conftest import NAME as CLUSTER

pytestmark = pytest.mark.more

NAME = "in-image"
FILES = setup.CHART / "files" / "test"
REQUEST_BODY = {"inputs": [{"name": "x", "shape": [2, 1], "datatype": "FP32", "data": [1.0, 2.0]}]}


@pytest.fixture(scope="module")
def references(installed: setup.Installed, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:  # noqa: ARG001  # its cluster
    """Load two images into the node. The model of the first multiplies by 2, that of the second by 3."""
    first, second = "localhost/models/tiny:1", "localhost/models/tiny:2"
    config, code = ((FILES / name).read_bytes() for name in ("config.pbtxt", "model.py"))
    other = code.replace(b"return 2 * ", b"return 3 * ")
    assert other != code
    for reference, model in ((first, code), (second, other)):
        directory = tmp_path_factory.mktemp("image")
        archive = model_image.build(reference, {"tiny/config.pbtxt": config, "tiny/1/model.py": model}, directory)
        assert clusters.load_image(CLUSTER, archive) == [reference]
    return first, second


def document(reference: str) -> dict[str, Any]:
    return {
        "apiVersion": "serving.halcyon.dev/v1alpha1",
        "kind": "ModelDeployment",
        "metadata": {"name": NAME},
        "spec": {
            "model": {"name": "tiny", "source": {"image": {"reference": reference, "path": "tiny"}}},
            "runtime": {"gpu": {"count": 0}},
            "traffic": {"balancerReplicas": 1},
        },
    }


@pytest.fixture(scope="module")
def serving(kube: Kube, references: tuple[str, str]) -> Iterator[str]:
    """Serve the model of the first image, and yield its address."""
    try:
        kube.apply(document(references[0]))
        models.wait_until_served(kube, NAME)
        yield kube.must_address(NAME, HTTP_PORT)
    finally:
        models.delete(kube, NAME)


def answer(address: str) -> list[float]:
    """Return the model's answer to 1 and 2."""
    request = urllib.request.Request(
        f"http://{address}/v2/models/tiny/infer",
        json.dumps(REQUEST_BODY).encode(),
        {"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=10) as response:
        data: list[float] = json.load(response)["outputs"][0]["data"]
    return data


def test_it_serves_from_its_image_and_another_one_rolls_it(
    kube: Kube, serving: str, references: tuple[str, str]
) -> None:
    assert answer(serving) == [3.0, 5.0]
    (pod,) = kube.pods(NAME, "server")
    (volume,) = (v for v in pod["spec"]["volumes"] if v["name"] == "source")
    assert volume["image"]["reference"] == references[0]

    kube.apply(document(references[1]))
    # Every answer on the way is one of the two, and none fails.
    answers: list[list[float]] = []

    def is_rolled_out() -> bool:
        answers.append(answer(serving))
        return answers[-1] == [4.0, 7.0]

    wait_for(is_rolled_out, goal="the second image answers", limit_s=60)

    def is_alone() -> bool:
        answers.append(answer(serving))
        return pod["metadata"]["name"] not in {server["metadata"]["name"] for server in kube.pods(NAME, "server")}

    wait_for(is_alone, goal="the first image's pod is gone", limit_s=60)
    models.wait_until_served(kube, NAME)
    assert answer(serving) == [4.0, 7.0]
    assert {tuple(data) for data in answers} <= {(3.0, 5.0), (4.0, 7.0)}


def test_an_image_that_nobody_has_is_named_and_what_serves_goes_on(
    kube: Kube, serving: str, references: tuple[str, str]
) -> None:
    before = answer(serving)
    kube.apply(document("localhost/models/none:1"))
    try:

        def rollout_message() -> str:
            return str(((kube.model(NAME) or {}).get("status", {}).get("rollout") or {}).get("message"))

        wait_for(lambda: "localhost/models/none:1" in rollout_message(), goal="the failed pull is reported", limit_s=30)
        assert "ErrImagePull" in rollout_message() or "ImagePullBackOff" in rollout_message(), rollout_message()
        assert answer(serving) == before
    finally:
        kube.apply(document(references[1]))
        models.wait_until_served(kube, NAME)
