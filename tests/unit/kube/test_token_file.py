"""The token of the service account follows its file by the monotonic clock."""

from __future__ import annotations

from pathlib import Path

import pytest
from kubernetes.aio.client.configuration import Configuration

from halcyon.kube.token_file import READ_INTERVAL_S, TokenFile
from tests.clocks import DrivenClock


def test_a_renewed_token_is_used_after_a_minute(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file, now = tmp_path / "token", 1000.0
    file.write_text("one\n")
    hook, configuration = TokenFile(file, DrivenClock(lambda: now)), Configuration()

    def used() -> str:
        hook(configuration)
        return str(configuration.api_key["BearerToken"])

    assert used() == "Bearer one"
    file.write_text("two")
    now += READ_INTERVAL_S - 1
    assert used() == "Bearer one"
    now += 1
    assert used() == "Bearer two"
    file.unlink()
    now += READ_INTERVAL_S
    assert [used(), used()] == ["Bearer two"] * 2
    assert len(caplog.records) == 1
    file.write_text("")
    now += READ_INTERVAL_S
    assert used() == "Bearer two"
