"""Processes of a server on this machine, their cgroup, and the energy counters of the machine's CPU."""

from __future__ import annotations

import contextlib
import os
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

from halcyon_measure.results.observations import ProcessSample
from halcyon_measure.sampling import cgroup
from halcyon_measure.sampling.cgroup import CgroupSample

_PROC = Path("/proc")
_RAPL = Path("/sys/class/powercap")
_LISTEN = "0A"
_MAPPED = bytes(10) + b"\xff\xff"
"""Prefix of an IPv4-mapped IPv6 address."""
_TICK_S = 1 / os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
_REFRESH_S = 10.0
"""Interval in seconds between searches for new child processes."""


def is_local(host: str) -> bool:
    """Return True if the host is an address of this machine."""
    try:
        for family, kind, _, _, address in socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM):
            with socket.socket(family, kind) as probe:
                probe.bind(address)
                return True
    except OSError:
        return False
    return False


def listener(host: str, port: int) -> int | None:
    """Return the process that listens on a local port; None if there is none, or if it isn't visible.

    A process that listens on exactly this address takes precedence over one that listens on all addresses.
    """
    host_addresses = _hexadecimal(host)
    exact, wide = set(), set()
    for name in ("tcp", "tcp6"):
        with contextlib.suppress(OSError):
            for line in (_PROC / "net" / name).read_text("ascii").splitlines()[1:]:
                fields = line.split()
                address, _, port_hex = fields[1].rpartition(":")
                if fields[3] == _LISTEN and int(port_hex, 16) == port:
                    if address in host_addresses:
                        exact.add(f"socket:[{fields[9]}]")
                    elif not address.strip("0"):
                        wide.add(f"socket:[{fields[9]}]")
    inodes = exact or wide
    holders = [pid for pid in _pids() if _holds(pid, inodes)]
    return min(holders, default=None)


class LocalServer:
    """Processes of a server, with their cgroup."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._tree: list[int] = []
        self._searched_s = float("-inf")
        self._cgroup = cgroup.of_process(pid)

    def sample(self, at_s: float) -> ProcessSample | None:
        """Return a sample of the processes; None if the server's process has ended."""
        if at_s - self._searched_s >= _REFRESH_S:
            self._tree, self._searched_s = _with_children(self._pid), at_s
        cpu_s, memory, alive = 0.0, 0, False
        waits_s: list[float] = []
        for pid in self._tree:
            with contextlib.suppress(OSError, IndexError, ValueError):
                fields = (_PROC / str(pid) / "stat").read_text("utf-8").rpartition(")")[2].split()
                # The time of children that have ended is included in that of their parent.
                cpu_s += sum(map(int, fields[11:15])) * _TICK_S
                resident, shared = (_PROC / str(pid) / "statm").read_text("ascii").split()[1:3]
                memory += (int(resident) - int(shared)) * _PAGE
                alive = True
                # Kernels without scheduler statistics, and sandboxes such as gVisor, don't have this file.
                waits_s.append(int((_PROC / str(pid) / "schedstat").read_text("ascii").split()[1]) / 1e9)
        if not alive:
            return None
        usage = CgroupSample() if self._cgroup is None else self._cgroup.sample()
        return ProcessSample(
            at_s,
            cpu_s=cpu_s if usage.cpu_s is None else usage.cpu_s,
            core_wait_s=sum(waits_s) if waits_s else None,
            memory=float(memory) if usage.memory is None else usage.memory,
            cpu_limit=usage.cpu_limit or _cores(self._pid),
            memory_limit=usage.memory_limit,
            periods=usage.periods,
            throttled=usage.throttled,
            oom_kills=usage.oom_kills,
        )


def rapl_joules() -> dict[str, float]:
    """Return the energy counters of the CPU packages in joules; empty if there are none, or they can't be read."""
    counters = {}
    for package in sorted(_RAPL.glob("intel-rapl:*")) if _RAPL.is_dir() else ():
        # Skip parts of a package: intel-rapl:0:1 is a part of intel-rapl:0.
        if package.name.count(":") == 1:
            value = _number(package / "energy_uj")
            if value is not None:
                counters[package.name] = value / 1e6
    return counters


def _hexadecimal(host: str) -> set[str]:
    """Return the addresses of a host in the kernel's notation: words of four bytes in the machine's byte order.

    For an IPv4 address, the mapped IPv6 address is included, because gRPC listens on IPv6 sockets.
    """
    addresses = set()
    with contextlib.suppress(OSError):
        for family, _, _, _, address in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM):
            packed = socket.inet_pton(family, str(address[0]).partition("%")[0])
            for form in (packed, *([_MAPPED + packed] if family == socket.AF_INET else [])):
                words = [form[start : start + 4] for start in range(0, len(form), 4)]
                addresses.add("".join(f"{int.from_bytes(word, sys.byteorder):08X}" for word in words))
    return addresses


def _pids() -> Iterator[int]:
    return (int(entry.name) for entry in _PROC.iterdir() if entry.name.isdigit())


def _holds(pid: int, inodes: set[str]) -> bool:
    if not inodes:
        return False
    with contextlib.suppress(OSError):
        for descriptor in (_PROC / str(pid) / "fd").iterdir():
            with contextlib.suppress(OSError):
                if str(descriptor.readlink()) in inodes:
                    return True
    return False


def _with_children(pid: int) -> list[int]:
    parents: dict[int, int] = {}
    for process in _pids():
        with contextlib.suppress(OSError, IndexError, ValueError):
            parents[process] = int((_PROC / str(process) / "stat").read_text("utf-8").rpartition(")")[2].split()[1])
    pids = [pid]
    for parent in pids:
        pids += [child for child, ppid in parents.items() if ppid == parent]
    return pids


def _cores(pid: int) -> float | None:
    """Return the number of cores on which a process may run; None if it is unknown."""
    with contextlib.suppress(OSError):
        return float(len(os.sched_getaffinity(pid)))
    return None


def _number(path: Path) -> float | None:
    with contextlib.suppress(OSError, ValueError):
        return float(path.read_text("ascii"))
    return None
