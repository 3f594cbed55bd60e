"""RFC 3339 and seconds since the epoch."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from halcyon.api.batch_inference import BatchInferenceSpec
from halcyon.api.schema.structural_schema import schema
from halcyon.api.timestamps import epoch_seconds, rfc3339

AT = 1_795_835_700.123456


def test_a_timestamp_is_rounded_down_to_its_precision() -> None:
    assert rfc3339(AT) == "2026-11-28T03:15:00Z"
    assert rfc3339(AT, "milliseconds") == "2026-11-28T03:15:00.123Z"
    assert rfc3339(AT, "microseconds") == "2026-11-28T03:15:00.123456Z"
    assert rfc3339(AT + 0.8765, "milliseconds") == "2026-11-28T03:15:00.999Z"


def test_a_whole_second_keeps_its_digits() -> None:
    assert rfc3339(1_795_835_700, "microseconds") == "2026-11-28T03:15:00.000000Z"


@given(st.integers(0, 2**32))
def test_whole_seconds_survive_a_round_trip(at: int) -> None:
    assert epoch_seconds(rfc3339(at)) == at
    assert rfc3339(at) == datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@given(st.integers(0, 4_000_000_000_000_000))
def test_microseconds_are_those_of_the_clock(microseconds: int) -> None:
    at = datetime.fromtimestamp(0, UTC) + timedelta(microseconds=microseconds)
    assert rfc3339(at.timestamp(), "microseconds") == at.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


@pytest.mark.parametrize("text", [None, "", "soon", 5, "2026-13-01T00:00:00Z"])
def test_a_text_that_is_no_time_is_unknown(text: object) -> None:
    assert epoch_seconds(text) is None


def test_an_offset_is_taken_into_account() -> None:
    assert epoch_seconds("2026-11-28T04:15:00+01:00") == epoch_seconds("2026-11-28T03:15:00Z") == 1_795_835_700


def test_lower_case_letters_of_a_timestamp_are_valid() -> None:
    """The API server accepts them in `spec.deadline` (RFC 3339, section 5.6)."""
    assert epoch_seconds("2026-11-28t03:15:00z") == 1_795_835_700


@pytest.mark.parametrize(
    ("deadline", "is_accepted"),
    [("2026-12-01T06:00:00Z", True), ("2026-12-01t06:00:00.5+05:30", True), ("2026-12-01T06:00:00+99:99", False)],
)
def test_deadlines_in_the_schema_have_an_offset_that_exists(deadline: str, is_accepted: bool) -> None:
    """The API server's format date-time accepts any two digits."""
    pattern = schema(BatchInferenceSpec)["properties"]["deadline"]["pattern"]
    assert (re.search(pattern, deadline) is not None) is is_accepted
