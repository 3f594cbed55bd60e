"""Batch statistics on their way through the operator: which can be true, and which of several agents' count."""

from __future__ import annotations

import math
from typing import Any

import pytest

from halcyon.api.documents.observation_report import MAX_SIZES, AgentReport, BatchStats, ReportError
from halcyon.signals.observation_store import ObservationStore
from halcyon.signals.validation import MAX_VERSIONS, validate
from tests.unit.signals.records import EPOCH, record, triton


def read(at: float, *sizes: tuple[Any, ...]) -> BatchStats:
    return BatchStats(EPOCH + at, tuple(sizes))  # type: ignore[arg-type]  # some of them are wrong on purpose


def test_good_tables_pass() -> None:
    for sizes in ([], [(1, 0, 0)], [(1, 3, 5), (65536, 2**53, 2**53)]):
        sent = record(0, triton(batches=read(0, *sizes)))
        assert validate(sent).report == sent


@pytest.mark.parametrize(
    "sizes",
    [
        [(0, 1, 1)],
        [(-1, 1, 1)],
        [(65537, 1, 1)],
        [(1, -1, 1)],
        [(1, 1, -1)],
        [(1, 2**54, 1)],
        [(1, 1.5, 1)],
        [(1, math.nan, 1)],
        [(1, math.inf, 1)],
        [(1, True, 1)],
        [(1, "1", 1)],
        [(1, None, 1)],
        [(1, 1)],
        [(1, 1, 1, 1)],
        [("1", 1, 1)],
        [(1, 1, 1), (1, 2, 2)],
        [(rows, 1, 1) for rows in range(1, MAX_SIZES + 2)],
        [(1, 1, 1), (2, -1, 1)],
    ],
)
def test_an_impossible_entry_makes_the_table_unknown_alone(sizes: list[tuple[Any, ...]]) -> None:
    vetted = validate(record(0, triton(pending=3, batches=read(0, *sizes))))
    assert vetted.implausible == 1
    assert vetted.report.pods[0].batches is None
    assert vetted.report.pods[0].pending == 3


@pytest.mark.parametrize("at", [math.nan, -1.0, "now", None])
def test_a_table_without_its_time_is_no_record(at: Any) -> None:
    with pytest.raises(ReportError):
        validate(record(0, triton(batches=BatchStats(at, ()))))


def test_more_versions_than_a_status_shows_leave_the_report_valid() -> None:
    versions = tuple(str(number) for number in range(1, 100))
    vetted = validate(record(0, triton(pending=3, versions=versions)))
    assert (vetted.implausible, vetted.report.pods[0].pending) == (0, 3)
    assert vetted.report.pods[0].versions == versions[-MAX_VERSIONS:]


def known_batches(hub: ObservationStore, now: float) -> Any:
    observation = hub.observe("ns", "m", now)
    assert observation is not None
    return observation.pods[0].batches


def send(
    hub: ObservationStore, at: float, batches: BatchStats | None, *, agent: str = "a", late_s: float = 0.0
) -> None:
    sent: AgentReport = record(at, triton(at=at, batches=batches), agent=agent)
    hub.receive(sent, at + late_s)


def test_a_table_never_read_is_unknown() -> None:
    hub = ObservationStore()
    send(hub, 0.0, None)
    assert known_batches(hub, 0.0) is None
    send(hub, 1.0, read(1.0))
    assert known_batches(hub, 1.0) == ()


def test_the_last_read_wins_whichever_agent_repeats_an_older_one() -> None:
    hub = ObservationStore()
    send(hub, 1.0, read(0.0, (1, 5, 50)))
    send(hub, 1.1, read(1.0, (1, 8, 80)), agent="b")
    for second in range(2, 6):
        send(hub, float(second), read(0.0, (1, 5, 50)))
        send(hub, second + 0.1, read(1.0, (1, 8, 80)), agent="b", late_s=0.05)
        assert known_batches(hub, second + 0.2) == ((1, 8, 80),)
    send(hub, 6.0, read(5.5, (1, 9, 90)))
    assert known_batches(hub, 6.0) == ((1, 9, 90),)


def test_a_read_that_only_looks_newer_is_not_taken_for_a_restart() -> None:
    hub = ObservationStore()
    send(hub, 1.01, read(1.01, (1, 8, 80)), agent="b")
    for second in range(1, 5):
        send(hub, float(second), read(1.0, (1, 7, 70)), late_s=0.3)
        assert known_batches(hub, second + 0.5) == ((1, 8, 80),)


def test_a_restart_is_believed_with_the_second_read() -> None:
    hub = ObservationStore()
    send(hub, 1.0, read(1.0, (1, 3, 90), (16, 800, 8000)))
    send(hub, 6.0, read(6.0, (1, 3, 80)))
    assert known_batches(hub, 6.0) == ((1, 3, 90), (16, 800, 8000))
    send(hub, 11.0, read(11.0, (1, 4, 90)))
    assert known_batches(hub, 11.0) == ((1, 4, 90),)


def test_a_wrong_clock_of_an_agent_changes_nothing() -> None:
    hub = ObservationStore()
    hub.receive(record(2, triton(at=2, batches=read(2.0, (1, 8, 80))), agent="right"), 2.0)
    wrong = record(2, triton(at=2, batches=read(3600.0, (1, 7, 70))), agent="wrong", skew=3600.0)
    hub.receive(wrong, 2.1)
    assert known_batches(hub, 2.2) == ((1, 8, 80),)
