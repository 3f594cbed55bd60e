"""Termination messages of the fetcher: one line of JSON that the kubelet does not truncate."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from halcyon.fetch.errors import MAX_BYTES, FetchError, report


@given(st.text(max_size=9000))
def test_a_report_fits_into_the_termination_log_and_stays_json(message: str) -> None:
    text = report(FetchError(message))
    assert len(text.encode()) <= MAX_BYTES
    assert json.loads(text)["reason"] == "FetchFailed"
    assert message.startswith(json.loads(text)["message"].removesuffix(" ..."))


@pytest.mark.parametrize("character", ["x", '"', "é", "\U0001f600", "\n"])
def test_a_long_report_is_cut_not_far_below_the_limit(character: str) -> None:
    assert MAX_BYTES - 24 <= len(report(FetchError(character * 20_000))) <= MAX_BYTES
