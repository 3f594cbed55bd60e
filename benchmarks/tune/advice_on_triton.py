"""Row 7.3 on real Triton, as far as one CPU server shows it: wrong settings, their advice, and the gain of following it.

`python -m benchmarks.tune.advice triton [MODEL...]` runs it.

Evidence is of a sample each second instead of 30 s, and an advice isn't held for minutes. Results are raw samples of the row.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import aiohttp

from benchmarks.dataplane import tritons
from benchmarks.dataplane.tritons import HTTP_PORT, METRICS_PORT, Triton
from benchmarks.measure.stage import Balancer, balancer, measured
from benchmarks.measure.staged import Staged
from benchmarks.quality.rows import OUT
from halcyon.api.spec import Spec
from halcyon.api.spec.parse import parse
from halcyon.api.types import duration_s
from halcyon.control.advice.evidence import ModelEvidence, Window, executed, is_measured, with_learnt
from halcyon.control.advice.rules import RULES, AdviceFinding, opinions
from halcyon.render.server_maxconn import server_connections
from halcyon.scaling.planner.outputs import PlannerMemory
from halcyon.triton.client import TritonClient
from halcyon_measure.results.document import BenchDocument
from halcyon_measure.schedule.scenario import Scenario

SECONDS = 20.0
RAW = OUT / "raw" / "tune-7.3-triton.json"
_QUEUE = re.compile(r'^haproxy_backend_current_queue\{[^}]*proxy="servers"[^}]*\} (\S+)', re.MULTILINE)


@dataclass(frozen=True)
class Case:
    """A model of real Triton with a wrong setting."""

    rule: str
    staged: Staged
    """Times of the model; its batch, delay and instances follow from the settings, if they set them."""
    settings: Mapping[str, Any]
    load: Scenario
    is_delay: bool = False
    """Whether the gain is that of the latency, not of the answers per second."""
    room: int | None = None
    """Instances for which the GPU has room, which stands in for its utilisation."""

    @property
    def spec(self) -> Spec:
        """The specification."""
        source = {"source": {"persistentVolumeClaim": {"claimName": "models"}}}
        runtime = {"gpu": {"count": 1}, **self.settings.get("runtime", {})}
        scaling = {"minReplicas": 1, "maxReplicas": 1}
        return parse("staged", {"model": source, **self.settings, "runtime": runtime, "scaling": scaling})

    @property
    def model(self) -> Staged:
        """The model with its settings."""
        batching, instances = self.spec.batching, self.spec.runtime.instances_per_gpu
        delay = batching.max_queue_delay if batching else None
        size = (batching.max_batch_size if batching else None) or self.staged.max_batch
        return replace(
            self.staged,
            max_batch=size,
            delay_ms=1000 * duration_s(delay) if delay else 0.0,
            instances=instances or self.staged.instances,
        )

    def following(self, finding: AdviceFinding) -> Case:
        """Return the case with the advised value."""
        rule = next(rule for rule in RULES if rule.name == self.rule)
        _, section, name = rule.field.split(".")
        value: Any = int(finding.value) if rule.is_number else finding.value
        return replace(self, settings={**self.settings, section: {**self.settings.get(section, {}), name: value}})


@dataclass
class _Observer:
    """Samples of a server, taken each second in a thread."""

    triton: Triton
    balancer: Balancer
    room: int | None
    memory: PlannerMemory = field(default_factory=PlannerMemory)
    window: Window = field(default_factory=Window)
    measured: bool = False

    @contextlib.contextmanager
    def observing(self) -> Iterator[None]:
        ended = threading.Event()
        thread = threading.Thread(target=lambda: asyncio.run(self._observe(ended)))
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()

    async def _observe(self, ended: threading.Event) -> None:
        counters: tuple[float, float, float, float] | None = None
        async with aiohttp.ClientSession() as session:
            client = TritonClient(session, self.triton.model, HTTP_PORT, METRICS_PORT)
            while not ended.is_set():
                page, (sizes, spent_us) = await asyncio.gather(
                    client.metrics(self.triton.address), client.batches(self.triton.address, pod="staged")
                )
                now = time.monotonic()
                batches = {rows: (count, us / 1e6) for rows, count, us in sizes}
                self.memory = self.memory.with_changes(capacity=self.memory.capacity.with_batches(batches))
                self.measured |= is_measured(self.memory)
                sample = (now, float(page.succeeded or 0), (page.queue_us or 0) / 1e6, spent_us / 1e6)
                if counters is not None:
                    passed_s, answered, queue_s, busy_s = (
                        value - before for value, before in zip(sample, counters, strict=True)
                    )
                    gpu = None if self.room is None else min(busy_s / passed_s / self.room, 1.0)
                    waiting = (page.pending or 0) + await asyncio.to_thread(self._queued)
                    self.window.add(
                        now, 1, waiting, gpu, answered / passed_s, queue_s / passed_s, executed(self.memory)
                    )
                counters = sample
                await asyncio.sleep(1.0)

    def _queued(self) -> float:
        with urllib.request.urlopen(self.balancer.metrics_url, timeout=5) as page:
            match = _QUEUE.search(page.read().decode())
        return float(match[1]) if match else 0.0


def run(case: Case) -> tuple[ModelEvidence, BenchDocument]:
    """Run the case's load, and return its evidence and the measurement at the client."""
    spec = case.spec
    max_connections = server_connections(spec) * spec.traffic.balancer_replicas
    with (
        tritons.running([case.model]) as (triton,),
        balancer([f"{triton.address}:{HTTP_PORT}"], max_connections=max_connections) as haproxy,
    ):
        observer = _Observer(triton, haproxy, case.room)
        with observer.observing():
            for callers in (1, 2, 4, 8):
                measured(triton, Scenario(callers=callers, duration_s=3.0), port=haproxy.http)
            observer.window.evidence(spec)
            document = measured(triton, case.load, port=haproxy.http)
    evidence = with_learnt(observer.window.evidence(spec), observer.memory, None, measured=observer.measured)
    return evidence, document


