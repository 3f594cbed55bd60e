"""The result of a client as lines of its log."""

from __future__ import annotations

import os

import pytest

from halcyon_cli.bench.place.log_result import DOCUMENT, REQUESTS, ResultError, content, lines


def test_files_come_back_from_between_other_lines() -> None:
    requests = os.urandom(50_000)
    log = ["warm-up 3 s: 40/s", *lines(DOCUMENT, b'{"version": 1}'), *lines(REQUESTS, requests), "bye"]
    assert content(log, DOCUMENT) == b'{"version": 1}'
    assert content(log, REQUESTS) == requests
    assert max(map(len, log)) <= 4000


def test_missing_file_is_none() -> None:
    assert content(["nothing"], DOCUMENT) is None


@pytest.mark.parametrize("damage", ["cut", "middle", "checksum"])
def test_damaged_log_is_recognized(damage: str) -> None:
    log = list(lines(REQUESTS, os.urandom(20_000)))
    if damage == "cut":
        log = log[:-2]
    elif damage == "middle":
        del log[3]
    else:
        log[-1] = log[-1].replace(log[-1].split()[-1], "0123456789abcdef-----")
    with pytest.raises(ResultError, match=r"no whole requests.npz; run the measurement again"):
        content(log, REQUESTS)
