"""README's "Use it on your cluster", as it stands, in a fresh cluster; then the demo on that cluster as on anybody's (CLUSTER=existing).

Replaced are the registry's host, which is the cluster's own, and the path of the file that the reader has saved. Given is what
the reader has: a cluster with GPUs (an extended resource here), and a volume with a model. NVIDIA's registry is a mirror in the
cluster, in which Halcyon's CPU build of Triton has the name of NVIDIA's image: a stand-in.
"""

import base64
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from demo import models
from demo.kube import SYSTEM, Kube
from demo.models import REPOSITORY
from e2e import interrupts
from e2e.blocks import blocks
from e2e.cluster import cluster as clusters
from e2e.cluster import registry
from e2e.cluster.cluster import Cluster
from e2e.cluster.options import Options
from e2e.cluster.places import cache
from e2e.load import process
from e2e.load.settings import Load
from images.build import build_images

NAME = "readme"
README = REPOSITORY / "README.md"
REGISTRY = "registry.example.com/halcyon"
PAUSE = "pause.tar"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Start a cluster that has only the image `pause`: all others come from the registry."""
    build_images()
    images = tmp_path_factory.mktemp("images")
    (images / PAUSE).symlink_to(cache() / "images" / PAUSE)
    try:
        with interrupts.heeded():
            yield clusters.up(NAME, Options(registry=True), image_directory=images)
    finally:
        clusters.down(NAME)


@pytest.fixture(scope="module")
def shell(cluster: Cluster) -> dict[str, str]:
    """Return the reader's environment: kubectl and helm, a kubeconfig, and trust in the registry."""
    path = f"{cluster.bin}:{REPOSITORY / '.venv' / 'bin'}:{os.environ['PATH']}"
    trust = str(registry.trusting(cluster.place))
    return {**os.environ, "PATH": path, "KUBECONFIG": str(cluster.kubeconfig), "SSL_CERT_FILE": trust}


@pytest.fixture(scope="module")
def nvidia(cluster: Cluster, shell: dict[str, str]) -> str:
    """Push the chart's default image of Triton to the mirror, from which the node can pull it, and return its name."""
    default = yaml.safe_load((REPOSITORY / "charts" / "halcyon" / "values.yaml").read_text())["images"]["triton"]
    name = f"{default['repository']}:{default['tag']}"
    host, _, path = default["registry"].partition("/")
    assert host in registry.MIRRORED
    script = f"from images.push import push_image; push_image('tritonserver-cpu', '{cluster.registry}/{path}/{name}')"
    run(f'python -c "{script}"', shell, limit_s=300)
    return f"{default['registry']}/{name}"


@pytest.fixture(scope="module")
def kube(cluster: Cluster) -> Kube:
    return Kube(kubeconfig=cluster.kubeconfig, programs=cluster.bin, namespace="default", reachable=True)


def run(script: str, shell: dict[str, str], *, limit_s: float) -> str:
    """Run a script as a reader's shell would, but end at the first command that fails."""
    completed = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        cwd=REPOSITORY,
        env=shell,
        capture_output=True,
        text=True,
        check=False,
        timeout=limit_s,
        stdin=subprocess.DEVNULL,
    )
    assert completed.returncode == 0, f"{script}\n{completed.stdout[-3000:]}\n{completed.stderr[-3000:]}"
    return completed.stdout


def put_model(kube: Kube, volume: Path) -> None:
    """Create the volume `models` with the digits model in the folder `digits`."""
    source = models.documents()["ConfigMap"]
    version = volume / "digits" / "1"
    version.mkdir(parents=True)
    (version.parent / "config.pbtxt").write_text(source["data"]["config.pbtxt"])
    (version / "model.py").write_text(source["data"]["model.py"])
    (version / "model.onnx").write_bytes(base64.b64decode(source["binaryData"]["model.onnx"]))
    for path in (volume, *volume.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    size = {"storage": "1Gi"}
    spec = {"accessModes": ["ReadOnlyMany"], "storageClassName": ""}
    kube.apply(
        {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": "models"},
            "spec": {**spec, "capacity": size, "hostPath": {"path": str(volume)}},
        },
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": "models"},
            "spec": {**spec, "volumeName": "models", "resources": {"requests": size}},
        },
    )


def test_what_readme_says_is_what_happens(
    cluster: Cluster, shell: dict[str, str], kube: Kube, nvidia: str, tmp_path: Path
) -> None:
    # The kubelet's pods are not root: they must reach the volume through directories that anybody may pass.
    volume = cluster.place.state / "volume"
    put_model(kube, volume)
    _, installation, _ = blocks(README, "sh")
    [document] = blocks(README, "yaml")
    file = tmp_path / "my-model.yaml"
    file.write_text(document)
    assert REGISTRY in installation
    assert file.name in installation
    script = installation.replace(REGISTRY, f"{cluster.registry}/halcyon").replace(file.name, str(file))

    output = run(script, shell, limit_s=600)

    assert "digits" in output.splitlines()[-1], "kubectl get mdep"
    for pod in json.loads(kube("get", "pods", "-o", "json", namespace=SYSTEM))["items"]:
        assert pod["spec"]["containers"][0]["image"].startswith(f"{cluster.registry}/halcyon/")
    run("kubectl wait --for=condition=Ready mdep/digits --timeout=180s", shell, limit_s=200)
    (server,) = kube.pods("digits", "server")
    assert server["spec"]["containers"][0]["image"] == nvidia
    by_http = Load(address=kube.must_address("digits", models.HTTP_PORT), model="digits", protocol="http", duration_s=2)
    by_grpc = Load(address=kube.must_address("digits", models.GRPC_PORT), model="digits", duration_s=2)
    for load in (by_http, by_grpc):
        report = process.run(load)
        assert report.answered > 0
        assert report.failures == {}
    assert "ServersReady" in run("kubectl describe mdep digits", shell, limit_s=30)
    assert "replica" in run("halcyon explain digits", shell, limit_s=30)
    run("kubectl delete mdep digits", shell, limit_s=60)
    fixed = yaml.safe_load(document)
    del fixed["spec"]["scaling"]
    fixed["spec"]["runtime"]["resources"]["requests"]["cpu"] = "100m"  # three have to fit beside all else on two cores
    file.write_text(yaml.safe_dump(fixed))
    run(f"kubectl apply -f {file} && kubectl scale mdep/digits --replicas=3", shell, limit_s=30)
    models.wait_until_served(kube, "digits", replicas=3)
    run("kubectl delete mdep digits", shell, limit_s=60)


def test_the_demo_runs_on_a_cluster_that_is_there(shell: dict[str, str], kube: Kube) -> None:
    """After the one above, which has pushed the images."""
    assert (REPOSITORY / "build" / "images-values.yaml").is_file(), "make images push REGISTRY=... comes first"
    try:
        run("make demo CLUSTER=existing", shell, limit_s=1500)
        figures = json.loads((REPOSITORY / "build" / "demo.json").read_text())
        assert figures["failed_requests"] == 0
        assert figures["accuracy"] > 0.9
        assert figures["replicas_max"] > 1
    finally:
        run("make demo-down CLUSTER=existing", shell, limit_s=200)
    assert kube("get", "namespaces", "halcyon-demo", "--ignore-not-found") == ""
