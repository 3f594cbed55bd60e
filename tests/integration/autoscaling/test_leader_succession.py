"""The leader is killed under load: the standby, which has heard the same agents all along, goes on from the same count."""

import asyncio
import signal
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from tests.integration.autoscaling.test_planner import DIRECT, Load, count, learnt, newest, reached, scaling_of
from tests.integration.operator.test_leader_election import pair, space, start, took  # noqa: F401  # fixtures
from tests.integration.operator_process import Operator
from tests.integration.operator_space import Space
from tests.integration.waiting import always

pytestmark = pytest.mark.more


@asynccontextmanager
async def loaded(space: Space, *operators: Operator) -> AsyncIterator[list[Load]]:  # noqa: F811  # the fixture's value
    """An agent's stream to each of them, as the balancer's agent has one to every replica."""
    async with AsyncExitStack() as streams:
        yield [await streams.enter_async_context(Load(operator, space)) for operator in operators]


async def test_a_new_leader_keeps_the_replicas_and_raises_them_without_delay(
    pair: tuple[Operator, Operator],  # noqa: F811
    space: Space,  # noqa: F811
) -> None:
    leader, standby = pair
    space.serve(scaling=DIRECT, traffic={"balancerReplicas": 1})
    async with loaded(space, leader, standby) as loads:
        for load in loads:
            load.rate = 20
        await learnt(space)
        for load in loads:
            load.rate = 180  # 3.3 replicas' worth: what a busy machine makes of a beat moves nothing
        await reached(lambda: count(space), lambda n: n >= 4, goal="the load is planned for")
        # A fresh load may be understood better a second later; from here on nothing about it is new.
        await asyncio.sleep(10)
        held = count(space)
        leader.signal(signal.SIGKILL)
        following = asyncio.ensure_future(asyncio.to_thread(took, standby, 15))
        await asyncio.to_thread(
            always, lambda: (count(space), newest(space)), lambda state: state[0] == held, goal="the count", for_s=20
        )
        succession_s = await following
        assert scaling_of(space)["desired"] == held
        loads[1].rate = 400
        began_s = time.monotonic()
        await reached(lambda: count(space), lambda n: n > held, goal="the new leader raises it")
        print(f"led after {succession_s:.1f} s; raised after {time.monotonic() - began_s:.1f} s")  # noqa: T201  # the figures
    assert not standby.complaints(), standby.complaints()
