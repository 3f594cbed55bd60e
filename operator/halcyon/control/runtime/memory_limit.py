"""Memory limit of this process: that of its container, enforced by the kernel.

The files are as seen in a container, whose own control group is the root of the mount. An environment variable would keep the
value of the pod's start, but a limit may change while the pod runs.
Source: the kernel's documentation, "Control Group v2", memory.max; "Memory Resource Controller" (v1), memory.limit_in_bytes.
"""

from __future__ import annotations

from pathlib import Path

MOUNT = Path("/sys/fs/cgroup")
_FILES = ("memory.max", "memory/memory.limit_in_bytes")
"""Files of version 2 and version 1."""
_NONE = 1 << 60
"""Threshold for "no limit" in version 1, which has no word for it and reports the largest number of pages."""


def read(mount: Path = MOUNT) -> float | None:
    """Return the limit in bytes; None if there is none, or it can't be read."""
    for name in _FILES:
        try:
            said = (mount / name).read_text().strip()
        except OSError:
            continue
        return float(said) if said.isdecimal() and int(said) < _NONE else None
    return None
