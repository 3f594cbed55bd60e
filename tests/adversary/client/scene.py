"""A balancer with its agent, balancers of other models and a plain HAProxy, and clients whose waits are measured meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
import random
import sys
import time
from collections import Counter
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import grpc.aio  # type: ignore[import-untyped]  # grpcio has no types

from halcyon.balancer.secrets.mounted_secrets import SecretNames
from tests.integration.balanced import PLAN, Balanced, Process, agent, endpoint, http_response, new_balanced, raw, until
from tests.ports import free_ports
from tests.unit.balancer import real_haproxy
from tests.unit.balancer.stand_in_api import SLICES, slice_of
from tests.unit.balancer.stand_ins import SERVICE, Subprocess

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from tests.unit.balancer.real_haproxy import Haproxy

ALICE: Final = "alice-0123456789abcdef"
MALLORY: Final = "mallory-0123456789abcdef"
TIMEOUT_S: Final = 5.0
WORK_S: Final = 0.002
"""Time that a pod takes for a request."""
_OTHERS_S: Final = 0.5
"""Pause between two requests to one of several other models."""
_PLAN = replace(PLAN, max_connections=48, queue_limit=200)

_PLAIN = """global
  nbthread 1
  stats socket {socket} mode 600 level admin
defaults
  mode http
  timeout connect 1s
  timeout client 60s
  timeout server 60s
frontend http
  bind 127.0.0.1:{http}
  default_backend http
frontend grpc
  bind 127.0.0.1:{grpc} proto h2
  default_backend grpc
backend http
  server s1 {address}:{server_http}
backend grpc
  server s1 {address}:{server_grpc} proto h2
