"""Rows of section 1: latencies, counts, cost and verdicts of the load engine, against values that are known.

python -m benchmarks.measure.load_engine [ROW...]
"""

from __future__ import annotations

import sys
import tempfile
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.dataplane import tritons
from benchmarks.dataplane.tritons import GRPC_PORT, HTTP_PORT, Triton, Work
from benchmarks.measure import judges
from benchmarks.measure.models import Executions, Timed, latencies, lindley
from benchmarks.measure.stage import balancer
from benchmarks.measure.table import measure, names_or_none
from benchmarks.quality.rows import Row
from demo.kube import samples
from e2e.cluster.progress import say
from halcyon_measure.engine.job import PayloadSettings
from halcyon_measure.engine.pool import WarmUp
from halcyon_measure.measurement import Measurement
from halcyon_measure.protocols import target
from halcyon_measure.results.document import BenchDocument
from halcyon_measure.results.run import Run
from halcyon_measure.results.statistics import percentile
from halcyon_measure.schedule.scenario import Scenario

SEEDS = (1, 2, 3, 4, 5)
SHARES = (0.5, 0.95, 0.99, 0.999)
MEAN_S, LOAD = 0.010, 0.6
STAND_IN = "a Python model that sleeps stands in for a GPU"


def prepared(triton: Triton, protocol: str, scenario: Scenario, **others: Any) -> Measurement:
    """Read the model's metadata from a server, and return a load that is ready to run."""
    port = others.pop("port", GRPC_PORT if protocol == "grpc" else HTTP_PORT)
    destination = target.parse(
        f"{protocol}://{others.pop('host', triton.address)}:{port}",
        api="kserve",
        transport=None,
        encoding=others.pop("encoding", None),
        model=others.pop("model", "timed"),
    )
    return Measurement(target=destination, scenario=scenario, **others).prepare()


def measured(triton: Triton, protocol: str, scenario: Scenario, **others: Any) -> tuple[BenchDocument, Run]:
    """Run a load on a server, and return its document and its requests."""
    ready = prepared(triton, protocol, scenario, **others)
    run = ready.run()
    return ready.document(run, made_by="benchmarks"), run


def row_1(seconds: float = 40.0) -> Row:
    """Measure latencies of a queue whose arrivals and execution times are known."""
    rng = np.random.default_rng(7)
    services = np.clip(rng.gamma(4, MEAN_S / 4, 64), 0.002, 0.05).astype(np.float32)
    worst: dict[str, float] = dict.fromkeys(("p50", "p95", "p99", "p99.9"), 0.0)
    raw: list[Any] = []
    with tempfile.TemporaryDirectory() as folder, tritons.running([Timed()]) as (triton,):
        for number, service in enumerate(services):
            np.save(Path(folder) / f"{number:02}.npy", np.array([service], np.float32))
        samples = tuple((("", str(path)),) for path in sorted(Path(folder).iterdir()))
        around = _around(triton, services.tolist())
        for seed in SEEDS:
            before = len(Executions.read(triton.repository))
            document, run = measured(
                triton,
                "grpc",
                Scenario(kind="sustained", rate_rps=LOAD / float(services.mean()), duration_s=seconds, seed=seed),
                payload=PayloadSettings(samples=samples),
                processes=1,
                warm_up=WarmUp(0, fixed=True),
            )
            columns = run.columns
            requested = services[np.arange(len(columns)) % len(services)].astype(np.float64)
            executions = Executions.read(triton.repository, first=before)
            true = latencies(columns.due, columns.sent, requested, executions, around_s=around)
            measured_s = columns.done - columns.due
            for name, share in zip(worst, SHARES, strict=True):
                a, b = percentile(measured_s, share), percentile(true, share)
                if a is not None and b is not None:
                    worst[name] = max(worst[name], max(abs(a - b) - 0.0005, 0.0) / b)
            raw.append({"seed": seed, "valid": document.run.valid, "why": document.run.invalid_because, "around_s": around,
                        "found": [percentile(measured_s, share) for share in SHARES],
                        "true": [percentile(true, share) for share in SHARES],
                        "late": [percentile(columns.sent - columns.due, share) for share in SHARES]})  # fmt: skip
            say(f"measure: row 1.1: seed {seed}: {raw[-1]}")
    return Row(
        id="1.1",
        what="open loop, one instance, no batching, execution times that the model records: percentiles against Lindley's recursion over the due times and the times for which the server was busy with each request",
        value={f"{name}_off_percent": round(100 * off, 2) for name, off in worst.items()}
        | {"valid_runs": sum(result["valid"] for result in raw)},
        target="P50, P95, P99, P99.9 within 3 % + 0.5 ms",
        limits=[(f"{name}_off_percent", 3.0, "<=") for name in worst] + [("valid_runs", len(SEEDS), ">=")],
        command="python -m benchmarks.measure.load_engine 1.1",
        stand_ins=STAND_IN,
        n=len(SEEDS),
        law=f"gamma, mean {1000 * MEAN_S:g} ms, unbatched",
        load=f"Poisson, {100 * LOAD:.0f} % of the capacity, {seconds:g} s",
        raw=raw,
    )


