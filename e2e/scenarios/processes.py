"""Processes inside pods, accessed from the node, which is this machine, to kill those that a pod can't kill itself."""

import contextlib
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any


def in_pod(pod: dict[str, Any], matches: Callable[[str], bool]) -> list[int]:
    """Return the IDs of a pod's processes whose command line matches, without threads and the pod's sandbox."""
    uid = str(pod["metadata"]["uid"])
    pids = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            groups = (folder / "cgroup").read_text()
            command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
        except OSError:
            continue
        # cgroupfs uses the pod's ID unchanged; systemd replaces dashes with underscores.
        if (uid in groups or uid.replace("-", "_") in groups) and matches(command):
            pids.append(int(folder.name))
    return pids


def kill(pod: dict[str, Any], matches: Callable[[str], bool]) -> int:
    """Send SIGKILL to a pod's processes whose command line matches, and return their number.

    When a container's first process ends, all others in its PID namespace are killed. They are included in the number.
    """
    pids = in_pod(pod, matches)
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return len(pids)


def restarts(pod: dict[str, Any], container: str) -> int:
    """Return how often a container of the pod has been restarted."""
    status = pod["status"]
    statuses = [*(status.get("containerStatuses") or []), *(status.get("initContainerStatuses") or [])]
    return next((int(c["restartCount"]) for c in statuses if c["name"] == container), 0)
