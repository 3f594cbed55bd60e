"""What memory this process may have: the limit of its container, which the kernel holds it to.

The files are those of a container, whose own control group is at the root of what is mounted there. A value of the environment would
be that of the pod's start; a limit may be changed while the pod runs.
Source: the kernel's documentation, "Control Group v2", memory.max; "Memory Resource Controller" (v1), memory.limit_in_bytes.
"""

from __future__ import annotations

from pathlib import Path

MOUNT = Path("/sys/fs/cgroup")
_FILES = ("memory.max", "memory/memory.limit_in_bytes")
"""Of version 2 and version 1."""
_NONE = 1 << 60
"""Version 1 has no word for "no limit": it says the largest number of pages."""


def read(mount: Path = MOUNT) -> float | None:
    """The limit in bytes; None if there is none, or none that can be read."""
    for name in _FILES:
        try:
            said = (mount / name).read_text().strip()
        except OSError:
            continue
        return float(said) if said.isdecimal() and int(said) < _NONE else None
    return None
