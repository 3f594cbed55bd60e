"""Rows 3.1 and 3.2: one operator with many models, each with two balancers: time, memory, CPU, requests to the API server, etcd.

    python -m benchmarks.hold.size                 100, 300, 1,000 and 2,000 models
    SIZES=100,300 python -m benchmarks.hold.size   fewer

Each size adds models to those of the size before. The page docs/benchmarks/size.md has the figures, fitted lines and a plot.
"""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import os
import random
import ssl
import sys
import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

import aiohttp

from benchmarks.agents import Agents
from benchmarks.cost import cpu_s, histogram_quantile, rss_mib
from benchmarks.counts import Counts
from benchmarks.fleet import LOW_RPS, create, raise_load
from benchmarks.hold import size_page
from benchmarks.hold.size_page import Measured
from benchmarks.plane import STAND_INS, Plane, alone, namespace_of, plane
from benchmarks.quality.rows import Row, record
from benchmarks.rows import quantile
from e2e.cluster.progress import say
from tests.ports import free_ports

SIZES = tuple(int(size) for size in os.environ.get("SIZES", "100,300,1000,2000").split(","))
BALANCERS = 2
SERVERS = 2
BUSY_SHARE = 0.10
STEP_SHARE = 0.05
IDLE_LOOK_EVERY_S = 2.0
"""Interval in seconds at which an agent of an idle model polls it. It sends a report every 4.5 s nevertheless."""
_WAVES = 3
_REST_S = 30.0
_SETTLE_S = 30.0
_SERVED_WITHIN_S = 1800.0
_BACK_WITHIN_S = 300.0
DASHBOARD_PORT = free_ports(1)[0]
_DECIDED = "halcyon_model_replicas_desired{"


def main() -> int:
    """Measure all sizes, write the page, and record the rows."""
    options = ("--dashboard=localhost", f"--dashboard-port={DASHBOARD_PORT}")
    pods = (BALANCERS + SERVERS + 1) * max(SIZES)
    with alone(beside=True), plane(hpa_sync_s=15, pods=pods, options=options) as control_plane:
        measurements = asyncio.run(_run(control_plane, SIZES))
    size_page.write(measurements)
    record("hold", rows(measurements))
    return 0


def rows(measurements: Sequence[Measured], *, why: str = "") -> list[Row]:
    """Return the rows, from the measurements of all sizes. `why` explains figures that fall short."""
    memory = size_page.fit([(m.models, m.busy_mib) for m in measurements])
    largest = max(measurements, key=lambda m: m.models)
    law, load = "80 + 6 b ms, batch 8", f"35/s on {BUSY_SHARE:.0%} of the models, steps to 210/s on {STEP_SHARE:.0%}"
    stand_ins = (
        "; ".join(STAND_INS)
        + "; one operator process, in place of two replicas; agents of idle models poll every 2 s, in place of each second"
    )
    return [
        Row(
            id="3.1",
            what=f"one operator and {largest.models} models with two balancers and two servers each",
            value={
                "models": largest.models,
                "memory_mib": None if memory is None else round(memory.constant, 1),
                "kib_a_model": None if memory is None else round(1024 * memory.slope, 1),
                "step_to_scale_p99_s": largest.step_p99_s,
                "load_generator_late_p99_s": largest.generator_late_p99_s,
                "first_decisions_s": largest.first_decisions_s,
                "agents_back_s": largest.agents_back_s,
                "rest_ms_a_model_and_minute": round(60_000 * largest.rest_cores / largest.models, 2),
            },
            target="2,000 models: <= 120 MiB + 230 KiB a model, step to /scale p99 <= 6 s, first decision of every model <= 30 s after a start, all agents back <= 15 s",
            limits=[
                ("models", 2000, ">="),
                ("memory_mib", 120, "<="),
                ("kib_a_model", 230, "<="),
                ("step_to_scale_p99_s", 6, "<="),
                ("first_decisions_s", 30, "<="),
                ("agents_back_s", 15, "<="),
            ],
            command="python -m benchmarks.hold.size",
            stand_ins=stand_ins,
            why="; ".join(filter(None, ("one run, not five", why))),
            n=1,
            law=law,
            load=load,
            raw=[m.__dict__ for m in measurements],
        ),
        Row(
            id="3.2",
            what=f"{BALANCERS * largest.models} agents and {largest.dashboards} dashboards come back after the operator was killed",
            value={
                "agents": BALANCERS * largest.models,
                "dashboards": largest.dashboards,
                "streams_back_s": largest.agents_back_s,
                "first_decisions_s": largest.first_decisions_s,
                "counts_moved": largest.counts_moved,
                "memory_percent_of_the_limit": round(100 * largest.most_mib / size_page.limit_mib(largest.models), 1),
            },
            target="4,000 agents and 64 dashboards: all streams <= 15 s, decisions of every model <= 30 s, 0 counts moved, memory < 80 % of the limit",
            limits=[
                ("agents", 4000, ">="),
                ("dashboards", 64, ">="),
                ("streams_back_s", 15, "<="),
                ("first_decisions_s", 30, "<="),
                ("counts_moved", 0, "=="),
                ("memory_percent_of_the_limit", 80, "<="),
            ],
            command="python -m benchmarks.hold.size",
            why=why,
            stand_ins=stand_ins + "; a dashboard is a client of the stream of all models",
            n=1,
            law=law,
            load=load,
            raw=[m.__dict__ for m in measurements],
        ),
    ]


