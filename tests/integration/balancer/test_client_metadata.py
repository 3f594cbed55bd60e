"""What clients ask before and beside inference, at the real HAProxy 3.0: configuration, statistics, and HEAD.

Clients are the real tritonclient; pods are stand-ins (tests/unit/balancer/stand_ins.py), which answer HEAD with 405, as Triton does.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import grpc  # type: ignore[import-untyped]  # grpcio has no types
import pytest
import tritonclient.grpc
import tritonclient.http
from tritonclient.utils import InferenceServerException

from tests.integration.balanced import Balanced, http_response, infer, new_balanced, raw
from tests.integration.waiting import PATIENCE

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

READS = [
    *("/v2", "/v2/health/live", "/v2/health/ready"),
    *(f"/v2/models/m{of}{part}" for of in ("", "/versions/1") for part in ("", "/ready", "/config", "/stats")),
]


@pytest.fixture
async def balanced() -> AsyncIterator[Balanced]:
    async with new_balanced() as instance:
        yield instance


def clients(
    balanced: Balanced,
) -> list[tritonclient.http.InferenceServerClient | tritonclient.grpc.InferenceServerClient]:
    ports = balanced.haproxy.ports
    return [
        tritonclient.http.InferenceServerClient(f"127.0.0.1:{ports.http}"),
        tritonclient.grpc.InferenceServerClient(f"127.0.0.1:{ports.grpc}"),
    ]


async def test_clients_read_configuration_and_statistics_over_both_protocols(balanced: Balanced) -> None:
    await balanced.start()
    await balanced.begin()

    def read_all() -> None:
        by_http, by_grpc = clients(balanced)
        with by_http, by_grpc:
            for version in ("", "1"):
                assert by_http.get_model_config("m", version)["name"] == "m"
                assert by_http.get_inference_statistics("m", version)["model_stats"] == [{"name": "m"}]
                assert by_grpc.get_model_config("m", version).config.name == "m"
                assert [of.name for of in by_grpc.get_inference_statistics("m", version).model_stats] == ["m"]
            for closed in (by_http.get_model_repository_index, by_grpc.get_model_repository_index):
                with pytest.raises(InferenceServerException, match="configuration and statistics of one model"):
                    closed()

    await asyncio.to_thread(read_all)
    assert await balanced.counters() == (0, 0, 0), "who reads asks for no replica"
    reading = await balanced.haproxy.runtime.read()
    assert reading.clients is not None
    assert reading.clients.answered == reading.latency["a"].answered == 0


async def test_head_is_answered_as_get_without_a_body(balanced: Balanced) -> None:
    [pod] = await balanced.start()
    await balanced.begin()
    port = balanced.haproxy.ports.http
    for path in READS:
        _, headers, body = await http_response(port, "GET", path)
        answers = await heads(port, path, path)
        assert [status for status, _ in answers] == [200, 200], path
        assert {fields["content-length"] for _, fields in answers} == {headers["content-length"]} == {str(len(body))}
    assert [line.partition(" ")[0] for line in pod.seen] == ["GET"] * 3 * len(READS)
    assert [status for status, _ in await heads(port, "/v2/none", "/v2/models/m/infer", "/v2")] == [404, 405, 200]
    status, headers, _ = await raw(balanced.haproxy.ports.metrics, b"HEAD /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
    assert (status, headers["content-type"].partition(";")[0]) == (200, "text/plain")


async def heads(port: int, *paths: str) -> list[tuple[int, dict[str, str]]]:
    """Status and headers of each answer, all on one connection: a body would be read as the head of the next."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        requests = [f"HEAD {path} HTTP/1.1\r\nHost: x\r\nUser-Agent: t\r\n\r\n" for path in paths]
        writer.write("".join(requests).encode())
        answers = []
        for _ in paths:
            head = (await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 5 * PATIENCE)).decode()
            first, *lines = head.rstrip().split("\r\n")
            assert first.startswith("HTTP/1.1 "), head
            answers.append((int(first.split(" ")[1]), dict(line.lower().split(": ", 1) for line in lines)))
        return answers
    finally:
        writer.close()


async def test_statistics_come_from_one_pod_as_long_as_it_is_there(balanced: Balanced) -> None:
    pods = await balanced.start(3)
    await balanced.begin()
    port = balanced.haproxy.ports.http

    async def read() -> None:
        async with balanced.channel as channel:
            for _ in range(4):
                await http_response(port, "GET", "/v2/models/m/stats")
                await http_response(port, "GET", "/v2/models/m/versions/1/stats")
                await infer(channel, "ModelStatistics")

    def askers() -> list[str]:
        return [pod.address for pod in pods if any("tat" in line for line in pod.seen)]

    await read()
    [first] = askers()
    for _ in range(6):
        await http_response(port, "GET", "/v2/models/m/config")
    assert len([pod for pod in pods if any("config" in line for line in pod.seen)]) > 1, "all else goes to any of them"
    for pod in pods:
        pod.seen.clear()
    left = [pod for pod in pods if pod.address != first]
    await balanced.turn(left)
    await balanced.turn(left)
    await read()
    [second] = askers()
    assert second != first


@pytest.mark.parametrize("method", ["ModelConfig", "ModelStatistics"])
async def test_reading_waits_for_no_pod_over_grpc(balanced: Balanced, method: str) -> None:
    await balanced.begin()
    async with balanced.channel as channel:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await infer(channel, method)
    assert caught.value.code() == grpc.StatusCode.UNAVAILABLE
    assert await balanced.counters() == (0, 0, 0)
