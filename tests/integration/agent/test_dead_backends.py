"""Dead backends and wrong requests on real Triton servers, with the agents' examinations and the operator's restarts.

benchmarks/right/backend_pods.py says what stands in for the kubelet, the API server and the balancers.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from benchmarks.right import backends
from benchmarks.right.backend_pods import running
from halcyon.triton.dead_backend import EVERY_REQUEST_FAILS
from tests.integration.waiting import PATIENCE

pytestmark = pytest.mark.more


async def test_wrong_requests_alone_take_no_pod_out_and_are_reported(tmp_path: Path) -> None:
    async with running(tmp_path, 2, backends.model()) as (fleet, session):
        for _ in range(4):
            assert await fleet.infer(session, 1.0) == 200
        until_s = time.monotonic() + 20
        answered = set()
        while time.monotonic() < until_s:
            answered |= set(await asyncio.gather(*(fleet.infer(session, -4.0) for _ in range(16))))
            await asyncio.sleep(0.05)
        assert answered == {500}
        assert fleet.ever_out == set()
        assert fleet.failing == dict.fromkeys(fleet.pods, EVERY_REQUEST_FAILS)
        assert await fleet.infer(session, 1.0) == 200


@pytest.mark.parametrize("kind", ["stub's exit", "one stub of four", "every request fails"])
async def test_the_only_pod_with_a_dead_backend_is_out_and_repaired(kind: str) -> None:
    outcome = await backends.dead_backend(kind, 1)
    assert outcome["out s"] <= 3.0 * PATIENCE, outcome
    assert outcome["restart s"] <= 10.0 * PATIENCE, outcome
    assert outcome["answers again"], outcome
    assert outcome["named"], outcome
