"""The operator's memory, CPU and times by the number of models, without a cluster, and its memory by part.

    python -m benchmarks.hold.memory                       100, 300 and 1,000 models
    SIZES=100,200 python -m benchmarks.hold.memory parts   the memory of a model, by part

The API server is a stand-in (`plain_api`), so that the figures can be had in minutes and compared between two commits.
The rows of the benchmark come from `benchmarks.hold.size`, with a real API server. Everything else is as there: the
operator's process, the agents' client, TLS, the load steps, the kill.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import yaml

from benchmarks.agents import Agents
from benchmarks.cost import cpu_s, rss_mib
from benchmarks.counts import Counts
from benchmarks.fleet import create
from benchmarks.hold import size, size_page
from benchmarks.plane import Plane, namespace_of
from e2e.cluster.api import Answer
from tests.integration.operator_process import Operator, environment
from tests.ports import free_ports

_SETTLE_S = 20.0
_REST_S = 20.0


@dataclass(frozen=True)
class PlainClient:
    """Requests to the stand-in for the API server, in the form of `e2e.cluster.api.Api`."""

    port: int

    def call(self, method: str, path: str, body: object = None) -> Answer:
        """Send one request."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        connection.request(method, path, None if body is None else json.dumps(body))
        response = connection.getresponse()
        return Answer(status=response.status, body=json.loads(response.read() or b"null"))


@dataclass(frozen=True)
class PlainCluster:
    """The parts of a cluster that the load generator uses."""

    api: PlainClient
    kubeconfig: Path


@dataclass
class CountedOperator(Operator):
    """An operator that counts its memory by part on request."""

    census: Path = field(default=Path("/dev/null"))

    def start(self) -> None:
        """Start the process, without waiting until it is ready."""
        command = [sys.executable, "-m", "benchmarks.hold.census", str(self.census), "operator", *self.arguments]
        path = os.pathsep.join(("operator", "."))
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, env=environment() | {"PYTHONPATH": path})

    def counted(self) -> dict[str, dict[str, int]]:
        """Return the bytes and the objects by part."""
        self.census.unlink(missing_ok=True)
        self.signal(signal.SIGUSR1)
        end_s = time.monotonic() + 120
        while time.monotonic() < end_s:
            time.sleep(0.2)
            if self.census.exists():
                try:
                    return cast("dict[str, dict[str, int]]", json.loads(self.census.read_text()))
                except ValueError:
                    continue
        raise TimeoutError("no census within 120 s")


@contextmanager
def plain_plane(folder: Path, *, counted: bool, dashboard: int) -> Iterator[Plane]:
    """Start the stand-in and the operator."""
    port = free_ports(1)[0]
    api = subprocess.Popen([sys.executable, "-m", "benchmarks.hold.plain_api", str(port)])
    kubeconfig = folder / "kubeconfig"
    named = {"cluster": "plain", "user": "plain"}
    kubeconfig.write_text(
        yaml.safe_dump(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": "plain",
                "clusters": [{"name": "plain", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
                "users": [{"name": "plain", "user": {"token": "none"}}],
                "contexts": [{"name": "plain", "context": named}],
            }
        )
    )
    cluster = PlainCluster(PlainClient(port), kubeconfig)
    options = ("--dashboard=localhost", f"--dashboard-port={dashboard}")
    arguments: dict[str, Any] = {"more": options}
    if counted:
        arguments["census"] = folder / "census.json"
    operator = (CountedOperator if counted else Operator)("halcyon", "bench-operator", kubeconfig, folder, **arguments)
    try:
        _until_served(port)
        cluster.api.call("POST", "/api/v1/namespaces/halcyon/secrets", {"metadata": {"name": "halcyon-tls"}})
        for namespace in {namespace_of(f"m{number:04}") for number in range(1000)}:
            files = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "model"}, "data": {"config.pbtxt": "max_batch_size: 8"}}  # fmt: skip
            cluster.api.call("POST", f"/api/v1/namespaces/{namespace}/configmaps", files)
        operator.start()
        operator.wait_ready(60)
        yield Plane(cast("Any", cluster), operator)
    finally:
        operator.stop()
        api.terminate()
        api.wait()


