"""Reports of a download: how often they come, and what they hold."""

from __future__ import annotations

from halcyon.api.documents.download_progress import DownloadProgress
from halcyon.fetch.progress_reports import ProgressReports


def test_reports_come_at_once_then_rarely_and_only_after_a_change() -> None:
    now, reported = [0.0], list[DownloadProgress]()
    reports = ProgressReports(reported.append, 100, lambda: now[0])
    for at, done in ((1, 10), (9.9, 20), (10, 30), (15, 40), (25, 30), (40, 30), (41, 60), (60, 100)):
        now[0] = at
        reports.set(done)

    assert reported == [DownloadProgress(done, 100) for done in (0, 30, 60, 100)]


def test_an_unknown_size_stays_unknown() -> None:
    now, reported = [0.0], list[DownloadProgress]()
    reports = ProgressReports(reported.append, None, lambda: now[0])
    now[0] = 11
    reports.set(7)

    assert reported == [DownloadProgress(0, None), DownloadProgress(7, None)]
