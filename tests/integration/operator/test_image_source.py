"""A model in an image, on a real API server: a volume of the pod where the API server has such, and a clear word where it hasn't.

Pods are KWOK's: nothing is pulled. e2e/scenarios/test_image_source.py serves one.
"""

from collections.abc import Iterator
from typing import Any

import pytest

from e2e.cluster.cluster import Cluster
from halcyon.control.state.pod_field_support import IMAGE_VOLUMES, RECHECK_INTERVAL_S, PodFieldSupport
from halcyon.kube import kinds
from halcyon.kube.client import Object, connect
from halcyon.kube.kinds import Kind
from tests.clocks import DrivenClock
from tests.integration.operator_process import Operator, running
from tests.integration.operator_space import Space, deployment
from tests.integration.versions import has_image_volumes
from tests.integration.waiting import until

pytestmark = pytest.mark.more

IMAGE = {"reference": "registry.example.com/models/digits:3", "path": "team/digits"}


@pytest.fixture(scope="module")
def operator(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Operator]:
    with running(cluster, tmp_path_factory.mktemp("operator")) as started:
        yield started


def in_image(**image: Any) -> Object:
    model = deployment()
    model["spec"]["model"] = {"source": {"image": {**IMAGE, **image}}}
    return model


@pytest.mark.usefixtures("operator")
def test_a_cluster_serves_a_model_from_an_image(cluster: Cluster, space: Space) -> None:
    space.serve()
    before = space.must(kinds.DEPLOYMENT, "m-a")["spec"]["template"]
    space.apply(in_image())
    if not has_image_volumes(cluster):
        message = space.wait_condition("Accepted", "False", "Invalid")
        assert "does not support image volumes (they need Kubernetes 1.35 or newer" in message
        assert "persistentVolumeClaim" in message
        # What was accepted last keeps serving, and nothing was tried.
        assert space.must(kinds.DEPLOYMENT, "m-a")["spec"]["template"] == before
        return
    until(space.settled, bool, goal="the image's revision is served")
    pod = space.must(kinds.DEPLOYMENT, "m-a")["spec"]["template"]["spec"]
    (volume,) = (v for v in pod["volumes"] if v["name"] == "source")
    assert volume["image"]["reference"] == IMAGE["reference"]
    assert "--path=team/digits" in pod["initContainers"][0]["args"]
    for container in (*pod["initContainers"], *pod["containers"]):
        (mount,) = (m for m in container["volumeMounts"] if m["name"] == "source")
        assert mount["readOnly"] is True

    first = space.status()["revision"]["current"]
    space.apply(in_image(reference="registry.example.com/models/digits:4"))
    until(lambda: space.settled() and space.status()["revision"]["current"] != first, bool, goal="another image rolls")


async def test_image_volume_support_is_checked_once_and_rechecked_while_missing(
    cluster: Cluster, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, checks = 0.0, 0
    client = await connect(str(cluster.kubeconfig))
    create = client.create

    async def counted(kind: Kind, obj: Object, **options: Any) -> Object:
        nonlocal checks
        checks += 1
        return await create(kind, obj, **options)

    monkeypatch.setattr(client, "create", counted)
    try:
        volumes = PodFieldSupport(client, IMAGE_VOLUMES, clock=DrivenClock(lambda: now))
        is_supported = has_image_volumes(cluster)
        assert bool(await volumes.lacking(namespace)) is not is_supported
        assert bool(await volumes.lacking(namespace)) is not is_supported
        assert checks == 1
        now = RECHECK_INTERVAL_S
        assert bool(await volumes.lacking(namespace)) is not is_supported
        assert checks == (1 if is_supported else 2)
    finally:
        await client.close()
    assert Space(cluster.api, namespace).every(kinds.DEPLOYMENT) == [], "the question has left something"


async def test_pods_show_image_volume_support_if_no_other_source_does(cluster: Cluster, namespace: str) -> None:
    client = await connect(str(cluster.kubeconfig))
    try:
        # In a namespace that isn't there nothing can be tried: 404.
        assert await PodFieldSupport(client, IMAGE_VOLUMES).lacking(f"{namespace}-none") == ""
    finally:
        await client.close()
