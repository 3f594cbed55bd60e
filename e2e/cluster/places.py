"""Paths of the cache and of each cluster. Only this module uses $HALCYON_CACHE."""

import dataclasses
import fcntl
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from e2e.cluster.errors import ClusterError
from e2e.cluster.progress import say

RUN = Path("/run/halcyon")
_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,22}[a-z0-9])?")
_SOCKET_PATH_LIMIT = 107
_SECOND = "n2"
_LONGEST_SOCKET = f"{_SECOND}/kubelet/pod-resources/kubelet.sock"


@dataclass(frozen=True, kw_only=True)
class Place:
    """Name and directories of one cluster.

    `state` contains everything except sockets. `run` contains sockets and containerd's state, because a socket's path
    is limited to 107 bytes and the cache directory may have a long path. Only clusters with a node use `run`, which
    requires root. `node` is the number of the node whose files, sockets and cgroup are meant: 1, or 2 for the second.
    """

    name: str
    state: Path
    run: Path
    node: int = 1

    @property
    def log(self) -> Path:
        """Folder of the components' log files."""
        return self.state / "log"

    @property
    def pki(self) -> Path:
        """Folder of certificates and keys, with kubeadm's layout."""
        return self.state / "pki"

    @property
    def kubeconfig(self) -> Path:
        """Path of a cluster administrator's kubeconfig, for use on the host."""
        return self.state / "kubeconfig"

    @property
    def record(self) -> Path:
        """Path of the cluster's record, written before the first resource is created."""
        return self.state / "cluster.json"

    @property
    def files(self) -> Path:
        """Folder of the node's files. The first node's files are beside those of the control plane."""
        return self.state if self.node == 1 else self.state / _SECOND

    @property
    def sockets(self) -> Path:
        """Folder of the node's sockets and of containerd's state."""
        return self.run if self.node == 1 else self.run / _SECOND

    @property
    def containerd_socket(self) -> Path:
        """Path of the container runtime's socket."""
        return self.sockets / "containerd.sock"

    @property
    def namespace(self) -> str:
        """Name of the network namespace."""
        return f"halcyon-{self.name}"

    @property
    def cgroup(self) -> str:
        """Path of the cgroup that contains all pods, the same in each hierarchy."""
        return f"halcyon-{self.name}"

    @property
    def node_cgroup(self) -> str:
        """Path of the cgroup below which the node's kubelet creates those of its pods."""
        return self.cgroup if self.node == 1 else f"{self.cgroup}/{_SECOND}"

    @property
    def second(self) -> "Place":
        """The same cluster, with the paths of the second node."""
        return dataclasses.replace(self, node=2)

    def component(self, name: str) -> str:
        """Return the name of a node's component in marks, logs and `status`, such as `kubelet-2`."""
        return name if self.node == 1 else f"{name}-{self.node}"


def cache() -> Path:
    """Return $HALCYON_CACHE, by default ~/.cache/halcyon."""
    configured = os.environ.get("HALCYON_CACHE")
    if configured:
        return Path(configured).resolve()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache").resolve() / "halcyon"


def place(name: str) -> Place:
    """Return the paths of the cluster NAME, without creating them.

    Raises:
        ClusterError: the name is invalid, or the cache directory's path is too long for the kubelet's sockets.
    """
    if not _NAME.fullmatch(name):
        raise ClusterError(
            f"--name {name}: a cluster's name has 1 to 24 lower-case letters, digits and inner hyphens, e.g. demo-2"
        )
    state = cache() / "clusters" / name
    spare_bytes = _SOCKET_PATH_LIMIT - len(os.fsencode(state / _LONGEST_SOCKET))
    if spare_bytes < 0:
        raise ClusterError(
            f"HALCYON_CACHE {cache()}: {-spare_bytes} bytes too long for the sockets of cluster {name} "
            f"(limit {_SOCKET_PATH_LIMIT} for {state / _LONGEST_SOCKET}); use a shorter one, e.g. /var/cache/halcyon"
        )
    return Place(name=name, state=state, run=RUN / name)


def names() -> list[str]:
    """Return the names of the clusters that have a record, up or not."""
    return sorted(record.parent.name for record in (cache() / "clusters").glob("*/cluster.json"))


@contextmanager
def locked(file: Path, *, waiting: str) -> Iterator[None]:
    """Hold the lock FILE, which the kernel releases when the process ends. Print WAITING if another process holds it.

    The holder may remove the file. A process that waits for it then detects that the name refers to another file, and
    starts over.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    while True:
        with file.open("w") as handle:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                say(waiting)
                fcntl.flock(handle, fcntl.LOCK_EX)
            if not _is(file, handle):
                continue
            yield
            return


def _is(file: Path, handle: IO[str]) -> bool:
    try:
        return os.path.samestat(file.stat(), os.fstat(handle.fileno()))
    except FileNotFoundError:
        return False


def lock_of(cluster: Place) -> Path:
    """Return the lock file of one cluster. It is outside of its state directory, which `down` removes."""
    return cluster.state.with_name(f".{cluster.name}.lock")
