"""Requests that name what they belong to: where a real HAProxy sends them. Pods are stand-ins."""

from __future__ import annotations

import asyncio
import os
import signal
from dataclasses import replace
from typing import TYPE_CHECKING

import aiohttp
import grpc.aio  # type: ignore[import-untyped]  # grpcio has no types
import pytest

from halcyon.api.documents.balancer_plan import Slot
from halcyon.balancer.runtime.controller import HaproxyController
from halcyon.balancer.secrets.mounted_secrets import MountedSecrets, SecretNames
from tests.integration import balanced as places
from tests.integration.balanced import PLAN, TIMEOUT, Balanced, endpoint, until
from tests.integration.balancer.test_api_keys import put
from tests.integration.waiting import PATIENCE
from tests.unit.balancer.stand_ins import SERVICE

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

pytestmark = pytest.mark.more

HEADER = "x-sequence"
STICKY = replace(PLAN, sticky_header=HEADER, sequences=True, drain_ms=2000)
LEAVING = replace(STICKY, drain_ms=int(2000 * PATIENCE))
VALUES = [f"conversation {n}" for n in range(24)]


@pytest.fixture
async def balanced() -> AsyncIterator[Balanced]:
    async with places.new_balanced() as instance:
        yield instance


async def over_http(at: Balanced, value: str | None) -> str:
    """The address of the pod that answered."""
    headers = {} if value is None else {HEADER: value}
    async with (
        aiohttp.ClientSession(timeout=TIMEOUT) as session,
        session.post(at.url + "/v2/models/m/infer", data=b"{}", headers=headers) as response,
    ):
        assert response.status == 200, await response.text()
        who: str = (await response.json())["who"]
        return who


async def over_grpc(channel: grpc.aio.Channel, value: str) -> str:
    path = SERVICE + "ModelInfer"
    answer = await channel.unary_unary(path)(b"x", timeout=10 * PATIENCE, metadata=((HEADER, value),))
    return bytes(answer).decode()


async def assigned_pods(at: Balanced) -> dict[str, str]:
    return {value: await over_http(at, value) for value in VALUES}


async def test_a_value_has_one_pod_over_both_protocols_and_values_spread(balanced: Balanced) -> None:
    await balanced.start(3)
    await balanced.begin(STICKY)
    first = await assigned_pods(balanced)
    assert len(set(first.values())) == 3
    assert await assigned_pods(balanced) == first
    async with balanced.channel as channel:
        assert {value: await over_grpc(channel, value) for value in VALUES} == first
    without = {await over_http(balanced, None) for _ in range(6)}
    assert len(without) > 1, "who names nothing belongs nowhere"


async def test_a_value_that_is_known_stays_when_pods_come(balanced: Balanced) -> None:
    await balanced.start(2)
    await balanced.begin(STICKY)
    known = await assigned_pods(balanced)
    await balanced.start(2)
    await balanced.turn()
    await balanced.turn()
    assert await assigned_pods(balanced) == known
    assert {await over_http(balanced, f"another {n}") for n in range(30)} - set(known.values()), "new ones go there"


async def test_two_balancers_agree_whatever_lines_the_pods_have(balanced: Balanced) -> None:
    await balanced.start(4)
    await balanced.begin(STICKY)
    async with places.new_balanced() as other:
        haproxy = other.haproxy
        haproxy.ports = replace(
            haproxy.ports,
            server_http=balanced.haproxy.ports.server_http,
            server_grpc=balanced.haproxy.ports.server_grpc,
        )
        haproxy.listen = replace(haproxy.listen, ports=haproxy.ports)
        haproxy.runtime = haproxy.runtime_of(haproxy.ports)
        other.pilot = HaproxyController(haproxy.runtime, haproxy.config, haproxy.listen)
        other.pilot.accept(STICKY)
        await other.turn(balanced.pods[-1:])
        await asyncio.to_thread(haproxy.start)
        for count in (2, 3, 4, 4):
            await other.turn(balanced.pods[-count:])
        lines = [{key: seen.address for key, seen in at.pilot.reading.servers.items()} for at in (balanced, other)]
        assert lines[0] != lines[1]
        assert await assigned_pods(balanced) == await assigned_pods(other)


