"""Two spikes that the planner has seen, and the pods that it orders before the third.

The whole operator runs in this process against a real API server, by a clock that leaps ahead before each report: 15 minutes of a
model pass in one or two. Only the Lease has the machine's clock, since it is renewed by the machine's time. The agent is imitated by
a WebSocket client with a balancer's token, and Triton by its counters: a batch of 8 takes 128 ms. The pods are KWOK's.
"""

import argparse
import asyncio
import contextlib
import re
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path

import aiohttp
import pytest

from e2e.cluster.cluster import Cluster
from halcyon.api.documents.observation_report import AUDIENCE, AgentReport, BalancerSample, BatchStats, PodSample
from halcyon.control.runtime import build, operator, settings
from halcyon.kube import kinds
from halcyon.kube.client import connect
from halcyon.kube.clock import SYSTEM_CLOCK
from halcyon.kube.leader_election import LeaderElector
from halcyon.kube.tracing import OFF
from tests.clocks import DrivenClock
from tests.integration.autoscaling.test_direct_scaling import Agent
from tests.integration.hostile_scene import Kept
from tests.integration.operator.test_leader_election import pods_of_account, token
from tests.integration.operator_process import Operator, install
from tests.integration.operator_space import Space
from tests.integration.waiting import until

pytestmark = pytest.mark.more

BATCH, FULL_S = 8, 0.128
BASE, HIGH = 20.0, 250.0
"""Requests per second between the spikes and in them: a replica answers 62."""
LEARN_S, SPIKE_S, PERIOD_S = 100.0, 40.0, 300.0
STEP_S = 2.0
"""Time between two reports."""
PLANNED = {"maxReplicas": 9, "actuator": "Direct", "targets": {"latency": "500ms"}}


class LeapingClock(DrivenClock):
    """The machine's clock, ahead by all leaps so far."""

    def __init__(self) -> None:
        self.leapt_s = 0.0
        super().__init__(lambda: time.monotonic() + self.leapt_s, time.time() - time.monotonic())


@dataclass
class LeapingModel:
    """A served model, its load, and the operator whose time the load moves."""

    operator: operator.Operator
    clock: LeapingClock
    space: Space
    balancer: str
    stream: aiohttp.ClientWebSocketResponse
    replicas: int = 1
    """`spec.replicas` after the last step."""
    ready: tuple[str, ...] = ()
    """Names of the ready servers before the last step."""
    _requests: float = 0.0
    _rows: Counter[str] = field(default_factory=Counter)
    """Rows that each server has computed."""

    def __post_init__(self) -> None:
        self._at = self.clock.wall()

    async def live(self, rate: float, *, until_s: float) -> AsyncIterator[float]:
        """Have the load until this time of the clock; yield the time after each decision."""
        while self.clock.monotonic() < until_s:
            decided = self.operator.autoscaler.decisions
            self.ready = await asyncio.to_thread(self._servers)
            self.clock.leapt_s += STEP_S
            await self.stream.send_str(self._report(rate))
            await asyncio.to_thread(self._wait_decision, decided)
            self.replicas = await asyncio.to_thread(self._replicas)
            yield self.clock.monotonic()

    async def pass_time(self, rate: float, *, until_s: float) -> int:
        """Have the load until this time; return the most replicas on the way."""
        return max([self.replicas async for _ in self.live(rate, until_s=until_s)], default=self.replicas)

    def _wait_decision(self, decided: int) -> None:
        until(lambda: self.operator.autoscaler.decisions, lambda n: n > decided, goal="it decides", every_s=0.01)

    def _servers(self) -> tuple[str, ...]:
        pods = self.space.every(kinds.POD)
        states = {
            p["metadata"]["name"]: {c["type"]: c["status"] for c in p["status"].get("conditions", ())} for p in pods
        }
        return tuple(
            name for name, conditions in states.items() if name.startswith("m-a-") and conditions.get("Ready") == "True"
        )

    def _replicas(self) -> int:
        return int(self.space.must(kinds.MODEL_DEPLOYMENT, "m")["spec"]["replicas"])

    def _report(self, rate: float) -> str:
        now = self.clock.wall()
        arrived = rate * (now - self._at)
        self._at = now
        self._requests += arrived
        for pod in self.ready:
            self._rows[pod] += arrived / len(self.ready)  # type: ignore[assignment]  # a Counter of floats
        balancer = BalancerSample(queued=0, inflight=0, requests=int(self._requests), rejected=0, errors=0)
        pods = tuple(_sample(pod, int(self._rows[pod]), now) for pod in self.ready)
        return AgentReport(self.space.namespace, "m", self.balancer, now, balancer, pods).to_json()


