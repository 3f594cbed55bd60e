"""Row of section 1 with other programs as judges: NVIDIA's perf_analyzer and MLPerf's LoadGen, in turns.

python -m benchmarks.measure.side_by_side [1.3]
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from statistics import median
from typing import Any

from benchmarks.dataplane import tritons
from benchmarks.dataplane.tritons import Triton, Work
from benchmarks.measure.judges import Reading, loadgen, perf_analyzer
from benchmarks.measure.load_engine import STAND_IN, measured
from benchmarks.measure.table import measure
from benchmarks.quality.rows import Row
from e2e.cluster.progress import say
from halcyon_measure.engine.pool import WarmUp
from halcyon_measure.schedule.scenario import Scenario

ROUNDS = 5
LAWS = (Work("m", t0_ms=80, a_ms=6, max_batch=8), Work("m", t0_ms=20, a_ms=2, max_batch=32))
CALLERS = 8
Run = Callable[[], Reading]


def halcyon(triton: Triton, protocol: str, scenario: Scenario, **others: Any) -> Reading:
    """Run `halcyon bench`'s engine on the server's model, and return the result."""
    document, _ = measured(
        triton, protocol, scenario, model=triton.model, processes=1, warm_up=WarmUp(1, fixed=True), **others
    )
    latency = document.latency
    return Reading(document.throughput.value, latency.p50.value, latency.p90.value, latency.p99.value)


def off_percent(ours: Sequence[float | None], theirs: Sequence[float | None]) -> float | None:
    """Return the median difference of rounds in percent of the judge's figure; None without a round that has both."""
    pairs = [(a, b) for a, b in zip(ours, theirs, strict=True) if a is not None and b]
    return round(100 * median(a / b - 1 for a, b in pairs), 2) if pairs else None


def row_3(seconds: float = 12.0, rounds: int = ROUNDS) -> Row:
    """Measure closed loops beside perf_analyzer, and two scenarios of MLPerf beside LoadGen."""
    raw: dict[str, list[tuple[Reading, Reading]]] = {}
    worst: dict[str, float | None] = {}

    def compare(name: str, ours: Sequence[Run], theirs: Sequence[Run]) -> None:
        raw[name] = [(our(), their()) for our, their in zip(ours, theirs, strict=True)]
        say(f"measure: row 1.3: {name}: {raw[name]}")

    def largest(names: Sequence[str], figure: str) -> float | None:
        offs = [
            off_percent([getattr(a, figure) for a, _ in raw[name]], [getattr(b, figure) for _, b in raw[name]])
            for name in names
        ]
        return None if None in offs else max((off for off in offs if off is not None), key=abs)

    for law in LAWS:
        line = f"{law.t0_ms:g} + {law.a_ms:g} b ms"
        with tritons.running([law]) as (triton,):
            requests = int(seconds * CALLERS / (0.001 * (law.t0_ms + law.a_ms * CALLERS)))
            callers = Scenario(callers=CALLERS, duration_s=seconds)
            for protocol in ("grpc", "http"):
                ours = partial(halcyon, triton, protocol, callers)
                for name, others in (("sync", ()), ("async", ("--async",))):
                    options = (f"--concurrency-range={CALLERS}", f"--request-count={requests}", *others)
                    theirs = partial(perf_analyzer, triton, protocol, *options)
                    compare(f"closed, {name}, {protocol}, {line}", [ours] * rounds, [theirs] * rounds)
            rate = 0.3 * law.max_batch / (0.001 * (law.t0_ms + law.a_ms * law.max_batch))
            arrivals = Scenario(kind="sustained", rate_rps=rate, duration_s=5 * seconds)
            compare(
                f"Server, {line}",
                [partial(halcyon, triton, "grpc", replace(arrivals, seed=seed)) for seed in range(1, rounds + 1)],
                [
                    partial(loadgen, triton, "Server", seconds=5 * seconds, rate_rps=rate, seed=seed)
                    for seed in range(1, rounds + 1)
                ],
            )
            compare(
                f"SingleStream, {line}",
                [partial(halcyon, triton, "grpc", Scenario(callers=1, duration_s=seconds))] * rounds,
                [partial(loadgen, triton, "SingleStream", seconds=seconds)] * rounds,
            )
    closed = [name for name in raw if name.startswith("closed")]
    open_ = [name for name in raw if name.startswith("Server")]
    single = [name for name in raw if name.startswith("SingleStream")]
    worst = {
        "closed_rate_off_percent": largest(closed, "rate_rps"),
        "closed_p50_off_percent": largest(closed, "p50_ms"),
        "closed_p99_off_percent": largest(closed, "p99_ms"),
        "server_p50_off_percent": largest(open_, "p50_ms"),
        "server_p99_off_percent": largest(open_, "p99_ms"),
        "single_stream_p90_off_percent": largest(single, "p90_ms"),
    }
    limits = {"closed_rate_off_percent": 2.0, "closed_p50_off_percent": 2.0}
    return Row(
        id="1.3",
        what="closed loops beside perf_analyzer (synchronous and asynchronous, both protocols), and Server and SingleStream beside LoadGen with tritonclient's calls: largest median difference of rounds in turns",
        value=dict(worst),
        target="rate and P50 within 2 %, P99 within 3 % of perf_analyzer's; Server and SingleStream within 3 % of LoadGen's",
        limits=[(name, sign * limits.get(name, 3.0), compare_) for name in worst for sign, compare_ in ((1, "<="), (-1, ">="))],
        command="python -m benchmarks.measure.side_by_side 1.3",
        stand_ins=STAND_IN + "; client and server share two cores",
        n=rounds,
        law="; ".join(f"{law.t0_ms:g} + {law.a_ms:g} b ms, batch {law.max_batch}" for law in LAWS),
        load=f"{CALLERS} callers, {seconds:g} s; Poisson at 30 % of the capacity, {5 * seconds:g} s; one caller, {seconds:g} s",
        raw={name: [(a.__dict__, b.__dict__) for a, b in turns] for name, turns in raw.items()},
    )  # fmt: skip


ROWS: Mapping[str, Callable[[], Row]] = {"1.3": row_3}


def main(arguments: Sequence[str]) -> int:
    """Measure these rows, or all."""
    return measure(ROWS, arguments or ROWS)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
