"""What the log says."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING

from halcyon.control.runtime import json_logging

if TYPE_CHECKING:
    import pytest


def test_a_repeated_attempt_is_no_error_and_the_last_one_is(capsys: pytest.CaptureFixture[str]) -> None:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    try:
        json_logging.configure("info")
        client = logging.getLogger("kopf._cogs.clients.watching")
        client.error("Request attempt #1/9 failed; will retry: GET /x")
        client.error("Request attempt #9/9 failed; escalating: GET /x")
        logging.getLogger("halcyon").error("it failed; will retry")
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)
    records = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert [line["level"] for line in records] == ["warning", "error", "error"]
