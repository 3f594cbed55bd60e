"""Deeds of one client against a real HAProxy and its agent: other clients, the other model and the probes notice little."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from halcyon.api.documents.balancer_plan import HAPROXY_MEMORY_MIB
from halcyon.render.balancer import AGENT_MEMORY_MIB
from tests.adversary.client.deeds import DEEDS, WITH_KEY, WITHOUT_KEY
from tests.adversary.client.scene import Scene, scene
from tests.integration import crowd
from tests.integration.waiting import PATIENCE

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

pytestmark = pytest.mark.more

SECONDS = 5.0
SLOWEST_S = 1.0
"""Longest wait of another client. A plain HAProxy on this machine is no measure in a test; benchmarks/hold/clients.py has it beside."""
MEMORY_SHARE = 0.8


@pytest.fixture
async def attacked(tmp_path: Path) -> AsyncIterator[Scene]:
    with crowd.files(18_000):
        async with scene(tmp_path) as prepared:
            yield prepared


def test_deeds_with_and_without_a_key_are_at_least_25() -> None:
    assert len(DEEDS) == len(WITH_KEY) + len(WITHOUT_KEY) >= 25


@pytest.mark.parametrize("deed", DEEDS)
async def test_other_clients_wait_little_under_a_deed(
    attacked: Scene, deed: str, record_testsuite_property: Callable[[str, object], None]
) -> None:
    waits = await attacked.under(deed, SECONDS)
    record_testsuite_property(f"slowest_s {deed}", max(max(took) for took in waits.took_s.values()))
    assert waits.failures == {}
    assert {kind: took for kind in waits.took_s if (took := max(waits.took_s[kind])) > SLOWEST_S * PATIENCE} == {}
    assert attacked.restarts() == 0
    assert attacked.memory_share(HAPROXY_MEMORY_MIB) < MEMORY_SHARE
    assert attacked.agent_memory_share(AGENT_MEMORY_MIB) < MEMORY_SHARE
