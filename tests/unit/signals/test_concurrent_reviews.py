"""Token reviews of many agents at once, on an event loop that is busy with other work."""

from __future__ import annotations

import asyncio
import time

import pytest
from aiohttp import web
from aiohttp.test_utils import make_mocked_request

from halcyon.dashboard import authorization
from halcyon.kube.auth.callers import AgentIdentity
from halcyon.kube.http_transport import MAX_REVIEWS_AT_ONCE
from halcyon.signals.collector import MAX_CONCURRENT_REVIEWS, Collector
from halcyon.signals.observation_store import ObservationStore

AGENTS = 256
"""Number of agents whose connections a port handshakes at once."""
ITERATIONS_A_REVIEW = 5
"""Number of iterations of the event loop for one review: the request is written, its response arrives, and two tasks resume."""
MAX_ITERATIONS = 25
"""Maximum number of iterations until all agents are reviewed. With 16 reviews at once it is about 100."""


class NoModels:
    """A cluster without models, so that each agent is rejected once its token is reviewed."""

    synced = True

    def has_model(self, *_: str) -> bool:
        return False

    has_pod = has_model


async def test_reviews_of_all_agents_take_few_iterations_of_the_loop() -> None:
    async def reviewed(token: str, audience: str) -> AgentIdentity:
        del audience
        for _ in range(ITERATIONS_A_REVIEW):
            await asyncio.sleep(0)
        return AgentIdentity(f"system:serviceaccount:ns:{token}-balancer", f"{token}-balancer-0")

    async def connect(number: int) -> None:
        request = make_mocked_request("GET", "/", {"Authorization": f"Bearer m{number}"})
        with pytest.raises(web.HTTPForbidden):
            await collector.handle(request)

    collector = Collector(ObservationStore(), reviewed, NoModels(), monotonic=time.monotonic)
    agents = asyncio.gather(*map(connect, range(AGENTS)))
    iterations = 0
    while not agents.done():
        await asyncio.sleep(0)
        iterations += 1
    agents.result()
    assert iterations <= MAX_ITERATIONS


def test_reviews_of_agents_never_delay_those_of_the_dashboard() -> None:
    assert MAX_CONCURRENT_REVIEWS + authorization.MAX_CONCURRENT_REVIEWS <= MAX_REVIEWS_AT_ONCE
