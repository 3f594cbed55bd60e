"""Stand-ins for Triton pods: a small HTTP/1.1 server and a generic gRPC server that respond as Triton would.

They test HAProxy and the agent; the scenarios on the cluster test real Triton. Each stand-in has its own loopback
address, as a pod has.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc  # type: ignore[import-untyped]  # grpcio has no types
import grpc.aio  # type: ignore[import-untyped]  # same
from tritonclient.grpc import model_config_pb2, service_pb2

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

SERVICE = "/inference.GRPCInferenceService/"


async def close(*servers: asyncio.Server) -> None:
    """Stop listening, without losing a connection that was accepted at the same time.

    If an asyncio server is closed in the loop iteration in which it accepted a connection, this connection stays open
    until the garbage collector finds it: `Server._attach` asserts, and `_accept_connection2` ignores that (CPython
    3.11, selector_events.py).
    """
    loop = asyncio.get_running_loop()
    for server in servers:
        for listening in server.sockets:
            loop.remove_reader(listening.fileno())
    for _ in range(3):
        await asyncio.sleep(0)
    for server in servers:
        server.close()


@dataclass
class Pod:
    """A pod in this process."""

    address: str
    http_port: int
    grpc_port: int
    metrics_port: int = 0
    model: str = "m"
    delay_s: float = 0.0
    at_once: int = 0
    """Maximum number of requests processed at the same time, as by a model with this many instances; 0 for no limit."""
    refuses: bool = False
    """Whether it refuses inference, as Triton does if its queue is full."""
    answers: int = 200
    """HTTP status of its answers to requests."""
    code: grpc.StatusCode | None = None
    """gRPC status of its answers; None: OK."""
    message: str = "as the test has it"
    """Message of these answers."""
    ready: bool = True
    ready_after_s: float = 0.0
    """Time that it takes to answer a readiness probe."""
    page: str = ""
    """Body of the /metrics response."""
    index: list[dict[str, Any]] = field(default_factory=list)
    stats: dict[str, Any] | None = None
    """Model statistics for the agent; None for an error response."""
    stats_count: int = 0
    seen: list[str] = field(default_factory=list)
    """Request lines of HTTP and methods of gRPC, without health checks."""
    http_count: int = 0
    grpc_count: int = 0
    running: int = 0
    peak: int = 0
    """Maximum of `running`."""
    hold: asyncio.Event | None = None
    """If set, requests wait for this event."""
    body_after_s: float = 0.0
    """Time between the headers of an HTTP answer to inference and its body."""
    answer_bytes: int = 0
    """Size that answers to inference are filled up to; a request may choose another with the header `answer-bytes`."""

    async def start(self, *, with_grpc: bool = True) -> Pod:
        self._writers: set[asyncio.StreamWriter] = set()
        self._places = asyncio.Semaphore(self.at_once)
        ports = [self.http_port] + ([self.metrics_port] if self.metrics_port else [])
        self._servers = [await asyncio.start_server(self._serve, self.address, port) for port in ports]
        self._grpc: grpc.aio.Server | None = None
        if with_grpc:
            self._grpc = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
            self._grpc.add_generic_rpc_handlers((_Handlers(self),))
            host = f"[{self.address}]" if ":" in self.address else self.address
            self._grpc.add_insecure_port(f"{host}:{self.grpc_port}")
            await self._grpc.start()
        return self

    async def stop(self) -> None:
        await close(*self._servers)
        # A connection accepted just now reaches `_serve` only after some iterations of the loop.
        for _ in range(10):
            writers = list(self._writers)
            for writer in writers:
                writer.transport.abort()
            await asyncio.gather(*(writer.wait_closed() for writer in writers), return_exceptions=True)
            await asyncio.sleep(0)
        if self._grpc is not None:
            await self._grpc.stop(None)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
                request, *headers = head.split("\r\n")
                fields = {k.strip().lower(): v.strip() for k, _, v in (h.partition(":") for h in headers)}
                await reader.readexactly(int(fields.get("content-length", "0")))
                method, target, version = request.split(" ")
                status, body = await self._answer(method, target, request, fields)
                close = fields.get("connection", "").lower() == "close" or version == "HTTP/1.0"
                sent = "" if method == "HEAD" else body
                answer = (
                    f"HTTP/1.1 {status} X\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
                    f"{'Connection: close' if close else 'X-Pod: ' + self.address}\r\n\r\n"
                )
                if self.body_after_s and method == "POST":
                    writer.write(answer.encode())
                    answer = ""
                    await asyncio.sleep(self.body_after_s)
                writer.write((answer + sent).encode())
                await writer.drain()
                if close:
                    return
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()
            self._writers.discard(writer)

    async def _answer(self, method: str, target: str, request: str, fields: dict[str, str]) -> tuple[int, str]:
        if target == "/metrics":
            return 200, self.page
        if method == "GET" and target == f"/v2/models/{self.model}/ready" and "user-agent" not in fields:
            await asyncio.sleep(self.ready_after_s)
            return (200 if self.ready else 400), ""
        if target == "/v2/repository/index":
            return 200, json.dumps(self.index)
        if method == "HEAD":
            return 405, json.dumps({"error": "Method Not Allowed"})
        # Agents keep no connection to this port open.
        if method == "GET" and target.endswith("/stats") and fields.get("connection") == "close":
            self.stats_count += 1
            return (400, "{}") if self.stats is None else (200, json.dumps(self.stats))
        self.seen.append(request)
        self.http_count += 1
        if self.refuses:
            return 503, json.dumps({"error": "Exceeds maximum queue size"})
        await self._work()
        answer = {"who": self.address, "name": self.model, "model_stats": [{"name": self.model}]}
        return self.answers, json.dumps(answer).ljust(int(fields.get("answer-bytes", self.answer_bytes)))

    async def infer(self, method: str, answer_bytes: int | None = None) -> bytes:
        self.seen.append(method)
        self.grpc_count += 1
        await self._work()
        if method == SERVICE + "ModelConfig":
            config = model_config_pb2.ModelConfig(name=self.model, backend=self.address)
            return bytes(service_pb2.ModelConfigResponse(config=config).SerializeToString())
        if method == SERVICE + "ModelStatistics":
            # Counted as in Triton, only for this pod.
            of_model = service_pb2.ModelStatistics(name=self.model, version="1", inference_count=self.grpc_count)
            return bytes(service_pb2.ModelStatisticsResponse(model_stats=[of_model]).SerializeToString())
        return self.address.encode().ljust(self.answer_bytes if answer_bytes is None else answer_bytes)

    async def _work(self) -> None:
        self.running += 1
        self.peak = max(self.peak, self.running)
        try:
            if self.hold is not None:
                await self.hold.wait()
            elif self.at_once:
                async with self._places:
                    await asyncio.sleep(self.delay_s)
            elif self.delay_s:
                await asyncio.sleep(self.delay_s)
        finally:
            self.running -= 1


class _Handlers(grpc.GenericRpcHandler):  # type: ignore[misc,unused-ignore]
    def __init__(self, pod: Pod) -> None:
        self._pod = pod

    def service(self, details: Any) -> Any:
        method = details.method

        async def unary(_request: bytes, context: Any) -> bytes:
            if self._pod.refuses:
                await context.abort(grpc.StatusCode.UNAVAILABLE, "Exceeds maximum queue size")
            size = dict(context.invocation_metadata()).get("answer-bytes")
            answer = await self._pod.infer(method, None if size is None else int(size))
            if self._pod.code is not None:
                await context.abort(self._pod.code, self._pod.message)
            return answer

        async def stream(requests: AsyncIterator[bytes], context: Any) -> AsyncIterator[bytes]:
            if self._pod.code is not None:
                await context.abort(self._pod.code, self._pod.message)
            async for _ in requests:
                yield await self._pod.infer(method)

        if method.endswith("Stream" + "Infer"):
            return grpc.stream_stream_rpc_method_handler(stream)
        return grpc.unary_unary_rpc_method_handler(unary)


class Subprocess:
    """A pod in its own process, which can be killed with SIGKILL."""

    def __init__(self, pod: Pod) -> None:
        self._command = [sys.executable, str(Path(__file__)), pod.address, str(pod.http_port), str(pod.grpc_port)]
        self._command += [str(pod.delay_s), str(pod.metrics_port)]

    async def start(self) -> Subprocess:
        self._process = await asyncio.create_subprocess_exec(*self._command, stdout=subprocess.PIPE)
        assert self._process.stdout is not None
        assert await asyncio.wait_for(self._process.stdout.readline(), 20) == b"ready\n"
        return self

    async def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        await self._process.wait()


async def _main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("address")
    parser.add_argument("http", type=int)
    parser.add_argument("grpc", type=int)
    parser.add_argument("delay", type=float)
    parser.add_argument("metrics", type=int)
    chosen = parser.parse_args()
    pod = await Pod(chosen.address, chosen.http, chosen.grpc, chosen.metrics, delay_s=chosen.delay).start()
    print("ready", flush=True)  # noqa: T201 - its parent waits for it
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    await stop.wait()
    await pod.stop()


if __name__ == "__main__":
    asyncio.run(_main())
