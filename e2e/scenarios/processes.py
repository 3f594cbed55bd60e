"""Processes inside pods, seen from the node, which is this machine: to kill what a pod can't kill itself."""

import contextlib
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any


def in_pod(pod: dict[str, Any], wanted: Callable[[str], bool]) -> list[int]:
    """Ids of a pod's processes whose command line is wanted; threads and the pod's own sandbox left out."""
    uid = str(pod["metadata"]["uid"])
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            groups = (place / "cgroup").read_text()
            command = (place / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
        except OSError:
            continue
        # With cgroupfs the pod's id stands as it is; systemd's names have it with underscores.
        if (uid in groups or uid.replace("-", "_") in groups) and wanted(command):
            found.append(int(place.name))
    return found


def kill(pod: dict[str, Any], wanted: Callable[[str], bool]) -> int:
    """Kill a pod's processes whose command line is wanted with SIGKILL; returns how many there were.

    A container's first process takes all others of its pid namespace along: one that went with it before its own
    turn came was killed as well.
    """
    pids = in_pod(pod, wanted)
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return len(pids)


def restarts(pod: dict[str, Any], container: str) -> int:
    """How often a container of the pod was started anew."""
    status = pod["status"]
    both = [*(status.get("containerStatuses") or []), *(status.get("initContainerStatuses") or [])]
    return next((int(c["restartCount"]) for c in both if c["name"] == container), 0)
