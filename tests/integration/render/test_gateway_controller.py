"""Requests through a real Gateway: Envoy Gateway and its Envoy, with the routes that the operator writes.

Real: the API server, its endpoint controller, the operator, Envoy Gateway and Envoy. The pods are KWOK's; their addresses are put on
this machine's loopback interface, where the stand-ins for Triton answer in their place.
"""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import grpc  # type: ignore[import-untyped]  # grpcio has no types
import grpc.aio  # type: ignore[import-untyped]  # same
import pytest

from e2e import envoy_gateway
from e2e.cluster.cluster import Cluster
from e2e.cluster.system import command
from e2e.envoy_gateway import GATEWAY, EnvoyGateway
from halcyon.kube import kinds
from halcyon.render import names
from tests.integration.operator.test_gateway_routes import led_to
from tests.integration.operator.test_rollout import pods_of
from tests.integration.operator_process import Operator
from tests.integration.operator_space import Object, Space, deployment, files
from tests.integration.waiting import PATIENCE, until
from tests.ports import free_ports
from tests.unit.balancer.stand_ins import SERVICE, Pod

pytestmark = pytest.mark.gateway

HTTP_HOST, GRPC_HOST = "m.example.com", "grpc.m.example.com"
CANARY: dict[str, Any] = {
    "strategy": "Canary",
    "canary": {"steps": [{"weight": 20, "pause": {"duration": "1h"}}], "analysis": {"mode": "Disabled"}},
}
REQUESTS = 600
"""Requests over each protocol. Five standard deviations of a share of 20 % are 8 percentage points."""
SHARE, ERROR = 0.2, 0.08


@pytest.fixture(scope="module")
def controller(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EnvoyGateway]:
    with envoy_gateway.running(cluster, tmp_path_factory.mktemp("envoy-gateway")) as running:
        yield running


@dataclass
class Edge:
    """A Gateway with one listener for all hosts, as clients reach it."""

    space: Space
    controller: EnvoyGateway
    port: int

    @property
    def route(self) -> Object:
        """`spec.traffic` of a model behind it."""
        entries = {"http": {"hostnames": [HTTP_HOST]}, "grpc": {"hostnames": [GRPC_HOST]}}
        return {"mode": "Gateway", "gateway": {"name": "edge", **entries}}

    def make(self) -> None:
        listener = {
            "name": "clear",
            "protocol": "HTTP",
            "port": self.port,
            "allowedRoutes": {"namespaces": {"from": "All"}},
        }
        self.space.api.create(
            GATEWAY.path(self.space.namespace),
            {
                "apiVersion": GATEWAY.api_version,
                "kind": GATEWAY.kind,
                "metadata": {"name": "edge"},
                "spec": {"gatewayClassName": "envoy", "listeners": [listener]},
            },
        )

    async def get(self, session: aiohttp.ClientSession, path: str, host: str = HTTP_HOST) -> int:
        """Return the status of a GET."""
        async with session.get(f"http://127.0.0.1:{self.port}{path}", headers={"Host": host}) as answer:
            return answer.status

    async def infer(self, session: aiohttp.ClientSession, path: str = "/v2/models/m/infer") -> str:
        """Send a request over HTTP, and return the address of the pod that has answered."""
        url, headers = f"http://127.0.0.1:{self.port}{path}", {"Host": HTTP_HOST}
        async with session.post(url, headers=headers, data=b"x") as answer:
            assert answer.status == 200, (answer.status, await answer.text(), self.controller.log_tail())
            return str((await answer.json())["who"])

    def channel(self) -> grpc.aio.Channel:
        options = [("grpc.default_authority", GRPC_HOST), ("grpc.use_local_subchannel_pool", 1)]
        return grpc.aio.insecure_channel(f"127.0.0.1:{self.port}", options=options)


@pytest.fixture
def edge(operator: Operator, space: Space, controller: EnvoyGateway) -> Iterator[Edge]:
    operator.wait_ready()
    gateway = Edge(space, controller, free_ports(1)[0])
    gateway.make()
    yield gateway
    space.api.call("DELETE", GATEWAY.path(space.namespace, "edge"))


@dataclass
class Servers:
    """Stand-ins at the addresses of the model's pods."""

    space: Space
    pods: dict[str, Pod] = field(default_factory=dict)
    """Stand-ins by address."""
    slots: dict[str, str] = field(default_factory=dict)
    """Slot of each address."""

    async def follow(self) -> set[str]:
        """Start a stand-in for each ready pod that has none; return the addresses of the ready pods."""
        ready = set()
        for slot in "ab":
            for name in await asyncio.to_thread(pods_of, self.space, slot):
                pod = await asyncio.to_thread(self.space.must, kinds.POD, name)
                address = str(pod["status"]["podIP"])
                ready.add(address)
                self.slots[address] = slot  # a new pod may have the address of a deleted one
                if address not in self.pods:
                    command(["ip", "addr", "add", f"{address}/32", "dev", "lo"])
                    self.pods[address] = Pod(address, names.HTTP_PORT, names.GRPC_PORT)
                    await self.pods[address].start()
        return ready

    async def end(self) -> None:
        for address, pod in self.pods.items():
            await pod.stop()
            command(["ip", "addr", "del", f"{address}/32", "dev", "lo"])