def _until_served(port: int) -> None:
    end_s = time.monotonic() + 20
    while True:
        try:
            PlainClient(port).call("GET", "/api")
        except OSError:
            if time.monotonic() > end_s:
                raise
            time.sleep(0.1)
        else:
            return


async def _measure_sizes(plane: Plane, sizes: Sequence[int]) -> None:
    """Measure each size as `benchmarks.hold.size` does."""
    measurements: list[size_page.Measured] = []
    draw = random.Random(len(sizes))
    async with (
        Counts(plane.kubeconfig, namespace_of) as counts,
        Agents(plane, counts, idle_look_every_s=size.IDLE_LOOK_EVERY_S) as agents,
    ):
        models: list[str] = []
        for count in sizes:
            served_s = await _grow(counts, agents, models, count)
            measurements.append(
                await size.measured(
                    plane, counts, agents, models=models, served_s=served_s, draw=draw, api_figures=lambda: (0.0, 0.0)
                )
            )
            _say(json.dumps(measurements[-1].__dict__))
    memory = size_page.fit([(m.models, m.busy_mib) for m in measurements])
    if memory is not None:
        _say(f"memory under load: {memory.constant:.1f} MiB + {1024 * memory.slope:.1f} KiB a model")


async def _measure_parts(plane: Plane, sizes: Sequence[int]) -> None:
    """Print the growth of each part's memory from the first size to the last, by model."""
    operator = plane.operator
    assert isinstance(operator, CountedOperator), "it was started so"
    samples: list[tuple[int, float, float, dict[str, dict[str, int]]]] = []
    async with (
        Counts(plane.kubeconfig, namespace_of) as counts,
        Agents(plane, counts, idle_look_every_s=size.IDLE_LOOK_EVERY_S) as agents,
    ):
        models: list[str] = []
        for count in sizes:
            await _grow(counts, agents, models, count)
            before_s = cpu_s(operator.pid)
            await asyncio.sleep(_REST_S)
            cores = (cpu_s(operator.pid) - before_s) / _REST_S
            mib = rss_mib(operator.pid)
            samples.append((count, mib, cores, await asyncio.to_thread(operator.counted)))
            _say(f"{count} models: {mib:.1f} MiB resident, {cores:.3f} cores at rest")
    (few, few_mib, _, first), (many, many_mib, _, last) = samples[0], samples[-1]
    added = many - few
    _say(f"resident memory: {1024 * (many_mib - few_mib) / added:.1f} KiB a model")
    rows = sorted(((last["bytes"][name] - first["bytes"].get(name, 0)) / added / 1024, name) for name in last["bytes"])
    _say(f"objects of Python: {sum(kib for kib, _ in rows):.1f} KiB a model")
    for kib, name in reversed(rows):
        if kib >= 0.1:
            number = (last["objects"][name] - first["objects"].get(name, 0)) / added
            _say(f"{kib:8.1f} KiB {number:8.1f} objects  {name}")


async def _grow(counts: Counts, agents: Agents, models: list[str], count: int) -> float:
    """Add models up to this number, and their agents. Return the seconds until they were served."""
    names = [f"m{number:04}" for number in range(len(models), count)]
    began_s = time.monotonic()
    await create(counts, names, balancers=size.BALANCERS, minReplicas=size.SERVERS)
    await counts.until_served(names, limit_s=1800)
    served_s = time.monotonic() - began_s
    await agents.begin(names, balancers=size.BALANCERS)
    models += names
    for name in models:
        agents.set_rate(name, 0.0)
    await asyncio.sleep(_SETTLE_S)
    return served_s


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def main(arguments: Sequence[str]) -> int:
    """Measure, and print the figures."""
    sizes = tuple(int(number) for number in os.environ.get("SIZES", "100,300,1000").split(","))
    counted = "parts" in arguments
    with (
        tempfile.TemporaryDirectory(prefix="halcyon-memory-") as folder,
        plain_plane(Path(folder), counted=counted, dashboard=size.DASHBOARD_PORT) as plane,
    ):
        try:
            asyncio.run((_measure_parts if counted else _measure_sizes)(plane, sizes))
        except BaseException:
            _say(plane.operator.tail())
            raise
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