async def _run(plane: Plane, sizes: Sequence[int]) -> list[Measured]:
    measurements: list[Measured] = []
    draw = random.Random(len(sizes))
    async with (
        Counts(plane.kubeconfig, namespace_of) as counts,
        Agents(plane, counts, idle_look_every_s=IDLE_LOOK_EVERY_S) as agents,
    ):
        models: list[str] = []
        for size in sizes:
            names = [f"m{number:04}" for number in range(len(models), size)]
            began_s = time.monotonic()
            await create(counts, names, balancers=BALANCERS, minReplicas=SERVERS)
            await counts.until_served(names, limit_s=_SERVED_WITHIN_S)
            served_s = time.monotonic() - began_s
            say(f"size: {len(names)} more models are served after {served_s:.0f} s")
            await agents.begin(names, balancers=BALANCERS)
            models += names
            for name in models:
                agents.set_rate(name, 0.0)
            await asyncio.sleep(_SETTLE_S)
            measurements.append(
                await measured(
                    plane,
                    counts,
                    agents,
                    models=models,
                    served_s=served_s,
                    draw=draw,
                    api_figures=lambda: _api_figures(plane),
                )
            )
            size_page.write(measurements)
            say(f"size: {measurements[-1]}")
    return measurements


async def measured(
    plane: Plane,
    counts: Counts,
    agents: Agents,
    *,
    models: Sequence[str],
    served_s: float,
    draw: random.Random,
    api_figures: Callable[[], tuple[float, float]],
) -> Measured:
    """Measure the operator at rest, then with load steps, then through a kill.

    `api_figures` returns the requests that the API server has answered so far, and the MiB of its store.
    """
    operator = plane.operator
    os.sched_setaffinity(operator.pid, {0})
    before, cpu_before = await asyncio.to_thread(operator.metrics), cpu_s(operator.pid)
    requests_before, _ = await asyncio.to_thread(api_figures)
    await asyncio.sleep(_REST_S)
    rest_cores = (cpu_s(operator.pid) - cpu_before) / _REST_S
    rest_mib = rss_mib(operator.pid)
    requests_after, _ = await asyncio.to_thread(api_figures)
    after = await asyncio.to_thread(operator.metrics)
    writes = after["halcyon_api_writes_total"] - before["halcyon_api_writes_total"]

    busy = set(draw.sample(list(models), int(BUSY_SHARE * len(models))))
    for name in busy:
        agents.set_rate(name, LOW_RPS)
    await asyncio.sleep(_SETTLE_S / 2)
    before, cpu_before, began = await asyncio.to_thread(operator.metrics), cpu_s(operator.pid), time.monotonic()
    agents.take_lag_s()
    times, missed = await _steps(counts, agents, models=models, busy=busy, draw=draw)
    busy_cores = (cpu_s(operator.pid) - cpu_before) / (time.monotonic() - began)
    late_s, busy_mib = agents.take_lag_s(), rss_mib(operator.pid)
    after = await asyncio.to_thread(operator.metrics)

    for name in models:
        agents.set_rate(name, 0.0)
    await asyncio.sleep(_SETTLE_S)
    most_mib = max(busy_mib, rss_mib(operator.pid))
    replicas = {name: counts.count(name) for name in models}
    async with Dashboards(DASHBOARD_PORT) as dashboards:
        decided_s, back_s, peak_mib = await _kill_operator(plane, agents, dashboards, len(models))
        await asyncio.sleep(10)
    # Models that had a step return to their minimum in this time anyway.
    moved = [name for name, replica in replicas.items() if counts.count(name) != replica == SERVERS]
    for name in moved:
        say(f"size: replicas of {name} were {SERVERS}, and are {counts.count(name)}: {counts.decisions(name)}")
    return Measured(
        models=len(models),
        served_s=round(served_s, 1),
        rest_mib=round(rest_mib, 1),
        busy_mib=round(busy_mib, 1),
        most_mib=round(max(most_mib, peak_mib), 1),
        rest_cores=round(rest_cores, 4),
        busy_cores=round(busy_cores, 4),
        step_p50_s=quantile(times, 0.5),
        step_p99_s=quantile(times, 0.99) if not missed else None,
        steps=len(times),
        not_raised=missed,
        decision_age_p99_s=histogram_quantile(before, after, "halcyon_decision_age_seconds", 0.99),
        first_decisions_s=decided_s,
        agents_back_s=back_s,
        writes_at_rest=int(writes),
        api_requests_per_s=round((requests_after - requests_before) / _REST_S, 1),
        etcd_mib=round((await asyncio.to_thread(api_figures))[1], 1),
        dashboards=dashboards.count,
        counts_moved=len(moved),
        generator_late_p99_s=round(late_s, 3),
    )


