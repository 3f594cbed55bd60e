"""Overload of one unbatched pod behind two balancers, on real Triton, HAProxy and agents. Sleeping stands in for a GPU."""

from __future__ import annotations

import pytest

from benchmarks.dataplane import tritons, ways
from benchmarks.dataplane.tritons import Work
from benchmarks.right import overload

pytestmark = pytest.mark.more

UNBATCHED = overload.LAWS[2]
"""50 ms a request; with an objective of 500 ms, nine are answered in time. Three of them are in the pod, which two balancers can't halve."""


async def test_answers_of_both_balancers_are_in_time() -> None:
    with tritons.running([Work(overload.MODEL, UNBATCHED.t0_ms, UNBATCHED.a_ms, UNBATCHED.max_batch)]) as [server]:
        overload.warm_up(server, UNBATCHED)
        async with ways.balancers(2, overload.plan(UNBATCHED, 2), [server.address]) as balancers:
            outcome = await overload.measure_overload(balancers, UNBATCHED, pods=1, for_s=15.0, name="grpc")

    assert outcome.failed == 0
    # Those of the first second are late, since each balancer takes what the other has left: 18 of 300 before late requests waited behind
    # others. With the shares of the demand, 102 were late.
    assert outcome.late < 0.15 * (outcome.in_time + outcome.late)
    assert outcome.goodput > 0.85
