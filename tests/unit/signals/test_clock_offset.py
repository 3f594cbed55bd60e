"""Times of a sender's clock as the receiver's."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from halcyon.signals.clock_offset import MAX_LATE_S, WINDOW_S, ClockOffset
from tests.unit.signals.records import EPOCH


def times(records: list[tuple[float, float]], transit: ClockOffset) -> list[float]:
    """What is made of (made at, late by), both by a clock that the sender's is `EPOCH` ahead of; heard in the order they were made."""
    heard, found = 0.0, []
    for made, late_s in records:
        heard = max(heard, made + late_s)
        found.append(transit.created_at(EPOCH + made, heard))
    return found


@given(st.lists(st.tuples(st.floats(0.1, 2.4), st.floats(0.0, MAX_LATE_S - 0.01)), min_size=1, max_size=60))
def test_the_transit_time_is_subtracted_once_a_record_was_quick(said: list[tuple[float, float]]) -> None:
    made, records = 0.0, [(0.0, 0.0)]
    for number, (pause_s, late_s) in enumerate(said):
        # One of ten is quick, and behind no late one: there is one in every half minute.
        is_quick = number % 10 == 9
        made += MAX_LATE_S if is_quick else pause_s
        records.append((made, 0.0 if is_quick else late_s))
    heard = 0.0
    for (at, late_s), found in zip(records, times(records, ClockOffset()), strict=True):
        # Queued behind a later one it is late by more.
        heard = max(heard, at + late_s)
        assert found == pytest.approx(max(at, heard - MAX_LATE_S), abs=0.001)


@given(st.lists(st.tuples(st.floats(0.0, 40.0), st.floats(-100.0, 100.0)), min_size=1, max_size=30))
def test_no_record_was_made_after_its_receipt_or_long_before(said: list[tuple[float, float]]) -> None:
    transit, now = ClockOffset(), 0.0
    for pause_s, clock in said:
        now += pause_s
        assert now - MAX_LATE_S <= transit.created_at(EPOCH + now + clock, now) <= now


@given(st.lists(st.tuples(st.floats(0.1, 1.5), st.floats(0.0, 1.5), st.floats(0.0, 1.4)), min_size=1, max_size=30))
def test_a_records_wait_before_sending_is_subtracted_even_for_the_first(
    said: list[tuple[float, float, float]],
) -> None:
    transit, made, sent, heard = ClockOffset(), 0.0, 0.0, 0.0
    for number, (pause_s, waited_s, late_s) in enumerate(said):
        made += pause_s
        sent = max(sent, made + waited_s)
        # The first way is a short one, and is remembered for the minute that this lasts at most.
        heard = max(heard, sent + (late_s if number else 0.0))
        found = transit.created_at(EPOCH + made, heard, sent=EPOCH + sent)
        assert found == pytest.approx(max(made, heard - MAX_LATE_S), abs=0.001)


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
