"""Numbers that are shown under load, compared with values computed apart, on real Triton and HAProxy processes.

Row 7.1: at 10 %, 70 % and 300 % of the capacity, on 1 and 4 pods, with and without balancers. The agent's and the
operator's code runs here: sampler, reports, store, the dashboard's numbers, and the input of both policies. Each page of
Triton is used twice, as it is and without the gauge of waiting requests.

| number | compared with |
| --- | --- |
| requests per second, rejected | the log of the client, which is a process of its own |
| latency | the same log, by quantile, within the bucket |
| waiting | HAProxy's `show stat` and Triton's gauge, read apart ten times as often |
| time in Triton, batch size | Triton's counters, parsed apart, over the same window |
| GPU (busy share of instances) | executions x the time that the model sleeps for a batch |

Row 7.2: the replicas that both policies ask for through a step, with and without the gauge.
"""

from __future__ import annotations

import asyncio
import socket
import sys
import time
from bisect import bisect_left
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import ExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import Any

import aiohttp

from benchmarks import open_loop
from benchmarks.dataplane import tritons
from benchmarks.dataplane.tritons import GRPC_PORT, HTTP_PORT, METRICS_PORT, Triton, Work
from benchmarks.open_loop import Sent
from benchmarks.profile import Phase, Profile
from benchmarks.quality.rows import Row, record
from demo.kube import samples, total
from halcyon.api.documents.balancer_plan import BalancerPlan, Slot
from halcyon.api.documents.observation_report import AgentReport
from halcyon.api.spec import Spec, defaults
from halcyon.api.spec.parse import parse
from halcyon.balancer.config.model import Listen, Ports
from halcyon.balancer.runtime.controller import HaproxyController
from halcyon.balancer.telemetry.balancer_sample import balancer_sample
from halcyon.control.autoscaling.model_signals import _Means
from halcyon.control.autoscaling.scraped_demand import ScrapedDemand
from halcyon.control.reporting.dashboard_source import WINDOW_S, measured
from halcyon.dashboard.client_latency import ClientLatency
from halcyon.dashboard.ports import ModelNumbers, Name
from halcyon.scaling.hpa import algorithm, metrics
from halcyon.scaling.planner.objectives import largest, objectives
from halcyon.scaling.planner.outputs import PlannerMemory
from halcyon.scaling.planner.plan import plan
from halcyon.scaling.planner.reading import PodReading
from halcyon.signals.busy_fraction import BusyMemory
from halcyon.signals.clock import WallClock
from halcyon.signals.observation_store import ObservationStore
from halcyon.signals.planner_reading import SignalMemory, reading
from halcyon.triton import pod_sampler as sampler
from halcyon.triton.client import Endpoint, TritonClient
from tests.unit.balancer import real_haproxy

MODEL = "m"
T0_MS, PER_ROW_MS, BATCH = 320.0, 10.0, 16
PEAK_RPS = BATCH / (T0_MS + PER_ROW_MS * BATCH) * 1000
LAW = f"{T0_MS:g} + {PER_ROW_MS:g} b ms, batch {BATCH}"
QUEUE_LIMIT = 60
SETTLE_S, MEASURE_S, LONG_S = 22.0, 30.0, 240.0
"""Seconds before a measurement, of one under overload, and of others. A gauge is sampled once a second, and a queue below a batch
changes as fast: 30 s of samples are off by 5 % by chance."""
LATENCY_S = 10.0
"""Length of the interval whose latency is shown."""
LAG_S = 1.0
"""Growth counts with the sample that confirms it, so a window ends one sample ago."""
SHARES = (0.1, 0.7, 3.0)
SPEC: Mapping[str, Any] = {
    "model": {"source": {"configMap": {"name": MODEL, "items": [{"key": "model.py", "path": "1/model.py"}]}}},
    "batching": {"maxBatchSize": BATCH},
    "scaling": {"minReplicas": 1, "maxReplicas": 10, "targets": {"queueDepth": BATCH}},
}
MAX_OFF = 0.05


