"""The clock that follows the API server's."""

from __future__ import annotations

import time
from email.utils import formatdate

import pytest

from halcyon.kube import errors
from halcyon.kube.clock import MAX_RESPONSE_AGE_S, SYSTEM_CLOCK, Clock, ClusterClock
from halcyon.kube.lease_fence import LeaseFence

NOW = 1_767_268_800.0


@pytest.mark.parametrize("ahead_s", [3600.0, -3600.0, MAX_RESPONSE_AGE_S + 1])
def test_wall_time_follows_an_api_server_whose_clock_differs(ahead_s: float) -> None:
    clock = ClusterClock(lambda: NOW)
    clock.responded(formatdate(NOW + ahead_s, usegmt=True))

    assert clock.wall() == NOW + ahead_s
    clock.responded(formatdate(NOW, usegmt=True))
    assert clock.wall() == NOW


@pytest.mark.parametrize("date", [None, "", "yesterday", formatdate(NOW - 20, usegmt=True)])
def test_a_late_or_missing_date_changes_nothing(date: str | None) -> None:
    clock = ClusterClock(lambda: NOW)
    clock.responded(date)

    assert clock.wall() == NOW


@pytest.mark.parametrize("clock", [ClusterClock(), SYSTEM_CLOCK])
def test_a_leader_on_a_machine_that_was_suspended_writes_nothing(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> None:
    fence = LeaseFence("team/halcyon", clock, deadline_s=7, duration_s=10)
    fence.renew(clock.monotonic())
    assert fence.left_s() > 9
    read = time.clock_gettime  # in a suspend, Linux stops CLOCK_MONOTONIC, and not CLOCK_BOOTTIME
    monkeypatch.setattr(time, "clock_gettime", lambda number: read(number) + 60 * (number == time.CLOCK_BOOTTIME))

    with pytest.raises(errors.LeaseLost):
        fence.left_s()
