"""Memory limit of this process: the limit of its container, which the kernel enforces.

It is read from the control group's files, because a limit may change while the pod runs. An environment variable would
keep the initial value. In a container, the root of the mount is the container's own control group. Source: the kernel's
documentation, "Control Group v2" (memory.max) and "Memory Resource Controller" (v1, memory.limit_in_bytes).
"""

from __future__ import annotations

from pathlib import Path

MOUNT = Path("/sys/fs/cgroup")
_FILES = ("memory.max", "memory/memory.limit_in_bytes")
"""Files that contain the memory limit: the first for cgroup version 2, the second for version 1."""
_NONE = 1 << 60
"""Minimum value in a file of control groups that means "no limit". Version 1 writes the largest number of pages, and
version 2 the word `max`."""


def read(mount: Path = MOUNT) -> float | None:
    """Return the memory limit in bytes; None if there is no limit, or if it can't be read."""
    for name in _FILES:
        try:
            text = (mount / name).read_text().strip()
        except OSError:
            continue
        return float(text) if text.isdecimal() and int(text) < _NONE else None
    return None