async def test_a_draining_pod_keeps_its_sticky_values_until_the_drain_is_over(balanced: Balanced) -> None:
    await balanced.start(3)
    await balanced.begin(LEAVING)
    known = await assigned_pods(balanced)
    leaving = balanced.pods[0]
    its = [value for value in VALUES if known[value] == leaving.address]
    assert its

    async def turn() -> None:
        pods = [endpoint(pod, terminating=pod is leaving) for pod in balanced.pods]
        await balanced.pilot.run_pass(tuple(pods))

    began = asyncio.get_running_loop().time()
    await turn()
    await turn()
    assert await assigned_pods(balanced) == known
    assert leaving.address not in {await over_http(balanced, f"new {n}") for n in range(30)}
    assert asyncio.get_running_loop().time() - began < LEAVING.drain_ms / 1000, "this machine was too slow to tell"

    async def is_moved() -> bool:
        await turn()
        return await over_http(balanced, its[0]) != leaving.address

    await until(is_moved, 10)
    assert asyncio.get_running_loop().time() - began >= LEAVING.drain_ms / 1000
    after = await assigned_pods(balanced)
    assert {value: pod for value, pod in after.items() if value not in its} == {
        value: pod for value, pod in known.items() if value not in its
    }


async def test_a_draining_pod_keeps_its_values_if_haproxy_is_slow_once(balanced: Balanced) -> None:
    await balanced.start(3)
    haproxy = balanced.haproxy
    runtime = replace(haproxy.runtime, timeout_s=0.5 * PATIENCE)
    balanced.pilot = HaproxyController(runtime, haproxy.config, haproxy.listen)
    await balanced.begin(replace(STICKY, drain_ms=600_000))
    known = await assigned_pods(balanced)
    pods = tuple(endpoint(pod, terminating=pod is balanced.pods[0]) for pod in balanced.pods)
    for _ in range(2):
        await balanced.pilot.run_pass(pods)
    [worker] = haproxy.workers()
    os.kill(int(worker), signal.SIGSTOP)
    await balanced.pilot.run_pass(pods)
    assert balanced.pilot.reading is None
    os.kill(int(worker), signal.SIGCONT)
    for _ in range(2):
        await balanced.pilot.run_pass(pods)
    assert await assigned_pods(balanced) == known


@pytest.mark.parametrize("header", ["x-api-key", "authorization"])
async def test_a_client_with_an_api_key_has_one_pod(balanced: Balanced, tmp_path: Path, header: str) -> None:
    keys = {f"client-{number}": f"{number:016}" for number in range(12)}
    put(tmp_path / "keys", **keys)
    haproxy = balanced.haproxy
    files = MountedSecrets(SecretNames(keys="m-keys"), mounted=tmp_path, config=haproxy.config)
    balanced.pilot = HaproxyController(haproxy.runtime, haproxy.config, haproxy.listen, files=files)
    await balanced.start(3)
    await balanced.begin(replace(STICKY, sticky_header=header))
    known: dict[str, set[str]] = {client: set() for client in keys}
    async with aiohttp.ClientSession(timeout=TIMEOUT) as session, balanced.channel as channel:
        for _ in range(4):
            for client, key in keys.items():
                headers = {header: key if header == "x-api-key" else f"Bearer {key}"}
                async with session.post(balanced.url + "/v2/models/m/infer", data=b"{}", headers=headers) as response:
                    known[client].add((await response.json())["who"])
                call = channel.unary_unary(SERVICE + "ModelInfer")
                answer = await call(b"x", timeout=10 * PATIENCE, metadata=tuple(headers.items()))
                known[client].add(bytes(answer).decode())
    assert [len(pods) for pods in known.values()] == [1] * len(keys)
    assert len(set().union(*known.values())) == 3


async def test_a_canary_s_share_is_one_of_values(balanced: Balanced) -> None:
    old, new = await balanced.start(2)
    slots = (Slot("a", "m-server-a", 50, 8), Slot("b", "m-server-b", 50, 8))
    balanced.pilot.accept(replace(STICKY, slots=slots))
    pods = (endpoint(old), endpoint(new, slot="b"))
    await balanced.pilot.run_pass(pods)
    await asyncio.to_thread(balanced.haproxy.start)
    for _ in range(2):
        await balanced.pilot.run_pass(pods)
    known = await assigned_pods(balanced)
    assert set(known.values()) == {old.address, new.address}
    assert await assigned_pods(balanced) == known


async def test_values_of_a_pod_that_left_follow_the_hash(balanced: Balanced) -> None:
    plan = replace(STICKY, slots=(Slot("a", "m-server-a", 100, 3),), drain_ms=200)
    await balanced.start(3)
    await balanced.begin(plan)
    known = await assigned_pods(balanced)
    left = balanced.pods.pop(0)
    its = [value for value in VALUES if known[value] == left.address]

    async def is_free() -> bool:
        await balanced.turn()
        reading = balanced.pilot.reading
        return reading is not None and any(server.admin == "maint" for server in reading.servers.values())

    await until(is_free, 10)
    # Its only free server is that of the pod that left.
    await balanced.start(1)
    await balanced.turn()
    await balanced.turn()
    after = {value: await over_http(balanced, value) for value in its}
    # A new process has no table: the hash alone decides.
    balanced.pilot.accept(replace(plan, queue_limit=21))
    await balanced.turn()
    assert after == {value: await over_http(balanced, value) for value in its}
