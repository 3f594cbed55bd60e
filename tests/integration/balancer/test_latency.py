"""How long answers take, by the real HAProxy: of each slot and of clients; and a canary that is judged by it."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import grpc
import pytest

from halcyon.api.documents.balancer_plan import Slot
from halcyon.api.documents.observation_report import AgentReport
from halcyon.balancer.telemetry.balancer_sample import balancer_sample
from halcyon.control.rollout.canary_analysis import CanaryAnalysis
from halcyon.kube.kinds import Key
from halcyon.render import names
from halcyon.signals.observation_store import ObservationStore
from halcyon.signals.validation import validate
from halcyon.triton import pod_sampler as sampler
from halcyon.triton.client import Metrics
from tests.clocks import DrivenClock
from tests.integration import balanced as ways
from tests.integration.balanced import Balanced, endpoint, http_response, infer, until
from tests.unit.control.rollout.deployment_simulation import Cluster
from tests.unit.control.rollout.test_canary_analysis import rolling, rollout
from tests.unit.control.rollout.test_canary_progress import begun
from tests.unit.control.scope_builders import pod as server

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from halcyon.balancer.config.latency_buckets import Latency
    from halcyon.balancer.runtime.haproxy_stats import HaproxyStats

pytestmark = pytest.mark.more

AT_ONCE = 32
TWO = replace(
    ways.PLAN,
    slots=(Slot("a", "m-server-a", 50, 2), Slot("b", "m-server-b", 50, 2)),
    max_connections=AT_ONCE,
    queue_limit=99,
)
SLOW_S = 0.25
"""What pods of slot b take; those of slot a answer at once, which is sooner also on a machine that does other things."""


@pytest.fixture
async def balanced() -> AsyncIterator[Balanced]:
    async with ways.new_balanced() as instance:
        yield instance


async def ask_all(balanced: Balanced, count: int) -> None:
    """So many requests of both protocols, some at a time."""
    async with balanced.channel as channel:

        async def send(number: int) -> None:
            if number % 2:
                await infer(channel)
            else:
                assert (await http_response(balanced.haproxy.ports.http, "POST", "/v2/models/m/infer"))[0] == 200

        for begin in range(0, count, AT_ONCE):
            await asyncio.gather(*(send(number) for number in range(begin, min(begin + AT_ONCE, count))))


def below(latency: Latency | None, bound_s: float) -> int:
    assert latency is not None
    return dict(latency.buckets)[bound_s]


async def test_answers_are_counted_by_slot_and_clients_with_their_wait(balanced: Balanced) -> None:
    [quick] = await balanced.start(1)
    [slow] = await balanced.start(1, delay_s=SLOW_S)
    slots = endpoint(quick), endpoint(slow, "b")
    balanced.pilot.accept(replace(TWO, max_connections=1))
    await balanced.pilot.run_pass(slots)
    await asyncio.to_thread(balanced.haproxy.start)
    for _ in range(2):
        await balanced.pilot.run_pass(slots)
    await ask_all(balanced, 24)

    read = await balanced.haproxy.runtime.read()
    a, b, clients = read.latency["a"], read.latency["b"], read.clients
    assert clients is not None
    assert (a.answered, b.answered) == (quick.http_count + quick.grpc_count, slow.http_count + slow.grpc_count)
    assert clients.answered == a.answered + b.answered == 24
    assert below(b, 0.2) == 0
    assert below(a, 0.2) > 0
    # One at a time: all but the first wait in the balancer, and only clients' figures have that.
    waited_ms = clients.total_ms - a.total_ms - b.total_ms
    assert waited_ms > 1000 * SLOW_S
    assert min(*a.counts, *b.counts, *clients.counts) >= 0


@pytest.mark.parametrize(
    ("status", "code", "counted"),
    [
        (500, grpc.StatusCode.INTERNAL, True),
        (503, grpc.StatusCode.UNAVAILABLE, True),
        (400, grpc.StatusCode.INVALID_ARGUMENT, False),
        (499, grpc.StatusCode.CANCELLED, False),
    ],
)
async def test_failed_answers_are_counted_by_slot_but_not_those_to_wrong_requests(
    balanced: Balanced, status: int, code: grpc.StatusCode, counted: bool
) -> None:
    [pod] = await balanced.start(1, answers=status, code=code)
    balanced.pilot.accept(replace(TWO, max_connections=1))
    await balanced.pilot.run_pass([endpoint(pod, "b")])
    await asyncio.to_thread(balanced.haproxy.start)
    for _ in range(2):
        await balanced.pilot.run_pass([endpoint(pod, "b")])
    async with balanced.channel as channel:
        for _ in range(3):
            assert (await http_response(balanced.haproxy.ports.http, "POST", "/v2/models/m/infer"))[0] == status
            with pytest.raises(grpc.RpcError):
                await infer(channel)

    read = await balanced.haproxy.runtime.read()
    assert (read.latency["b"].answered, read.latency["b"].failed) == (6, 6 if counted else 0)
    assert read.latency["a"].failed == 0


async def test_a_failed_response_with_a_late_body_keeps_its_status(balanced: Balanced) -> None:
    """HAProxy reads the body of a 500, which shows whether the request was malformed."""
    await balanced.start(1, answers=500, body_after_s=1.5)
    await balanced.begin()
    status, _, body = await http_response(balanced.haproxy.ports.http, "POST", "/v2/models/m/infer")
    assert (status, b'"who"' in body) == (500, True)
    read = await balanced.haproxy.runtime.read()
    assert (read.errors, read.latency["a"].failed) == (0, 1)


async def test_a_held_request_waits_in_the_clients_figures_alone(balanced: Balanced) -> None:
    await balanced.begin()
    requests = [asyncio.create_task(http_response(balanced.haproxy.ports.http, "POST", "/v2/models/m/infer"))]
    async with balanced.channel as channel:
        grpc_request = asyncio.create_task(infer(channel))

        async def both_held() -> bool:
            return (await balanced.haproxy.runtime.held_requests()).held == 2

        await until(both_held)
        began = time.monotonic()
        await balanced.start(1)
        while time.monotonic() - began < 0.3:  # noqa: ASYNC110  # the wait that is to be seen
            await asyncio.sleep(0.05)
        await balanced.turn()
        await asyncio.gather(*requests, grpc_request)

    read = await balanced.haproxy.runtime.read()
    clients = read.clients
    assert clients is not None
    assert (clients.answered, below(clients, 0.2)) == (2, 0)
    assert clients.total_ms - read.latency["a"].total_ms >= 2 * 300


class Judged:
    """What an operator makes of a canary in slot b, by the records of an agent beside this HAProxy."""

    def __init__(self, balanced: Balanced, cluster: Cluster, revisions: dict[str, str]) -> None:
        self.balanced, self.revisions = balanced, revisions
        self.hub, self.now = ObservationStore(), 1000.0
        self.key = Key("default", "m")
        self.watch = CanaryAnalysis(self.hub, DrivenClock(lambda: self.now))
        self.watch.planned(self.key, rolling(rollout(cluster)))

    def look(self, reading: HaproxyStats) -> Any:
        """The verdict by this reading; the model's own counters say that all went well."""
        endpoints = [endpoint(pod, slot) for pod, slot in zip(self.balanced.pods, "ab", strict=True)]
        for _ in range(2):
            self.now += 1
            at = self.now
            sightings = {}
            for target, pod in zip(endpoints, self.balanced.pods, strict=True):
                count = pod.http_count + pod.grpc_count
                metrics = Metrics(0, count, 0, 0, count, count, 100 * count, 100 * count)
                sightings[target.pod] = sampler.ScrapedPod(at, metrics)
            report = sampler.report(
                namespace="default",
                name="m",
                agent="m-balancer-0",
                at=at,
                balancer=balancer_sample(reading),
                endpoints=endpoints,
                samples=sightings,
                maintenance=frozenset(),
            )
            self.hub.receive(validate(AgentReport.from_json(report.to_json())).report, at)
        servers = []
        for target in endpoints:
            server_pod = server(target.pod, ready=True, revision=self.revisions[target.slot])
            server_pod["metadata"]["labels"][names.SLOT_LABEL] = target.slot
            servers.append(server_pod)
        return self.watch.result(self.key, servers)


async def test_a_canary_that_answers_later_is_gone_back_from(balanced: Balanced) -> None:
    await balanced.start(1)
    await balanced.start(1, delay_s=SLOW_S)
    slots = tuple(endpoint(pod, slot) for pod, slot in zip(balanced.pods, "ab", strict=True))
    balanced.pilot.accept(TWO)
    await balanced.pilot.run_pass(slots)
    await asyncio.to_thread(balanced.haproxy.start)
    for _ in range(2):
        await balanced.pilot.run_pass(slots)
    cluster, stable, canary = begun(count=2, room=3)
    judged = Judged(balanced, cluster, {"a": stable, "b": canary})

    verdict = None
    for _ in range(60):
        await ask_all(balanced, AT_ONCE)
        verdict = judged.look(await balanced.haproxy.runtime.read())
        if verdict is not None and verdict.action != "wait":
            break
    assert verdict is not None
    assert verdict.action == "rollback", verdict
    assert verdict.why.startswith("rolled back: the new revision is worse: p95 "), verdict.why
