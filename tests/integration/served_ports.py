"""The operator's three ports in a separate process, whose memory and sockets can be measured, and a client."""

from __future__ import annotations

import asyncio
import http.client
import multiprocessing
import os
import resource
import ssl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aiohttp import web
from prometheus_client import CollectorRegistry

from halcyon.control.runtime import http_endpoints as probes
from halcyon.dashboard.authorization import Authorizer
from halcyon.dashboard.history import ChartHistory
from halcyon.dashboard.server import Dashboard
from halcyon.kube.auth.callers import AgentIdentity, User
from halcyon.metricsapi.auth import Gate
from halcyon.metricsapi.certificates import Certificates, renewed
from halcyon.metricsapi.connections import DEFAULT_LIMITS, PortLimits
from halcyon.metricsapi.listener import ListeningPorts
from halcyon.metricsapi.server import MetricsApi, build_app
from halcyon.metricsapi.tls import ServingTLS
from halcyon.scaling.observations import Missing
from halcyon.signals.collector import Collector
from halcyon.signals.observation_store import ObservationStore

if TYPE_CHECKING:
    from multiprocessing.connection import Connection
    from multiprocessing.synchronize import Event

LARGE_BYTES = 20_000_000
"""Size of the /metrics response: more than the kernel's socket buffers hold."""


@dataclass(frozen=True)
class Served:
    """The process, and the addresses of its ports."""

    pid: int
    https: int
    dashboard: int
    http: int

    def resident_mib(self) -> float:
        """Return its resident memory, in MiB."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        return int(next(line for line in status.splitlines() if line.startswith("VmRSS")).split()[1]) / 1024

    def cpu_s(self) -> float:
        """Return the CPU time that it has used so far, in seconds."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def sockets(self) -> int:
        """Return the number of its open sockets."""
        return sum("socket:" in _target(fd) for fd in Path(f"/proc/{self.pid}/fd").iterdir())


def _target(fd: Path) -> str:
    try:
        return str(fd.readlink())
    except FileNotFoundError:  # closed in the meantime
        return ""


@contextmanager
def served(
    https: int = 0, certificates: Certificates | None = None, limits: PortLimits = DEFAULT_LIMITS
) -> Iterator[Served]:
    """Serve the ports while the context is open.

    `https` is the port of the metrics API and the collector; 0: any. It has these limits.
    """
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    certificate = (certificates or renewed(None, ("localhost",), datetime.now(UTC))).serving
    arguments = (theirs, https, certificate.cert_pem, certificate.key_pem, limits)
    process = context.Process(target=_serve, args=arguments, daemon=True)
    process.start()
    theirs.close()
    try:
        assert process.pid is not None
        yield Served(process.pid, *ours.recv())
    finally:
        process.terminate()
        process.join()


def _serve(pipe: Connection, https: int, cert_pem: str, key_pem: str, limits: PortLimits) -> None:
    asyncio.run(_ports(pipe, https, ServingTLS(cert_pem=cert_pem, key_pem=key_pem), limits))


class AnyModel:
    """Models of any name, for the collector."""

    synced = True

    def has_model(self, *name: str) -> bool:
        return bool(name)

    def has_pod(self, *name: str) -> bool:
        return bool(name)


class _NoModels:
    """An empty source of models for the metrics API and the dashboard."""

    synced, changes = True, 0

    async def reading(self, namespace: str, name: str) -> Missing:
        return Missing(f"there is no ModelDeployment {namespace}/{name}")

    desired = reading

    def names(self) -> tuple[()]:
        return ()

    def model(self, name: object) -> None:
        del name

    version = model


async def _ports(pipe: Connection, port: int, tls: ServingTLS, limits: PortLimits) -> None:
    async def review(token: str) -> User | None:
        return User(token) if token == "alice" else None

    async def access(user: User, *, namespace: str, metric: str) -> bool:
        del namespace, metric
        return user.name == "alice"

    async def agent(token: str, audience: str) -> AgentIdentity:
        del audience
        return AgentIdentity(f"system:serviceaccount:ns:{token}-balancer", f"{token}-balancer-0")

    async def large() -> str:
        return "#" * LARGE_BYTES

    source: Any = _NoModels()
    ports = ListeningPorts(registry := CollectorRegistry())
    gate = Gate(front_proxy=None, review_token=review, review_access=access)
    api = MetricsApi(source, gate, monotonic=time.monotonic)
    collector = Collector(ObservationStore(), agent, AnyModel(), monotonic=time.monotonic)
    app = build_app(api, more=collector.routes())
    https = await ports.open(app, name="https", host=None, port=port, tls=tls.context, limits=limits)
    pages = Dashboard(source, Authorizer(None, clock=time.monotonic, namespaces=list), ChartHistory(), steps=lambda: 0)
    dashboard = await ports.open(pages.app(), name="dashboard", host=None, port=0, tls=tls.context)
    plain: web.Application = probes.build(registry, live={}, ready={}, model_metrics=large)
    http = await ports.open(plain, name="http", host=None, port=0)
    pipe.send([listener.addresses[0][1] for listener in (https, dashboard, http)])
    await asyncio.Event().wait()


@contextmanager
def client(port: int) -> Iterator[list[float]]:
    """Run a client in another process that connects and sends a request four times a second.

    Yield a list that contains the duration of each response in seconds after the context has ended.
    """
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    stop = context.Event()
    process = context.Process(target=_ask, args=(port, stop, theirs), daemon=True)
    process.start()
    theirs.close()
    took: list[float] = []
    assert ours.recv() == "asking"
    try:
        yield took
        stop.set()
        took += ours.recv()
    finally:
        process.terminate()
        process.join()


def _ask(port: int, stop: Event, pipe: Connection) -> None:
    context = unverified()
    took: list[float] = []
    while not stop.wait(0.25):
        began = time.monotonic()
        connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=30, context=context)
        try:
            connection.request("GET", "/healthz")
            assert connection.getresponse().read() == b"ok"
            took.append(time.monotonic() - began)
        except OSError:
            took.append(float("inf"))
        finally:
            connection.close()
        if len(took) == 1:
            pipe.send("asking")
    pipe.send(took)


def unverified() -> ssl.SSLContext:
    """Return a client TLS context that accepts any certificate."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


OPEN_FILES = 8192


def allow_open_files() -> None:
    """Raise the limit of open files as far as this process may: clients hold more sockets than some shells allow."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = OPEN_FILES if hard == resource.RLIM_INFINITY else min(OPEN_FILES, hard)
    if soft < limit:
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
