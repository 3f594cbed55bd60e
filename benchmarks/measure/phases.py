"""Rows of section 3: phases, staged bottlenecks, energy, and the cost of sampling, against values that are known.

python -m benchmarks.measure.phases [ROW...]
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from statistics import median
from typing import Any

from benchmarks.dataplane import tritons
from benchmarks.dataplane.tritons import HTTP_PORT, Triton
from benchmarks.measure.stage import balancer, function, link, measured, pages, parts
from benchmarks.measure.staged import Expected, Staged, cases
from benchmarks.measure.table import measure, names_or_none
from benchmarks.quality.rows import Row
from e2e.cluster.progress import say
from halcyon_measure.breakdown.energy import Prices
from halcyon_measure.engine.pool import WarmUp
from halcyon_measure.measurement import Measurement
from halcyon_measure.protocols import target
from halcyon_measure.results import text
from halcyon_measure.results.document import BenchDocument
from halcyon_measure.sampling.sampler import SamplingSettings, Source
from halcyon_measure.schedule.scenario import Scenario

STAGED_MS = 10.0
_STAND_IN = "a Python model that sleeps or publishes metrics stands in for a GPU; client and server share two cores"


def row_1(requests: int = 150) -> Row:
    """Measure delays of 10 ms at five places, each against a run without it."""
    width = 262_144
    scenario = Scenario(requests=requests, duration_s=120)
    offs: dict[str, float | None] = {}
    sums: list[float] = []
    raw: dict[str, Any] = {}

    def difference(name: str, part: str, base: BenchDocument, staged: BenchDocument) -> None:
        before, after = parts(base).get(part), parts(staged).get(part)
        offs[f"{name}_off_ms"] = None if before is None or after is None else round(abs(after - before - STAGED_MS), 3)
        raw[name] = {"base": parts(base), "staged": parts(staged)}
        for document in (base, staged):
            phases = document.phases
            if phases is not None and phases.total.value is not None and phases.end_to_end.value:
                sums.append(abs(phases.total.value / phases.end_to_end.value - 1))
        say(f"measure: row 3.1: {name}: {part} {before} -> {after} ms")

    works = [
        Staged("plain", constant_ms=10),
        Staged("longer", constant_ms=20),
        Staged("waits", constant_ms=10, delay_ms=STAGED_MS),
        Staged("wide", constant_ms=10, width=width),
    ]
    with tritons.running(works) as (plain, longer, waits, wide):
        base = measured(plain, scenario)
        difference("model", "model", base, measured(longer, scenario))
        difference("delay", "queue", base, measured(waits, scenario))
        with function(0.0) as quick, function(STAGED_MS / 1000) as slow:
            difference("hook", "prepare", measured(plain, scenario, hooks=quick), measured(plain, scenario, hooks=slow))
        size = width * 4
        address = f"{wide.address}:{HTTP_PORT}"
        with (
            link(address, bytes_per_s=size / 0.005) as quick_port,
            link(address, bytes_per_s=size / 0.015) as slow_port,
        ):
            difference(
                "body",
                "receive",
                measured(wide, scenario, port=quick_port),
                measured(wide, scenario, port=slow_port),
            )
        offs["maxconn_off_ms"] = _queued(plain, raw)
    return Row(
        id="3.1",
        what="sum of the phases against the mean latency; delays of 10 ms at five places, each found in its own part",
        value={"sum_off_percent": round(100 * max(sums), 2), **offs},
        target="sum within 2 %; each delay within 1 ms",
        limits=[("sum_off_percent", 2, "<="), *((name, 1.0, "<=") for name in offs)],
        command="python -m benchmarks.measure.phases 3.1",
        stand_ins=_STAND_IN,
        n=requests,
        law="10 ms, unbatched",
        load="one caller; two callers at a balancer with maxconn 1",
        raw=raw,
    )


def _queued(triton: Triton, raw: dict[str, Any]) -> float | None:
    """Return the error of the balancer's wait, in ms, with two callers and a balancer that serves one request at a time."""
    with balancer([f"{triton.address}:{HTTP_PORT}"], max_connections=1) as haproxy:
        sampling = SamplingSettings(
            servers=pages(triton), balancers=(Source(pod="haproxy", url=haproxy.metrics_url),), idle_s=0
        )
        document = measured(
            triton,
            Scenario(callers=2, duration_s=15),
            port=haproxy.http,
            sampling=sampling,
            warm_up=WarmUp(0.0, fixed=True),
        )
    means = parts(document)
    queued, latency = means.get("balancer_queued"), document.latency.mean.value
    raw["maxconn"] = means
    # With two callers and one request at a time, each request waits for the one before it: half of the latency.
    return None if queued is None or latency is None else round(abs(queued - latency / 2), 3)


