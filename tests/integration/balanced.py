"""A real HAProxy 3.0 with its pilot or its agent, and clients for it. Pods are tests/unit/balancer/stand_ins.py."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aiohttp
import grpc  # type: ignore[import-untyped]  # grpcio has no types
import grpc.aio  # type: ignore[import-untyped]  # same

from halcyon.api.documents.balancer_plan import DRAIN_HEADER, BalancerPlan, CollectorAddress, Slot
from halcyon.balancer.runtime.controller import HaproxyController
from halcyon.triton.client import Endpoint
from tests.integration.waiting import PATIENCE
from tests.ports import free_ports
from tests.unit.balancer import real_haproxy
from tests.unit.balancer.stand_in_api import CONFIG_MAPS, StandIn, certificate
from tests.unit.balancer.stand_ins import SERVICE, Pod

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterable

    from halcyon.balancer.secrets.mounted_secrets import SecretNames
    from tests.unit.balancer.real_haproxy import Haproxy

PLAN = BalancerPlan(
    namespace="default",
    name="m",
    model="m",
    slots=(Slot("a", "m-server-a", 100, 8),),
    max_connections=4,
    queue_limit=20,
    queue_timeout_ms=15000,
    response_timeout_ms=15000,
    drain_ms=3000,
)
DRAIN_KEY = "only-the-kubelet"
TIMEOUT = aiohttp.ClientTimeout(total=15 * PATIENCE)
_addresses = (f"127.{b}.{c}.{d}" for b in range(77, 250) for c in range(1, 250) for d in range(1, 250))


@dataclass
class Balanced:
    """A HAProxy with its pilot and the stand-in pods behind it."""

    haproxy: Haproxy
    pilot: HaproxyController
    pods: list[Pod]

    def pod(self, **options: Any) -> Pod:
        ports = self.haproxy.ports
        return Pod(next(_addresses), ports.server_http, ports.server_grpc, **options)

    async def start(self, count: int = 1, **options: Any) -> list[Pod]:
        pods = [await self.pod(**options).start() for _ in range(count)]
        self.pods += pods
        return pods

    async def turn(self, pods: Iterable[Pod] | None = None, **options: Any) -> None:
        await self.pilot.run_pass(tuple(endpoint(pod) for pod in (self.pods if pods is None else pods)), **options)

    async def begin(self, plan: BalancerPlan = PLAN) -> None:
        self.pilot.accept(plan)
        await self.turn()
        await asyncio.to_thread(self.haproxy.start)
        await self.turn()
        await self.turn()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.haproxy.ports.http}"

    @property
    def channel(self) -> grpc.aio.Channel:
        """Return a gRPC channel without client retries, so that only HAProxy retries."""
        return self.connect(retries=False)

    def connect(self, *, retries: bool) -> grpc.aio.Channel:
        return grpc.aio.insecure_channel(f"127.0.0.1:{self.haproxy.ports.grpc}", options=_options(retries=retries))

    def threaded_channel(self, *, retries: bool = False) -> grpc.Channel:
        """Return a channel of the threaded client, for streams.

        If a stream ends while its client writes, grpc.aio loses the status and reports INTERNAL.
        """
        return grpc.insecure_channel(f"127.0.0.1:{self.haproxy.ports.grpc}", options=_options(retries=retries))

    async def counters(self) -> tuple[int, int, int]:
        reading = await self.haproxy.runtime.read()
        return reading.requests, reading.rejected, reading.errors


def _options(*, retries: bool) -> list[tuple[str, int]]:
    return [("grpc.use_local_subchannel_pool", 1), ("grpc.enable_retries", int(retries))]


def endpoint(pod: Pod, slot: str = "a", **changes: Any) -> Endpoint:
    default = Endpoint(slot, "pod-" + pod.address.replace(".", "-"), pod.address, serving=True, terminating=False)
    return replace(default, **changes)


@contextlib.asynccontextmanager
async def new_balanced() -> AsyncIterator[Balanced]:
    """Return an instance that isn't started yet."""
    with real_haproxy.haproxy() as haproxy:
        balanced = Balanced(haproxy, HaproxyController(haproxy.runtime, haproxy.config, haproxy.listen), [])
        try:
            yield balanced
        finally:
            await asyncio.gather(*(pod.stop() for pod in balanced.pods))


async def until(true: Callable[[], Awaitable[bool]], limit_s: float = 5.0) -> float:
    began = time.monotonic()
    while not await true():
        assert time.monotonic() - began < limit_s * PATIENCE, "it did not come true in time"
        await asyncio.sleep(0.02)
    return time.monotonic() - began


async def raw(port: int, request: bytes, host: str = "127.0.0.1") -> tuple[int, dict[str, str], bytes]:
    """Send raw bytes, and return status, headers and body of the response."""
    reader, writer = await asyncio.open_connection(host, port)
    try:
        writer.write(request)
        head = (await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 5 * PATIENCE)).decode()
        lines = head.split("\r\n")
        headers = dict(line.lower().split(": ", 1) for line in lines[1:] if line)
        length = 0 if request.startswith(b"HEAD ") else int(headers.get("content-length", "0"))
        body = await asyncio.wait_for(reader.readexactly(length), 5 * PATIENCE)
        return int(lines[0].split(" ")[1]), headers, body
    finally:
        writer.close()


