"""The clock that follows the API server's."""

from __future__ import annotations

from email.utils import formatdate

import pytest

from halcyon.kube.clock import MAX_RESPONSE_AGE_S, ClusterClock

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
