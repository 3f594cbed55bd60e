"""manifests/: kustomize makes what the chart makes, the API server takes it, and the operator accepts every example."""

import os
import subprocess

import pytest
import yaml

from e2e.cluster.cluster import Cluster
from e2e.cluster.kubectl import Kubectl
from generators import chart_manifests
from halcyon.kube import kinds
from tests.integration.charts import BATCH_CRD, CRD, HELM, ROOT, Object
from tests.integration.operator_space import Space
from tests.integration.versions import has_image_volumes
from tests.integration.waiting import until

pytestmark = pytest.mark.more

MANIFESTS = ROOT / "manifests"
EXAMPLES = sorted((MANIFESTS / "examples").glob("*.yaml"))
CLAIM = {
    "apiVersion": "v1",
    "kind": "PersistentVolumeClaim",
    "metadata": {"name": "models"},
    "spec": {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "50Gi"}}},
}


def built(kubectl: Kubectl, mode: str) -> dict[chart_manifests.Key, Object]:
    text = kubectl("kustomize", str(MANIFESTS / "overlays" / mode))
    return {chart_manifests.key(obj): obj for obj in yaml.safe_load_all(text) if obj}


def helm() -> str:
    return HELM or pytest.skip("helm is built by make cluster-up; HALCYON_HELM may name another")


@pytest.mark.parametrize("mode", chart_manifests.MODES)
def test_kustomize_makes_what_the_chart_makes(cluster: Cluster, mode: str) -> None:
    kubectl = Kubectl(programs=cluster.bin, kubeconfig=cluster.kubeconfig)
    expected = chart_manifests.rendered(helm(), mode)
    crds = [yaml.safe_load(file.read_text()) for file in (CRD, BATCH_CRD) if mode != "namespaced"]
    for obj in (chart_manifests.NAMESPACE, *crds):
        expected[chart_manifests.key(obj)] = obj
    objects = built(kubectl, mode)
    assert objects.keys() == expected.keys()
    for key, obj in objects.items():
        assert obj == expected[key], key


@pytest.mark.parametrize("mode", chart_manifests.MODES)
def test_the_api_server_takes_an_overlay(cluster: Cluster, mode: str) -> None:
    for namespace in (chart_manifests.SYSTEM, chart_manifests.MODELS):
        cluster.api.create("/api/v1/namespaces", {"metadata": {"name": namespace}})
    kubectl = Kubectl(programs=cluster.bin, kubeconfig=cluster.kubeconfig)
    # The CRD is other tests'.
    flags = ("--server-side", "--dry-run=server", "--validate=strict", "--force-conflicts")
    kubectl("apply", *flags, f"--kustomize={MANIFESTS / 'overlays' / mode}")


def test_the_manifests_are_those_that_the_script_writes() -> None:
    environment = {**os.environ, "HALCYON_HELM": helm()}
    subprocess.run(["scripts/generate", "--check", "manifests"], cwd=ROOT, env=environment, check=True)


def test_ten_examples_exist_and_the_operator_accepts_each(space: Space, cluster: Cluster) -> None:
    assert len(EXAMPLES) >= 10
    documents = [d for path in EXAMPLES for d in yaml.safe_load_all(path.read_text()) if d]
    space.apply(CLAIM, *documents)
    models = [d["metadata"]["name"] for d in documents if d["kind"] == kinds.MODEL_DEPLOYMENT.kind]
    assert len(set(models)) == len(EXAMPLES)
    if not has_image_volumes(cluster):
        models.remove("resnet50-image")
        assert "does not support image volumes" in space.wait_condition(
            "Accepted", "False", "Invalid", name="resnet50-image"
        )
    for name in models:
        space.wait_condition("Accepted", "True", name=name)
        until(lambda name=name: space.get(kinds.DEPLOYMENT, f"{name}-a"), bool, goal=f"{name} has servers")
        assert space.condition("FieldIgnored", name)[0] in {"", "False"}, name