@dataclass
class Apart:
    """Samples of Triton's pages and of HAProxy's statistics, taken apart from the measured code."""

    at: list[float] = field(default_factory=list)
    waiting: list[float] = field(default_factory=list)
    counters: list[dict[str, float]] = field(default_factory=list)

    def grown(self, name: str, begin: float, end: float) -> float:
        """Return the growth of a counter, interpolated between samples."""
        return self._value(name, end) - self._value(name, begin)

    def mean_waiting(self, begin: float, end: float) -> float:
        """Return the mean of the waiting requests."""
        first, last = bisect_left(self.at, begin), bisect_left(self.at, end)
        return fmean(self.waiting[first:last])

    def _value(self, name: str, at: float) -> float:
        after = min(max(bisect_left(self.at, at), 1), len(self.at) - 1)
        low, high = (self.counters[n][name] for n in (after - 1, after))
        begin, end = self.at[after - 1], self.at[after]
        return low + (high - low) * (at - begin) / (end - begin)


COUNTERS = {
    "succeeded": "nv_inference_request_success",
    "queue_us": "nv_inference_queue_duration_us",
    "compute_us": "nv_inference_compute_infer_duration_us",
    "rows": "nv_inference_count",
    "executions": "nv_inference_exec_count",
}


async def watch(apart: Apart, servers: Iterable[Triton], haproxy: str | None) -> None:
    """Sample until cancelled, ten times a second."""
    async with aiohttp.ClientSession() as session:
        while True:
            began = time.monotonic()
            pages = [await _page(session, triton) for triton in servers]
            queued = 0.0 if haproxy is None else await asyncio.to_thread(_queued, haproxy)
            found = [samples(page) for page in pages]
            apart.at.append((began + time.monotonic()) / 2)
            apart.waiting.append(queued + sum(total(one, "nv_inference_pending_request_count") for one in found))
            apart.counters.append({name: sum(total(one, of) for one in found) for name, of in COUNTERS.items()})
            await asyncio.sleep(max(began + 0.1 - time.monotonic(), 0.01))


async def _page(session: aiohttp.ClientSession, triton: Triton) -> str:
    async with session.get(f"http://{triton.address}:{triton.metrics_port}/metrics") as answer:
        return await answer.text()


def _queued(path: str) -> float:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(5)
        connection.connect(path)
        connection.sendall(b"show stat -1 2 -1\n")
        text = b""
        while part := connection.recv(65536):
            text += part
    head, *rows = text.decode().lstrip("# ").splitlines()
    column = head.split(",").index("qcur")
    return sum(float(row.split(",")[column] or 0) for row in rows if row.startswith(("http_", "grpc_")))


@dataclass
class Operator:
    """What an operator knows of the model, from pages with the gauge or without."""

    gauge: bool
    hub: ObservationStore = field(default_factory=ObservationStore)
    latency: ClientLatency = field(default_factory=ClientLatency)
    demand: ScrapedDemand = field(default_factory=ScrapedDemand)
    busy: BusyMemory = field(default_factory=BusyMemory)
    signals: SignalMemory = field(default_factory=SignalMemory)
    planned: PlannerMemory = field(default_factory=PlannerMemory)
    means: _Means = field(default_factory=_Means)

    def receive(self, report: AgentReport, now: float) -> None:
        """Store a report; without balancers, as the operator derives it from its own samples."""
        if not self.gauge:
            report = replace(report, pods=tuple(replace(pod, pending=None) for pod in report.pods))
        if report.balancer is None:
            report = replace(report, balancer=self.demand.sample(report.pods))
        self.hub.receive(report, now)
        if (seen := self.hub.observe("n", MODEL, now)) is not None:
            self.busy = self.busy.with_observation(seen)

    def shown(self, now: float) -> ModelNumbers:
        """Return the dashboard's numbers."""
        picture = self.hub.snapshot("n", MODEL, now)
        assert picture is not None
        known = [value.value for pod in picture.pods if (value := self.busy.utilization(pod, now=now, instances=1))]
        return measured(picture, now, gpu=fmean(known) if known else None)

    def rules(self, spec: Spec, now: float, pods: int) -> tuple[float | None, int | None]:
        """Return the waiting requests and the replicas that the policy Rules asks for."""
        seen = self.hub.observe("n", MODEL, now)
        assert seen is not None
        targets = replace(defaults.targets(spec), gpu_utilization=None)
        read = metrics.read(seen, targets=targets, replicas=pods)
        return read.waiting, algorithm.asked(read, targets)[0].proposal

    def planner(self, spec: Spec, now: float, pods: int) -> tuple[float | None, int]:
        """Return the waiting requests and the replicas that the planner asks for; the count in force stays."""
        picture = self.hub.snapshot("n", MODEL, now)
        assert picture is not None
        ready = tuple(PodReading(pod, "ready", -100.0, -90.0) for pod in picture.pods)
        found = reading(picture, replicas=pods, pods=ready, epoch=WallClock(0.0), memory=self.signals)
        self.signals = found.memory
        aims = objectives(spec, largest_seen=largest(found.reading.batches), start_s=20.0)
        made = plan(now, aims, found.reading, self.planned)
        self.planned = made.memory
        self.means = self.means.with_values(now, found.reading.waiting, None, "")
        return self.means.waiting, made.count


