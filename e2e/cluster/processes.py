"""Start, search and termination of a cluster's processes.

Each process has the cluster's state directory and the component's name in its environment, and so do its child
processes. This mark is the only record. It exists from exec on, SIGKILL can't separate it from the process, and a
process with a reused ID doesn't have it. (A file with process IDs would have a gap between fork and write, and would
outlive the processes.) Processes in pods have other environments; they are found by the cluster's cgroup (see
`leavings`).
"""

import contextlib
import os
import select
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from e2e.cluster.errors import ClusterError
from e2e.cluster.places import Place

_MARK = "HALCYON_CLUSTER_PROCESS"
_PROC = Path("/proc")
# Child processes of this process, so that they don't remain as zombies after they have ended.
_children: list[subprocess.Popen[bytes]] = []


@dataclass(frozen=True, kw_only=True)
class Running:
    """A running process of a cluster. `component` is that of its nearest marked ancestor."""

    pid: int
    component: str


@dataclass(frozen=True, kw_only=True)
class Started:
    """A component started by this process."""

    component: str
    process: subprocess.Popen[bytes]
    log: Path

    def check(self) -> None:
        """Raise ClusterError with the end of the component's log if it has exited."""
        code = self.process.poll()
        if code is not None:
            raise ClusterError(f"{self.component} exited with {code}; the end of its log:\n{tail(self.log)}")


def start(
    place: Place,
    component: str,
    arguments: Sequence[str | Path],
    *,
    enter: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
) -> Started:
    """Start a component in its own session, with its output in its log. ENTER is put before the command."""
    place.log.mkdir(parents=True, exist_ok=True)
    log = place.log / f"{component}.log"
    with log.open("ab") as output:
        process = subprocess.Popen(
            [*enter, *map(str, arguments)],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, **(environment or {}), _MARK: _mark(place.state, component)},
            cwd="/",
            start_new_session=True,
        )
    _children.append(process)
    return Started(component=component, process=process, log=log)


def running(place: Place) -> list[Running]:
    """Return the running processes that have the cluster's mark and whose environment is readable."""
    prefix = f"{_MARK}={_mark(place.state, '')}".encode()
    processes: list[Running] = []
    for entry in _PROC.iterdir():
        if not entry.name.isdecimal():
            continue
        processes.extend(
            Running(pid=int(entry.name), component=variable.removeprefix(prefix).decode())
            for variable in _environment(int(entry.name))
            if variable.startswith(prefix)
        )
    return processes


def reap() -> None:
    """Collect the exit status of child processes that have ended."""
    _children[:] = [child for child in _children if child.poll() is None]


def other_kubelet() -> int | None:
    """Return the process ID of a kubelet that was not started by this package, if there is one."""
    for name in _PROC.glob("[0-9]*/comm"):
        pid = int(name.parent.name)
        try:
            is_kubelet = name.read_text().strip() == "kubelet"
        except OSError:
            continue
        environment = _environment(pid)
        if is_kubelet and environment and not any(item.startswith(f"{_MARK}=".encode()) for item in environment):
            return pid
    return None


def kill(pids: Iterable[int], *, is_current: Callable[[int], bool], limit_s: float) -> None:
    """Send SIGKILL to each process for which IS_CURRENT is true, and wait up to LIMIT_S until all of them have exited.

    IS_CURRENT is called after a handle on the process has been opened, so that no other process can be hit. The wait is
    necessary: a process that exits loses its environment, and so its mark, before it closes its files.
    """
    waiting = select.poll()
    handles: list[int] = []
    alive = 0
    try:
        for pid in pids:
            try:
                handle = os.pidfd_open(pid)
            except (ProcessLookupError, FileNotFoundError):
                # FileNotFoundError: the process has ended, and its ID is now that of a thread.
                continue
            handles.append(handle)
            if is_current(pid):
                with contextlib.suppress(ProcessLookupError):
                    signal.pidfd_send_signal(handle, signal.SIGKILL)
                waiting.register(handle, select.POLLIN)
                alive += 1
        deadline = time.monotonic() + limit_s
        while alive and (remaining_s := deadline - time.monotonic()) > 0:
            for handle, _ in waiting.poll(remaining_s * 1000):
                waiting.unregister(handle)
                alive -= 1
    finally:
        for handle in handles:
            os.close(handle)


def is_marked(place: Place, pid: int) -> bool:
    """Return True if the process PID has the cluster's mark now."""
    prefix = f"{_MARK}={_mark(place.state, '')}".encode()
    return any(variable.startswith(prefix) for variable in _environment(pid))


def memory_mib(pid: int) -> float:
    """Return the process's memory in MiB as PSS, which divides shared pages among their users; 0 if it is gone."""
    try:
        lines = (_PROC / str(pid) / "smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024


def tail(log: Path, *, lines: int = 6) -> str:
    """Return the last lines of a log, each shortened."""
    try:
        text = log.read_text(errors="replace")
    except OSError:
        return f"  ({log} can't be read)"
    return "\n".join(f"  {line[:400]}" for line in text.splitlines()[-lines:]) or "  (it is empty)"


def wait_until(
    is_met: Callable[[], bool], *, goal: str, limit_s: float, watched: Iterable[Started] = (), every_s: float = 0.05
) -> None:
    """Wait until IS_MET returns a true value.

    Raises:
        ClusterError: a watched component has exited, or LIMIT_S seconds have passed.
    """
    watched = tuple(watched)
    deadline = time.monotonic() + limit_s
    while not is_met():
        for started in watched:
            started.check()
        if time.monotonic() > deadline:
            logs = "".join(f"\n{started.component}:\n{tail(started.log, lines=3)}" for started in watched)
            raise ClusterError(f"{goal} did not happen within {limit_s:.0f} s{logs}")
        time.sleep(every_s)


def _mark(state: Path, component: str) -> str:
    return f"{state}:{component}"


def _environment(pid: int) -> list[bytes]:
    try:
        return (_PROC / str(pid) / "environ").read_bytes().split(b"\0")
    except OSError:
        return []
