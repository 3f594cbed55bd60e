"""Results of `halcyon bench` for tests of their readers: made from drawn requests by the functions that make real ones."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import numpy as np

from halcyon_measure.inputs.tensors import ModelInput
from halcyon_measure.protocols.reply import Outcome
from halcyon_measure.protocols.target import Encoding, parse
from halcyon_measure.results import summary
from halcyon_measure.results.columns import Columns
from halcyon_measure.results.document import BenchDocument
from halcyon_measure.results.document_file import StoredDocument
from halcyon_measure.results.figure import Figure, Unit, unmeasured
from halcyon_measure.results.place import ContainerLimits, Place
from halcyon_measure.results.run import Run
from halcyon_measure.results.sections.capacity import Capacity, CapacityRun
from halcyon_measure.results.sections.comparison import Bound, ComparedSide, Comparison, Difference, LeaderboardRow
from halcyon_measure.results.sections.energy import Energy
from halcyon_measure.results.sections.phases import Phase, PhaseName, Phases, Side
from halcyon_measure.results.sections.sweep import PayloadCost, Sweep, SweepPoint
from halcyon_measure.results.sections.verdict import Evidence, Verdict
from halcyon_measure.schedule.scenario import Scenario

_PARTS: tuple[tuple[PhaseName, Side, float], ...] = (
    ("serialise", "client", 0.1),
    ("send", "client", 0.4),
    ("balancer_queued", "balancer", 2.1),
    ("queue", "server", 6.3),
    ("input", "server", 0.2),
    ("model", "server", 18.4),
    ("output", "server", 0.1),
    ("receive", "client", 0.3),
    ("rest", "remainder", 0.2),
)


def bench_run(
    *,
    rate_rps: float = 100.0,
    rows: int = 1,
    duration_s: float = 30.0,
    seed: int = 1,
    failures: int = 0,
    message: str = "503: the queue is full",
) -> Run:
    """Return a Poisson load whose latencies are those of a queue with one server of 4 + 2 b ms."""
    draws = np.random.default_rng(seed)
    due = np.cumsum(draws.exponential(1 / rate_rps, int(rate_rps * duration_s)))
    due = due[due < duration_s]
    service = (0.004 + 0.002 * rows) * draws.gamma(20, 1 / 20, len(due))
    done, free = np.empty_like(due), 0.0
    for index, (start, length) in enumerate(zip(due.tolist(), service.tolist(), strict=True)):
        free = max(start, free) + length
        done[index] = free
    failed = set(draws.choice(len(due), min(failures, len(due)), replace=False).tolist())
    table = [
        (
            at, at, at + 0.0003, at + 0.0005, end, end, end, 0.0, 0.0, Outcome.REJECTED if n in failed else Outcome.ANSWERED,
            0 if n in failed else -1, rows, 256 * rows, 40 * rows, n % 2,
        )
        for n, (at, end) in enumerate(zip(due.tolist(), done.tolist(), strict=True))
    ]  # fmt: skip
    return Run(
        columns=Columns.of(table),
        messages=(message,),
        pods=("digits-0", "digits-1"),
        warm_up_s=3.2,
        settled=True,
        measured_s=duration_s,
        partial=False,
        usage=({"wall_s": duration_s, "cpu_s": 0.1 * duration_s, "core_wait_s": 0.0, "gc_longest_s": 0.001},),
    )


def bench_document(
    *,
    rate_rps: float = 100.0,
    rows: int = 1,
    encoding: Encoding = "binary",
    duration_s: float = 30.0,
    seed: int = 1,
    failures: int = 0,
    model: str = "digits",
    message: str = "503: the queue is full",
    sections: bool = False,
    objective_s: float | None = 0.1,
) -> BenchDocument:
    """Return the result of the load of `bench_run`."""
    run = bench_run(rate_rps=rate_rps, rows=rows, duration_s=duration_s, seed=seed, failures=failures, message=message)
    document = document_of(
        run,
        rate_rps=rate_rps,
        rows=rows,
        encoding=encoding,
        duration_s=duration_s,
        seed=seed,
        model=model,
        objective_s=objective_s,
    )
    return document.model_copy(update=_sections(document)) if sections else document


def document_of(
    run: Run,
    *,
    rate_rps: float = 100.0,
    rows: int = 1,
    encoding: Encoding = "binary",
    duration_s: float = 30.0,
    seed: int = 1,
    model: str = "digits",
    objective_s: float | None = 0.1,
) -> BenchDocument:
    """Return the result of a Poisson load, without the sections of the server."""
    transport = "grpc" if encoding in {"raw", "typed"} else "http"
    target = replace(
        parse(f"{transport}://digits:8000", api="kserve", transport=None, encoding=encoding, model=model),
        inputs=(ModelInput("pixels", "FP32", (-1, 64)),),
    )
    scenario = Scenario(kind="sustained", rate_rps=rate_rps, duration_s=duration_s, seed=seed)
    return summary.build(
        run,
        target,
        scenario,
        preset="",
        rows=str(rows),
        objective_s=objective_s,
        prepares=False,
        program="halcyon 0.1.0",
        timestamp=f"2026-11-28T10:{seed % 60:02}:00Z",
    )


def _sections(document: BenchDocument) -> dict[str, Any]:
    def figure(value: float, unit: Unit, source: str = "counters of Triton") -> Figure:
        return Figure(value=value, unit=unit, n=document.requests.answered, source=source)

    total = sum(mean for _, _, mean in _PARTS)
    parts = tuple(
        Phase(
            name=name,
            side=side,
            mean=figure(mean, "ms"),
            p99=figure(3 * mean, "ms") if side == "client" else unmeasured("ms", "the counters have means alone"),
        )
        for name, side, mean in _PARTS
    )
    absent = "no GPU"
    return {
        "place": Place(
            kind="copy",
            namespace="default",
            name="digits",
            measured="digits-bench",
            revision="digits-6f9c",
            image="registry.example/tritonserver:26.01",
            node="node-1",
            limits=ContainerLimits(cpu="2", memory="4Gi"),
            routing="balancer",
            replicas=1,
            arguments=("--rate", "100", "--seed", "1"),
        ),
        "phases": Phases(
            end_to_end=figure(total, "ms"), parts=parts, total=figure(total, "ms"), adds_up=True, reason=""
        ),
        "verdict": Verdict(
            limit="instances busy",
            unsure=False,
            others=(),
            evidence=(
                Evidence(what="share of the time in which an instance executed", figure=figure(0.93, "ratio")),
                Evidence(what="time in the queue", figure=figure(6.3, "ms")),
            ),
            change="more replicas, or larger batches",
            field="spec.scaling.maxReplicas",
            sentence="The model's instances were busy 93 % of the time, so requests waited for one.",
        ),
        "energy": Energy(
            gpu=unmeasured("J", absent),
            cpu=figure(812.0, "J", "RAPL"),
            idle_power=unmeasured("W", absent),
            per_inference=figure(0.27, "J", "RAPL"),
            net_per_inference=unmeasured("J", "idle power wasn't measured"),
            carbon_intensity=figure(400, "g/kWh", "--carbon-intensity"),
            carbon_per_inference=figure(0.03, "mg", "energy and carbon intensity"),
            price_per_hour=unmeasured("price/h", "no price is given"),
            cost_per_thousand=unmeasured("price", "no price is given"),
        ),
    }


def _ratio(value: float, low: float, high: float) -> Figure:
    return Figure(value=value, unit="ratio", n=6, interval=(low, high), source="rounds")


def _rate(value: float) -> Figure:
    return Figure(value=value, unit="requests/s", n=1000, interval=(0.97 * value, 1.03 * value), source="runs")


def _latency(value: float) -> Figure:
    return Figure(value=value, unit="ms", n=1000, source="due to done")


def answers() -> dict[str, Any]:
    """Return sections with answers, as updates of a document: capacity, sweep and comparison."""
    runs = tuple(
        CapacityRun(
            purpose=purpose,
            rate_rps=rate,
            callers=None,
            seconds=20.0,
            requests=1000,
            throughput=_rate(rate),
            latency=_latency(p99),
            late=_ratio(late, late / 2, 2 * late),
            blocks=20,
            block_s=1.0,
            autocorrelation=0.02,
            kept=kept,
            ended_early=not kept,
        )
        for purpose, rate, p99, late, kept in (
            ("search", 80.0, 61.0, 0.002, True),
            ("search", 120.0, 240.0, 0.08, False),
            ("search", 96.0, 92.0, 0.009, True),
            ("confirmation", 98.0, 97.0, 0.0095, True),
        )
    )
    capacity = Capacity(
        sentence="One replica takes 98 requests/s [94, 101] within 100 ms for 99 % of the requests.",
        objective_ms=100.0,
        percentile=0.99,
        rate=_rate(98.0),
        saturation=_rate(140.0),
        knee=_rate(90.0),
        single=_latency(6.1),
        confirmed=True,
        law="4 + 2 b ms, batch 1, 1 instance",
        runs=runs,
        seconds=140.0,
        seed=1,
    )
    points = tuple(
        SweepPoint(
            rows=str(rows),
            protocol="grpc",
            encoding="raw",
            callers=None,
            rate_rps=rate,
            replicas=1,
            throughput=_rate(rate),
            rows_per_second=Figure(value=rows * rate, unit="rows/s", n=1000, source="answers"),
            p50=_latency(5.0 * rows),
            p99=_latency(rate * rows / 4),
            cpu_per_request=Figure(value=150.0, unit="us", n=1000, source="getrusage"),
            failed=0,
            valid=True,
            invalid_because=(),
        )
        for rows in (1, 8)
        for rate in (20.0, 40.0, 60.0)
    )
    payload = PayloadCost(
        form="Arrow",
        rows="8",
        size=Figure(value=2048, unit="bytes", n=1, source="payload"),
        write=Figure(value=12.0, unit="us", n=100, source="CPU"),
        read=Figure(value=9.0, unit="us", n=100, source="CPU"),
    )
    sides = [ComparedSide(name=name, url="http://a:8000", model=name, made_at=None) for name in ("fp32", "int8")]
    differences = tuple(
        Difference(figure=name, baseline=_latency(20), candidate=_latency(18), change=change, result=result)
        for name, change, result in (
            ("p99", _ratio(-0.12, -0.18, -0.05), "lower"),
            ("throughput", _ratio(0.01, -0.03, 0.05), "no difference shown"),
        )
    )
    nothing = unmeasured("price", "no price is given")
    comparison = Comparison(
        sentence="P99 of int8 is 12 % lower [5 %, 18 %]; no difference of throughput is shown.",
        baseline=sides[0],
        candidate=sides[1],
        rounds=6,
        order="ABBAAB",
        differences=differences,
        unlike=(),
        bounds=(Bound(text="p99 > +5%", failed=False, evidence="the interval ends at -5 %"),),
        leaderboard=tuple(
            LeaderboardRow(
                name=name,
                url="http://a:8000",
                model=name,
                rate=_rate(rate),
                p99=_latency(80.0),
                cost_per_thousand=nothing,
                energy_per_inference=Figure(value=0.2, unit="J", n=1, source="RAPL"),
                carbon_per_inference=nothing,
                accuracy=unmeasured("ratio", "no accuracy is given"),
            )
            for name, rate in (("int8", 140.0), ("fp32", 98.0))
        ),
    )
    return {
        "capacity": capacity,
        "sweep": Sweep(grid="rows=1,8 rate=20,40,60", points=points, payloads=(payload,), partial=False),
        "comparison": comparison,
    }


def stored(*documents: BenchDocument) -> tuple[StoredDocument, ...]:
    """Return documents as if they were read from files."""
    return tuple(
        StoredDocument(f"bench-{n}.json", document, json.loads(document.model_dump_json()))
        for n, document in enumerate(documents)
    )


def grid(count: int) -> tuple[StoredDocument, ...]:
    """Return a sweep of `count` runs: rows, encodings and rates."""
    encodings: tuple[Encoding, ...] = ("binary", "raw")
    rates = math.ceil(count / 10)
    points = [(rows, encoding, step) for rows in (1, 2, 4, 8, 16) for encoding in encodings for step in range(rates)]
    return stored(
        *(
            bench_document(
                rate_rps=round((0.3 + 0.6 * (step + 1) / rates) * 1000 / (4 + 2 * rows), 1),
                rows=rows,
                encoding=encoding,
                seed=index + 1,
                sections=True,
            )
            for index, (rows, encoding, step) in enumerate(points[:count])
        )
    )
