"""Life cycle of a cluster: up, down and status, the Python interface of the command line."""

import dataclasses
import json
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from e2e.cluster import (
    binaries,
    cgroups,
    control_plane,
    kwok,
    leavings,
    network,
    node,
    pki,
    registry,
    second_node,
    system,
)
from e2e.cluster.api import Api
from e2e.cluster.errors import ClusterError
from e2e.cluster.network import Network
from e2e.cluster.options import Options
from e2e.cluster.places import Place, cache, lock_of, locked, place
from e2e.cluster.processes import Started, memory_mib, other_kubelet, running, wait_until
from e2e.cluster.progress import say

_COMMON = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")
_READY_LIMIT_S = 90
_ROOM_GIB = 2
_OWNER = "owner"


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """A running cluster, as described by its record."""

    place: Place
    options: Options
    network: Network
    bin: Path
    complete: bool

    @property
    def name(self) -> str:
        """The name given to `up`."""
        return self.place.name

    @property
    def kubeconfig(self) -> Path:
        """Path of an administrator's kubeconfig."""
        return self.place.kubeconfig

    @property
    def url(self) -> str:
        """Address of the API server, reachable from the host."""
        return self.network.api_url

    @property
    def components(self) -> tuple[str, ...]:
        """Names of the cluster's processes, without those in pods."""
        if self.options.control_plane_only:
            return (*_COMMON, "kwok")
        images = (registry.COMPONENT,) if self.options.registry else ()
        second = second_node.COMPONENTS if self.options.nodes > 1 else ()
        return (*_COMMON, "containerd", "kubelet", "kube-proxy", "coredns", *second, *images)

    @property
    def nodes(self) -> tuple[str, ...]:
        """Names of the nodes."""
        return node.NAMES[: self.options.nodes]

    @property
    def registry(self) -> str | None:
        """HOST:PORT of the nodes' image registry, if they have one."""
        return registry.address(self.network) if self.options.registry else None

    @property
    def api(self) -> Api:
        """API client with the administrator's identity."""
        return Api(pki.admin(self.place, self.network))


@dataclass(frozen=True, kw_only=True)
class Health:
    """Result of `status`. `memory_mib` is by component, without missing ones, `ready` by node."""

    memory_mib: dict[str, float]
    missing: tuple[str, ...]
    api_ready: bool
    ready: dict[str, bool]

    @property
    def is_healthy(self) -> bool:
        """Return True if all parts exist and report that they are ready."""
        return self.api_ready and all(self.ready.values()) and not self.missing


def up(name: str, options: Options, *, image_directory: Path | None = None) -> Cluster:
    """Start the cluster NAME, and return it when its nodes are Ready. A cluster that is already up is kept.

    Raises:
        ClusterError: the machine lacks a requirement, the cluster is up with other options, or a part doesn't start.
            Everything that was started is removed, except for the logs.
    """
    paths = place(name)
    system.check_platform()
    if not options.control_plane_only:
        system.check_root()
    with locked(lock_of(paths), waiting=f"waiting for another command on cluster {name} to end"):
        existing = find(name)
        if existing is not None:
            if existing.complete and health(existing).is_healthy:
                _check_same(existing, options)
                say(f"{name} is already up")
                return existing
            say(f"removing what is left of an earlier {name}")
            _remove(existing)
        else:
            _remove_unrecorded(paths)
        system.check_room(cache(), need_gib=_ROOM_GIB, why="a cluster")
        if not options.control_plane_only:
            system.ensure_packages()
            _check_no_kubelet()
        bin_ = binaries.ensure()
        began = time.monotonic()
        try:
            cluster = _up(paths, options, bin_, image_directory or cache() / "images")
        except BaseException:
            partial = find(name)
            if partial is not None:
                _remove(partial, keep_logs=True)
            raise
        say(f"{name} is up after {time.monotonic() - began:.1f} s: {cluster.url}")
        return cluster


def down(name: str) -> bool:
    """Remove the cluster NAME with everything that it created; return whether there was anything to remove.

    Raises:
        ClusterError: something can't be removed, or needs root.
    """
    paths = place(name)
    with locked(lock_of(paths), waiting=f"waiting for another command on cluster {name} to end"):
        cluster = find(name)
        if cluster is not None:
            _remove(cluster)
            existed = True
        else:
            existed = _remove_unrecorded(paths)
        lock_of(paths).unlink()
    return existed


