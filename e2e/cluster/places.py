"""Where things are kept: the cache, and the places of one cluster. No one else makes a path from $HALCYON_CACHE."""

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
_LONGEST_SOCKET = "kubelet/pod-resources/kubelet.sock"


@dataclass(frozen=True, kw_only=True)
class Place:
    """One cluster's name and directories.

    `state` holds everything but sockets; `run` holds sockets and containerd's state, because a socket's path has a
    limit of 107 bytes and a cache directory may be deep. `run` is used by clusters with a node only: it needs root.
    """

    name: str
    state: Path
    run: Path

    @property
    def log(self) -> Path:
        """One file per component."""
        return self.state / "log"

    @property
    def pki(self) -> Path:
        """Certificates and keys, laid out as kubeadm does."""
        return self.state / "pki"

    @property
    def kubeconfig(self) -> Path:
        """A cluster administrator's kubeconfig, usable from the host."""
        return self.state / "kubeconfig"

    @property
    def record(self) -> Path:
        """What is known about the cluster; written before the first resource is made."""
        return self.state / "cluster.json"

    @property
    def containerd_socket(self) -> Path:
        """The container runtime's socket."""
        return self.run / "containerd.sock"

    @property
    def namespace(self) -> str:
        """The network namespace's name."""
        return f"halcyon-{self.name}"

    @property
    def cgroup(self) -> str:
        """The cgroup below which all pods live; the same path in each hierarchy where there are several."""
        return f"halcyon-{self.name}"


def cache() -> Path:
    """$HALCYON_CACHE, by default ~/.cache/halcyon."""
    told = os.environ.get("HALCYON_CACHE")
    if told:
        return Path(told).resolve()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache").resolve() / "halcyon"


def place(name: str) -> Place:
    """Return the places of the cluster NAME; makes none of them.

    Raises:
        ClusterError: the name can't be one, or the cache directory is too deep for the kubelet's sockets.
    """
    if not _NAME.fullmatch(name):
        raise ClusterError(
            f"--name {name}: a cluster's name has 1 to 24 lower-case letters, digits and inner hyphens, e.g. demo-2"
        )
    state = cache() / "clusters" / name
    room = _SOCKET_PATH_LIMIT - len(os.fsencode(state / _LONGEST_SOCKET))
    if room < 0:
        raise ClusterError(
            f"HALCYON_CACHE {cache()}: {-room} bytes too long for the sockets of cluster {name} "
            f"(limit {_SOCKET_PATH_LIMIT} for {state / _LONGEST_SOCKET}); use a shorter one, e.g. /var/cache/halcyon"
        )
    return Place(name=name, state=state, run=RUN / name)


def names() -> list[str]:
    """Return the names of the clusters that have a record, up or not."""
    return sorted(record.parent.name for record in (cache() / "clusters").glob("*/cluster.json"))


@contextmanager
def locked(file: Path, *, waiting: str) -> Iterator[None]:
    """Hold the lock FILE; the kernel frees it when the process dies. Prints WAITING if someone else holds it.

    Its holder may remove the file: who waits for it then finds that the name means another file, and starts over.
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
    """Return the lock file of one cluster: beside its state, which `down` removes."""
    return cluster.state.with_name(f".{cluster.name}.lock")