def _sample(pod: str, rows: int, now: float) -> PodSample:
    full = rows // BATCH
    sizes = ((1, 1, 86_000), (BATCH, full, round(full * FULL_S * 1e6))) if full else ((1, 1, 86_000),)
    return PodSample(
        pod,
        "ready",
        now,
        pending=0,
        succeeded=rows,
        failed=0,
        rows=rows,
        executions=full,
        batches=BatchStats(now, sizes),
    )


@pytest.fixture
def installed(cluster: Cluster, namespace: str, tmp_path: Path) -> Iterator[tuple[Operator, Space]]:
    """The options of an operator that isn't started as a process, and the namespace that it watches."""
    process = Operator(install(cluster), "op-0", cluster.kubeconfig, tmp_path, watch=namespace)
    with closing(Kept(cluster.api.identity, cluster)) as api:
        yield process, Space(api, namespace)
    cluster.api.call("DELETE", f"/api/v1/namespaces/{process.namespace}")


@contextlib.asynccontextmanager
async def running_operator(process: Operator, clock: LeapingClock) -> AsyncIterator[operator.Operator]:
    """Run the operator in this process, and stop it as a signal does."""
    parser = argparse.ArgumentParser()
    settings.add_arguments(parser)
    chosen = settings.of(parser.parse_args(process.arguments))
    fence = build.build_fence(chosen, SYSTEM_CLOCK)
    client = await connect(chosen.kubeconfig, fence=fence, tracer=OFF)
    process_operator = build.build(chosen, client, fence, OFF, clock)
    elector = LeaderElector(client, chosen.namespace, chosen.lease, chosen.pod_name, SYSTEM_CLOCK, fence)
    process_operator = replace(process_operator, elector=elector)
    stop = asyncio.Event()
    run = asyncio.ensure_future(process_operator.run(stop))
    try:
        yield process_operator
    finally:
        stop.set()
        await run
        await client.close()


@contextlib.asynccontextmanager
async def leaping_model(process: Operator, space: Space) -> AsyncIterator[LeapingModel]:
    """Have a model that the operator plans for, whose time passes in leaps."""
    clock = LeapingClock()
    async with running_operator(process, clock) as running:
        await asyncio.to_thread(space.serve, scaling=PLANNED, traffic={"balancerReplicas": 1})
        [balancer] = await asyncio.to_thread(pods_of_account, space, "m-balancer")
        bearer = await asyncio.to_thread(token, space, "m-balancer", AUDIENCE)
        async with Agent(process, space, bearer) as stream:
            yield LeapingModel(running, clock, space, balancer, stream)


async def test_pods_for_a_third_spike_are_ordered_before_it(installed: tuple[Operator, Space]) -> None:
    async with leaping_model(*installed) as model:
        due = model.clock.monotonic() + LEARN_S
        for _ in range(2):
            await model.pass_time(BASE, until_s=due - 60)
            assert await model.pass_time(BASE, until_s=due) == 1, "nothing was known of this spike"
            assert await model.pass_time(HIGH, until_s=due + SPIKE_S) >= 4
            due += PERIOD_S
        await model.pass_time(BASE, until_s=due - 60)
        assert model.replicas == 1, "the pods of the spike before are gone"

        ordered = [at async for at in model.live(BASE, until_s=due - STEP_S) if model.replicas >= 4]
        assert ordered, model.space.status()["scaling"]
        assert due - 40 < ordered[0] < due, "neither much too early nor too late"
        assert len(model.ready) >= 4, "they are there when it comes"
        why = await asyncio.to_thread(
            until,
            lambda: str((model.space.status().get("scaling") or {}).get("why")),
            lambda text: "a spike of about" in text,
            goal="the status gives the reason",
        )
        period = re.search(r" every (\d+) s, seen 2 times", why)
        assert period is not None, why
        assert abs(int(period[1]) - PERIOD_S) < 4 * STEP_S
        before = model.replicas
        assert await model.pass_time(HIGH, until_s=due + SPIKE_S / 2) == before, "it needs no more pods"
