"""Ways from the client to a Triton server that hold requests up: a link of limited rate, and a balancer.

It also has one measurement of a staged server: the load, the function that prepares its requests, and the phases that
were found.
"""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.dataplane.tritons import HTTP_PORT, METRICS_PORT, Triton
from halcyon_measure.engine.hooks import HookSettings
from halcyon_measure.engine.pool import WarmUp
from halcyon_measure.measurement import Measurement
from halcyon_measure.protocols import target
from halcyon_measure.results.document import BenchDocument
from halcyon_measure.sampling.sampler import SamplingSettings, Source
from halcyon_measure.schedule.scenario import Scenario
from tests.unit.balancer import real_haproxy

_PIECE = 16_384
_PAUSE_S = 0.008
_CONFIG = """global
  stats socket {socket} mode 600 level admin
defaults
  mode http
  timeout connect 2s
  timeout client 1m
  timeout server 1m
  timeout queue 30s
frontend metrics
  bind 127.0.0.1:{metrics}
  http-request use-service prometheus-exporter
frontend http
  bind 127.0.0.1:{http}
  {rule}
  default_backend servers
backend servers
  balance {balance}
{servers}
"""


@dataclass(frozen=True)
class Balancer:
    """A running HAProxy."""

    http: int
    """Port of clients."""
    metrics_url: str


@contextlib.contextmanager
def balancer(
    servers: Sequence[str], *, max_connections: int = 0, balance: str = "leastconn", queue_limit: int | None = None
) -> Iterator[Balancer]:
    """Start HAProxy in front of servers (host:port), with this many requests at a time for each (0: any number).

    With `queue_limit`, it rejects requests while that many are waiting.
    """
    with real_haproxy.haproxy() as haproxy:
        limit = f" maxconn {max_connections}" if max_connections else ""
        lines = "\n".join(f"  server s{number} {address}{limit}" for number, address in enumerate(servers))
        rule = (
            "" if queue_limit is None else f"http-request deny deny_status 429 if {{ queue(servers) ge {queue_limit} }}"
        )
        haproxy.config.write_text(
            _CONFIG.format(
                socket=haproxy.directory / "haproxy.sock",
                metrics=haproxy.ports.metrics,
                http=haproxy.ports.http,
                rule=rule,
                servers=lines,
                balance=balance,
            )
        )
        haproxy.start()
        yield Balancer(haproxy.ports.http, f"http://127.0.0.1:{haproxy.ports.metrics}/metrics")


@contextlib.contextmanager
def link(address: str, *, bytes_per_s: float) -> Iterator[int]:
    """Start a relay to an address that delivers answers at this rate, yield its port, and end it."""
    command = [sys.executable, "-m", "benchmarks.measure.stage", address, f"{bytes_per_s:g}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None, "opened as a pipe"
        try:
            yield int(process.stdout.readline())
        finally:
            process.kill()


def _relay(address: str, bytes_per_s: float) -> None:
    host, _, port = address.rpartition(":")
    server = socket.create_server(("127.0.0.1", 0))
    print(server.getsockname()[1], flush=True)
    while True:
        client, _ = server.accept()
        upstream = socket.create_connection((host, int(port)))
        for connection in (client, upstream):
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        threading.Thread(target=_carry, args=(client, upstream, 0.0), daemon=True).start()
        threading.Thread(target=_carry, args=(upstream, client, bytes_per_s), daemon=True).start()


def _carry(source: socket.socket, destination: socket.socket, bytes_per_s: float) -> None:
    free = 0.0
    with contextlib.suppress(OSError):
        while piece := source.recv(_PIECE):
            if bytes_per_s:
                now = time.monotonic()
                # A sleep that is too long is made up for; a pause between two answers isn't.
                free = (free if now - free < _PAUSE_S else now) + len(piece) / bytes_per_s
                if free - now > 0.0005:
                    time.sleep(free - now)
            destination.sendall(piece)
    with contextlib.suppress(OSError):
        destination.shutdown(socket.SHUT_WR)


def measured(
    triton: Triton,
    scenario: Scenario,
    *,
    port: int = 0,
    protocol: str = "http",
    sampling: SamplingSettings | None = None,
    **others: Any,
) -> BenchDocument:
    """Run a load on a server, or on a port of loopback that leads to it, and return the document."""
    own = HTTP_PORT + (protocol == "grpc")
    url = f"{protocol}://127.0.0.1:{port}" if port else f"{protocol}://{triton.address}:{own}"
    measurement = Measurement(
        target=target.parse(url, api="kserve", transport=None, encoding=None, model=triton.model),
        scenario=scenario,
        sampling=sampling or SamplingSettings(servers=pages(triton), idle_s=0),
        **{"warm_up": WarmUp(1.0, fixed=True), **others},
    ).prepare()
    return measurement.document(measurement.run(), made_by="benchmarks")


def pages(*servers: Triton) -> tuple[Source, ...]:
    """Return the metrics of servers."""
    return tuple(
        Source(pod=server.address, url=f"http://{server.address}:{METRICS_PORT}/metrics") for server in servers
    )


def parts(document: BenchDocument) -> dict[str, float | None]:
    """Return the means of the phases in ms."""
    means = {} if document.phases is None else {part.name: part.mean.value for part in document.phases.parts}
    return {str(name): value for name, value in means.items()}


@contextlib.contextmanager
def function(seconds: float) -> Iterator[HookSettings]:
    """Yield a function that prepares a request and sleeps this long."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "hook.py"
        path.write_text(
            "import time\nimport numpy as np\n\n"
            f"def prepare(number):\n    until = time.monotonic() + {seconds}\n    time.sleep({seconds})\n"
            "    return np.ones((1, 1), np.float32)\n"
        )
        yield HookSettings(prepare=f"{path}:prepare", processes=2)


if __name__ == "__main__":
    _relay(sys.argv[1], float(sys.argv[2]))