@asynccontextmanager
async def balancer(servers: list[Triton], stack: ExitStack) -> AsyncIterator[tuple[HaproxyController, Any]]:
    """Run a HAProxy with its controller in front of the servers."""
    haproxy = stack.enter_context(real_haproxy.haproxy())
    taken = haproxy.ports
    haproxy.ports = Ports(taken.http, taken.grpc, taken.metrics, HTTP_PORT, GRPC_PORT)
    haproxy.listen = Listen(haproxy.ports, dual_stack=False, socket_path=str(haproxy.directory / "haproxy.sock"))
    haproxy.runtime = haproxy.runtime_of(haproxy.ports)
    controller = HaproxyController(haproxy.runtime, haproxy.config, haproxy.listen)
    controller.accept(
        BalancerPlan("n", MODEL, MODEL, (Slot("a", "m-a", 100, 4),), 3 * BATCH, QUEUE_LIMIT, 60000, 60000, 5000)
    )
    endpoints = _endpoints(servers)
    await controller.run_pass(endpoints)
    await asyncio.to_thread(haproxy.start)
    for _ in range(2):
        await controller.run_pass(endpoints)
    yield controller, haproxy


def _endpoints(servers: Iterable[Triton]) -> tuple[Endpoint, ...]:
    return tuple(Endpoint("a", triton.address, triton.address, serving=True, terminating=False) for triton in servers)


@dataclass(frozen=True)
class Look:
    """What one operator shows at one time."""

    at: float
    numbers: ModelNumbers
    rules: tuple[float | None, int | None]
    planner: tuple[float | None, int]


@dataclass(frozen=True)
class Run:
    """One load on one set of processes."""

    sent: list[Sent]
    apart: Apart
    looks: dict[bool, list[Look]]
    """What is shown, by whether Triton's pages have the gauge."""
    quantiles: list[tuple[float, tuple[float | None, ...]]]
    """(time, quantiles in ms) of the latency in the interval before it."""


async def run(servers: list[Triton], profile: Profile, *, balanced: bool) -> Run:
    """Send the load, and look at what is shown every second."""
    operators = {gauge: Operator(gauge) for gauge in (True, False)}
    apart, spec = Apart(), parse(MODEL, dict(SPEC))
    looks: dict[bool, list[Look]] = {True: [], False: []}
    quantiles: list[tuple[float, tuple[float | None, ...]]] = []
    endpoints = _endpoints(servers)
    with ExitStack() as stack:
        async with aiohttp.ClientSession() as session:
            client = TritonClient(session, MODEL, HTTP_PORT, METRICS_PORT)
            scraper = sampler.PodSampler(client, time.time)
            context = balancer(servers, stack)
            controller, haproxy = await context.__aenter__() if balanced else (None, None)
            addresses = [one.grpc for one in servers] if haproxy is None else [f"127.0.0.1:{haproxy.ports.grpc}"]
            loads = [
                stack.enter_context(
                    open_loop.running(address, MODEL, _part(profile, len(addresses)), deadline_s=60.0, seed=n)
                )
                for n, address in enumerate(addresses)
            ]
            path = None if haproxy is None else str(haproxy.directory / "haproxy.sock")
            watching = asyncio.create_task(watch(apart, servers, path))
            until, next_latency = time.monotonic() + profile.until_s, 0.0
            while (now := time.monotonic()) < until:
                seen = await scraper.sample(endpoints)
                if controller is not None:
                    await controller.run_pass(endpoints)
                report = sampler.report(
                    namespace="n",
                    name=MODEL,
                    agent="b",
                    at=time.time(),
                    balancer=balancer_sample(None if controller is None else controller.reading),
                    endpoints=endpoints,
                    samples=seen,
                    maintenance=frozenset(),
                )
                at = time.monotonic()
                for gauge, operator in operators.items():
                    operator.receive(report, at)
                    looks[gauge].append(
                        Look(
                            at,
                            operator.shown(at),
                            operator.rules(spec, at, len(servers)),
                            operator.planner(spec, at, len(servers)),
                        )
                    )
                if balanced and at >= next_latency:
                    next_latency = at + LATENCY_S
                    histograms = operators[True].hub.client_latencies("n", MODEL, at)
                    quantiles.append((at, tuple(operators[True].latency.update(Name("n", MODEL), histograms))))
                await asyncio.sleep(max(now + 1.0 - time.monotonic(), 0.0))
            watching.cancel()
            with suppress(asyncio.CancelledError):
                await watching
            sent = [await asyncio.to_thread(load.result) for load in loads]
    return Run(sent, apart, looks, quantiles)


