"""Outages while a command waits: a short one is silent, a long one is reported once."""

from __future__ import annotations

import itertools

import pytest

from halcyon_cli.commands.outage_notice import MAX_SILENT_S, OutageNotice
from halcyon_cli.commands.rollouts.status import follow
from halcyon_cli.errors import ClusterError
from halcyon_cli.rollout.progress import Progress

ERROR = ClusterError("no access: the token has expired")


def test_long_outage_is_reported_once(capsys: pytest.CaptureFixture[str]) -> None:
    times = iter([0.0, MAX_SILENT_S - 1, MAX_SILENT_S, MAX_SILENT_S + 1])
    outage = OutageNotice("status", lambda: next(times))
    for _ in range(4):
        outage.request_failed(ERROR)
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("halcyon status: no request has succeeded for 30 s, and the command goes on: no access")


def test_short_outages_are_silent(capsys: pytest.CaptureFixture[str]) -> None:
    times = itertools.count(0.0, MAX_SILENT_S - 1)
    outage = OutageNotice("status", lambda: next(times))
    for _ in range(3):
        outage.request_failed(ERROR)
        outage.request_succeeded()
    assert capsys.readouterr().err == ""


def test_status_reports_that_its_token_has_expired(capsys: pytest.CaptureFixture[str]) -> None:
    now = 0.0

    def pause(seconds: float) -> None:
        nonlocal now
        now += seconds

    def read() -> Progress:
        raise ERROR

    follow(read, Progress("Waiting", "waiting"), 60.0, None, clock=lambda: now, pause=pause)
    assert "no access: the token has expired" in capsys.readouterr().err