def row_2(seconds: float = 4.0) -> Row:
    """Measure staged bottlenecks on a real Triton."""
    wrong: list[str] = []
    right: dict[str, bool] = {}
    raw: dict[str, Any] = {}

    def judge(name: str, expected: Expected, document: BenchDocument) -> None:
        verdict = document.verdict
        assert verdict is not None, "sampling is on"
        named = {verdict.limit, *(verdict.others if verdict.unsure else ())}
        right[name] = named >= expected if isinstance(expected, frozenset) else expected in named
        if not right[name] and not verdict.unsure:
            wrong.append(f"{name}: {verdict.limit}")
        raw[name] = verdict.model_dump()
        say(f"measure: row 3.2: {name}: {verdict.sentence}")

    for case in cases(seconds):
        with tritons.running([case.work], cores=case.cores) as (triton,):
            judge(case.name, case.expected, measured(triton, case.scenario, **case.others))
    width = 262_144
    works = [
        Staged("plain", constant_ms=20, max_batch=1),
        Staged("two", constant_ms=20, max_batch=1, instances=2),
        Staged("wide", constant_ms=5, width=width),
        Staged("mixed", constant_ms=20, max_batch=1),
        Staged("mixed", constant_ms=90, max_batch=1),
    ]
    callers = Scenario(callers=8, duration_s=2 * seconds)
    with tritons.running(works) as (plain, two, wide, quick, slow):
        with function(0.05) as hooks:
            judge("slow function", "preparing", measured(plain, replace(callers, duration_s=seconds), hooks=hooks))
        with link(f"{wide.address}:{HTTP_PORT}", bytes_per_s=width * 4 / 0.06) as port:
            judge("slow link", "transmission", measured(wide, Scenario(duration_s=seconds), port=port))
        with balancer([f"{two.address}:{HTTP_PORT}"], max_connections=1) as haproxy:
            balanced = measured(two, callers, port=haproxy.http, sampling=_sampling(haproxy.metrics_url, two))
            judge("one request at a time", "balancer", balanced)
        with balancer([f"{two.address}:{HTTP_PORT}"], max_connections=1, queue_limit=1) as haproxy:
            rate = Scenario(kind="sustained", rate_rps=60, duration_s=seconds)
            balanced = measured(two, rate, port=haproxy.http, sampling=_sampling(haproxy.metrics_url, two))
            judge("short queue", "refusals by configuration", balanced)
        with balancer([f"{server.address}:{HTTP_PORT}" for server in (quick, slow)], balance="roundrobin") as haproxy:
            balanced = measured(
                quick,
                replace(callers, callers=4),
                port=haproxy.http,
                sampling=_sampling(haproxy.metrics_url, quick, slow),
            )
            judge("one slow replica", "another pod slower", balanced)
    return Row(
        id="3.2",
        what="staged bottlenecks: named, or named among two as unsure; none named wrongly without unsure",
        value={"named": sum(right.values()), "of": len(right), "wrong": len(wrong), "missed": names_or_none(wrong)},
        target="13 of 14 named, 0 wrong without unsure",
        limits=[("named", 13, ">="), ("of", 14, ">="), ("wrong", 0, "==")],
        command="python -m benchmarks.measure.phases 3.2",
        stand_ins=_STAND_IN,
        n=len(right),
        law="20 to 90 ms, unbatched; 40 + b ms, batch 4",
        load=f"1 to 16 callers, {seconds:g} s each; Poisson, 9,000/s, {seconds:g} and 2 s",
        raw=raw,
    )


def _sampling(metrics_url: str, *servers: Triton) -> SamplingSettings:
    return SamplingSettings(servers=pages(*servers), balancers=(Source(pod="haproxy", url=metrics_url),), idle_s=0)


