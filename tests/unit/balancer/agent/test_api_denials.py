"""Permissions that an agent lacks. With the real API: tests/integration/agent/test_agent_rights.py."""

from __future__ import annotations

import asyncio

import pytest

from halcyon.balancer.agent.api_denials import FORBIDDEN_TIMEOUT_S, ApiDenials
from halcyon.balancer.discovery.kube_watch import KubeError
from tests.unit.kube.virtual_time import VirtualTime, run


def test_a_denial_names_the_role_and_ends_with_an_empty_text() -> None:
    changes: list[None] = []
    denials = ApiDenials("m-balancer", lambda: changes.append(None))
    denied = denials.callback("the plan")
    denied("403")
    assert denials.texts == ("the plan can't be read: 403; Role m-balancer must grant it",)
    denied("")
    assert (denials.texts, len(changes)) == ((), 2)


def test_an_agent_that_may_read_nothing_fails_after_the_timeout() -> None:
    async def scenario(clock: VirtualTime) -> float:
        denials = ApiDenials("m-balancer", lambda: None)
        denials.callback("the plan")("403")
        with pytest.raises(KubeError, match="the plan can't be read: 403"):
            await denials.check(lambda: False)
        return clock()

    assert FORBIDDEN_TIMEOUT_S < run(scenario) <= FORBIDDEN_TIMEOUT_S + 2


@pytest.mark.parametrize("is_known", [False, True])
def test_an_agent_that_knows_its_plan_or_isnt_denied_goes_on(is_known: bool) -> None:
    async def scenario(_: VirtualTime) -> bool:
        denials = ApiDenials("m-balancer", lambda: None)
        if is_known:
            denials.callback("the plan")("403")
        try:
            async with asyncio.timeout(10 * FORBIDDEN_TIMEOUT_S):
                await denials.check(lambda: is_known)
        except TimeoutError:
            return True
        return False

    assert run(scenario)
