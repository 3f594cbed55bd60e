"""Processes inside pods, accessed from the node, which is this machine, to kill those that a pod can't kill itself."""

import contextlib
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any


def in_pod(pod: dict[str, Any], wanted: Callable[[str], bool]) -> list[int]:
    """Return the IDs of a pod's processes whose command line is wanted, without threads and the pod's sandbox."""
    uid = str(pod["metadata"]["uid"])
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            groups = (place / "cgroup").read_text()
            command = (place / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
        except OSError:
            continue
        # cgroupfs uses the pod's ID unchanged; systemd replaces dashes with underscores.
        if (uid in groups or uid.replace("-", "_") in groups) and wanted(command):
            found.append(int(place.name))
    return found


def kill(pod: dict[str, Any], wanted: Callable[[str], bool]) -> int:
    """Send SIGKILL to a pod's processes whose command line is wanted, and return their number.

    When a container's first process ends, all others in its PID namespace are killed. They are included in the number.
    """
    pids = in_pod(pod, wanted)
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return len(pids)


def restarts(pod: dict[str, Any], container: str) -> int:
    """Return how often a container of the pod has been restarted."""
    status = pod["status"]
    both = [*(status.get("containerStatuses") or []), *(status.get("initContainerStatuses") or [])]
    return next((int(c["restartCount"]) for c in both if c["name"] == container), 0)