def find(name: str) -> Cluster | None:
    """Return the cluster NAME if it has a record, complete or not."""
    paths = place(name)
    try:
        record = json.loads(paths.record.read_text())
    except FileNotFoundError:
        return None
    return Cluster(
        place=paths,
        options=Options(**record["options"]),
        network=Network(**record["network"]),
        bin=Path(record["bin"]),
        complete=record["complete"],
    )


def get(name: str) -> Cluster:
    """Return the cluster NAME.

    Raises:
        ClusterError: it isn't up.
    """
    cluster = find(name)
    if cluster is None or not cluster.complete:
        raise ClusterError(f"cluster {name} is not up; bring it up with: python -m e2e.cluster up --name {name}")
    return cluster


def health(cluster: Cluster) -> Health:
    """Check each part of the cluster."""
    memory: dict[str, float] = {}
    for process in running(cluster.place):
        memory[process.component] = memory.get(process.component, 0) + memory_mib(process.pid)
    if not cluster.options.control_plane_only:
        memory["pods"] = sum(memory_mib(pid) for pid in cgroups.processes(cluster.place.cgroup))
    # without etcd, each response of the API server takes long
    usable = cluster.complete and {"kube-apiserver", "etcd"} <= memory.keys()
    return Health(
        memory_mib=memory,
        missing=tuple(component for component in cluster.components if component not in memory),
        api_ready=usable and cluster.api.ready(),
        ready={name: usable and cluster.api.node_ready(name) for name in cluster.nodes},
    )


def load_image(name: str, archive: Path) -> list[str]:
    """Import an image archive into the nodes of cluster NAME, and return the names of its images.

    Raises:
        ClusterError: the cluster isn't up or has no node, or the archive can't be read.
    """
    cluster = get(name)
    if cluster.options.control_plane_only:
        raise ClusterError(
            f"cluster {name} has no node to load images into (--control-plane-only): its pods are KWOK's"
        )
    places = (cluster.place, cluster.place.second)[: cluster.options.nodes]
    names = [node.load_image(each, cluster.bin, archive) for each in places]
    return names[0]


def _up(paths: Place, options: Options, bin_: Path, images: Path) -> Cluster:
    if options.control_plane_only:
        loopback = network.loopback(ipv6=options.ipv6)
        cluster = Cluster(place=paths, options=options, network=loopback, bin=bin_, complete=False)
        _write(cluster)
        started = _start_stand_in(cluster)
    else:
        # the lock prevents that two clusters choose the same network at the same time
        with locked(network.LOCK, waiting="waiting for another cluster to choose its network"):
            cluster = Cluster(place=paths, options=options, network=network.plan(paths), bin=bin_, complete=False)
            _write(cluster)
            network.make(cluster.network)
        started = _start_node(cluster, images)
    wait_until(
        lambda: (
            all(map(cluster.api.node_ready, cluster.nodes))
            and cluster.api.exists("/api/v1/namespaces/default/serviceaccounts/default")
        ),
        goal="nodes Ready and namespace default usable",
        limit_s=_READY_LIMIT_S,
        watched=started,
    )
    complete = dataclasses.replace(cluster, complete=True)
    _write(complete)
    return complete


def _start_stand_in(cluster: Cluster) -> list[Started]:
    started = _start_api_server(cluster)
    started += _start_controllers(cluster, started)
    started.append(kwok.start_kwok(cluster.place, cluster.bin, cluster.network))
    kwok.create_node(cluster.api, gpus=cluster.options.gpus, ipv6=cluster.options.ipv6)
    return started


def _start_node(cluster: Cluster, images: Path) -> list[Started]:
    paths, bin_ = cluster.place, cluster.bin
    cgroups.make(paths.cgroup)
    store = registry.ensure() if cluster.options.registry else None
    containerd = node.start_containerd(paths, bin_, cluster.network)
    started = [*_start_api_server(cluster), containerd]
    if store is not None:
        started.append(registry.start_registry(paths, store, cluster.network))
    wait_until(
        lambda: node.containerd_answers(paths, bin_), goal="containerd answers", limit_s=_READY_LIMIT_S, watched=started
    )
    node.load_images(paths, bin_, images)
    if cluster.options.nodes > 1:
        second_node.make(paths, bin_, cluster.network)
    if store is not None:
        wait_until(
            lambda: registry.answers(paths, cluster.network),
            goal="the registry answers",
            limit_s=_READY_LIMIT_S,
            watched=started,
        )
    started += _start_controllers(cluster, started)
    _bind_admins(cluster.api)
    started += [
        node.start_kubelet(paths, bin_, cluster.network, zone=cluster.options.nodes > 1),
        node.start_kube_proxy(paths, bin_, cluster.network),
        node.start_coredns(paths, bin_, cluster.network),
    ]
    wait_until(
        lambda: cluster.api.exists(f"/api/v1/nodes/{node.NODE}"),
        goal="the kubelet registers its node",
        limit_s=_READY_LIMIT_S,
        watched=started,
    )
    node.advertise_gpus(cluster.api, gpus=cluster.options.gpus)
    if cluster.options.nodes > 1:
        started += second_node.start(paths, bin_, cluster.network, cluster.api, gpus=cluster.options.gpus)
    return started


