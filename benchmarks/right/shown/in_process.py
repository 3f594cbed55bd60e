"""Numbers of the agent's and the operator's code, which runs in this process, on real Triton and HAProxy processes.

The code is the sampler, reports, the store, the dashboard's numbers, and the input of both policies. Each page of Triton
is used twice, as it is and without the gauge of waiting requests.
"""

# | number                        | compared with                                                                      |
# | ----------------------------- | ---------------------------------------------------------------------------------- |
# | requests per second, rejected | the log of the client, which is a process of its own                               |
# | latency                       | the same log, by quantile, within the bucket                                       |
# | waiting                       | HAProxy's `show stat` and Triton's gauge, read apart ten times as often            |
# | time in Triton, batch size    | Triton's counters, parsed apart, over the same window                              |
# | GPU (busy share of instances) | executions x the time that the model sleeps for a batch                            |

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import Any

import aiohttp

from benchmarks import open_loop
from benchmarks.dataplane.tritons import GRPC_PORT, HTTP_PORT, METRICS_PORT, Triton
from benchmarks.open_loop import Sent
from benchmarks.profile import Profile
from benchmarks.right.shown.load import BATCH, MODEL, PER_ROW_MS, QUEUE_LIMIT, T0_MS
from benchmarks.right.shown.truth import Apart, Moment, Pair, check_pace, client_counts, client_quantiles, means, watch
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

SETTLE_S, MEASURE_S, LONG_S = 22.0, 30.0, 240.0
"""Seconds before a measurement, of one under overload, and of others. A gauge is sampled once a second, and a queue below a batch
changes as fast: 30 s of samples are off by 5 % by chance."""
LATENCY_S = 10.0
"""Length of the interval whose latency is shown."""
LAG_S = 1.0
"""Growth counts with the sample that confirms it, so a window ends one sample ago."""
SPEC: Mapping[str, Any] = {
    "model": {"source": {"configMap": {"name": MODEL, "items": [{"key": "model.py", "path": "1/model.py"}]}}},
    "batching": {"maxBatchSize": BATCH},
    "scaling": {"minReplicas": 1, "maxReplicas": 10, "targets": {"queueDepth": BATCH}},
}


@dataclass
class Operator:
    """State of an operator for the model, from pages with the gauge or without."""

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
        if (observation := self.hub.observe("n", MODEL, now)) is not None:
            self.busy = self.busy.with_observation(observation)

    def shown(self, now: float) -> ModelNumbers:
        """Return the dashboard's numbers."""
        observation = self.hub.snapshot("n", MODEL, now)
        assert observation is not None
        utilizations = [
            value.value for pod in observation.pods if (value := self.busy.utilization(pod, now=now, instances=1))
        ]
        return measured(observation, now, gpu=fmean(utilizations) if utilizations else None)

    def rules(self, spec: Spec, now: float, pods: int) -> tuple[float | None, int | None]:
        """Return the waiting requests and the replicas that the policy Rules asks for."""
        observation = self.hub.observe("n", MODEL, now)
        assert observation is not None
        targets = replace(defaults.targets(spec), gpu_utilization=None)
        inputs = metrics.read(observation, targets=targets, replicas=pods)
        return inputs.waiting, algorithm.signal_proposals(inputs, targets)[0].proposal

    def planner(self, spec: Spec, now: float, pods: int) -> tuple[float | None, int]:
        """Return the waiting requests and the replicas that the planner asks for; the count in force stays."""
        observation = self.hub.snapshot("n", MODEL, now)
        assert observation is not None
        ready = tuple(PodReading(pod, "ready", -100.0, -90.0) for pod in observation.pods)
        reading_result = reading(observation, replicas=pods, pods=ready, epoch=WallClock(0.0), memory=self.signals)
        self.signals = reading_result.memory
        aims = objectives(spec, largest_seen=largest(reading_result.reading.batches), start_s=20.0)
        decision = plan(now, aims, reading_result.reading, self.planned)
        self.planned = decision.memory
        self.means = self.means.with_values(now, reading_result.reading.waiting, None, "")
        return self.means.waiting, decision.count


@asynccontextmanager
async def balancer(servers: list[Triton], stack: ExitStack) -> AsyncIterator[tuple[HaproxyController, Any]]:
    """Run a HAProxy with its controller in front of the servers."""
    haproxy = stack.enter_context(real_haproxy.haproxy())
    ports = haproxy.ports
    haproxy.ports = Ports(ports.http, ports.grpc, ports.metrics, HTTP_PORT, GRPC_PORT)
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
class OperatorSample:
    """Numbers that one operator shows at one time."""

    at: float
    numbers: ModelNumbers
    rules: tuple[float | None, int | None]
    planner: tuple[float | None, int]


@dataclass(frozen=True)
class Run:
    """One load on one set of processes."""

    sent: list[Sent]
    apart: Apart
    samples: dict[bool, list[OperatorSample]]
    """What is shown, by whether Triton's pages have the gauge."""
    quantiles: list[tuple[Moment, Moment, tuple[float | None, ...]]]
    """Quantiles of the latency in ms, each with the readings of HAProxy's counters between which the responses ended."""


