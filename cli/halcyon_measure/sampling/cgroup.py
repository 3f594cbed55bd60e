"""Cgroup (version 1 or 2) of a process: CPU use, throttling, memory and OOM kills of its container.

The cgroup is read through the root directory of the process (/proc/PID/root), because containers of one pod see only
their own cgroup at /sys/fs/cgroup. This needs a shared process namespace and the same user. If this client is in the
same cgroup, the cgroup isn't read, because the figures would include the client.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

PROC = Path("/proc")
_UNIFIED = ""
"""Key for version 2 in `Cgroup.folders`. Version 2 has one hierarchy for all controllers, which has no name in
/proc."""
_NO_LIMIT = 2.0**60
"""Value in bytes from which a memory limit means no limit, because version 1 shows a huge number in this case."""


@dataclass(frozen=True)
class CgroupSample:
    """One sample of a cgroup. A value is None if it can't be read or there is no limit."""

    cpu_s: float | None = None
    cpu_limit: float | None = None
    """Maximum number of cores that the processes may use together."""
    memory: float | None = None
    memory_limit: float | None = None
    periods: float | None = None
    throttled: float | None = None
    oom_kills: float | None = None


@dataclass(frozen=True)
class Cgroup:
    """Folders of a cgroup, by controller."""

    folders: Mapping[str, Path]

    def sample(self) -> CgroupSample:
        """Return a sample of the current values."""
        if _UNIFIED in self.folders:
            return self._unified(self.folders[_UNIFIED])
        cpu, memory = self.folders.get("cpu"), self.folders.get("memory")
        used = _number(self.folders.get("cpuacct"), "cpuacct.usage")
        stat, quota = _numbers(cpu, "cpu.stat"), _number(cpu, "cpu.cfs_quota_us")
        period, limit = _number(cpu, "cpu.cfs_period_us"), _number(memory, "memory.limit_in_bytes")
        is_limited = quota is not None and quota > 0 and period
        return CgroupSample(
            cpu_s=None if used is None else used / 1e9,
            cpu_limit=quota / period if is_limited and quota and period else None,
            memory=_number(memory, "memory.usage_in_bytes"),
            memory_limit=None if limit is None or limit > _NO_LIMIT else limit,
            periods=stat.get("nr_periods") if is_limited else None,
            throttled=stat.get("nr_throttled") if is_limited else None,
            oom_kills=_numbers(memory, "memory.oom_control").get("oom_kill"),
        )

    @staticmethod
    def _unified(folder: Path) -> CgroupSample:
        stat = _numbers(folder, "cpu.stat")
        used = stat.get("usage_usec")
        return CgroupSample(
            cpu_s=None if used is None else used / 1e6,
            cpu_limit=_cpu_limit(folder / "cpu.max"),
            memory=_number(folder, "memory.current"),
            memory_limit=_number(folder, "memory.max"),
            periods=stat.get("nr_periods"),
            throttled=stat.get("nr_throttled"),
            oom_kills=_numbers(folder, "memory.events").get("oom_kill"),
        )


def of_process(pid: int, *, proc: Path = PROC) -> Cgroup | None:
    """Return the cgroup of a process.

    The result is None if it is the root cgroup or the cgroup of this client, or if it can't be read.
    """
    own_paths, folders = _paths(proc / "self"), dict[str, Path]()
    mounts = _mounts(proc / str(pid))
    for controller, path in _paths(proc / str(pid)).items():
        mount = mounts.get(controller)
        if path == "/" or path == own_paths.get(controller) or mount is None:
            continue
        root, point = mount
        with contextlib.suppress(ValueError, OSError):
            relative = PurePosixPath(path).relative_to(root)
            folder = proc / str(pid) / "root" / point.lstrip("/") / relative
            if folder.is_dir():
                folders[controller] = folder
    if _UNIFIED in folders and not (folders[_UNIFIED] / "cpu.stat").is_file():
        # If version 1 is in use, the hierarchy of version 2 has no controllers.
        del folders[_UNIFIED]
    return Cgroup(folders) if folders else None


def _paths(process: Path) -> dict[str, str]:
    """Return the cgroup path of a process for each controller."""
    paths: dict[str, str] = {}
    with contextlib.suppress(OSError, ValueError):
        for line in (process / "cgroup").read_text("utf-8").splitlines():
            _, controllers, path = line.split(":", 2)
            paths |= dict.fromkeys(controllers.split(","), path)
    return paths


def _mounts(process: Path) -> dict[str, tuple[str, str]]:
    """Return, by controller, the root path and the mount point of each cgroup mount that a process sees."""
    mounts: dict[str, tuple[str, str]] = {}
    with contextlib.suppress(OSError):
        for line in (process / "mountinfo").read_text("utf-8").splitlines():
            before, _, after = line.partition(" - ")
            fields, kind = before.split(), after.split()
            if len(fields) < 5 or len(kind) < 3:
                continue
            if kind[0] == "cgroup2":
                mounts[_UNIFIED] = fields[3], fields[4]
            elif kind[0] == "cgroup":
                mounts |= dict.fromkeys(kind[2].split(","), (fields[3], fields[4]))
    return mounts


def _cpu_limit(path: Path) -> float | None:
    with contextlib.suppress(OSError, ValueError):
        quota, period = path.read_text("ascii").split()
        return int(quota) / int(period)
    return None


def _numbers(folder: Path | None, name: str) -> dict[str, float]:
    if folder is not None:
        with contextlib.suppress(OSError, ValueError):
            lines = (folder / name).read_text("ascii").splitlines()
            return {key: float(value) for key, value in (line.split() for line in lines)}
    return {}


def _number(folder: Path | None, name: str) -> float | None:
    if folder is not None:
        with contextlib.suppress(OSError, ValueError):
            return float((folder / name).read_text("ascii"))
    return None
