"""How long a batch waits before it repeats a request."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from halcyon_batch.sender import retry_wait_s
from halcyon_measure.protocols.http_client import MAX_RETRY_AFTER_S, retry_after_s


@given(st.integers(0, 10**6), st.integers(1, 2000))
def test_a_wait_is_what_the_server_requires_and_at_most_ten_minutes(header: int, refused: int) -> None:
    requested_s = retry_after_s(str(header))
    assert min(header, 600) <= retry_wait_s(requested_s, refused) <= MAX_RETRY_AFTER_S == 600


@pytest.mark.parametrize(("refused", "least_s"), [(1, 0.25), (2, 0.5), (7, 16.0), (8, 30.0), (100, 30.0)])
def test_waits_double_up_to_half_a_minute(refused: int, least_s: float) -> None:
    assert least_s <= retry_wait_s(0.0, refused) <= 1.25 * least_s