def _part(profile: Profile, parts: int) -> Profile:
    return Profile(tuple(replace(phase, rate_rps=phase.rate_rps / parts) for phase in profile.phases), profile.until_s)


def compared(found: Run, *, pods: int, balanced: bool) -> dict[str, tuple[float | None, float]]:
    """Return (shown, computed apart) of each number, as means over the measured time."""
    apart, made = found.apart, dict[str, tuple[float | None, float]]()
    begin = found.apart.at[0] + SETTLE_S
    pairs: dict[str, list[tuple[float | None, float]]] = {}
    for gauge, looks in found.looks.items():
        suffix = "" if gauge else ", without the gauge"
        for look in looks:
            if look.at < begin:
                continue
            low, high = look.at - WINDOW_S - LAG_S / 2, look.at - LAG_S
            waits = apart.mean_waiting(look.at - WINDOW_S, look.at)
            for name, value in (
                ("dashboard", look.numbers.waiting),
                ("Rules", look.rules[0]),
                ("status", look.planner[0]),
            ):
                pairs.setdefault(f"waiting, {name}{suffix}", []).append((value, waits))
            if not gauge:
                continue
            ended, spent = apart.grown("succeeded", low, high), high - low
            runs, rows = apart.grown("executions", low, high), apart.grown("rows", low, high)
            in_triton_ms = (apart.grown("queue_us", low, high) + apart.grown("compute_us", low, high)) / ended / 1000
            slept_s = (runs * T0_MS + rows * PER_ROW_MS) / 1000
            asked, rejected = _client(found.sent, low, high)
            numbers = {
                "requests per second": (look.numbers.rate, asked / spent),
                "rejected": (look.numbers.rejected, rejected / spent),
                "errors": (look.numbers.errors, rejected / max(asked, 1)),
                "time in Triton": (look.numbers.latency_ms, in_triton_ms),
                "batch size": (look.numbers.batch, rows / runs),
                "GPU (busy share)": (look.numbers.gpu, 100 * slept_s / spent / pods),
            }
            for name, pair in numbers.items():
                if balanced or name not in {"rejected", "errors"}:
                    pairs.setdefault(name, []).append(pair)
    for name, each in pairs.items():
        known = [(shown, true) for shown, true in each if shown is not None]
        shown = fmean(one for one, _ in known) if 2 * len(known) > len(each) else None
        made[name] = shown, fmean(true for _, true in (known or each))
    return made | _latencies(found)


def _latencies(found: Run) -> dict[str, tuple[float | None, float]]:
    made: dict[str, tuple[float | None, float]] = {}
    for at, quantiles in found.quantiles[2:]:
        times = sorted(
            latency * 1000
            for sent in found.sent
            for begun, latency in zip(sent.at_s, sent.latency_s, strict=True)
            if latency is not None and at - LATENCY_S - 0.5 <= sent.began_s + begun + latency < at - 0.5
        )
        for share, value in zip((0.5, 0.95, 0.99), quantiles, strict=True):
            true = times[min(int(share * len(times)), len(times) - 1)] if times else 0.0
            made[f"latency p{share * 100:g} at {at - found.apart.at[0]:.0f} s"] = value, true
    return made


def _client(sent: Iterable[Sent], low: float, high: float) -> tuple[float, float]:
    asked = rejected = 0
    for one in sent:
        for at, latency in zip(one.at_s, one.latency_s, strict=True):
            if low <= one.began_s + at < high:
                asked += 1
                rejected += latency is None
    return asked, rejected


BUCKETS_MS = (0, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 30000)


