"""A cluster with a node comes up once, beside others, and goes without a trace, also when `up` was killed half-way.

Needs root and the pause image, and takes about 2 minutes; so it lies outside pytest's testpaths. Run it with
`pytest e2e/cluster/test_lifecycle.py`.
"""

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from e2e.cluster import cgroups, leavings, network, node_loss, second_node
from e2e.cluster import cluster as clusters
from e2e.cluster.cluster import Cluster
from e2e.cluster.errors import ClusterError
from e2e.cluster.kubectl import Kubectl
from e2e.cluster.options import Options
from e2e.cluster.places import cache, names, place
from e2e.cluster.processes import running, wait_until
from e2e.cluster.system import command

_A, _B = "lifecycle-a", "lifecycle-b"
_KILL_AFTER_S = (0.3, 0.6, 0.9, 1.3, 1.8, 2.4, 3.0, 3.6, 4.2)

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="a node needs root"),
    pytest.mark.skipif(not (cache() / "images" / "pause.tar").is_file(), reason="needs the pause image: make images"),
]


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("images")
    shutil.copy(cache() / "images" / "pause.tar", directory)
    return directory


@pytest.fixture(autouse=True)
def _no_traces() -> Iterator[None]:
    for name in (_A, _B):
        clusters.down(name)
    before = _dead_shim_sockets()
    yield
    for name in (_A, _B):
        clusters.down(name)
        assert not _traces(name)
    orphans = _interfaces() - {cluster.network.interface for cluster in map(clusters.find, names()) if cluster}
    assert not orphans
    assert not _dead_shim_sockets() - before


def _traces(name: str) -> list[str]:
    paths = place(name)
    traces = [f"process {process}" for process in leavings.alive(paths)]
    traces += [f"mount {point}" for point in leavings.mounts(paths)]
    traces += [f"namespace {namespace}" for namespace in _namespaces(name)]
    traces += [f"cgroup {paths.cgroup}"] if cgroups.exists(paths.cgroup) else []
    traces += [str(path) for path in (paths.state, paths.run) if path.exists()]
    traces += [str(path) for path in Path("/var/lib/cni/results").glob(f"{paths.namespace}-*")]
    links = Path("/var/log/containers").glob("*.log")
    traces += [str(link) for link in links if link.readlink().is_relative_to(paths.state)]
    return traces


def _namespaces(name: str) -> list[str]:
    own = place(name).namespace
    return [namespace for namespace in network.namespaces() if namespace in {own, network.of_node(own, 2)}]


def _interfaces() -> set[str]:
    lines = command(["ip", "-o", "link", "show", "type", "veth"]).splitlines()
    named = {line.split()[1].split("@")[0] for line in lines}
    return {interface for interface in named if interface.startswith("halcyon")}


def _dead_shim_sockets() -> set[Path]:
    dead = set()
    for path in Path("/run/containerd/s").glob("*"):
        with socket.socket(socket.AF_UNIX) as probe:
            if probe.connect_ex(str(path)):
                dead.add(path)
    return dead


def _run_pods(cluster: Cluster, *, count: int) -> None:
    kubectl = Kubectl(programs=cluster.bin, kubeconfig=cluster.kubeconfig)
    kubectl("create", "deployment", "still", "--image=localhost/pause:3.10", f"--replicas={count}")
    kubectl("rollout", "status", "deployment/still", "--timeout=60s")


def _command_up(name: str, images: Path, *options: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "e2e.cluster", "up", "--name", name, "--image-dir", str(images), *options],
        stderr=subprocess.DEVNULL,
    )


def test_up_twice_is_up_once(images: Path) -> None:
    first = clusters.up(_A, Options(), image_directory=images)
    before = {process.pid for process in running(first.place)}
    began = time.monotonic()
    assert clusters.up(_A, Options(), image_directory=images) == first
    assert time.monotonic() - began < 2
    assert {process.pid for process in running(first.place)} == before

    with pytest.raises(ClusterError, match="is up with --hpa-sync 15s --gpus 8, not with --hpa-sync 5s --gpus 8"):
        clusters.up(_A, Options(hpa_sync="5s"), image_directory=images)