def _start_api_server(cluster: Cluster) -> list[Started]:
    pki.make(cluster.place, cluster.bin, cluster.network)
    say("starting the control plane")
    return control_plane.start_api_server(cluster.place, cluster.bin, cluster.network, history=cluster.options.history)


def _start_controllers(cluster: Cluster, watched: list[Started]) -> list[Started]:
    """Start the controllers when the API server is ready."""
    wait_until(cluster.api.ready, goal="the API server is ready", limit_s=_READY_LIMIT_S, watched=watched)
    return control_plane.start_controllers(
        cluster.place, cluster.bin, cluster.network, hpa_sync=cluster.options.hpa_sync
    )


def _bind_admins(api: Api) -> None:
    """Create the binding that `kubeadm init` creates but its phases don't.

    The API server uses this group to call the kubelet.
    """
    api.create(
        "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
        {
            "metadata": {"name": "kubeadm:cluster-admins"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "kubeadm:cluster-admins"}],
        },
    )


def _remove(cluster: Cluster, *, keep_logs: bool = False) -> None:
    has_node = not cluster.options.control_plane_only
    if has_node:
        system.check_root()
    leavings.remove_all(cluster.place, interface=cluster.network.interface, node=has_node, keep_logs=keep_logs)


def _write(cluster: Cluster) -> None:
    record: dict[str, Any] = {
        "options": dataclasses.asdict(cluster.options),
        "network": dataclasses.asdict(cluster.network),
        "bin": str(cluster.bin),
        "complete": cluster.complete,
    }
    cluster.place.state.mkdir(parents=True, exist_ok=True)
    new = cluster.place.record.with_suffix(".new")
    new.write_text(json.dumps(record, indent=2) + "\n")
    new.rename(cluster.place.record)
    if not cluster.options.control_plane_only:
        cluster.place.run.mkdir(parents=True, exist_ok=True)
        (cluster.place.run / _OWNER).write_text(str(cluster.place.state))


def _check_no_kubelet() -> None:
    """Raise ClusterError if the machine is already a node.

    Two kubelets would share directories that can't be configured.
    """
    pid = other_kubelet()
    if pid is not None:
        raise ClusterError(
            f"this machine is a Kubernetes node: a kubelet runs as process {pid}, and a second would remove its sockets. "
            "Use another machine, or `up --control-plane-only`"
        )


def _check_same(cluster: Cluster, requested: Options) -> None:
    if cluster.options != requested:
        raise ClusterError(
            f"cluster {cluster.name} is up with {cluster.options.text}, not with {requested.text}; "
            f"end it first: python -m e2e.cluster down --name {cluster.name}"
        )


def _remove_unrecorded(paths: Place) -> bool:
    """Remove what has the cluster's name but no record, for example because the cache was deleted while it was up.

    Raises:
        ClusterError: it belongs to a cluster of another cache directory.
    """
    removed = False
    has_node = paths.namespace in network.namespaces() or cgroups.exists(paths.cgroup) or paths.run.exists()
    if has_node and os.geteuid() == 0:
        owner = _owner(paths)
        if owner is None or (owner != paths.state and (owner / paths.record.name).exists()):
            raise ClusterError(
                f"network namespace or cgroup {paths.namespace} belongs to {owner or 'something else'}, "
                f"not to {paths.state}; use another --name, or end that cluster with its own HALCYON_CACHE"
            )
        leavings.remove_all(dataclasses.replace(paths, state=owner), interface=None, node=True)
        removed = True
    if paths.state.exists() or running(paths):
        leavings.remove_all(paths, interface=None, node=False)
        removed = True
    return removed


def _owner(paths: Place) -> Path | None:
    try:
        return Path((paths.run / _OWNER).read_text())
    except OSError:
        return None
