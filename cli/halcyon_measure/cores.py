"""Number of CPU cores that this process may use."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path


def usable_cores() -> int:
    """Return the number of cores that this process may use, from its CPU affinity and the CPU limit of its cgroup."""
    cores = len(os.sched_getaffinity(0))
    with contextlib.suppress(OSError, ValueError):
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text("ascii").split()
        if quota != "max":
            cores = min(cores, max(round(int(quota) / int(period)), 1))
    return cores
