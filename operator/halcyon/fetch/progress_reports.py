"""Progress reports of a download to a callback: the first immediately, then at most one every 10 s.

No report is made if no bytes were received since the last one.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from halcyon.api.documents.download_progress import MIN_INTERVAL_S, DownloadProgress

ReportProgress = Callable[[DownloadProgress], None]


class ProgressReports:
    """Reporter of the bytes received by one download. Several threads may use it."""

    def __init__(self, report: ReportProgress, total: int | None, clock: Callable[[], float] = time.monotonic) -> None:
        """Report the beginning of a download. `total` is its size in bytes, or None if the size is unknown."""
        self._report, self._total, self._clock = report, total, clock
        self._lock = threading.Lock()
        self._last, self._reported_at = 0, clock()
        report(DownloadProgress(0, total))

    def set(self, done: int) -> None:
        """Set the number of bytes received so far, and report it.

        No report is made if the number is unchanged, or if the last report is too recent.
        """
        with self._lock:
            if done == self._last or self._clock() - self._reported_at < MIN_INTERVAL_S:
                return
            self._last, self._reported_at = done, self._clock()
        self._report(DownloadProgress(done, self._total))
