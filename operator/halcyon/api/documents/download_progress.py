"""Progress of a model's download, which the fetcher writes to its log and the command line reads from that log.

The status of a model cannot contain the number of bytes, because the operator may not read logs, and a pod has no
access to the API server.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

MIN_INTERVAL_S = 10.0
"""Minimum time between two progress lines in the log, in seconds."""
_LINE = re.compile(r": ([0-9]{1,15})(?: of ([0-9]{1,15}))? bytes$")
_UNITS = (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10))


@dataclass(frozen=True)
class DownloadProgress:
    """Progress of a download: the bytes received so far, and the total."""

    done: int
    """Number of bytes received so far."""
    total: int | None = None
    """Total number of bytes of the download; None if the server does not report it."""

    def line(self, url: str) -> str:
        """Return the progress as a line for the log."""
        return f"{url}: {self.done}{'' if self.total is None else f' of {self.total}'} bytes"

    def describe(self) -> str:
        """Return the progress in a readable form, for example `3.1 of 8.0 GiB`."""
        largest = self.done if self.total is None else self.total
        unit, size = next(((name, size) for name, size in _UNITS if largest >= size), ("bytes", 1))
        digits = 0 if size == 1 else 1
        done = f"{self.done / size:.{digits}f}"
        return f"{done} {unit}" if self.total is None else f"{done} of {self.total / size:.{digits}f} {unit}"


def last(lines: Iterable[str]) -> DownloadProgress | None:
    """Return the newest download progress in the lines of a log; None if no line has one."""
    for text in reversed(list(lines)):
        if match := _LINE.search(text.rstrip()):
            return DownloadProgress(int(match[1]), None if match[2] is None else int(match[2]))
    return None