def test_pods_and_services_answer_from_the_hosts_shell(images: Path) -> None:
    cluster = clusters.up(_A, Options(), image_directory=images)
    _run_pods(cluster, count=1)
    kubectl = Kubectl(programs=cluster.bin, kubeconfig=cluster.kubeconfig)
    address = kubectl.get("pods")["items"][0]["status"]["podIP"]
    with pytest.raises(ConnectionRefusedError):  # by the pod: nothing listens in it
        socket.create_connection((address, 8000), timeout=5)

    # the Service of the API server itself, through kube-proxy's rules in the namespace
    service = kubectl.get("service", "kubernetes")["spec"]["clusterIP"]
    socket.create_connection((service, 443), timeout=5).close()


def test_two_clusters_live_side_by_side_and_end_apart(images: Path) -> None:
    pair = [clusters.up(name, Options(), image_directory=images) for name in (_A, _B)]
    for cluster in pair:
        _run_pods(cluster, count=2)
    assert pair[0].network.node_address != pair[1].network.node_address
    clusters.down(_A)
    assert not _traces(_A)
    assert clusters.health(pair[1]).is_healthy
    _wait_for_new_pod(pair[1])


def _wait_for_new_pod(cluster: Cluster) -> None:
    kubectl = Kubectl(programs=cluster.bin, kubeconfig=cluster.kubeconfig)
    kubectl("scale", "deployment/still", "--replicas=3")
    kubectl("rollout", "status", "deployment/still", "--timeout=60s")


@pytest.mark.parametrize("after_s", _KILL_AFTER_S)
def test_down_leaves_nothing_after_up_was_killed(images: Path, after_s: float) -> None:
    process = _command_up(_A, images)
    time.sleep(after_s)
    process.send_signal(signal.SIGKILL)
    process.wait()
    clusters.down(_A)
    assert not _traces(_A)


def test_up_after_up_was_killed_starts_anew(images: Path) -> None:
    process = _command_up(_A, images)
    wait_until((place(_A).log / "kubelet.log").exists, goal="up is half-way", limit_s=60)
    process.send_signal(signal.SIGKILL)
    process.wait()
    killed = {process.pid for process in running(place(_A))}
    cluster = clusters.up(_A, Options(), image_directory=images)
    assert clusters.health(cluster).is_healthy
    assert not killed & {process.pid for process in running(place(_A))}


def test_up_that_is_told_to_stop_removes_what_it_began_but_keeps_the_logs(images: Path) -> None:
    process = _command_up(_A, images)
    wait_until((place(_A).log / "kubelet.log").exists, goal="up is half-way", limit_s=60)
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=30) == 130
    log = str(place(_A).state)
    assert _traces(_A) == [log]
    assert (place(_A).log / "kubelet.log").exists()


def test_up_mends_a_cluster_that_lost_a_part(images: Path) -> None:
    cluster = clusters.up(_A, Options(), image_directory=images)
    _run_pods(cluster, count=2)
    containerd = next(p for p in running(cluster.place) if Path(f"/proc/{p.pid}/comm").read_text() == "containerd\n")
    os.kill(containerd.pid, signal.SIGKILL)
    etcd = next(p for p in running(cluster.place) if p.component == "etcd")
    os.kill(etcd.pid, signal.SIGKILL)
    wait_until(lambda: "etcd" in clusters.health(cluster).missing, goal="status sees it", limit_s=10)
    assert clusters.health(clusters.up(_A, Options(), image_directory=images)).is_healthy


def test_down_works_without_the_record(images: Path) -> None:
    cluster = clusters.up(_A, Options(), image_directory=images)
    _run_pods(cluster, count=1)
    cluster.place.record.unlink()
    assert clusters.down(_A)
    assert not _traces(_A)


def test_up_names_the_missing_pause_image(tmp_path: Path) -> None:
    with pytest.raises(ClusterError, match=r"localhost/pause:3\.10 is in no archive of .*make images"):
        clusters.up(_A, Options(), image_directory=tmp_path)
    assert _traces(_A) == [str(place(_A).state)]


_TWO = Options(nodes=2)


def _pods_by_node(kubectl: Kubectl) -> dict[str, list[dict[str, Any]]]:
    pods = kubectl.get("pods")["items"]
    return {name: [pod for pod in pods if pod["spec"].get("nodeName") == name] for name in ("node", second_node.NAME)}


