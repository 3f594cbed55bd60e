"""Malformed and ambiguous requests at a real HAProxy 3.0: a server receives what its API has, once each, and nothing else."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

import grpc  # type: ignore[import-untyped]  # grpcio has no types
import grpc.aio  # type: ignore[import-untyped]  # same
import pytest

from tests.integration import crowd
from tests.integration.balanced import PLAN, Balanced, http_response, infer, new_balanced
from tests.integration.crowd import frame
from tests.integration.waiting import PATIENCE
from tests.unit.balancer.stand_ins import SERVICE, Pod

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

pytestmark = pytest.mark.more

INFER: Final = "POST /v2/models/m/infer HTTP/1.1"
HIDDEN: Final = "POST /v2/repository/models/m/unload HTTP/1.1\r\nHost: m\r\nContent-Length: 0\r\n\r\n"
"""Request in the place of a body or behind one: it must never reach a server."""
CHUNKED: Final = "transfer-encoding: chunked"
_HEADERS, _END_STREAM, _END_HEADERS = 1, 1, 4


@dataclass
class Recorder(Pod):
    """A pod that reads requests strictly, and keeps their heads and bodies."""

    heads: list[str] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)
    """Bytes that were no request."""

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
                lines = head.split("\r\n")[:-2]
                fields = [line.lower().partition(":") for line in lines[1:]]
                if any(not found or name != name.strip() or "\n" in name for name, found, _ in fields):
                    self.broken.append(head)
                lengths = [value.strip() for name, _, value in fields if name == "content-length"]
                codings = [value.strip() for name, _, value in fields if name == "transfer-encoding"]
                if len(lengths) + len(codings) > 1 or any(coding != "chunked" for coding in codings):
                    self.broken.append(head)
                length = int(lengths[0]) if lengths else 0
                body = await self._chunks(reader) if codings else await reader.readexactly(length)
                if not lines[0].startswith(f"GET /v2/models/{self.model}/ready ") or any(
                    name == "user-agent" for name, _, _ in fields
                ):
                    self.heads.append(head)
                    self.bodies.append(body)
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
                await writer.drain()
        writer.close()
        self._writers.discard(writer)

    async def _chunks(self, reader: asyncio.StreamReader) -> bytes:
        body = b""
        while size := int(await reader.readuntil(b"\r\n"), 16):
            body += (await reader.readexactly(size + 2))[:-2]
        while (line := await reader.readuntil(b"\r\n")) != b"\r\n":
            self.heads.append("trailer " + line.decode("latin-1"))
        return body

    @property
    def requests(self) -> list[str]:
        return [head.split("\r\n")[0] for head in self.heads]


@pytest.fixture
async def balanced() -> AsyncIterator[Balanced]:
    async with new_balanced() as made:
        ports = made.haproxy.ports
        pod = made.pod()
        made.pods.append(await Recorder(pod.address, ports.server_http, ports.server_grpc).start())
        await made.begin(replace(PLAN, queue_timeout_ms=5000))
        yield made


def recorder(balanced: Balanced) -> Recorder:
    [pod] = balanced.pods
    assert isinstance(pod, Recorder)
    return pod


async def statuses(balanced: Balanced, sent: str) -> list[int]:
    """Send bytes and the end of them over one connection; return the statuses of all responses until it is closed."""
    reader, writer = await asyncio.open_connection("127.0.0.1", balanced.haproxy.ports.http)
    try:
        writer.write(sent.encode("latin-1"))
        answered = b""
        with contextlib.suppress(TimeoutError, ConnectionError):
            async with asyncio.timeout(1.0 * PATIENCE):
                while read := await reader.read(65536):
                    answered += read
                    if answered.count(b"HTTP/1.1 ") > 1 or b"connection: close" in answered.lower():
                        break
                    # Another response, if there is one, follows at once.
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(0.3):
                            answered += await reader.read(65536)
                    break
    finally:
        writer.close()
    return [int(part[:3]) for part in answered.split(b"HTTP/1.1 ")[1:]]


LENGTHS: Final = {
    "a length and chunks": f"Content-Length: 6\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n{HIDDEN}",
    "chunks and a length": f"Transfer-Encoding: chunked\r\nContent-Length: 6\r\n\r\n0\r\n\r\n{HIDDEN}",
    "two lengths": f"Content-Length: 0\r\nContent-Length: {len(HIDDEN)}\r\n\r\n{HIDDEN}",
    "a list of two lengths": f"Content-Length: 0, {len(HIDDEN)}\r\n\r\n{HIDDEN}",
    "a signed length": f"Content-Length: +{len(HIDDEN)}\r\n\r\n{HIDDEN}",
    "a negative length": f"Content-Length: -1\r\n\r\n{HIDDEN}",
    "a length in hexadecimal": f"Content-Length: 0x4\r\n\r\n{HIDDEN}",
    "an empty length": f"Content-Length:\r\n\r\n{HIDDEN}",
    "a length before its colon": f"Content-Length : {len(HIDDEN)}\r\n\r\n{HIDDEN}",
    "a coding before its colon": f"Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n{HIDDEN}",
    "an unknown coding": f"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n{HIDDEN}",
    "two codings": f"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n{HIDDEN}",
    "chunks before a coding": f"Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n{HIDDEN}",
    "a coding after a tab": f"Transfer-Encoding:\tchunked\r\nContent-Length: 6\r\n\r\n0\r\n\r\n{HIDDEN}",
    "a coding after a vertical tab": f"Transfer-Encoding: \x0bchunked\r\nContent-Length: 6\r\n\r\n0\r\n\r\n{HIDDEN}",
    "a folded coding": f"Transfer-Encoding:\r\n chunked\r\nContent-Length: 6\r\n\r\n0\r\n\r\n{HIDDEN}",
    "a folded header": f"X-A: b\r\n Content-Length: {len(HIDDEN)}\r\nContent-Length: 0\r\n\r\n{HIDDEN}",
    "a bare line feed": f"X-A: b\nContent-Length: {len(HIDDEN)}\r\nContent-Length: 0\r\n\r\n{HIDDEN}",
    "a bare carriage return": f"X-A: b\rContent-Length: {len(HIDDEN)}\r\nContent-Length: 0\r\n\r\n{HIDDEN}",
    "a null byte": f"X-A: b\0Content-Length: {len(HIDDEN)}\r\nContent-Length: 0\r\n\r\n{HIDDEN}",
    "a chunk that is too long": f"Transfer-Encoding: chunked\r\n\r\nffffffffffffffff1\r\nx\r\n0\r\n\r\n{HIDDEN}",
    "a chunk after a space": f"Transfer-Encoding: chunked\r\n\r\n 0\r\n\r\n{HIDDEN}",
    "a chunk with an extension": f"Transfer-Encoding: chunked\r\n\r\n0;a={'x' * 99}\r\n\r\n{HIDDEN}",
    "a chunk with a bare line feed": f"Transfer-Encoding: chunked\r\n\r\n1;a\nx\r\n0\r\n\r\n{HIDDEN}",
    "a chunk without its end": f"Transfer-Encoding: chunked\r\n\r\n1\r\nxx\r\n0\r\n\r\n{HIDDEN}",
    "trailers": f"Transfer-Encoding: chunked\r\n\r\n0\r\nContent-Length: {len(HIDDEN)}\r\nX-A: b\r\n\r\n{HIDDEN}",
    "an upgrade": f"Connection: Upgrade\r\nUpgrade: h2c\r\nContent-Length: 0\r\n\r\n{HIDDEN}",
    "a web socket": f"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: a\r\nContent-Length: 0\r\n\r\n{HIDDEN}",
    "headers that end with the connection": f"Connection: content-length, host\r\nContent-Length: 0\r\n\r\n{HIDDEN}",
    "an expectation": f"Expect: 100-continue\r\nContent-Length: 0\r\n\r\n{HIDDEN}",
}


@pytest.mark.parametrize("form", LENGTHS)
async def test_a_server_receives_one_request_of_each_ambiguous_body(balanced: Balanced, form: str) -> None:
    answered = await statuses(balanced, f"{INFER}\r\nHost: m\r\n{LENGTHS[form]}")
    pod = recorder(balanced)
    heads = [head for head in pod.heads if not head.startswith("trailer ")]
    assert pod.broken == []
    # Either the request is rejected, or the server receives it as one that has one meaning. HAProxy 3.0 passes trailers on.
    assert [head.split("\r\n")[0] for head in heads] in ([], [INFER])
    # What follows is a request of its own, which is rejected, or the connection has been closed.
    assert all(body in (b"", b"x") for body in pod.bodies)
    assert not any("\nupgrade:" in head.lower() or "unload" in head for head in pod.heads), pod.heads
    if heads:
        assert answered[0] == 200
        assert set(answered[1:]) <= {404, 400}
    else:
        assert set(answered) <= {400, 403, 404, 408, 411, 413, 422, 501}
    assert (await http_response(balanced.haproxy.ports.http, "POST", "/v2/models/m/infer"))[0] == 200


TARGETS: Final = [
    "/v2/repository/index",
    "/v2/repository/models/m/load",
    "/v2/models/other/infer",
    "/v2/models/m/versions/1/../../../../repository/index",
    "/v2/models/m/../../repository/index",
    "/v2/models/m/%2e%2e/%2e%2e/repository/index",
    "/v2/models/m/infer/..%2f..%2f..%2frepository/index",
    "//v2/models/m/infer",
    "/v2//models/m/infer",
    "/v2/models/m/infer/",
    "/v2/models/m/infer%00",
    "/v2/models/m/infer;x=1",
    "/v2/models/m/%69nfer",
    "/V2/models/m/infer",
    "/v2/models/m/versions/1/infer/infer",
    "/v2/models/m/versions/-1/infer",
    "/v2/models/m/versions/%31/infer",
    "/v2/models/m/trace/setting",
    "/v2/logging",
    "/v2/systemsharedmemory/status",
    "/metrics",
    "/",
    "*",
    "http://m/v2/repository/index",
    "http://m@/v2/repository/index",
    "m:8000",
    "/" + "a" * 40_000,
]


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "DELETE", "OPTIONS", "TRACE", "CONNECT", "PRI"])
async def test_targets_outside_the_model_never_reach_a_server(balanced: Balanced, method: str) -> None:
    for target in TARGETS:
        answered = await statuses(balanced, f"{method} {target} HTTP/1.1\r\nHost: m\r\nContent-Length: 0\r\n\r\n")
        assert set(answered) <= {400, 404, 405, 413, 414, 422}, target
    assert recorder(balanced).requests == []
    assert balanced.haproxy.worker_exits() == 0


HOSTS: Final = {
    "none": "",
    "two": "Host: m\r\nHost: other\r\n",
    "empty": "Host:\r\n",
    "long": f"Host: {'a' * 9000}\r\n",
    "a path": "Host: m/../x\r\n",
    "a port that is none": "Host: m:x\r\n",
    "spaces": "Host: m other\r\n",
    "not ASCII": "Host: m\xff\r\n",
    "101 headers": "Host: m\r\n" + "".join(f"X-{number}: a\r\n" for number in range(101)),
    "a long header": f"Host: m\r\nX-A: {'a' * 31_000}\r\n",
    "a long name": f"Host: m\r\n{'a' * 9000}: b\r\n",
}


@pytest.mark.parametrize("form", HOSTS)
async def test_a_server_receives_each_odd_host_at_most_once(balanced: Balanced, form: str) -> None:
    answered = await statuses(balanced, f"{INFER}\r\n{HOSTS[form]}Content-Length: 0\r\n\r\n")
    pod = recorder(balanced)
    assert pod.broken == []
    assert pod.requests in ([], [INFER])
    assert answered in ([200] if pod.requests else [400], [200] if pod.requests else [414])
    assert (await http_response(balanced.haproxy.ports.http, "POST", "/v2/models/m/infer"))[0] == 200


@pytest.mark.parametrize("method", ["GET", "HEAD"])
@pytest.mark.parametrize(
    "length", [f"Content-Length: {len(HIDDEN)}\r\n\r\n{HIDDEN}", f"{CHUNKED}\r\n\r\n1\r\nx\r\n0\r\n\r\n"]
)
async def test_the_body_of_a_read_is_no_second_request(balanced: Balanced, method: str, length: str) -> None:
    sent = f"{method} /v2/health/ready HTTP/1.1\r\nHost: m\r\n{length}"
    answered = await statuses(balanced, sent + f"{INFER}\r\nHost: m\r\nContent-Length: 0\r\n\r\n")
    pod = recorder(balanced)
    assert pod.broken == []
    assert set(pod.requests) <= {"GET /v2/health/ready HTTP/1.1", INFER}
    assert pod.requests.count(INFER) <= 1
    assert set(answered) <= {200, 400, 413}


async def test_pipelined_requests_are_answered_in_order(balanced: Balanced) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", balanced.haproxy.ports.http)
    one_of_each = f"{INFER}\r\nHost: m\r\nContent-Length: 1\r\n\r\nxGET /v2/none HTTP/1.1\r\nHost: m\r\n\r\n"
    try:
        writer.write(one_of_each.encode() * 50)
        found = []
        for _ in range(100):
            head = (await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 5 * PATIENCE)).decode().lower()
            length = next(line for line in head.split("\r\n") if line.startswith("content-length: "))
            await reader.readexactly(int(length.split(" ")[1]))
            found.append(int(head.split(" ")[1]))
    finally:
        writer.close()
    assert found == [200, 404] * 50
    assert recorder(balanced).bodies == [b"x"] * 50


METHODS: Final = [
    "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
    "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
    "/grpc.health.v1.Health/Watch",
    "/grpc.channelz.v1.Channelz/GetServers",
    SERVICE + "RepositoryIndex",
    SERVICE + "RepositoryModelUnload",
    SERVICE + "TraceSetting",
    SERVICE + "SystemSharedMemoryRegister",
    SERVICE + "ModelInfer/",
    SERVICE + "ModelInfer?x=1",
    SERVICE + "%4dodelInfer",
    "/" + SERVICE + "ModelInfer",
    SERVICE + "../" + SERVICE + "RepositoryIndex",
    SERVICE.lower() + "modelinfer",
]


async def test_other_services_of_grpc_never_reach_a_server(balanced: Balanced) -> None:
    async with balanced.channel as channel:
        for method in METHODS:
            with pytest.raises(grpc.aio.AioRpcError) as failure:
                await infer(channel, method)
            assert failure.value.code() is grpc.StatusCode.UNIMPLEMENTED, method
        assert recorder(balanced).seen == []
        assert await infer(channel)


FIELDS: Final = {
    b":method": b"POST",
    b":scheme": b"http",
    b":path": SERVICE.encode() + b"ModelStreamInfer",
    b":authority": b"m",
    b"content-type": b"application/grpc",
    b"te": b"trailers",
}
"""A stream's headers: it passes a hop of HTTP/1.1 in HAProxy, where a line end in a value would begin another request."""
_LINE = b"x\r\n\r\nPOST /inference.GRPCInferenceService/RepositoryIndex HTTP/1.1\r\nhost: m\r\n\r\n"
BROKEN_CALLS: Final = {
    "lines in a value": FIELDS | {b"x-a": _LINE},
    "lines in the authority": FIELDS | {b":authority": _LINE},
    "lines in the path": FIELDS | {b":path": FIELDS[b":path"] + b" HTTP/1.1\r\nx-a: b"},
    "lines in the method": FIELDS | {b":method": b"POST / HTTP/1.1\r\nx-a: b"},
    "lines in the scheme": FIELDS | {b":scheme": b"http\r\nx-a: b"},
    "a line in a name": FIELDS | {b"x-a: b\r\nx-c": b"d"},
    "an upper case name": FIELDS | {b"X-A": b"b"},
    "a null byte": FIELDS | {b"x-a": b"b\0c"},
    "a connection's header": FIELDS | {b"connection": b"upgrade", b"upgrade": b"h2c"},
    "a coding": FIELDS | {b"transfer-encoding": b"chunked"},
    "a wrong length": FIELDS | {b"content-length": b"5"},
    "two lengths": FIELDS | {b"content-length": b"5, 6"},
    "an unknown pseudo header": FIELDS | {b":protocol": b"websocket"},
    "a late pseudo header": {b"x-a": b"b"} | FIELDS,
    "no path": {name: value for name, value in FIELDS.items() if name != b":path"},
    "102 headers": FIELDS | {b"x-%d" % number: b"a" for number in range(102)},
    "large headers": FIELDS | {b"x-%d" % number: b"a" * 4000 for number in range(3)},
}


@pytest.mark.parametrize("form", BROKEN_CALLS)
async def test_a_broken_call_reaches_no_server_as_another(balanced: Balanced, form: str) -> None:
    call = frame(_HEADERS, _END_HEADERS | _END_STREAM, 1, crowd.fields_of(BROKEN_CALLS[form]))
    reader, writer = await asyncio.open_connection("127.0.0.1", balanced.haproxy.ports.grpc)
    try:
        writer.write(crowd.preface() + call)
        with contextlib.suppress(TimeoutError, ConnectionError):
            async with asyncio.timeout(0.5):
                while await reader.read(65536):
                    pass
    finally:
        writer.close()
    assert set(recorder(balanced).seen) <= {SERVICE + "ModelStreamInfer"}
    assert recorder(balanced).requests == []
    async with balanced.channel as channel:
        assert await infer(channel)
    assert balanced.haproxy.worker_exits() == 0