async def run(servers: list[Triton], profile: Profile, *, balanced: bool) -> Run:
    """Send the load, and sample the shown numbers every second.

    Raises:
        BenchError: the machine was too busy (`truth.check_pace`).
    """
    operators = {gauge: Operator(gauge) for gauge in (True, False)}
    apart, spec = Apart(), parse(MODEL, dict(SPEC))
    samples: dict[bool, list[OperatorSample]] = {True: [], False: []}
    quantiles: list[tuple[Moment, Moment, tuple[float | None, ...]]] = []
    shown_at: Moment | None = None
    endpoints = _endpoints(servers)
    with ExitStack() as stack:
        async with aiohttp.ClientSession() as session:
            client = TritonClient(session, MODEL, HTTP_PORT, METRICS_PORT)
            scraper = sampler.PodSampler(client, time.time)
            context = balancer(servers, stack)
            controller, haproxy = await context.__aenter__() if balanced else (None, None)
            addresses = [server.grpc for server in servers] if haproxy is None else [f"127.0.0.1:{haproxy.ports.grpc}"]
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
                pod_samples = await scraper.sample(endpoints)
                before = time.monotonic()
                if controller is not None:
                    await controller.run_pass(endpoints)
                read_at = before, time.monotonic()
                report = sampler.report(
                    namespace="n",
                    name=MODEL,
                    agent="b",
                    at=time.time(),
                    balancer=balancer_sample(None if controller is None else controller.reading),
                    endpoints=endpoints,
                    samples=pod_samples,
                    maintenance=frozenset(),
                )
                at = time.monotonic()
                for gauge, operator in operators.items():
                    operator.receive(report, at)
                    samples[gauge].append(
                        OperatorSample(
                            at,
                            operator.shown(at),
                            operator.rules(spec, at, len(servers)),
                            operator.planner(spec, at, len(servers)),
                        )
                    )
                if balanced and at >= next_latency:
                    next_latency = at + LATENCY_S
                    histograms = operators[True].hub.client_latencies("n", MODEL, at)
                    shown = tuple(operators[True].latency.update(Name("n", MODEL), histograms))
                    if shown_at is not None:
                        quantiles.append((shown_at, read_at, shown))
                    shown_at = read_at
                await asyncio.sleep(max(now + 1.0 - time.monotonic(), 0.0))
            watching.cancel()
            with suppress(asyncio.CancelledError):
                await watching
            sent = [await asyncio.to_thread(load.result) for load in loads]
    check_pace(apart, sent)
    return Run(sent, apart, samples, quantiles)


def _part(profile: Profile, parts: int) -> Profile:
    return Profile(tuple(replace(phase, rate_rps=phase.rate_rps / parts) for phase in profile.phases), profile.until_s)


def compared(measured_run: Run, *, pods: int, balanced: bool) -> list[Pair]:
    """Return each number as a mean over the measured time, and the quantiles of each interval."""
    apart, begin = measured_run.apart, measured_run.apart.at[0] + SETTLE_S
    pairs: list[tuple[str, float | None, float]] = []
    for gauge, samples in measured_run.samples.items():
        suffix = "" if gauge else ", without the gauge"
        for sample in samples:
            if sample.at < begin:
                continue
            waits = apart.mean_waiting(sample.at - WINDOW_S, sample.at)
            for name, value in (
                ("dashboard", sample.numbers.waiting),
                ("Rules", sample.rules[0]),
                ("status", sample.planner[0]),
            ):
                pairs.append((f"waiting, {name}{suffix}", value, waits))
            if gauge:
                pairs += rates(sample.numbers, apart, measured_run.sent, sample.at, pods=pods, balanced=balanced)
    comparisons = means(pairs)
    for first, last, quantiles in measured_run.quantiles[1:]:
        for share, value in zip((0.5, 0.95, 0.99), quantiles, strict=True):
            name = f"latency p{share * 100:g} at {last[-1] - apart.at[0]:.0f} s"
            comparisons.append(Pair(name, value, client_quantiles(measured_run.sent, first, last, share), "quantile"))
    return comparisons


def rates(
    numbers: ModelNumbers, apart: Apart, sent: Sequence[Sent], at: float, *, pods: int, balanced: bool
) -> list[tuple[str, float | None, float]]:
    """Return (name, shown, computed apart) of the dashboard's numbers that are rates over its window."""
    low, high = at - WINDOW_S - LAG_S / 2, at - LAG_S
    spent, ended = high - low, apart.grown("succeeded", low, high)
    runs, rows = apart.grown("executions", low, high), apart.grown("rows", low, high)
    in_triton_us = apart.grown("queue_us", low, high) + apart.grown("compute_us", low, high)
    requests, rejected = client_counts(sent, low, high)
    errors = None if numbers.errors is None else 100 * numbers.errors
    shown_rates = [
        ("requests per second", numbers.rate, requests / spent),
        ("time in Triton", numbers.latency_ms, in_triton_us / ended / 1000),
        ("batch size", numbers.batch, rows / runs),
        ("GPU (busy share)", numbers.gpu, busy_percent(apart, low, high, pods)),
    ]
    if balanced:
        shown_rates += [
            ("rejected", numbers.rejected, rejected / spent),
            ("errors in percent", errors, 100 * rejected / max(requests, 1)),
        ]
    return shown_rates


def busy_percent(apart: Apart, begin: float, end: float, pods: int) -> float:
    """Return the share of a time in which the model's instances have slept, by Triton's counters and the model's law."""
    slept_s = (apart.grown("executions", begin, end) * T0_MS + apart.grown("rows", begin, end) * PER_ROW_MS) / 1000
    return 100 * slept_s / (end - begin) / pods