async def _steps(
    counts: Counts, agents: Agents, *, models: Sequence[str], busy: set[str], draw: random.Random
) -> tuple[list[float], int]:
    """Run waves of load steps on models chosen at random, each once; return the seconds, and how many had no answer."""
    times: list[float] = []
    missed = 0
    fresh = [name for name in models if counts.count(name) == SERVERS]
    draw.shuffle(fresh)
    for _ in range(_WAVES):
        number = max(int(STEP_SHARE * len(models)), 1)
        chosen, fresh = fresh[:number], fresh[number:]
        _, rises = await raise_load(counts, agents, chosen)
        times += rises
        missed += len(chosen) - len(rises)
        for name in chosen:
            agents.set_rate(name, LOW_RPS if name in busy else 0.0)
        agents.check()
    return times, missed


async def _kill_operator(
    plane: Plane, agents: Agents, dashboards: Dashboards, models: int
) -> tuple[float | None, float | None, float]:
    """Kill the operator and start it again; return the seconds to all decisions and to all streams, and the most memory then.

    None: not within the limit.
    """
    operator = plane.operator
    assert operator.process is not None, "the plane has started it"
    operator.process.kill()
    operator.process.wait()
    # The streams' ends are read before the new process can accept any.
    await asyncio.sleep(0.5)
    operator.start()
    began_s = time.monotonic()
    os.sched_setaffinity(operator.pid, {0})
    decided_s = back_s = None
    most_mib, print_at_s = 0.0, 0.0
    while (decided_s is None or back_s is None) and time.monotonic() < began_s + _BACK_WITHIN_S:
        most_mib = max(most_mib, rss_mib(operator.pid))
        if time.monotonic() - began_s >= print_at_s:
            say(
                f"size: {print_at_s:.0f} s after the start: {agents.connected} agents and {dashboards.connected} dashboards"
            )
            print_at_s += 5.0
        if back_s is None and agents.connected >= BALANCERS * models and dashboards.connected >= dashboards.count:
            back_s = round(time.monotonic() - began_s, 1)
        page = await asyncio.to_thread(operator.fetch, "/metrics")
        if decided_s is None and sum(line.startswith(_DECIDED) for line in page.splitlines()) >= models:
            decided_s = round(time.monotonic() - began_s, 1)
        await asyncio.sleep(0.5)
    return decided_s, back_s, most_mib


class Dashboards:
    """Readers of the dashboard's stream of all models, which come back when the stream ends."""

    def __init__(self, port: int, *, count: int = 64) -> None:
        """Prepare `count` readers; they connect when the context is entered."""
        self.count = count
        self._url = f"http://127.0.0.1:{port}/api/stream/models"
        self._reading: set[int] = set()
        self._all = asyncio.Event()

    @property
    def connected(self) -> int:
        """Return the number of readers that have received data on their open connection."""
        return len(self._reading)

    async def __aenter__(self) -> Self:
        connector = aiohttp.TCPConnector(limit=0)
        self._session = aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=None))
        self._tasks = [asyncio.create_task(self._read(number)) for number in range(self.count)]
        async with asyncio.timeout(_BACK_WITHIN_S):
            await self._all.wait()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._session.close()

    async def _read(self, number: int) -> None:
        while True:
            with contextlib.suppress(aiohttp.ClientError, TimeoutError):
                async with self._session.get(self._url) as answer:
                    async for _ in answer.content.iter_chunked(65536):
                        if answer.status == 200:
                            self._reading.add(number)
                            if self.connected == self.count:
                                self._all.set()
            self._reading.discard(number)
            await asyncio.sleep(1)


def _metrics_text(plane: Plane) -> str:
    """Return the API server's metrics page."""
    identity = plane.cluster.api.identity
    address = urlsplit(identity.url)
    context = ssl.create_default_context(cafile=str(identity.ca))
    context.load_cert_chain(identity.certificate, identity.key)
    connection = http.client.HTTPSConnection(address.hostname or "", address.port, timeout=30, context=context)
    connection.request("GET", "/metrics")
    return connection.getresponse().read().decode()


def _sum(page: str, name: str) -> float:
    lines = [line for line in page.splitlines() if line.startswith((f"{name}{{", f"{name} "))]
    return sum(float(line.rpartition(" ")[2]) for line in lines)


def _api_figures(plane: Plane) -> tuple[float, float]:
    """Return the number of requests that the API server has answered so far, from all of its clients, and etcd's MiB."""
    page = _metrics_text(plane)
    return _sum(page, "apiserver_request_total"), _sum(page, "apiserver_storage_size_bytes") / 2**20


if __name__ == "__main__":
    sys.exit(main())
