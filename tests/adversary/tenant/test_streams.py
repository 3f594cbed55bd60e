"""Agents' streams in the hands of a tenant, who has the tokens of the agents of its own model, over real connections."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import aiohttp
import pytest
from aiohttp import WSCloseCode, web
from aiohttp.test_utils import TestClient, TestServer
from yarl import URL

from halcyon.api.documents.observation_report import AUDIENCE, STREAM_PATH
from halcyon.control.autoscaling.balancer_errors import BalancerErrorStore
from halcyon.kube.auth.callers import AgentIdentity
from halcyon.signals.collector import CPU_BURST_S, MAX_OPENED_AT_ONCE, Collector
from tests.adversary.tenant.loop_time import loop_time

PODS = 2000
AGENTS = 6
MAX_LOOP_S = 0.02
"""Four times the target, because other tests run on the same cores. Without slices, a report takes 150 ms and more."""
NOW = 1_763_700_000.0


class Cluster:
    """One model with real pods."""

    synced = True

    def __init__(self) -> None:
        self.models, self.pods = {("t", "m")}, {f"m-a-{n:04}" for n in range(PODS)}

    def has_model(self, namespace: str, name: str) -> bool:
        return (namespace, name) in self.models

    def has_pod(self, namespace: str, name: str, pod: str) -> bool:
        return self.has_model(namespace, name) and pod in self.pods


@dataclass
class Scene:
    """A served collector, whose tokens are names of agents' pods."""

    client: TestClient[web.Request, web.Application]
    collector: Collector
    store: BalancerErrorStore
    cluster: Cluster
    reviewed: list[str]

    async def connect(self, agent: str) -> aiohttp.ClientWebSocketResponse:
        return await self.client.ws_connect(STREAM_PATH, headers={"Authorization": f"Bearer {agent}"})

    def accepted(self) -> float:
        return float(self.collector.reports.labels("accepted")._value.get())

    async def until_accepted(self, count: int) -> None:
        async with asyncio.timeout(60):
            while self.accepted() < count:  # noqa: ASYNC110  # a counter has no event
                await asyncio.sleep(0.01)


@asynccontextmanager
async def served() -> AsyncIterator[Scene]:
    reviewed: list[str] = []

    async def authenticate(token: str, audience: str) -> AgentIdentity | None:
        assert audience == AUDIENCE
        reviewed.append(token)
        return None if token.startswith("garbage") else AgentIdentity("system:serviceaccount:t:m-balancer", token)

    store, cluster = BalancerErrorStore(on_change=lambda *_: None), Cluster()
    collector = Collector(store, authenticate, cluster, monotonic=time.monotonic)
    app = web.Application()
    app.add_routes(collector.routes())
    async with TestClient(TestServer(app)) as client:
        yield Scene(client, collector, store, cluster, reviewed)


def report(agent: str, at: float, pods: list[str], **changes: Any) -> str:
    samples = [
        {"name": pod, "state": "ready", "at": at, "pending": 1, "succeeded": n, "rows": n, "versions": ["1"]} | changes
        for n, pod in enumerate(pods)
    ]
    return json.dumps(
        {"version": 1, "namespace": "t", "name": "m", "agent": agent, "at": at, "balancer": None, "pods": samples},
        separators=(",", ":"),
    )


@pytest.mark.parametrize("real", [False, True], ids=["pods that don't exist", "the model's pods"])
async def test_reports_of_2000_pods_leave_the_loop_to_others(*, real: bool) -> None:
    """From several agents, each of which reports another state. The budget of CPU time would delay those of more agents."""
    real_pods = [f"m-a-{n:04}" for n in range(PODS)]
    texts = {}
    for n in range(AGENTS):
        pods = real_pods if real else [f"b-{n}-{pod:04}" for pod in range(PODS)]
        texts[f"b-{n}"] = report(f"b-{n}", NOW + n, pods, load_error=f"b-{n}")

    stored = threading.Event()

    async def send(url: URL) -> None:
        async with aiohttp.ClientSession() as session:
            streams = [await session.ws_connect(url, headers={"Authorization": f"Bearer {agent}"}) for agent in texts]
            for stream, text in zip(streams, texts.values(), strict=True):
                await stream.send_str(text)
            await asyncio.to_thread(stored.wait, 60)

    async with served() as scene:
        with loop_time() as measured:
            # The clients have a thread and a loop of their own, so that only the collector is measured.
            sending = asyncio.create_task(asyncio.to_thread(asyncio.run, send(scene.client.make_url(STREAM_PATH))))
            await scene.until_accepted(len(texts))
        stored.set()
        await sending
        observed = scene.store.snapshot("t", "m", time.monotonic())
        assert observed is not None
        assert len(observed.pods) == (PODS if real else 0)
        assert measured.longest_s < MAX_LOOP_S


async def test_a_model_whose_reports_are_dear_waits() -> None:
    """Each look at the clock of CPU time takes 0.1 s of it. Agents replace what they can't send, so nothing is queued."""
    async with served() as scene:
        spent, costs = 0.0, True

        def cpu_time() -> float:
            nonlocal spent
            spent += 0.1 if costs else 0.0
            return spent

        scene.collector._cpu_time = cpu_time
        stream = await scene.connect("b-0")
        for n in range(12):
            await stream.send_str(report("b-0", NOW + n, ["m-a-0000"]))
        await asyncio.sleep(0.5)
        costs = False  # or the end of the stream would wait for the budget
        accepted = scene.accepted()
        assert 2 <= accepted <= CPU_BURST_S / 0.1
        await stream.close()


async def test_streams_that_are_opened_without_end_are_refused() -> None:
    async with served() as scene:
        statuses = set()
        for _ in range(2 * int(MAX_OPENED_AT_ONCE)):
            try:
                await (await scene.connect("b-0")).close()
            except aiohttp.WSServerHandshakeError as refused:
                statuses.add(refused.status)
        assert statuses == {429}


async def test_a_deleted_model_leaves_nothing() -> None:
    async with served() as scene:
        stream = await scene.connect("b-0")
        await stream.send_str(report("b-0", NOW, ["m-a-0000"]))
        await scene.until_accepted(1)
        scene.cluster.models.clear()
        scene.collector.forget("t", "m")
        assert (await stream.receive(timeout=5)).data == WSCloseCode.POLICY_VIOLATION
        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            await scene.connect("b-0")
        assert refused.value.status == 403
        assert list(scene.store.models()) == []
        assert (scene.collector._budgets, scene.collector._per_model) == ({}, {})


async def test_invalid_tokens_are_reviewed_at_a_bounded_rate() -> None:
    """Agents behind the same address, whose tokens were valid a moment ago, still connect."""
    async with served() as scene:
        known = await scene.connect("b-0")
        statuses = []
        for n in range(200):
            with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
                await scene.connect(f"garbage-{n}")
            statuses.append(refused.value.status)
            if refused.value.status == 429:
                assert refused.value.headers is not None
                assert int(refused.value.headers["Retry-After"]) >= 1
        assert statuses.count(401) < 180
        assert set(statuses) == {401, 429}
        assert len(scene.reviewed) == 1 + statuses.count(401)
        await known.close()
        await (await scene.connect("b-0")).close()
