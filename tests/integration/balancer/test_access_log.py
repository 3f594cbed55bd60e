"""The access log of the real HAProxy 3.0: one line for each request, valid JSON whatever clients send."""

from __future__ import annotations

import asyncio
import json
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import grpc  # type: ignore[import-untyped]  # grpcio has no types
import grpc.aio  # type: ignore[import-untyped]  # same
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.integration.balanced import PLAN, Balanced, new_balanced, raw, until
from tests.integration.waiting import PATIENCE
from tests.unit.balancer.stand_ins import SERVICE, Pod

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

pytestmark = pytest.mark.more

LOGGED = replace(PLAN, access_log="All", max_request_bytes=50_000)
PATH = "/v2/models/m/infer"
UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
ID = "7a-B._~+/=:"
TIME = re.compile(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")

Line = dict[str, Any]


class PodWithRequestIds(Pod):
    """A pod that keeps the request ids and the traces that it is sent."""

    ids: tuple[str, ...] = ()
    traces: tuple[str, ...] = ()

    async def _answer(self, method: str, target: str, request: str, fields: dict[str, str]) -> tuple[int, str]:
        if method == "POST":
            self.ids += (fields.get("x-request-id", ""),)
            self.traces += (fields.get("traceparent", ""),)
        return await super()._answer(method, target, request, fields)


@pytest.fixture
async def balanced() -> AsyncIterator[Balanced]:
    async with new_balanced() as instance:
        yield instance


async def with_pod(balanced: Balanced) -> PodWithRequestIds:
    plain = balanced.pod()
    pod = await PodWithRequestIds(plain.address, plain.http_port, plain.grpc_port).start()
    balanced.pods.append(pod)
    return pod


def lines(balanced: Balanced) -> list[Line]:
    entries = [json.loads(line) for line in balanced.haproxy.log_text().splitlines() if line.startswith("{")]
    assert all(TIME.fullmatch(line["time"]) for line in entries)
    return entries


async def logged(balanced: Balanced, count: int) -> list[Line]:
    """All lines, once there are so many."""

    async def all_logged() -> bool:
        return len(lines(balanced)) >= count

    await until(all_logged)
    entries = lines(balanced)
    assert len(entries) == count
    return entries


def request(*headers: str, method: str = "POST", path: str = PATH) -> bytes:
    head = "".join(f"{header}\r\n" for header in ("Host: x", "User-Agent: t", "Content-Length: 2", *headers))
    return f"{method} {path} HTTP/1.1\r\n{head}\r\n{{}}".encode("latin-1")


async def grpc_answer(channel: grpc.aio.Channel, method: str = "ModelInfer", size: int = 1) -> tuple[str, str]:
    """Status and request id."""
    call = channel.unary_unary(SERVICE + method)(
        b"x" * size, timeout=10 * PATIENCE, metadata=(("x-request-id", "of-grpc"),)
    )
    code = (await call.code()).name
    metadata = {**dict(await call.initial_metadata()), **dict(await call.trailing_metadata())}
    return code, metadata.get("x-request-id", "")


async def test_an_access_log_line_has_a_requests_route_and_its_id(balanced: Balanced) -> None:
    pod = await with_pod(balanced)
    await balanced.begin(LOGGED)
    port = balanced.haproxy.ports.http
    status, headers, _ = await raw(port, request(f"X-Request-Id: {ID}"))
    assert (status, headers["x-request-id"]) == (200, ID.lower())
    assert "halcyon-way" not in headers
    _, headers, _ = await raw(port, request())
    generated = headers["x-request-id"]
    assert UUID.fullmatch(generated)
    assert pod.ids == (ID, generated)
    status, headers, _ = await raw(port, request(method="GET", path="/none"))
    assert (status, bool(UUID.fullmatch(headers["x-request-id"]))) == (404, True)
    async with balanced.channel as channel:
        assert await grpc_answer(channel) == ("OK", "of-grpc")
        assert await grpc_answer(channel, size=60_000) == ("RESOURCE_EXHAUSTED", "of-grpc")
        call = channel.stream_stream(SERVICE + "ModelStreamInfer")(iter([b"1"]), timeout=10 * PATIENCE)
        assert len([answer async for answer in call]) == 1
    first, second, lost, by_grpc, large, stream = await logged(balanced, 6)
    assert first.pop("time")
    assert first.pop("totalMs") >= first.pop("serviceMs") >= 0
    assert first.pop("queueMs") >= 0
    assert first.pop("bytesIn") > first.pop("bytesOut") - 100 > 0
    assert first == {
        "id": ID,
        "trace": None,
        "client": None,
        "protocol": "http",
        "path": PATH,
        "status": 200,
        "grpcStatus": None,
        "pod": pod.address,
        "retries": 0,
        "termination": "--",
    }
    assert second["id"] == generated
    assert [lost[name] for name in ("status", "path", "pod", "serviceMs")] == [404, "/none", None, None]
    assert [by_grpc[name] for name in ("id", "protocol", "path", "grpcStatus")] == [
        *("of-grpc", "grpc", SERVICE + "ModelInfer"),
        None,
    ]
    assert [large[name] for name in ("status", "grpcStatus", "pod")] == [200, 8, None]
    assert [stream["path"], stream["pod"]] == [SERVICE + "ModelStreamInfer", pod.address]


TRACE_ID = "4bf92f3577b34da6a3ce929d0e0e4736"
TRACE = f"00-{TRACE_ID}-00f067aa0ba902b7-01"


async def test_a_trace_passes_unchanged_and_its_id_is_logged(balanced: Balanced) -> None:
    pod = await with_pod(balanced)
    await balanced.begin(LOGGED)
    port = balanced.haproxy.ports.http
    large = b"{}" + b" " * 30_000
    head = f"POST {PATH} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(large)}\r\nTraceparent: {TRACE}\r\n\r\n"
    assert (await raw(port, request(f"Traceparent: {TRACE}", "Tracestate: a=b")))[0] == 200
    assert (await raw(port, head.encode() + large))[0] == 200
    async with balanced.channel as channel:
        call = channel.unary_unary(SERVICE + "ModelInfer")(
            b"x", timeout=10 * PATIENCE, metadata=(("traceparent", TRACE),)
        )
        assert (await call.code()).name == "OK"
    assert [line["trace"] for line in await logged(balanced, 3)] == [TRACE_ID] * 3
    assert pod.traces == (TRACE, TRACE)


@pytest.mark.parametrize(
    "trace",
    [
        TRACE.replace("4bf9", "4BF9"),
        TRACE[:-1],
        f"{TRACE}-more",
        f"ff{TRACE[2:]}",
        f"00-{'0' * 32}-00f067aa0ba902b7-01",
        '00-"}{%[env(PATH)]',
    ],
)
async def test_a_trace_that_is_not_valid_passes_and_is_not_logged(balanced: Balanced, trace: str) -> None:
    pod = await with_pod(balanced)
    await balanced.begin(LOGGED)
    assert (await raw(balanced.haproxy.ports.http, request(f"Traceparent: {trace}")))[0] == 200
    (line,) = await logged(balanced, 1)
    assert line["trace"] is None
    assert pod.traces == (trace,)


async def test_a_held_requests_line_has_its_arrival_and_its_wait(balanced: Balanced) -> None:
    await balanced.begin(LOGGED)
    port = balanced.haproxy.ports.http
    async with balanced.channel as channel:
        waiting = [
            asyncio.create_task(raw(port, request("X-Request-Id: a"))),
            asyncio.create_task(grpc_answer(channel)),
        ]

        async def held() -> bool:
            return (await balanced.haproxy.runtime.held_requests()).held == 2

        await until(held)
        await asyncio.sleep(0.2)  # what is to be measured
        pod = await with_pod(balanced)
        await balanced.turn()
        await asyncio.gather(*waiting)
    for line in await logged(balanced, 2):
        assert line["pod"] == pod.address
        assert line["queueMs"] >= 190
        assert line["serviceMs"] <= line["totalMs"] - 190
    assert pod.ids == ("a",)


async def test_an_error_log_has_lines_for_failed_requests_alone(balanced: Balanced) -> None:
    await with_pod(balanced)
    await balanced.begin(replace(LOGGED, access_log="Errors", queue_timeout_ms=3000, response_timeout_ms=3000))
    port = balanced.haproxy.ports.http
    async with balanced.channel as channel:
        for _ in range(3):
            assert (await raw(port, request()))[0] == 200
            assert (await grpc_answer(channel))[0] == "OK"
        assert (await raw(port, request(method="GET", path="/none")))[0] == 404
        assert (await grpc_answer(channel, "Unknown"))[0] == "UNIMPLEMENTED"
        balanced.pods[0].hold = asyncio.Event()
        assert (await raw(port, request()))[0] == 504
        balanced.pods[0].hold.set()
    failures = [(line["status"], line["grpcStatus"], line["termination"]) for line in await logged(balanced, 3)]
    assert failures == [(404, None, "LR"), (200, 12, "LR"), (504, None, "sH")]


HOSTILE = st.lists(
    st.sampled_from(
        [
            b'"',
            b"\\",
            b"\x7f",
            b"\xff\xfe",
            b"\xc3\xa4",
            b"\xc3",
            b"%00",
            b"{",
            b"}",
            b",",
            b"\t",
            b"$HOME",
            b"%[env(PATH)]",
            b"a",
        ]
    )
    | st.binary(max_size=6),
    max_size=30,
).map(b"".join)


async def test_a_line_is_one_valid_json_object_whatever_comes(balanced: Balanced) -> None:
    await balanced.begin(LOGGED)
    port = balanced.haproxy.ports.http

    async def send(message: bytes) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(message)
        if writer.can_write_eof():
            writer.write_eof()
        await asyncio.wait_for(reader.read(), 5 * PATIENCE)
        writer.close()

    sent: list[bytes] = []

    @given(path=HOSTILE, header=HOSTILE, method=st.sampled_from([b"GET", b"POST", b'G"T', b""]))
    @example(path=b'"' * 9000, header=b"", method=b"GET")
    @example(path=b"a" * 1023 + b"%22\\", header=b"a" * 129, method=b"GET")
    @settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    def line(path: bytes, header: bytes, method: bytes) -> None:
        sent.append(
            method
            + b" /"
            + path
            + b" HTTP/1.1\r\nHost: x\r\nConnection: close\r\nX-Request-Id: "
            + header
            + b"\r\n\r\n"
        )

    await asyncio.to_thread(line)
    for message in sent:
        await send(message)
    # Every line that HAProxy wrote is JSON, and nothing of what came has become a line or a field.
    text = (balanced.haproxy.directory / "log").read_bytes().decode()
    entries = [json.loads(row) for row in text.splitlines() if not row.startswith("[")]
    assert len(entries) >= len(sent) - 2
    assert {frozenset(each) for each in entries} == {frozenset(entries[0])}
    assert all(each["id"] is None or re.fullmatch(r"[A-Za-z0-9._~+/=:-]{1,128}", each["id"]) for each in entries)
    assert any(each["status"] == 404 and '"' in each["path"] for each in entries)