@contextlib.asynccontextmanager
async def served(space: Space) -> AsyncIterator[Servers]:
    servers = Servers(space)
    try:
        yield servers
    finally:
        await servers.end()


async def shares(edge: Edge, servers: Servers) -> tuple[float, float]:
    """Return the canary's share of requests over HTTP and gRPC, from the slots of the pods that have answered."""
    counts: list[Counter[str]] = []
    async with aiohttp.ClientSession() as session, edge.channel() as channel:
        addresses = [await edge.infer(session) for _ in range(REQUESTS)]
        counts.append(Counter(servers.slots[address] for address in addresses))
        call = channel.unary_unary(SERVICE + "ModelInfer")
        answers = [bytes(await call(b"x", timeout=10 * PATIENCE)).decode() for _ in range(REQUESTS)]
        counts.append(Counter(servers.slots[address] for address in answers))
    http, grpc_ = (count["b"] / REQUESTS for count in counts)
    return http, grpc_


async def wait_answered(edge: Edge, addresses: set[str]) -> None:
    """Wait until pods of exactly these addresses have answered the last 100 requests."""
    seen: list[str] = []
    async with aiohttp.ClientSession() as session, asyncio.timeout(30 * PATIENCE):
        while len(seen) < 100 or set(seen[-100:]) != addresses:
            try:
                seen.append(await edge.infer(session))
            except (AssertionError, aiohttp.ClientError):
                seen.clear()
                await asyncio.sleep(0.2)


async def test_http_grpc_and_canary_weights_pass_through_a_gateway(edge: Edge, space: Space) -> None:
    model: dict[str, Any] = {"replicas": 4, "traffic": edge.route, "rollout": CANARY}
    async with served(space) as servers:
        await asyncio.to_thread(space.apply, files(), deployment(**model, batching={"maxBatchSize": 4}))
        accepted = await asyncio.to_thread(space.wait_condition, "RoutesAccepted", "True", "RoutesAccepted", limit_s=30)
        assert "edge" in accepted, edge.controller.log_tail()
        await asyncio.to_thread(space.wait_condition, "Ready", "True", "Ready")
        await wait_answered(edge, await servers.follow())
        assert await shares(edge, servers) == (0, 0)
        counts = [(pod.http_count, pod.grpc_count) for pod in servers.pods.values()]
        assert len(counts) == 4
        assert all(http and over_grpc for http, over_grpc in counts), counts

        async with aiohttp.ClientSession() as session, edge.channel() as channel:
            assert await edge.infer(session, "/v2/models/m/versions/1/infer") in servers.pods
            assert [await edge.get(session, path) for path in ("/v2/health/ready", "/v2/models/m/stats")] == [200, 200]
            for path in ("/v2/repository/index", "/v2/models/other/stats", "/metrics"):
                assert await edge.get(session, path) == 404, path
            assert await edge.get(session, "/v2/models/m/stats", "other.example.com") == 404
            stream = channel.stream_stream(SERVICE + "ModelStreamInfer")(iter([b"x", b"y"]))
            assert {bytes(answer).decode() in servers.pods async for answer in stream} == {True}
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await channel.unary_unary(SERVICE + "RepositoryIndex")(b"x", timeout=10 * PATIENCE)
            assert refused.value.code() == grpc.StatusCode.UNIMPLEMENTED

        await asyncio.to_thread(space.apply, deployment(**model, batching={"maxBatchSize": 8}))
        await asyncio.to_thread(
            until,
            lambda: (len(pods_of(space, "a")), len(pods_of(space, "b")), led_to(space)),
            lambda split: split == (3, 1, [("m-route-a", 80), ("m-route-b", 20)]),
            goal="the canary has its pod and its weight",
        )
        await wait_answered(edge, await servers.follow())
        for share in await shares(edge, servers):
            assert abs(share - SHARE) < ERROR

        revision = space.status()["revision"]["target"]
        promoted = {"metadata": {"annotations": {"serving.halcyon.dev/promote": revision}}}
        await asyncio.to_thread(space.merge, kinds.MODEL_DEPLOYMENT, "m", promoted)
        await asyncio.to_thread(
            until,
            lambda: (len(pods_of(space, "a")), len(pods_of(space, "b"))),
            lambda split: split == (0, 4),
            goal="all pods are of the canary's revision",
        )
        await wait_answered(edge, await servers.follow())
        assert await shares(edge, servers) == (1, 1)