def _gain(case: Case, before: BenchDocument, after: BenchDocument) -> float:
    first, then = (
        (document.latency.mean.value if case.is_delay else document.throughput.value) or 0.0
        for document in (before, after)
    )
    return 1 - (then / first if case.is_delay else first / then)


def _batching(**fields: Any) -> dict[str, Any]:
    return {"batching": fields}


def _callers(count: int) -> Scenario:
    return Scenario(callers=count, duration_s=SECONDS)


def _rate(rps: float) -> Scenario:
    return Scenario(kind="sustained", rate_rps=rps, duration_s=SECONDS)


CASES: Mapping[str, Case] = {
    "delay-line": Case(
        "DelayOnlyCosts",
        Staged(constant_ms=20, per_row_ms=2),
        _batching(maxBatchSize=32, maxQueueDelay="50ms"),
        _rate(8),
        is_delay=True,
    ),
    "delay-floor": Case(
        "DelayOnlyCosts",
        Staged(constant_ms=30),
        {**_batching(maxBatchSize=16, maxQueueDelay="100ms"), "runtime": {"instancesPerGPU": 2}},
        _rate(20),
        is_delay=True,
    ),
    "full-line": Case("BatchAlwaysFull", Staged(constant_ms=80, per_row_ms=6), _batching(maxBatchSize=4), _callers(32)),
    "full-floor": Case(
        "BatchAlwaysFull", Staged(constant_ms=50, per_row_ms=0.2), _batching(maxBatchSize=8), _callers(64)
    ),
    "missing": Case("BatchSizeMissing", Staged(constant_ms=80, per_row_ms=2, max_batch=64), {}, _callers(160)),
    "idle-gpu": Case("GPUIdle", Staged(constant_ms=50, max_batch=1), _batching(maxBatchSize=1), _callers(16), room=3),
    "fits-line": Case("", Staged(constant_ms=80, per_row_ms=6), _batching(maxBatchSize=8), _rate(30)),
    "fits-delay": Case(
        "", Staged(constant_ms=20, per_row_ms=2), _batching(maxBatchSize=32, maxQueueDelay="1ms"), _rate(60)
    ),
}
"""The cases; those without a rule have settings that fit."""


def measure(names: list[str]) -> None:
    """Run cases, and save their results beside those of the other cases."""
    for name in names or CASES:
        case = CASES[name]
        evidence, before = run(case)
        findings = {rule: finding for rule, finding in opinions(evidence, frozenset()).items() if finding is not None}
        entry: dict[str, Any] = {
            "staged": case.rule,
            "advice": {rule: finding.value for rule, finding in findings.items()},
        }
        if (finding := findings.get(case.rule)) is not None:
            _, after = run(case.following(finding))
            gain_share = _gain(case, before, after)
            entry |= {"told": finding.share, "brought": gain_share, "of the gain": gain_share / finding.share}
            entry |= {"evidence": finding.evidence, "gain": finding.gain}
        sys.stderr.write(f"advice on Triton: {name}: {entry}\n")
        RAW.parent.mkdir(parents=True, exist_ok=True)
        RAW.write_text(json.dumps({**results(), name: entry}, indent=1))


def results() -> dict[str, Any]:
    """Return the results so far, by the name of the case; empty without any."""
    try:
        stored: dict[str, Any] = json.loads(RAW.read_text())
    except FileNotFoundError:
        stored = {}
    return stored
