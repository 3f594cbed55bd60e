"""Policy Rules, actuator Direct: what agents stream becomes /scale, by the rules, and only where it comes from the model's own agent.

The agent is imitated: a WebSocket client with a token of the balancer's ServiceAccount, as the kubelet would project it. API
server, TokenReview, TLS and the operator are real; the pods that it speaks of are KWOK's.
"""

import asyncio
import json
import os
import socket
import ssl
import time

import aiohttp
import pytest

from halcyon.api.documents.observation_report import AUDIENCE, STREAM_PATH, AgentReport, BalancerSample, PodSample
from halcyon.kube import kinds
from tests.integration.operator.test_leader_election import pods_of_account, token
from tests.integration.operator_process import Operator
from tests.integration.operator_space import Space
from tests.integration.waiting import PATIENCE, always, until

AddrInfo = tuple[int, int, int, str, object]
HOLD_S = 16.0 if os.environ.get("HALCYON_FAULTS") == "all" else 3.0
SCALING = {
    "maxReplicas": 9,
    "policy": "Rules",
    "actuator": "Direct",
    "targets": {"queueDepth": 10},
    # Down at once: a missing value that counted as 0 would show.
    "behavior": {"scaleDown": {"stabilizationWindowSeconds": 0}},
}


@pytest.fixture(scope="module")
def operator(operator: Operator) -> Operator:
    operator.wait_ready()
    return operator


@pytest.fixture
def space(space: Space) -> Space:
    space.serve(scaling=SCALING)
    return space


def servers(space: Space) -> list[str]:
    return [n for p in space.every(kinds.POD) if (n := p["metadata"]["name"]).startswith("m-a-")]


def record(space: Space, *, name: str = "m", queued: int = 0) -> str:
    now = time.time()
    pods = tuple(
        PodSample(pod, "ready", now, pending=0, succeeded=0, failed=0, rows=0, executions=0, versions=("1",))
        for pod in servers(space)
    )
    balancer = BalancerSample(queued=queued, inflight=0, requests=0, rejected=0, errors=0)
    agent = min(pods_of_account(space, "m-balancer"))
    return AgentReport(space.namespace, name, agent, now, balancer, pods).to_json()


class Agent:
    """A connection such as an agent's, by the address of the operator and the CA of the plan."""

    def __init__(self, operator: Operator, space: Space, bearer: str, *, balancer: str = "m-balancer") -> None:
        plan = json.loads(space.must(kinds.CONFIG_MAP, balancer)["data"]["plan.json"])
        self._name = plan["collector"]["server_name"]
        self._tls = ssl.create_default_context(cadata=plan["collector"]["ca_pem"])
        self._url = f"https://127.0.0.1:{operator.port}{STREAM_PATH}"
        self._headers = {"Authorization": f"Bearer {bearer}"}
        self._sockets: list[socket.socket] = []
        self._session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(socket_factory=self._socket))

    def _socket(self, info: AddrInfo) -> socket.socket:
        connection = socket.socket(*info[:3])
        self._sockets.append(connection)
        return connection

    async def __aenter__(self) -> aiohttp.ClientWebSocketResponse:
        try:
            self._stream = await self._session.ws_connect(
                self._url, ssl=self._tls, server_hostname=self._name, headers=self._headers
            )
        except BaseException:
            await self._close()
            raise
        return self._stream

    async def __aexit__(self, *_: object) -> None:
        await self._stream.close()
        await self._close()

    async def _close(self) -> None:
        await self._session.close()
        # TLS says goodbye behind the session's back, and the operator may take its time: a loop that ended first would leave the socket open.
        end = time.monotonic() + 5 * PATIENCE
        while any(connection.fileno() != -1 for connection in self._sockets):
            assert time.monotonic() < end, f"the operator left {self._sockets} open"
            await asyncio.sleep(0.01)


async def until_then(space: Space, count: int, stream: aiohttp.ClientWebSocketResponse, *, queued: int) -> None:
    """Stream until the count is reached."""
    end = time.monotonic() + 25 * PATIENCE
    while space.replicas() != count:
        assert time.monotonic() < end, (
            space.replicas(),
            space.status().get("scaling"),
            space.condition("ScalingActive"),
        )
        await stream.send_str(record(space, queued=queued))
        await asyncio.sleep(0.5)


async def test_a_queue_that_agents_report_is_scaled_for_and_silence_holds(operator: Operator, space: Space) -> None:
    async with Agent(operator, space, token(space, "m-balancer", AUDIENCE)) as stream:
        # 48 wait, 10 are one replica's share: 5, which is also what the HPA's default policy allows in one step.
        await until_then(space, 5, stream, queued=48)
    assert space.must(kinds.MODEL_DEPLOYMENT, "m")["spec"]["replicas"] == 5
    space.wait_settled()
    scaling = space.status()["scaling"]
    assert scaling["actuator"] == "Direct"
    assert scaling["desired"] == 5
    assert [(s["name"], s["target"]) for s in scaling["signals"]] == [("queueDepth", "10")]
    message = space.wait_condition("ScalingActive", "False", "MetricsMissing", limit_s=30)
    assert "The number of replicas is not changed" in message
    always(space.replicas, lambda n: n == 5, goal="the count holds", for_s=HOLD_S)


async def test_a_limitation_of_a_balancer_is_in_the_status_until_it_ends(operator: Operator, space: Space) -> None:
    async with Agent(operator, space, token(space, "m-balancer", AUDIENCE)) as stream:
        for trouble, reason in (
            ("Secret digits-tls: key tls.crt is missing", "BalancerDegraded"),
            ("", "BalancerReady"),
        ):
            end = time.monotonic() + 25 * PATIENCE
            while space.condition("BalancerReady")[1] != reason:
                assert time.monotonic() < end, space.condition("BalancerReady")
                report = json.loads(record(space))
                report["balancer"]["problem"] = trouble
                await stream.send_str(json.dumps(report))
                await asyncio.sleep(0.3)
            assert trouble in space.condition("BalancerReady")[2]


async def test_a_record_for_another_model_ends_the_stream(operator: Operator, space: Space) -> None:
    async with Agent(operator, space, token(space, "m-balancer", AUDIENCE)) as stream:
        await stream.send_str(record(space, name="other", queued=900))
        message = await stream.receive(timeout=5 * PATIENCE)
        assert message.type is aiohttp.WSMsgType.CLOSE
        assert message.data == aiohttp.WSCloseCode.POLICY_VIOLATION
    assert space.replicas() == 1


@pytest.mark.parametrize(
    ("account", "audience", "status"), [("default", AUDIENCE, 403), ("m-balancer", None, 401), ("", None, 401)]
)
async def test_a_token_that_is_not_the_agents_is_refused(
    operator: Operator, space: Space, account: str, audience: str | None, status: int
) -> None:
    bearer = token(space, account, audience) if account else "nonsense"
    with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
        async with Agent(operator, space, bearer):
            pass
    assert refused.value.status == status


def test_replicas_stay_without_any_agent_and_the_status_has_the_reason(space: Space) -> None:
    space.scale(3)
    until(space.replicas, lambda n: n == 3, goal="the count is 3")
    assert space.condition("ScalingActive")[:2] == ("Unknown", "Unknown")
    always(space.replicas, lambda n: n == 3, goal="the count holds", for_s=2)
