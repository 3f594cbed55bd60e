"""A model from a bucket, with real pods and a real S3 store: it serves, its Secret stays the kubelet's, and Helm's own waiting tells the truth."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from demo import models, setup
from demo.errors import DemoError
from demo.kube import SYSTEM, Kube
from e2e import s3
from e2e.cluster import binaries
from e2e.cluster import cluster as clusters
from e2e.cluster.processes import start, wait_until
from e2e.scenarios.conftest import NAME

pytestmark = pytest.mark.more

FILES = setup.CHART / "files" / "test"
PORT = 9000


@pytest.fixture(scope="module")
def store(kube: Kube) -> Iterator[s3.Store]:
    """Run a store beside the cluster's node, which ends with the cluster at the latest. The site policy allows it meanwhile."""
    cluster = clusters.find(NAME)
    assert cluster is not None
    address = f"{cluster.network.node_address}:{PORT}"
    folder = cluster.place.state / "s3"
    folder.mkdir(exist_ok=True)
    command = s3.arguments(binaries.extra_program("versitygw"), address, folder)
    started = start(cluster.place, "s3", command, enter=cluster.network.enter)
    running = s3.Store(f"http://{address}")
    chart = (
        "upgrade",
        "halcyon",
        str(setup.CHART),
        f"--namespace={SYSTEM}",
        "--reuse-values",
        "--wait",
        "--timeout=120s",
    )
    try:
        wait_until(lambda: s3.answers(running.url), goal="the store answers", limit_s=20, every_s=0.1)
        for name in ("config.pbtxt", "model.py"):
            path = name if name.endswith("pbtxt") else f"1/{name}"
            running.put(f"models/tiny/{path}", (FILES / name).read_bytes())
        kube.helm(*chart, f"--set=sitePolicy.models.endpoints={{{running.url}}}")
        kube.apply(
            {
                "apiVersion": "v1",
                "kind": "Secret",
                "metadata": {"name": "models-s3"},
                "stringData": {"AWS_ACCESS_KEY_ID": s3.ACCESS_KEY, "AWS_SECRET_ACCESS_KEY": s3.SECRET_KEY},
            }
        )
        yield running
    finally:
        kube("delete", "secret", "models-s3", "--ignore-not-found")
        kube.helm(*chart, "--set=sitePolicy.models.endpoints=null")
        started.process.terminate()
        started.process.wait(20)


def tiny(name: str, uri: str, **source: Any) -> dict[str, Any]:
    return {
        "apiVersion": "serving.halcyon.dev/v1alpha1",
        "kind": "ModelDeployment",
        "metadata": {"name": name},
        "spec": {
            "model": {"name": "tiny", "source": {"uri": uri, **source}},
            "runtime": {"gpu": {"count": 0}},
            "traffic": {"balancerReplicas": 1},
        },
    }


def model_chart(folder: Path, document: dict[str, Any]) -> Path:
    """Return a chart with one ModelDeployment."""
    (folder / "templates").mkdir(parents=True)
    (folder / "Chart.yaml").write_text("apiVersion: v2\nname: model\nversion: 0.1.0\n")
    (folder / "templates" / "model.yaml").write_text(yaml.safe_dump(document))
    return folder


def test_helm_waits_until_a_model_from_a_bucket_serves(kube: Kube, store: s3.Store, tmp_path: Path) -> None:
    document = tiny("from-s3", "s3://models/tiny", endpoint=store.url, credentials={"secretName": "models-s3"})
    try:
        kube.helm("install", "from-s3", str(model_chart(tmp_path / "chart", document)), "--wait", "--timeout=90s")
        # It came back no sooner than that.
        ready = kube.condition("from-s3", "Ready") or {}
        assert ready.get("status") == "True", ready
        (pod,) = kube.pods("from-s3", "server")
        log = kube("logs", pod["metadata"]["name"], "--container=fetch")
        assert "s3://models/tiny: " in log
        assert " MiB in " in log
        everything = (
            json.dumps(kube.model("from-s3"))
            + kube("get", "deployments,events,controllerrevisions", "-o", "json")
            + log
        )
        assert s3.SECRET_KEY not in everything
        mounts = {c["name"]: {m["name"] for m in c["volumeMounts"]} for c in [*pod["spec"]["initContainers"], *pod["spec"]["containers"]]}  # fmt: skip
        assert "credentials" in mounts["fetch"]
        assert "credentials" not in mounts["triton"]
    finally:
        kube.helm("uninstall", "from-s3", "--ignore-not-found", "--wait", "--timeout=60s")


def test_helm_fails_soon_where_a_model_can_not_become_ready(kube: Kube, store: s3.Store, tmp_path: Path) -> None:
    document = tiny("not-there", "s3://models/nothing", endpoint=store.url, credentials={"secretName": "models-s3"})
    document["spec"]["runtime"]["startupTimeout"] = "10s"
    began = time.monotonic()
    try:
        with pytest.raises(DemoError, match="not-there"):
            kube.helm(
                "install", "not-there", str(model_chart(tmp_path / "chart", document)), "--wait", "--timeout=180s"
            )
        # By what the object says of itself, not by Helm's own limit.
        assert time.monotonic() - began < 150
        loaded = kube.condition("not-there", "ModelLoaded") or {}
        assert (loaded.get("status"), loaded.get("reason")) == ("False", "ModelSourceNotFound")
        assert "s3://models/nothing is empty" in str(loaded.get("message"))
    finally:
        kube.helm("uninstall", "not-there", "--ignore-not-found", "--wait", "--timeout=60s")


def test_a_store_that_the_site_has_not_named_is_refused_before_a_pod_is_made(kube: Kube, store: s3.Store) -> None:
    other = store.url.replace(str(PORT), str(PORT + 1))
    with pytest.raises(
        DemoError,
        match=f"spec.model.source.endpoint or credentials.identity.endpoint is {other}, which this site does not allow .allowed: {store.url}",
    ):
        kube.apply(tiny("other", "s3://models/tiny", endpoint=other))
    models.delete(kube, "other")