def _around(triton: Triton, services: Sequence[float], requests: int = 320) -> float:
    """Return the median seconds of a blocking call of tritonclient to an idle server beyond its execution."""
    durations_s = judges.blocking(triton, [services[number % len(services)] for number in range(requests)])
    executions = Executions.read(triton.repository)
    return float(np.median(np.array(durations_s) - (executions.ended - executions.began)))


def row_2(seconds: float = 60.0) -> Row:
    """Measure a stall of 2 s, which a client that waits for its answers misses; perf_analyzer on the same model beside it."""
    service, stop_s, after_s = 0.001, 2.0, 30.0
    model = Timed(stop_every_s=after_s, stop_s=stop_s, once=True)
    with tempfile.TemporaryDirectory() as folder, tritons.running([model]) as (triton,):
        path = Path(folder) / "x.npy"
        np.save(path, np.array([service], np.float32))
        document, run = measured(
            triton,
            "grpc",
            Scenario(kind="sustained", rate_rps=100, duration_s=seconds),
            payload=PayloadSettings(samples=((("", str(path)),),)),
            warm_up=WarmUp(0, fixed=True),
        )
    judged: dict[str, float | None] = {}
    for name, asynchronous in (("sync", False), ("async", True)):
        with tritons.running([model]) as (triton,):
            judged[f"perf_analyzer_{name}_p99_s"] = judges.stalled(
                triton, seconds=seconds, rate_rps=100, service_s=service, asynchronous=asynchronous
            )
    due = run.columns.due
    # The model stops before the first request that it begins `after_s` after its first one.
    stopped = int(np.searchsorted(due, due[0] + after_s))
    services = np.full(len(due), service)
    services[stopped] += stop_s
    true, p99_s, sent = (
        percentile(values, 0.99)
        for values in (lindley(due, services) + services, run.columns.done - due, run.columns.done - run.columns.sent)
    )
    return Row(
        id="1.2",
        what="a model that stops for 2 s once in 60 s at 100/s: P99; perf_analyzer on arrivals of its own beside it",
        value={
            "p99_s": p99_s,
            "expected_s": true,
            "from_send_p99_s": sent,
            "off_percent": None if p99_s is None or not true else round(100 * abs(p99_s - true) / true, 1),
        }
        | judged,
        target="P99 within 5 % of the true one",
        limits=[("off_percent", 5.0, "<=")],
        command="python -m benchmarks.measure.load_engine 1.2",
        stand_ins=STAND_IN,
        why="h2load has no open loop with due times, so it isn't beside it",
        n=len(due),
        law="1 ms, unbatched",
        load=f"Poisson, 100/s, {seconds:g} s",
        raw={"valid": document.run.valid, "why": document.run.invalid_because},
    )


def row_4() -> Row:
    """Compare the counts of exclusive runs with the server's."""
    off: dict[str, int] = {}
    rows = 0
    scenarios: Mapping[str, Scenario] = {
        "blocking": Scenario(callers=8, duration_s=4),
        "sustained": Scenario(kind="sustained", rate_rps=150, duration_s=4),
        "burst": Scenario(kind="burst", rate_rps=150, cv=3, duration_s=4),
        "offline": Scenario(kind="offline", requests=500, callers=64, duration_s=60),
    }
    with tritons.running([Work("m", t0_ms=5, a_ms=0.5, max_batch=16)]) as (triton,):
        for protocol in ("http", "grpc"):
            for name, scenario in scenarios.items():
                before = triton.answered()
                document, run = measured(triton, protocol, scenario, model="m")
                warm = int(sum(process["warm_up_requests"] for process in run.usage))
                off[f"{name}_{protocol}"] = triton.answered() - before - warm - document.requests.answered
                rows += document.requests.answered
    return Row(
        id="1.4",
        what="answers of exclusive runs against Triton's counter, all scenarios over both protocols",
        value={"differences": sum(map(abs, off.values())), "runs": len(off)},
        target="equal to the last one",
        limits=[("differences", 0, "=="), ("runs", 8, "==")],
        command="python -m benchmarks.measure.load_engine 1.4",
        stand_ins=STAND_IN,
        n=rows,
        law="5 + 0.5 b ms, batch 16",
        load="150/s, 8 callers, 500 at once",
        raw=off,
    )


