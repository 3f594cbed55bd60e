"""A batch beside users on real Triton, HAProxy and agents, two balancers. Sleeping stands in for a GPU."""

from __future__ import annotations

import pytest

from benchmarks.right.overload import LAWS
from benchmarks.tune import lower

pytestmark = pytest.mark.more

NOISE = 1.15
"""Factor for a busy machine and few requests: the 99th percentile of 500 requests is that of the slowest five."""


async def test_users_keep_their_latency_beside_a_batch() -> None:
    outcome = await lower.beside(LAWS[0], loads=(0.5,), for_s=16.0)
    assert outcome.failed == 0
    assert outcome.with_job_p99_s <= NOISE * outcome.limit_s
    # Users leave half of what the pod can do. 0.8 of that is the target on a quiet machine.
    assert outcome.job_share > 0.6


async def test_a_batch_gives_way_when_users_come() -> None:
    # The latencies are those of users that came a second and an execution after the step, or later.
    outcome = await lower.beside(LAWS[0], loads=(0.5, 0.9), for_s=24.0)
    assert outcome.with_job_p99_s <= NOISE * outcome.limit_s
