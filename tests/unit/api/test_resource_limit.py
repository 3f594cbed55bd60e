"""Limits that several models share."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from halcyon.api.resource_limit import ResourceLimit

AMOUNTS = st.integers(0, 10**6)


@pytest.mark.parametrize(
    ("total", "elsewhere", "each", "replicas"),
    [(8, 0, 2, 4), (8, 1, 2, 3), (8, 8, 1, 0), (8, 9, 1, 0), (Decimal("1.5"), Decimal("0.25"), Decimal("0.5"), 2)],
)
def test_replicas_fit_beside_what_others_have(total: int, elsewhere: int, each: int, replicas: int) -> None:
    assert ResourceLimit(total, elsewhere).replicas(each) == replicas


@pytest.mark.parametrize(
    ("amount", "held", "allowed"), [(4, 0, True), (5, 0, False), (5, 5, True), (6, 5, False), (0, 0, True)]
)
def test_a_model_keeps_what_it_holds(amount: int, held: int, allowed: bool) -> None:
    assert ResourceLimit(8, 4).allows(amount, held=held) is allowed


@given(AMOUNTS, AMOUNTS, st.integers(1, 100))
def test_a_request_within_the_limit_is_allowed_and_one_above_is_not(total: int, elsewhere: int, each: int) -> None:
    limit = ResourceLimit(total, elsewhere)
    count = limit.replicas(each)
    assert count == 0 or limit.allows(count * each)
    assert not limit.allows((count + 1) * each)
    assert count == max(total - elsewhere, 0) // each