def row_5(seconds: float = 10.0) -> Row:
    """Measure the client's CPU for each request, and the delay of sending."""
    figures: dict[str, float | None] = {}
    with tritons.running([Work("m", max_batch=16)]) as (triton,):
        for protocol in ("grpc", "http"):
            callers_document, _ = measured(
                triton, protocol, Scenario(callers=32, duration_s=seconds), model="m", processes=1
            )
            figures[f"{protocol}_us"] = callers_document.client.cpu_per_request.value
            open_document, _ = measured(
                triton, protocol, Scenario(kind="sustained", rate_rps=1000, duration_s=seconds), model="m", processes=1
            )
            figures[f"{protocol}_late_p99_ms"] = open_document.client.late_p99.value
            say(f"measure: row 1.5: {protocol}: {callers_document.throughput.value} requests/s; {open_document.client}")
    return Row(
        id="1.5",
        what="CPU of the client for each request with small inputs, and delay between due and sent at 1,000/s",
        value={name: None if value is None else round(value, 2) for name, value in figures.items()},
        target="<= 300 us over gRPC, <= 450 us over HTTP; P99 of the delay <= 2 ms with a free core",
        limits=[
            ("grpc_us", 300, "<="),
            ("http_us", 450, "<="),
            ("grpc_late_p99_ms", 2, "<="),
            ("http_late_p99_ms", 2, "<="),
        ],
        command="python -m benchmarks.measure.load_engine 1.5",
        stand_ins="a Python model that answers at once; client and server share two cores",
        law="answers at once, batch 16",
        load=f"32 callers, then Poisson 1,000/s, {seconds:g} s each",
    )


def row_6(seconds: float = 5.0) -> Row:
    """Measure ten staged cases in which the client or the server limits."""
    verdicts: dict[str, bool] = {}
    with (
        tempfile.TemporaryDirectory() as folder,
        tritons.running([Work("fast", max_batch=16), Work("slow", t0_ms=40, a_ms=1, max_batch=8)]) as (fast, slow),
    ):
        hook = Path(folder) / "hook.py"
        hook.write_text(
            "import time\nimport numpy as np\n\n"
            "def slow(number):\n    time.sleep(0.05)\n    return np.ones((1, 1), np.float32)\n\n"
            "def fast(number):\n    return np.ones((1, 1), np.float32)\n"
        )
        from halcyon_measure.engine.hooks import HookSettings  # noqa: PLC0415

        cases: Sequence[tuple[str, Triton, str, str, Scenario, dict[str, Any], bool]] = (
            ("slow function, open", slow, "slow", "http", Scenario(kind="sustained", rate_rps=60, duration_s=seconds), {"hooks": HookSettings(prepare=f"{hook}:slow")}, True),
            ("slow function, callers", slow, "slow", "http", Scenario(callers=8, duration_s=seconds), {"hooks": HookSettings(prepare=f"{hook}:slow")}, True),
            ("one process, gRPC", fast, "fast", "grpc", Scenario(callers=128, duration_s=seconds), {"processes": 1}, True),
            ("one process, HTTP", fast, "fast", "http", Scenario(callers=128, duration_s=seconds), {"processes": 1}, True),
            ("one process, rate above it", fast, "fast", "grpc", Scenario(kind="sustained", rate_rps=9000, duration_s=seconds), {"processes": 1}, True),
            ("full server, callers", slow, "slow", "grpc", Scenario(callers=64, duration_s=seconds), {}, False),
            ("full server, open", slow, "slow", "grpc", Scenario(kind="sustained", rate_rps=300, duration_s=seconds), {}, False),
            ("full server, HTTP", slow, "slow", "http", Scenario(callers=64, duration_s=seconds), {}, False),
            ("idle server", slow, "slow", "http", Scenario(duration_s=seconds), {}, False),
            ("fast function", slow, "slow", "http", Scenario(callers=2, duration_s=seconds), {"hooks": HookSettings(prepare=f"{hook}:fast")}, False),
        )  # fmt: skip
        raw: dict[str, Any] = {}
        for name, triton, model, protocol, scenario, others, limited in cases:
            document, _ = measured(triton, protocol, scenario, model=model, warm_up=WarmUp(1, fixed=True), **others)
            verdicts[name] = (document.client.limit != "none") == limited
            raw[name] = document.client.model_dump()
            say(f"measure: row 1.6: {name}: {document.client.limit}: {document.client.evidence}")
    return Row(
        id="1.6",
        what="staged cases in which the client limits, or the server does: named rightly",
        value={
            "right": sum(verdicts.values()),
            "wrong": names_or_none([name for name, is_right in verdicts.items() if not is_right]),
        },
        target="10 of 10",
        limits=[("right", 10, "==")],
        command="python -m benchmarks.measure.load_engine 1.6",
        stand_ins=STAND_IN + "; client and server share two cores",
        n=len(verdicts),
        law="answers at once; 40 + b ms, batch 8",
        load=f"{seconds:g} s each",
        raw=raw,
    )


