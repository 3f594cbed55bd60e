"""Times of a sender's clock as the receiver's."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from halcyon.signals.clock_offset import MAX_LATE_S, WINDOW_S, ClockOffset
from tests.unit.signals.records import EPOCH


def times(records: list[tuple[float, float]], transit: ClockOffset) -> list[float]:
    """Return the creation times estimated for records (created at, late by), received in order. The sender's clock is `EPOCH` ahead."""
    received_at, estimates = 0.0, []
    for created_at, late_s in records:
        received_at = max(received_at, created_at + late_s)
        estimates.append(transit.created_at(EPOCH + created_at, received_at))
    return estimates


@given(st.lists(st.tuples(st.floats(0.1, 2.4), st.floats(0.0, MAX_LATE_S - 0.01)), min_size=1, max_size=60))
def test_the_transit_time_is_subtracted_once_a_record_was_quick(timings: list[tuple[float, float]]) -> None:
    created_at, records = 0.0, [(0.0, 0.0)]
    for number, (pause_s, late_s) in enumerate(timings):
        # One of ten is quick, and behind no late one: there is one in every half minute.
        is_quick = number % 10 == 9
        created_at += MAX_LATE_S if is_quick else pause_s
        records.append((created_at, 0.0 if is_quick else late_s))
    received_at = 0.0
    for (at, late_s), estimate in zip(records, times(records, ClockOffset()), strict=True):
        # Queued behind a later one it is late by more.
        received_at = max(received_at, at + late_s)
        assert estimate == pytest.approx(max(at, received_at - MAX_LATE_S), abs=0.001)


@given(st.lists(st.tuples(st.floats(0.0, 40.0), st.floats(-100.0, 100.0)), min_size=1, max_size=30))
def test_no_record_was_made_after_its_receipt_or_long_before(timings: list[tuple[float, float]]) -> None:
    transit, now = ClockOffset(), 0.0
    for pause_s, clock in timings:
        now += pause_s
        assert now - MAX_LATE_S <= transit.created_at(EPOCH + now + clock, now) <= now


@given(st.lists(st.tuples(st.floats(0.1, 1.5), st.floats(0.0, 1.5), st.floats(0.0, 1.4)), min_size=1, max_size=30))
def test_a_records_wait_before_sending_is_subtracted_even_for_the_first(
    timings: list[tuple[float, float, float]],
) -> None:
    transit, created_at, sent, received_at = ClockOffset(), 0.0, 0.0, 0.0
    for number, (pause_s, waited_s, late_s) in enumerate(timings):
        created_at += pause_s
        sent = max(sent, created_at + waited_s)
        # The first way is a short one, and is remembered for the minute that this lasts at most.
        received_at = max(received_at, sent + (late_s if number else 0.0))
        estimate = transit.created_at(EPOCH + created_at, received_at, sent=EPOCH + sent)
        assert estimate == pytest.approx(max(created_at, received_at - MAX_LATE_S), abs=0.001)


def test_a_clock_set_forward_counts_at_once_and_one_set_back_soon() -> None:
    transit = ClockOffset()
    transit.created_at(EPOCH, 0.0)
    assert transit.created_at(EPOCH + 1 + 60, 1.0) == 1.0
    assert transit.created_at(EPOCH + 2 + 60, 2.0) == 2.0
    back = {at: at - transit.created_at(EPOCH + at + 59, float(at)) for at in range(3, 80)}
    assert back[3] == pytest.approx(1.0, abs=0.001)
    assert [at for at, late_s in back.items() if late_s > 0.001] == list(range(3, 2 * int(WINDOW_S)))


def test_a_clock_that_runs_too_quickly_or_too_slowly_is_followed() -> None:
    for drift in (-1e-4, 1e-4):
        transit = ClockOffset()
        late = [at - transit.created_at(EPOCH + at * (1 + drift), float(at)) for at in range(3600)]
        assert max(late) <= 2 * WINDOW_S * 1e-4 + 1e-6
