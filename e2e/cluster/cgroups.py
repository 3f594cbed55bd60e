"""The cgroup that contains all pods of a cluster: a folder in each hierarchy of cgroup v1, or one in cgroup v2."""

import os
import time
from pathlib import Path

from e2e.cluster.errors import ClusterError

_LIMIT_S = 10


def hierarchies() -> list[Path]:
    """Return the mount points of the cgroup file systems."""
    mounts = []
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _, target, kind, *_ = line.split()
        if kind in {"cgroup", "cgroup2"}:
            mounts.append(Path(target))
    return mounts


def make(name: str) -> None:
    """Create the cgroup NAME in every hierarchy.

    The kubelet requires that it exists, with the controllers that it uses.

    Raises:
        ClusterError: the kernel doesn't allow it, for example in a container without its own cgroups.
    """
    for hierarchy in hierarchies():
        try:
            (hierarchy / name).mkdir(exist_ok=True)
            if (hierarchy / "cgroup.controllers").exists():
                _delegate(hierarchy)
                _delegate(hierarchy / name)
            for file in ("cpuset.cpus", "cpuset.mems"):
                # version 1: a cpuset without CPUs accepts no processes
                inherited, own = hierarchy / file, hierarchy / name / file
                if inherited.exists() and own.exists() and not own.read_text().strip():
                    own.write_text(inherited.read_text())
        except OSError as error:
            raise ClusterError(
                f"cgroup {hierarchy / name}: {error.strerror}; a node needs to make cgroups, so run it on the machine "
                "itself or in a privileged container with its own cgroup namespace"
            ) from error


def weigh(name: str, *, cpus: int) -> None:
    """Give the cgroup NAME the share of CPU time that the kubelet gives to the pods of a node with CPUS CPUs.

    A new cgroup has the share of one CPU.
    """
    shares = cpus * 1024
    # version 2 has a scale of its own; this is the formula of Kubernetes
    weight = 1 + (shares - 2) * 9999 // 262142
    for folder in _folders(name):
        for file, value in (("cpu.shares", shares), ("cpu.weight", weight)):
            if (folder / file).exists():
                (folder / file).write_text(str(value))


def processes(name: str) -> set[int]:
    """Return the processes in the cgroup NAME and below, in any hierarchy."""
    pids: set[int] = set()
    for top in _folders(name):
        for folder, _, _ in os.walk(top):
            try:
                pids.update(map(int, (Path(folder) / "cgroup.procs").read_text().split()))
            except OSError:
                continue  # removed in the meantime
    return pids


def remove(name: str) -> None:
    """Remove the cgroup NAME and all below it. Its processes must be gone, but the kernel may need a moment.

    Raises:
        ClusterError: a cgroup still exists after 10 s.
    """
    deadline = time.monotonic() + _LIMIT_S
    while remaining := _folders(name):
        for top in remaining:
            for folder, _, _ in os.walk(top, topdown=False):
                try:
                    Path(folder).rmdir()
                except OSError:
                    continue  # busy: retried below
        if time.monotonic() > deadline:
            raise ClusterError(
                f"cgroup {remaining[0]} can't be removed; its processes: {sorted(processes(name)) or 'none'}"
            )
        time.sleep(0.02)


def exists(name: str) -> bool:
    """Return True if the cgroup NAME exists in any hierarchy."""
    return bool(_folders(name))


def _folders(name: str) -> list[Path]:
    return [hierarchy / name for hierarchy in hierarchies() if (hierarchy / name).is_dir()]


def _delegate(folder: Path) -> None:
    """Enable the controllers for the children of a version 2 cgroup, one by one.

    So a failure of one controller doesn't affect the others.
    """
    for controller in (folder / "cgroup.controllers").read_text().split():
        try:
            (folder / "cgroup.subtree_control").write_text(f"+{controller}")
        except OSError:
            continue  # the kubelet reports a missing controller
