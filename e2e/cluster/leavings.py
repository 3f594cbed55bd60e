"""Removal of everything that a cluster created, whatever its state.

There is only one procedure: kill the processes, then remove mounts, namespace, cgroups and files. It is the same for a
healthy cluster and for one whose `up` failed or was killed. So the difficult case is always tested, and removal is
fast. A cluster's data is always temporary.
"""

import json
import re
import shutil
import socket
import time
from pathlib import Path

from e2e.cluster import cgroups, network
from e2e.cluster.errors import ClusterError
from e2e.cluster.places import Place
from e2e.cluster.processes import is_marked, kill, reap, running
from e2e.cluster.system import command

_LIMIT_S = 20
_CNI_RESULTS = Path("/var/lib/cni/results")
_LOG_LINKS = Path("/var/log/containers")
_DEVICE_PLUGINS = Path("/var/lib/kubelet/device-plugins/kubelet.sock")
_MOUNT_ESCAPE = re.compile(r"\\([0-7]{3})")


def remove_all(place: Place, *, interface: str | None, node: bool, keep_logs: bool = False) -> None:
    """Remove the cluster. NODE: it may have pods, mounts and a namespace, whose removal requires root.

    Raises:
        ClusterError: something can't be removed; the message names it, and another call continues from there.
    """
    end_processes(place)
    if node:
        for each in (place, place.second):
            remove_shim_sockets(each)
        unmount(place)
        _remove_cni_results(place)
        _remove_log_links(place)
        _remove_dead_socket(_DEVICE_PLUGINS)
        network.remove(place.namespace, interface)
        cgroups.remove(place.cgroup)
    _remove_state(place, keep_logs=keep_logs)
    if node and place.run.exists():
        shutil.rmtree(place.run)  # the record identifies the cluster, so it is removed last


def end_processes(place: Place) -> None:
    """Kill the cluster's processes and those in its pods, until none is left. With `place.second`, only that node's.

    Raises:
        ClusterError: a process survives SIGKILL for 20 s.
    """
    deadline = time.monotonic() + _LIMIT_S
    while pids := alive(place):
        remaining_s = deadline - time.monotonic()
        if remaining_s < 0:
            raise ClusterError(f"cluster {place.name}: the processes {sorted(pids)} survive SIGKILL")
        kill(
            pids,
            is_current=lambda pid: is_marked(place, pid) or pid in cgroups.processes(place.node_cgroup),
            limit_s=remaining_s,
        )
    reap()


def alive(place: Place) -> set[int]:
    """Return the cluster's processes, including those in pods. With `place.second`, only that node's."""
    marked = running(place)
    if place.node != 1:
        marked = [process for process in marked if process.component.endswith(place.component(""))]
    return {process.pid for process in marked} | cgroups.processes(place.node_cgroup)


def mounts(place: Place) -> list[str]:
    """Return the mount points in the cluster's directories, the innermost first. With `place.second`, only that node's."""
    tops = tuple(f"{directory}/" for directory in (place.files, place.sockets))
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    points = [_MOUNT_ESCAPE.sub(lambda code: chr(int(code[1], 8)), line.split()[4]) for line in lines]
    return [point for point in reversed(points) if point.startswith(tops)]


def unmount(place: Place) -> None:
    """Unmount everything in the cluster's directories. With `place.second`, only in that node's."""
    for point in mounts(place):
        command(["umount", "--lazy", point], check=False)


def remove_shim_sockets(node: Place) -> None:
    """Remove the sockets of a node's shims from a directory that all containerd instances share."""
    for bootstrap in (node.sockets / "containerd").glob("io.containerd.runtime.v2.task/*/*/bootstrap.json"):
        Path(json.loads(bootstrap.read_text())["address"].removeprefix("unix://")).unlink(missing_ok=True)


def _remove_cni_results(place: Place) -> None:
    """Remove the results that the CNI library stores by container in a directory that all networks share."""
    ours = re.compile(rf"{re.escape(place.namespace)}-([0-9a-f]{{64}})-eth0")
    for result in _CNI_RESULTS.glob(f"{place.namespace}-*"):
        match = ours.fullmatch(result.name)
        if match:
            result.unlink(missing_ok=True)
            (_CNI_RESULTS / f"cni-loopback-{match[1]}-lo").unlink(missing_ok=True)


def _remove_log_links(place: Place) -> None:
    """Remove the links to container logs that the kubelet creates in a directory that all kubelets share."""
    for link in _LOG_LINKS.glob("*.log"):
        if link.is_symlink() and link.readlink().is_relative_to(place.state):
            link.unlink(missing_ok=True)


def _remove_dead_socket(socket_path: Path) -> None:
    """Remove the socket for device plugins if no kubelet listens on it. Its path can't be configured."""
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(str(socket_path))
        except ConnectionRefusedError:
            socket_path.unlink(missing_ok=True)
        except OSError:
            return


def _remove_state(place: Place, *, keep_logs: bool) -> None:
    mounted = mounts(place)
    if mounted:
        # the files below may be a volume's, and removing the directory would remove them
        raise ClusterError(f"cluster {place.name}: {mounted[0]} is still mounted, and unmounting it needs root")
    if not place.state.is_dir():
        return
    # The record is removed last, because an interrupted `down` needs it to continue.
    last = [place.record, *([place.log] if keep_logs else [])]
    for entry in place.state.iterdir():
        if entry in last:
            continue
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink()
    place.record.unlink(missing_ok=True)
    if not keep_logs:
        shutil.rmtree(place.state)
