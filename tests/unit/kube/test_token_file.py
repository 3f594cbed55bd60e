"""The token and the CA of the service account follow their files."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime
from pathlib import Path

import pytest
from kubernetes.aio.client.configuration import Configuration

from halcyon.kube.token_file import READ_INTERVAL_S, CaFile, TokenFile
from halcyon.metricsapi.certificates import make_ca
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


def test_a_ca_file_that_is_written_again_has_not_changed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    file, new, authority = tmp_path / "ca.crt", tmp_path / "new", make_ca(datetime.now(UTC)).cert_pem
    file.write_text(authority)
    context = ssl.create_default_context(cafile=file)
    follower = CaFile(file, context)
    new.write_text(authority)
    new.rename(file)  # as the kubelet does with each new token
    follower.refresh()
    assert not caplog.records
    new.write_text(authority + make_ca(datetime.now(UTC)).cert_pem)
    new.rename(file)
    follower.refresh()
    follower.refresh()
    assert [record.message for record in caplog.records] == ["the CA of the API server has changed"]
    assert context.cert_store_stats()["x509_ca"] == 2
