"""The second node of a cluster: its start, its loss and its return.

It is a node like the first, in a network namespace of its own behind the first node. The control plane is on the first
node, so only the second can be lost.
"""

import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from e2e.cluster import cgroups, leavings, network, node, pki
from e2e.cluster.api import Api
from e2e.cluster.errors import ClusterError
from e2e.cluster.network import Network
from e2e.cluster.places import Place
from e2e.cluster.processes import Started, wait_until

NUMBER = 2
NAME = node.NAMES[NUMBER - 1]
COMPONENTS = ("containerd-2", "kubelet-2", "kube-proxy-2")
_LIMIT_S = 90


def make(place: Place, bin_: Path, network_: Network) -> None:
    """Create what the second node keeps while it is lost: its identity and its images, those of the first node.

    Call this before the first node has a container.
    """
    pki.make_second(place.second, bin_, network_, name=NAME)
    node.share_images(place, place.second)


def start(place: Place, bin_: Path, network_: Network, api: Api, *, gpus: int) -> list[Started]:
    """Start the node, and return its processes when it is registered.

    Raises:
        ClusterError: a part doesn't start.
    """
    second = place.second
    network.make_second(network_)
    cgroups.make(second.node_cgroup)
    # as the pods of the first node, which have a cgroup beside this one
    cgroups.weigh(second.node_cgroup, cpus=os.cpu_count() or 1)
    started = [node.start_containerd(second, bin_, network_)]
    _wait(lambda: node.containerd_answers(second, bin_), "containerd-2 answers", started)
    started += [
        node.start_kubelet(second, bin_, network_, zone=True),
        node.start_kube_proxy(second, bin_, network_),
    ]
    _wait(lambda: api.exists(f"/api/v1/nodes/{NAME}"), "the kubelet registers the second node", started)
    node.advertise_gpus(api, gpus=gpus, name=NAME)
    return started


def lose(place: Place, network_: Network) -> None:
    """Turn the node off: no packet leaves it any more, and its processes and those of its pods are killed."""
    network.cut_second(network_)
    leavings.end_processes(place.second)


def bring_back(place: Place, bin_: Path, network_: Network, api: Api, *, gpus: int) -> None:
    """Turn a lost node on, and wait until it is Ready. As after a reboot, only its disk is as before.

    Raises:
        ClusterError: it isn't Ready within 90 s.
    """
    second = place.second
    leavings.end_processes(second)
    leavings.remove_shim_sockets(second)
    leavings.unmount(second)
    if mounted := leavings.mounts(second):
        raise ClusterError(f"cluster {place.name}: {mounted[0]} of the lost node can't be unmounted")
    network.remove_second(place.namespace)
    cgroups.remove(second.node_cgroup)
    if second.sockets.exists():
        shutil.rmtree(second.sockets)
    started = start(place, bin_, network_, api, gpus=gpus)
    wait_until_ready(api, watched=started)


def wait_until_ready(api: Api, *, watched: Sequence[Started] = ()) -> None:
    """Wait until the node is Ready and accepts pods.

    Raises:
        ClusterError: it isn't Ready within 90 s.
    """
    _wait(lambda: api.node_ready(NAME), "the second node is Ready", watched)


def _wait(is_met: Callable[[], bool], goal: str, watched: Sequence[Started]) -> None:
    wait_until(is_met, goal=goal, limit_s=_LIMIT_S, watched=watched)