"""


@dataclass
class Waits:
    """Times that clients waited, in seconds, and failures, by what they asked."""

    took_s: dict[str, list[float]] = field(default_factory=dict)
    failures: Counter[str] = field(default_factory=Counter)

    async def timed(self, what: str, asked: Awaitable[str]) -> None:
        """Record how long a request takes; it returns an empty text, or why it failed."""
        began = time.monotonic()
        try:
            failure = await asyncio.wait_for(asked, TIMEOUT_S)
        except grpc.aio.AioRpcError as error:
            failure = f"{error.code().name} {error.details()}"
        except (OSError, EOFError) as error:
            failure = type(error).__name__
        self.took_s.setdefault(what, []).append(time.monotonic() - began)
        if failure:
            self.failures[f"{what}: {failure}"] += 1

    def within_ms(self, what: str, share: float = 0.99) -> float:
        """Return the time within which this share of the requests was answered, in milliseconds."""
        took = sorted(self.took_s[what])
        return round(1000 * took[min(int(share * len(took)), len(took) - 1)], 2)

    @property
    def count(self) -> int:
        return sum(map(len, self.took_s.values()))


@dataclass
class Scene:
    """The balancers; `attacked` has an agent and API keys."""

    attacked: Balanced
    others: list[Balanced]
    plain: Haproxy
    agent: Process

    def ports(self, *, plain: bool) -> tuple[int, int, int, int]:
        """Return the ports of a deed: HTTP, gRPC, metrics and agent. The plain server has the first two only."""
        if plain:
            return (self.plain.ports.http, self.plain.ports.grpc, self.plain.ports.http, self.plain.ports.http)
        ports = self.attacked.haproxy.ports
        return (ports.http, ports.grpc, ports.metrics, self.agent.port)

    def memory_share(self, limit_mib: float) -> float:
        """Return the most memory that HAProxy's worker has had, as a share of its container's limit."""
        return max(_peak_mib(pid) for pid in self.attacked.haproxy.workers()) / limit_mib

    def agent_memory_share(self, limit_mib: float) -> float:
        """Return the same for the agent."""
        return _peak_mib(str(self.agent.process.pid)) / limit_mib

    def restarts(self) -> int:
        """Return how often a process has ended."""
        exits = sum(one.haproxy.worker_exits() for one in (self.attacked, *self.others))
        return exits + (self.agent.process.returncode is not None)

    async def under(self, deed: str, seconds: float, *, plain: bool = False, into: Waits | None = None) -> Waits:
        """Run a deed in a process of its own; return what clients met meanwhile, added to `into` if it is given."""
        arguments = [deed, str(seconds), *map(str, self.ports(plain=plain)), MALLORY]
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "tests.adversary.client.deeds", *arguments, stdout=asyncio.subprocess.DEVNULL
        )
        try:
            return await self.meanwhile(process, into or Waits())
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()

    async def meanwhile(self, process: asyncio.subprocess.Process, waits: Waits) -> Waits:
        """Send requests until the process has ended."""
        ports = self.attacked.haproxy.ports
        key = (("x-api-key", ALICE),)
        request = b"POST /v2/models/m/infer HTTP/1.1\r\nHost: x\r\nx-api-key: %s\r\nContent-Length: 0\r\n\r\n"

        async def by_http(port: int) -> str:
            status, _, _ = await raw(port, request % ALICE.encode())
            return "" if status == 200 else str(status)

        async def by_grpc(channel: grpc.aio.Channel) -> str:
            await channel.unary_unary(SERVICE + "ModelInfer")(b"x", timeout=TIMEOUT_S, metadata=key)
            return ""

        async def probe() -> str:
            status, body = await self.agent.probe("/readyz")
            return "" if status == 200 else f"{status} {body.decode()}"

        async def scrape() -> str:
            status, _, _ = await http_response(ports.metrics, "GET", "/metrics")
            return "" if status == 200 else str(status)

        draw = random.Random(0)

        async def repeated(what: str, send: Callable[[], Awaitable[str]], pause_s: float) -> None:
            await asyncio.sleep(draw.uniform(0, pause_s))
            while process.returncode is None:
                await waits.timed(what, send())
                await asyncio.sleep(pause_s)

        others_s = max(0.02, _OTHERS_S * (len(self.others) > 1))
        async with self.attacked.connect(retries=True) as channel:
            # As the kubelet and Prometheus, two clients of the model, and one of each other model.
            await asyncio.gather(
                repeated("http", lambda: by_http(ports.http), 0.02),
                repeated("grpc", lambda: by_grpc(channel), 0.02),
                *(repeated("other model", partial(by_http, one.haproxy.ports.http), others_s) for one in self.others),
                repeated("probe", probe, 1.0),
                repeated("metrics", scrape, 3.0),
                process.wait(),
            )
        return waits


@contextlib.asynccontextmanager
async def scene(tmp_path: Path, *, models: int = 1) -> AsyncIterator[Scene]:
    """Start the processes, and end them. `models` is the number of other models."""
    keys = tmp_path / "secrets" / "keys"
    keys.mkdir(parents=True)
    for name, key in (("alice", ALICE), ("mallory", MALLORY)):
        (keys / name).write_text(key)
    [metrics_port] = free_ports(1)
    async with contextlib.AsyncExitStack() as stack:
        attacked, *others = [await stack.enter_async_context(new_balanced()) for _ in range(models + 1)]
        # Servers that the attacker's requests reach are processes of their own, so that they don't delay the measuring clients.
        pod = attacked.pod(delay_s=WORK_S, metrics_port=metrics_port)
        ports = attacked.haproxy.ports
        beside = attacked.pod(delay_s=WORK_S)
        for server in (pod, beside):
            running_pod = await Subprocess(server).start()
            stack.push_async_callback(running_pod.kill)
        for other in others:
            other.pods.append(await other.pod(delay_s=WORK_S).start(with_grpc=False))
            await other.begin(_PLAN)
        plain = stack.enter_context(real_haproxy.haproxy())
        text = _PLAIN.format(
            socket=plain.directory / "haproxy.sock",
            http=plain.ports.http,
            grpc=plain.ports.grpc,
            address=beside.address,
            server_http=ports.server_http,
            server_grpc=ports.server_grpc,
        )
        plain.config.write_text(text)
        await asyncio.to_thread(plain.start)
        names = SecretNames(keys="m-keys")
        running = await stack.enter_async_context(
            agent(attacked, tmp_path, metrics_port=metrics_port, plan=_PLAN, secured_by=names)
        )
        running.api.put(SLICES, "m-server-a-x", slice_of("m-server-a", {endpoint(pod).pod: pod.address}))
        await until(lambda: running.is_("/healthz", 200), 10)
        await asyncio.to_thread(attacked.haproxy.start)
        await until(lambda: running.is_("/readyz", 200), 10)
        made = Scene(attacked, others, plain, running)
        await until(lambda: _serves(made), 10)
        yield made


async def _serves(made: Scene) -> bool:
    return (await made.attacked.haproxy.runtime.read()).servers != {} and any(
        server.admin == "ready" for server in (await made.attacked.haproxy.runtime.read()).servers.values()
    )


def _peak_mib(pid: str) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM:"))) / 1024
