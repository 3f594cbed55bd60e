"""Lines about a download in the fetcher's log, which the command line reads."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from halcyon.api.documents.download_progress import DownloadProgress, last

URL = "s3://models/vision/resnet50"
BYTES = st.integers(0, 10**15 - 1)


@given(BYTES, st.none() | BYTES)
def test_a_line_is_read_as_it_was_written(done: int, total: int | None) -> None:
    progress = DownloadProgress(done, total)

    assert last(["before", progress.line(URL), "after"]) == progress


@pytest.mark.parametrize(
    ("lines", "progress"),
    [
        ([], None),
        (["s3://m: 8.0 MiB in 3 s"], None),
        (["0 bytes"], None),
        (["s3://m: -4 of 8 bytes", "s3://m: 4 of x bytes"], None),
        (["a: 1 of 9 bytes", "a: 5 of 9 bytes\r"], DownloadProgress(5, 9)),
    ],
)
def test_the_newest_line_counts_and_others_are_unknown(lines: list[str], progress: DownloadProgress | None) -> None:
    assert last(lines) == progress


@pytest.mark.parametrize(
    ("progress", "text"),
    [
        (DownloadProgress(0, 0), "0 of 0 bytes"),
        (DownloadProgress(0, 8 * 2**30), "0.0 of 8.0 GiB"),
        (DownloadProgress(3328599655, 8 * 2**30), "3.1 of 8.0 GiB"),
        (DownloadProgress(300, 1536), "0.3 of 1.5 KiB"),
        (DownloadProgress(3 * 2**20), "3.0 MiB"),
    ],
)
def test_people_read_the_unit_of_the_larger_number(progress: DownloadProgress, text: str) -> None:
    assert progress.describe() == text