def row_3(seconds: float = 8.0) -> Row:
    """Measure energy by a law that the model publishes through Triton, and five kinds of absence."""
    joules, idle_w = 3.0, 40.0
    work = Staged("counter", constant_ms=10, energy="counter", joules_per_row=joules, idle_w=idle_w)
    with tritons.running([work]) as (triton,):
        time.sleep(1.5)  # the model publishes from its first second on
        measurement = measured(
            triton,
            Scenario(callers=4, duration_s=seconds),
            sampling=SamplingSettings(servers=pages(triton), idle_s=5),
            prices=Prices(g_per_kwh=400),
            warm_up=WarmUp(0.0, fixed=True),
        )
    energy = measurement.energy
    assert energy is not None, "sampling is on"
    span = measurement.run.measured_s
    gross = joules + idle_w * span / measurement.requests.rows
    kinds: Mapping[str, tuple[Staged, SamplingSettings, str]] = {
        "no GPU": (Staged("none", constant_ms=2), SamplingSettings(idle_s=0), "neither energy nor power"),
        "still": (Staged("still", constant_ms=2, energy="still"), SamplingSettings(idle_s=0), "stands still"),
        "not a Prometheus": (
            Staged("other", constant_ms=2),
            SamplingSettings(prometheus="SERVER", pods="m-.*", idle_s=0),
            "responds with",
        ),
        "no page": (
            Staged("page", constant_ms=2),
            SamplingSettings(servers=(Source(pod="a", url="http://127.0.0.1:9/metrics"),), idle_s=0),
            "doesn't answer",
        ),
        "no Prometheus": (
            Staged("prometheus", constant_ms=2),
            SamplingSettings(prometheus="http://127.0.0.1:9", pods="m-.*", idle_s=0),
            "http://127.0.0.1:9 doesn't answer",
        ),
    }
    right: dict[str, bool] = {}
    for name, (staged, sampling, reason) in kinds.items():
        with tritons.running([staged]) as (triton,):
            time.sleep(1.5)  # the model publishes from its first second on
            own = f"http://{triton.address}:{HTTP_PORT}" if sampling.prometheus == "SERVER" else sampling.prometheus
            document = measured(
                triton,
                Scenario(duration_s=2),
                sampling=replace(sampling, prometheus=own),
                warm_up=WarmUp(0.0, fixed=True),
            )
        absent = document.energy
        assert absent is not None, "sampling is on"
        shown = " ".join(text.page(document).split())
        right[name] = (
            absent.per_inference.value is None
            and reason in absent.per_inference.reason
            and "energy not measured:" in shown
            and " ".join(reason.split()) in shown
        )
    measured_j, net = energy.per_inference.value, energy.net_per_inference.value
    return Row(
        id="3.3",
        what="energy by a published law (the model sets its own counter through Triton); five kinds of absence",
        value={
            "off_percent": None if measured_j is None else round(100 * abs(measured_j - gross) / gross, 2),
            "net_off_percent": None if net is None else round(100 * abs(net - joules) / joules, 2),
            "absent_right": sum(right.values()),
        },
        target="J per inference within 2 %; each absence not measured with the right reason, in JSON and table",
        limits=[("off_percent", 2, "<="), ("absent_right", 5, "==")],
        command="python -m benchmarks.measure.phases 3.3",
        stand_ins="a Python model publishes nv_energy_consumption through Triton's metrics",
        n=measurement.requests.rows,
        law=f"10 ms, unbatched, {joules:g} J a row and {idle_w:g} W",
        load=f"4 callers, {seconds:g} s",
        raw={"energy": energy.model_dump(), "right": right},
    )


def row_4() -> Row:
    """Return the row without a figure: NVML's counter against integrated power needs a GPU."""
    return Row(
        id="3.4",
        what="NVML's energy counter against its integrated power",
        value={"off_percent": None},
        target="within 5 %",
        limits=[("off_percent", 5, "<=")],
        command="python3 benchmarks/gpu/record.py FILE",
        why="no GPU was there; the recorder writes power and energy, and the next recording has them",
        law="a GPU's own",
        load="nine loads of 16 s",
    )


def row_6(rounds: int = 6, seconds: float = 5.0) -> Row:
    """Measure the cost of sampling, in turns with and without it."""
    medians: dict[str, list[float]] = {"with": [], "without": []}
    cores: list[float] = []
    with tritons.running([Staged("plain", constant_ms=5, max_batch=1)]) as (triton,):
        url = f"http://{triton.address}:{HTTP_PORT}"
        for number in range(rounds):
            names = ("with", "without") if number % 2 else ("without", "with")
            for name in names:
                measurement = Measurement(
                    target=target.parse(url, api="kserve", transport=None, encoding=None, model="plain"),
                    scenario=Scenario(kind="sustained", rate_rps=80, duration_s=seconds, seed=number + 1),
                    warm_up=WarmUp(1.0, fixed=True),
                    sampling=SamplingSettings(servers=pages(triton), idle_s=0) if name == "with" else None,
                ).prepare()
                document = measurement.document(measurement.run(), made_by="benchmarks")
                if document.latency.p50.value is not None:
                    medians[name].append(document.latency.p50.value)
                if document.hardware is not None and document.hardware.sampling_cpu.value is not None:
                    cores.append(document.hardware.sampling_cpu.value)
    ratio = median(b / a for a, b in zip(medians["without"], medians["with"], strict=True))
    return Row(
        id="3.6",
        what="cost of sampling: cores of the sampling thread, and P50 with it over P50 without, in turns",
        value={"core_percent": round(100 * median(cores), 2), "p50_more_percent": round(100 * (ratio - 1), 2)},
        target="<= 1 % of a core, P50 +<= 1 %",
        limits=[("core_percent", 1, "<="), ("p50_more_percent", 1, "<=")],
        command="python -m benchmarks.measure.phases 3.6",
        stand_ins=_STAND_IN,
        n=rounds,
        law="5 ms, unbatched",
        load=f"Poisson, 80/s, {seconds:g} s each",
        raw={"medians_ms": medians, "cores": cores},
    )


ROWS: Mapping[str, Callable[[], Row]] = {
    "3.1": row_1, "3.2": row_2, "3.3": row_3, "3.4": row_4, "3.6": row_6
}  # fmt: skip


def main(arguments: Sequence[str]) -> int:
    """Measure these rows, or all."""
    return measure(ROWS, arguments or ROWS)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