def is_right(name: str, shown: float | None, true: float) -> bool:
    """Return whether a number is within 5 %, or a quantile within the bucket of its value computed apart or next to its bound."""
    if shown is None:
        return False
    if name.startswith("latency"):
        place = max(bisect_left(BUCKETS_MS, true), 1)
        return (
            BUCKETS_MS[place - 1] * (1 - MAX_OFF)
            <= shown
            <= BUCKETS_MS[min(place, len(BUCKETS_MS) - 1)] * (1 + MAX_OFF)
        )
    return abs(shown - true) <= MAX_OFF * max(abs(true), 1.0)


async def numbers(shares: Iterable[float], counts: Iterable[int]) -> Row:
    """Measure row 7.1."""
    raw: list[dict[str, Any]] = []
    for pods in counts:
        with tritons.running([Work(MODEL, T0_MS, PER_ROW_MS)] * pods) as servers:
            for balanced in (True, False):
                for share in shares:
                    measure_s = MEASURE_S if share > 1 else LONG_S
                    profile = Profile((Phase(0.0, share * PEAK_RPS * pods),), SETTLE_S + measure_s)
                    found = await run(servers, profile, balanced=balanced)
                    for name, (shown, true) in compared(found, pods=pods, balanced=balanced).items():
                        one = {"pods": pods, "balanced": balanced, "share": share, "number": name, "shown": shown}
                        raw.append(one | {"true": true, "right": is_right(name, shown, true)})
                    wrong = [
                        (r["number"], r["shown"], r["true"]) for r in raw if r["share"] == share and not r["right"]
                    ]
                    print(f"{pods} pods, balanced {balanced}, {share:g}: wrong {wrong[-12:]}", flush=True)
                    await asyncio.sleep(20 if not balanced and share > 1 else 3)
    right = sum(one["right"] for one in raw)
    return Row(
        id="7.1",
        what="Numbers under load, each compared with a value computed apart",
        value={"wrong": len(raw) - right, "compared": len(raw)},
        target="0 wrong: each within 5 % (quantiles: within their bucket)",
        limits=[("wrong", 0, "=="), ("compared", 100, ">=")],
        command="python -m benchmarks.right.numbers 7.1",
        stand_ins="the agent's and the operator's code runs in one process; sleeping stands in for a GPU",
        why="not compared here: status, explain and top as programs, the kubelet's and Grafana's values",
        n=len(raw),
        law=LAW,
        load=f"Poisson, {', '.join(f'{share:.0%}' for share in shares)} of the capacity; {SETTLE_S + LONG_S:.0f} s, overload {SETTLE_S + MEASURE_S:.0f} s",
        raw=raw,
    )


async def policies() -> Row:
    """Measure row 7.2: the replicas asked for through a step from 30 % to 250 % of one pod."""
    worst: dict[str, int] = {}
    raw = []
    with tritons.running([Work(MODEL, T0_MS, PER_ROW_MS)]) as servers:
        phases = (Phase(0.0, 0.3 * PEAK_RPS), Phase(40.0, 2.5 * PEAK_RPS), Phase(80.0, 0.3 * PEAK_RPS))
        found = await run(servers, Profile(phases, 120.0), balanced=True)
    for policy in ("rules", "planner"):
        counts = {
            gauge: [(look.at, getattr(look, policy)[1] or 0) for look in looks] for gauge, looks in found.looks.items()
        }
        raw.append({"policy": policy, "with": counts[True], "without": counts[False]})
        worst[policy] = max(
            min(abs(count - other) for when, other in counts[True] if abs(when - at) <= 10.0)
            for at, count in counts[False]
        )
    return Row(
        id="7.2",
        what="Replicas asked for by Rules and Planner through a step, on a Triton page without the gauge",
        value=worst,
        target="the same as with the gauge, +-1, within 10 s",
        limits=[("rules", 1, "<="), ("planner", 1, "<=")],
        command="python -m benchmarks.right.numbers 7.2",
        stand_ins="the replicas asked for are not applied: one pod throughout; sleeping stands in for a GPU",
        n=len(found.looks[True]),
        law=LAW,
        load="Poisson, 30 %, 250 % and 30 % of one pod, 40 s each",
        raw=raw,
    )


def main(chosen: list[str]) -> int:
    """Measure the rows named, or both; `short` takes one pod and two loads."""
    short = "short" in chosen
    ids = [one for one in chosen if one != "short"] or ["7.1", "7.2"]
    if "7.1" in ids:
        record("right", [asyncio.run(numbers(SHARES[1:] if short else SHARES, (1,) if short else (1, 4)))])
    if "7.2" in ids:
        record("right", [asyncio.run(policies())])
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
