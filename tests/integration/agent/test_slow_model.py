"""A model that computes one request of 5 s at a time, on real Triton behind two real HAProxys with their agents."""

from __future__ import annotations

from benchmarks.quality.rows import holds
from benchmarks.right import concurrency


async def test_new_pods_share_what_waits_and_a_rollout_loses_nothing() -> None:
    row = await concurrency.slow_burst()
    assert holds(row), row.value
