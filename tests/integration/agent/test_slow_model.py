"""Models of one request of 5 s at a time, and of 256 requests at once, on real Triton behind two real HAProxys with their agents."""

from __future__ import annotations

from benchmarks.quality.rows import holds
from benchmarks.right import concurrency
from tests.integration.waiting import PATIENCE


async def test_new_pods_share_what_waits_and_a_rollout_loses_nothing() -> None:
    row = await concurrency.slow_burst()
    assert holds(row), row.value


async def test_an_engine_gets_as_many_requests_as_it_answers_at_once() -> None:
    row = await concurrency.engine_burst()
    assert row.value["with_field_s"] <= 1.6 * PATIENCE, row.value
    assert row.value["without_field_second_burst_s"] <= 3 * PATIENCE, row.value