def row_7(seconds: float = 20.0) -> Row:
    """Measure three times the capacity through a balancer whose queue is limited."""
    law = Work("m", t0_ms=80, a_ms=6, max_batch=8)
    capacity = law.max_batch / (0.001 * (law.t0_ms + law.a_ms * law.max_batch))
    raw: dict[str, Any] = {}
    with (
        tritons.running([law]) as (triton,),
        balancer([f"{triton.address}:{HTTP_PORT}"], max_connections=2 * law.max_batch, queue_limit=50) as haproxy,
    ):
        ready = prepared(
            triton,
            "http",
            Scenario(kind="sustained", rate_rps=3 * capacity, duration_s=seconds),
            model="m",
            host="127.0.0.1",
            port=haproxy.http,
            objective_s=10.0,
            warm_up=WarmUp(0, fixed=True),
        )
        # Requests for metadata passed the balancer, too.
        before = _responses(haproxy.metrics_url)
        run = ready.run()
        after = _responses(haproxy.metrics_url)
        document = ready.document(run, made_by="benchmarks")
    counted = {code: after[code] - before[code] for code in after}
    warm = int(sum(process["warm_up_requests"] for process in run.usage))
    requests = document.requests
    raw = {"balancer": counted, "bench": requests.model_dump(), "warm_up": warm, "why": document.run.invalid_because}
    good = requests.good or 0
    return Row(
        id="1.7",
        what="3x overload through a balancer with a queue of 50: refusals and answers against HAProxy's counters",
        value={
            "ended_normally": int(not document.run.partial and requests.errors + requests.disconnected + requests.timed_out == 0),
            "refusals_not_counted": abs(counted["4xx"] - requests.rejected),
            "goodput_off_percent": round(100 * abs(good / counted["2xx"] - 1), 2) if counted["2xx"] else None,
            "refused_percent": round(100 * requests.rejected / requests.due, 1),
        },
        target="the run ends normally, every refusal counted, goodput within 3 % of the balancer's own counters",
        limits=[("ended_normally", 1, "=="), ("refusals_not_counted", 0, "=="), ("goodput_off_percent", 3.0, "<=")],
        command="python -m benchmarks.measure.load_engine 1.7",
        stand_ins=STAND_IN + "; a balancer with the queue limit alone",
        n=requests.due,
        law="80 + 6 b ms, batch 8",
        load=f"Poisson, three times the capacity, {seconds:g} s",
        raw=raw,
    )  # fmt: skip


def _responses(metrics_url: str) -> dict[str, int]:
    """Return HAProxy's counts of responses to clients by class, such as 2xx."""
    with urllib.request.urlopen(metrics_url, timeout=5) as answer:
        metrics = samples(answer.read().decode())
    return {
        code: int(
            sum(
                metric.value
                for metric in metrics
                if metric.name == "haproxy_frontend_http_responses_total"
                and (metric.labels["proxy"], metric.labels["code"]) == ("http", code)
            )
        )
        for code in ("2xx", "4xx", "5xx")
    }


ROWS: Mapping[str, Callable[[], Row]] = {
    "1.1": row_1,
    "1.2": row_2,
    "1.4": row_4,
    "1.5": row_5,
    "1.6": row_6,
    "1.7": row_7,
}


def main(arguments: Sequence[str]) -> int:
    """Measure these rows, or all."""
    return measure(ROWS, arguments or ROWS)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