async def http_response(
    port: int, method: str, target: str, host: str = "127.0.0.1", headers: str = ""
) -> tuple[int, dict[str, str], bytes]:
    request = f"{method} {target} HTTP/1.1\r\nHost: x\r\nUser-Agent: t\r\nContent-Length: 0\r\n{headers}\r\n"
    return await raw(port, request.encode("latin-1"), host)


async def infer(channel: grpc.aio.Channel, method: str = "ModelInfer", within_s: float = 10 * PATIENCE) -> bytes:
    path = method if method.startswith("/") else SERVICE + method
    return bytes(await channel.unary_unary(path)(b"x", timeout=within_s))


async def is_(true: Callable[[], bool]) -> bool:
    return true()


@dataclass
class Process:
    """The agent as it runs in a pod: a separate process, with TLS and tokens."""

    api: StandIn
    collectors: list[StandIn]
    process: asyncio.subprocess.Process
    port: int
    host: str = "127.0.0.1"

    def memory_kib(self, field: str = "VmRSS") -> int:
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return next(int(line.split()[1]) for line in status.splitlines() if line.startswith(field + ":"))

    async def probe(self, path: str, headers: str = "") -> tuple[int, bytes]:
        try:
            status, _, body = await http_response(self.port, "GET", path, host=self.host, headers=headers)
        except (OSError, asyncio.IncompleteReadError):
            return 0, b""
        return status, body

    async def is_(self, path: str, status: int) -> bool:
        return (await self.probe(path))[0] == status

    async def drain(self, delay_s: float) -> tuple[int, bytes]:
        """Drain the pod as its preStop hook does."""
        return await self.probe(f"/drain?delay={delay_s:g}", f"{DRAIN_HEADER}: {DRAIN_KEY}\r\n")


@dataclass(frozen=True)
class RealApi:
    """An API server that the test doesn't start itself."""

    host: str
    port: int
    ca: str
    """CA certificate as PEM."""
    namespace: str
    put: Callable[[str], None]
    """Function that writes the ConfigMap with this plan."""


@contextlib.asynccontextmanager
async def agent(
    balanced: Balanced,
    tmp_path: Path,
    *,
    metrics_port: int,
    plan: BalancerPlan = PLAN,
    stop_within_s: float = 30.0,
    secured_by: SecretNames | None = None,
    real: RealApi | None = None,
    pod: str = "m-balancer-x",
    at: tuple[str, int] | None = None,
) -> AsyncIterator[Process]:
    """Start the agent's process. `at` is the address of its probes; default: a free port of 127.0.0.1."""
    secrets = tmp_path / "secrets"
    (secrets / "kubernetes.io/serviceaccount").mkdir(parents=True)
    (secrets / "halcyon").mkdir()
    tls, api_ca = certificate(tmp_path, name="kubernetes")
    (secrets / "kubernetes.io/serviceaccount/token").write_text("api-token\n")
    (secrets / "kubernetes.io/serviceaccount/ca.crt").write_text(real.ca if real else api_ca)
    (secrets / "halcyon/token").write_text("collector-token\n")
    api = await StandIn().start(tls=tls)
    tls, collector_ca = certificate(tmp_path, name="halcyon.halcyon-system.svc")
    collector = await StandIn().start(tls=tls)
    plan = replace(
        plan, collector=CollectorAddress("127.0.0.1", collector.port, "halcyon.halcyon-system.svc", collector_ca)
    )
    if real is None:
        api.put(CONFIG_MAPS, "m-balancer", {"data": {"plan.json": plan.to_json()}})
    else:
        real.put(plan.to_json())
    own, port = at or ("127.0.0.1", free_ports(1)[0])
    ports = balanced.haproxy.ports
    code = (
        "from pathlib import Path; from halcyon.balancer.agent.settings import AgentSettings; "
        "from halcyon.balancer.config.model import Ports; from halcyon.balancer.agent.main import run_agent; "
        "from halcyon.balancer.secrets.mounted_secrets import SecretNames; "
        f"raise SystemExit(run_agent(AgentSettings({(real.namespace if real else 'default')!r}, 'm-balancer', {pod!r}, Path({str(balanced.haproxy.directory)!r}), "
        f"{port}, {ports!r}, {metrics_port}, Path({str(secrets)!r}), {own!r}, {stop_within_s}, {DRAIN_KEY!r}, {secured_by!r})))"
    )
    host, api_port = (real.host, real.port) if real else ("127.0.0.1", api.port)
    env = {**os.environ, "KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": str(api_port)}
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", code, env=env)
    running = Process(api, [collector], process, port, own)
    try:
        yield running
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
        await api.stop()
        await collector.stop()