def _connect(enter: list[str], address: str, port: int) -> str:
    """Return the error of a connection from a node's network; empty if there is none."""
    connect = ["timeout", "5", "bash", "-c", f"exec 3<>/dev/tcp/{address}/{port}"]
    completed = subprocess.run([*enter, *connect], capture_output=True, text=True, check=False)
    return completed.stderr or ("no answer" if completed.returncode else "")


def test_two_nodes_run_pods_that_reach_each_other_and_services(images: Path) -> None:
    cluster = clusters.up(_A, _TWO, image_directory=images)
    _run_pods(cluster, count=4)
    kubectl = Kubectl(programs=cluster.bin, kubeconfig=cluster.kubeconfig)
    by_node = _pods_by_node(kubectl)
    assert all(by_node.values())
    service = kubectl.get("service", "kubernetes")["spec"]["clusterIP"]
    for number, name in enumerate(("node", second_node.NAME), start=1):
        enter = cluster.network.enter_node(number)
        for pods in by_node.values():
            # by the pod: nothing listens in it
            assert "Connection refused" in _connect(enter, pods[0]["status"]["podIP"], 8000)
        assert _connect(enter, service, 443) == ""
        # through the API server, the node's kubelet and its containerd
        assert kubectl("logs", by_node[name][0]["metadata"]["name"]) == ""
    labels = [item["metadata"]["labels"] for item in kubectl.get("nodes")["items"]]
    assert [label["topology.kubernetes.io/zone"] for label in labels] == ["zone-1", "zone-2"]
    assert len(clusters.load_image(_A, images / "pause.tar")) == 1


def test_lost_node_is_not_ready_and_returns_with_its_pods(images: Path) -> None:
    cluster = clusters.up(_A, _TWO, image_directory=images)
    _run_pods(cluster, count=4)
    kubectl = Kubectl(programs=cluster.bin, kubeconfig=cluster.kubeconfig)
    first = leavings.alive(cluster.place) - leavings.alive(cluster.place.second)
    node_loss.lose(_A)
    assert leavings.alive(cluster.place) == first
    assert clusters.health(cluster).missing == second_node.COMPONENTS
    wait_until(lambda: not cluster.api.node_ready(second_node.NAME), goal="the node is NotReady", limit_s=90)

    node_loss.bring_back(_A)
    assert clusters.health(cluster).is_healthy
    kubectl("rollout", "status", "deployment/still", "--timeout=60s")
    restarted = _pods_by_node(kubectl)[second_node.NAME]
    assert [pod["status"]["containerStatuses"][0]["restartCount"] for pod in restarted] == [1] * len(restarted)


def test_cut_network_leaves_the_pods_of_the_node_running(images: Path) -> None:
    cluster = clusters.up(_A, _TWO, image_directory=images)
    before = leavings.alive(cluster.place.second)
    node_loss.lose(_A, network_only=True)
    wait_until(lambda: not cluster.api.node_ready(second_node.NAME), goal="the node is NotReady", limit_s=90)
    assert leavings.alive(cluster.place.second) >= before
    node_loss.bring_back(_A, network_only=True)
    assert clusters.health(cluster).is_healthy


@pytest.mark.parametrize("part", ["containerd-2", "kubelet-2", "kube-proxy-2"])
def test_down_leaves_nothing_of_two_nodes_after_a_killed_up(images: Path, part: str) -> None:
    process = _command_up(_A, images, "--nodes=2")
    wait_until((place(_A).log / f"{part}.log").exists, goal=f"{part} starts", limit_s=60, every_s=0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    clusters.down(_A)
    assert not _traces(_A)


def test_down_works_while_a_node_is_lost_and_without_a_record(images: Path) -> None:
    cluster = clusters.up(_A, _TWO, image_directory=images)
    _run_pods(cluster, count=4)
    node_loss.lose(_A)
    cluster.place.record.unlink()
    assert clusters.down(_A)
    assert not _traces(_A)


def test_node_loss_needs_a_second_node(images: Path) -> None:
    clusters.up(_A, Options(), image_directory=images)
    with pytest.raises(ClusterError, match=f"{_A} has no second node; bring it up with: --nodes 2"):
        node_loss.lose(_A)
