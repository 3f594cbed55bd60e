"""Rows of section 4: capacity, comparison and seeds, in a simulator in which the truth is known, and on a real Triton.

python -m benchmarks.measure.answer [ROW...]
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from typing import Any

import numpy as np

from benchmarks.measure.capacity import on_triton
from benchmarks.measure.table import measure
from benchmarks.quality.rows import Row, commit
from e2e.cluster.progress import say
from halcyon_measure.capacity import late_share
from halcyon_measure.capacity.search import Goal, Search, Step
from halcyon_measure.compare import difference
from halcyon_measure.compare.difference import NO_DIFFERENCE
from halcyon_measure.results.document import BenchDocument
from halcyon_measure.results.statistics import percentile
from halcyon_measure.schedule import arrivals
from halcyon_measure.schedule.scenario import Scenario
from tests.bench_documents import bench_document
from tests.simulator.measure.simulated_server import SimulatedServer, poisson

LAWS = 100
RUNS_ABOVE = 200
COMPARISONS = 40
ROUNDS, ROUND_S, LOAD = 6, 6.0, 0.6
BUDGET_S = 330.0
"""Time of the simulated searches, after which row 4.1 ends with the cases that it has."""
PROCESSES = 2
_SLOWED = "largest error on Triton, law at the measured saturation, in %"
_SIMULATED = "a simulated server with noise, independent of the command's own law, stands in for Triton"


@dataclass(frozen=True)
class Case:
    """A law, an objective, and whether the server's statistics are known."""

    server: SimulatedServer
    objective_s: float
    has_statistics: bool
    seed: int

    def true_rps(self) -> float:
        """Return the capacity from long runs."""
        return self.server.true_capacity(self.objective_s, 0.01, requests=120_000)


def cases(count: int) -> list[Case]:
    """Return laws and objectives: lines with batches, unbatched ones, several at once, and many long ones at once."""
    draws = np.random.default_rng(43)
    cases = []
    for number in range(count):
        execution = float(np.exp(draws.uniform(math.log(0.005), math.log(0.3))))
        noise = float(draws.choice([0.0, 0.02, 0.05]))
        kind = number % 4
        if kind == 0:
            batch = int(draws.choice([4, 8, 16, 32]))
            per_request = execution * float(draws.uniform(0.02, 0.4))
            server = SimulatedServer(execution, per_request, batch, 1, noise)
        elif kind == 1:
            server = SimulatedServer(execution, 0.0, 1, 1, noise)
        elif kind == 2:
            server = SimulatedServer(execution, 0.0, 1, int(draws.choice([2, 4, 8])), noise)
        else:
            server = SimulatedServer(4 * execution, 0.0, 1, int(draws.choice([16, 32])), noise)
        full = server.constant_s + server.per_request_s * server.batch
        objective = (
            full * float(draws.uniform(2.5, 8.0)) if server.instances < 16 else full * float(draws.uniform(1.5, 3))
        )
        cases.append(Case(server, objective, bool(number // 4 % 2), 1000 + 20 * number))
    return cases


def capacity() -> Row:
    """Search for the capacity of each law, and decide runs at 5 % above it."""
    end = time.monotonic() + BUDGET_S
    with ProcessPoolExecutor(PROCESSES, mp_context=get_context("spawn")) as pool:
        searches = list(pool.map(_searched, cases(LAWS), [end] * LAWS))
    finished = [search for search in searches if search is not None]
    return capacity_row(finished, above(finished), on_triton.results())


def capacity_row(
    searches: Sequence[dict[str, Any]], runs_above: Sequence[dict[str, Any]], triton: Sequence[dict[str, Any]]
) -> Row:
    """Return row 4.1 from the searches, the runs at 5 % above, and the searches on Triton."""
    errors = [abs(search["off"]) for search in searches if search["off"] is not None]
    inside = [
        search["interval"][0] <= search["true_rps"] * 1.01 and search["interval"][1] >= search["true_rps"] * 0.99
        for search in searches
    ]
    return Row(
        id="4.1",
        what="Capacity at an objective against long runs in which it is known, and runs at 5 % above it",
        value={
            "laws": len(searches),
            "off by more than 4 %": sum(error > 0.04 for error in errors),
            "largest error in %": round(100 * max(errors), 1),
            "median error in %": round(100 * float(np.median(errors)), 1),
            "confirmed by a last run": sum(bool(search["confirmed"]) for search in searches),
            "truth in the interval (1 %)": sum(inside),
            "most runs": max(search["runs"] for search in searches),
            "longest in s": round(max(search["seconds"] for search in searches)),
            "called kept at 5 % above": sum(run["kept"] is True for run in runs_above),
            "runs at 5 % above": len(runs_above),
            **on_triton.errors(triton),
        },
        target="within 4 %, <= 8 runs, <= 360 s; at 5 % above capacity <= 4 of 200 called kept; 6 laws on Triton",
        limits=(
            ("laws", LAWS, ">="),
            ("off by more than 4 %", 0, "<="),
            ("most runs", 8, "<="),
            ("longest in s", 360, "<="),
            ("called kept at 5 % above", 4, "<="),
            ("runs at 5 % above", RUNS_ABOVE, ">="),
            ("laws on Triton", len(on_triton.LAWS), ">="),
            (_SLOWED, 4, "<="),
        ),
        command="python -m benchmarks.measure.answer 4.1",
        stand_ins=_SIMULATED + " in the searches and in the runs at 5 % above",
        why="on Triton (`python -m benchmarks.measure.capacity.on_triton search`), executions take longer than the law says, so the ideal "
        "capacity times measured over ideal saturation is the nearer truth, and a fine sweep the best"
        + "".join(f"; {reason}" for reason in _missing(triton)),
        n=len(searches) + len(runs_above) + len(triton),
        law="lines with batch 4 to 32, unbatched, 2 to 32 at once",
        load="Poisson, at the rates of the search",
        raw={"laws": searches, "above": runs_above, "triton": list(triton)},
    )


def _missing(triton: Sequence[dict[str, Any]]) -> list[str]:
    """Return the reasons why the results on Triton are incomplete or of another commit."""
    every, swept = len(on_triton.LAWS), sum(len(result.get("sweep", ())) >= len(on_triton.STEPS) for result in triton)
    others = sorted({str(result["commit"]) for result in triton} - {commit()})
    return [
        *([f"{len(triton)} of {every} laws were run there"] if len(triton) < every else []),
        *([f"{swept} of {every} laws have a sweep"] if swept < every else []),
        *([f"results on Triton are of {', '.join(others)}"] if others else []),
    ]


def _searched(case: Case, end: float) -> dict[str, Any] | None:
    """Return the result of a search; None after `end` of the monotonic clock."""
    if time.monotonic() > end:
        return None
    true = case.true_rps()
    search = case.server.search(Goal(case.objective_s, seed=case.seed), has_statistics=case.has_statistics)
    rate, interval = search.answer()
    say(f"4.1: {rate} against {true:.4g} in {search.runs} runs, {search.spent_s:.0f} s")
    return {
        "law": case.server.__dict__,
        "objective_s": case.objective_s,
        "has_statistics": case.has_statistics,
        "true_rps": true,
        "rate_rps": rate,
        "interval": interval,
        "runs": search.runs,
        "seconds": search.spent_s,
        "confirmed": search.is_confirmed,
        "off": None if rate is None else rate / true - 1,
    }


def above(searches: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the decisions of single runs at 5 % above the capacity, with several seeds for each of the first laws."""
    end, runs = time.monotonic() + BUDGET_S / 3, list[dict[str, Any]]()
    few = searches[:20]
    for search in few:
        server = SimulatedServer(**search["law"])
        goal = Goal(search["objective_s"], seed=5)
        state = Search.begin(goal, server.facts(has_statistics=True), spent_s=20.0, runs=2)
        rate = 1.05 * search["true_rps"]
        length = late_share.block_s(
            rate_rps=rate, saturation_rps=state.law.saturation_rps, execution_s=state.law.execution_s(state.law.batch), longest_s=10.0
        )  # fmt: skip
        for number in range(RUNS_ABOVE // max(len(few), 1)):
            if time.monotonic() > end:
                return runs
            step = Step("confirmation", rate, min(26 * length, 60.0), 5.0, length, 31 * number + 7)
            judged = state.after(step, server.observed(step, state)).judged[-1]
            runs.append({"law": search["law"], "seed": step.seed, "kept": judged.kept})
    return runs


def comparison() -> Row:
    """Compare equal servers, and one that is 5 % slower, in turns, with drift and noise between rounds."""
    template = bench_document()
    equal = [_compared(template, 1.0, 1000 * number) for number in range(10 * COMPARISONS)]
    slower = [_compared(template, 1.05, 1000 * number + 500_000) for number in range(10 * COMPARISONS)]
    different = sum(result["p50"] != NO_DIFFERENCE for result in equal)
    any_different = sum(result["p50"] != NO_DIFFERENCE or result["p99"] != NO_DIFFERENCE for result in equal)
    slower_count = sum(result["p50"] == "higher" for result in slower)
    inside = sum(result["inside"] for result in slower)
    return Row(
        id="4.2",
        what="Comparisons in turns: equal servers, and one with 5 % longer executions",
        value={
            "comparisons of each kind": len(equal),
            "equal, called different, of 40": round(different / 10, 1),
            "equal, P50 or P99 called different, of 40": round(any_different / 10, 1),
            "5 % slower, found, of 40": round(slower_count / 10, 1),
            "true difference inside the interval, of 40": round(inside / 10, 1),
        },
        target="of 40: <= 5 called different; >= 38 found with the right sign; true difference inside >= 36",
        limits=(
            ("equal, called different, of 40", 5, "<="),
            ("5 % slower, found, of 40", 38, ">="),
            ("true difference inside the interval, of 40", 36, ">="),
        ),
        command="python -m benchmarks.measure.answer 4.2",
        stand_ins="a simulated server with noise and a drift of the machine stands in for Triton",
        n=len(equal) + len(slower),
        law="unbatched 20 ms",
        load=f"Poisson at {LOAD:.0%} of saturation, {ROUNDS} rounds of {ROUND_S:.0f} s",
        raw={"equal": equal, "slower": slower},
    )


def _compared(template: BenchDocument, factor: float, seed: int) -> dict[str, Any]:
    """Return the results of P50 and P99, and whether the interval of P50 has the true change."""
    draws = np.random.default_rng(seed)
    drift = float(draws.normal(0, 0.002))
    sides: dict[str, list[BenchDocument]] = {"A": [], "B": []}
    for number, side in enumerate(difference.order(ROUNDS)):
        # The machine drifts steadily, and each run has its own luck.
        pace = math.exp(drift * number + float(draws.normal(0, 0.004))) * (factor if side == "B" else 1.0)
        server = SimulatedServer(0.02 * pace, 0.0, noise=0.02)
        due = poisson(LOAD * 50, ROUND_S, seed + number // 2)
        latency = server.latencies(due, seed + 77 * number)
        sides[side].append(_with_latency(template, latency))
    figures = {figure.figure: figure for figure in difference.of_rounds(sides["A"], sides["B"])}
    interval = figures["p50"].change.interval or (0.0, 0.0)
    true = _true_change(factor)
    return {
        "p50": figures["p50"].result,
        "p99": figures["p99"].result,
        "change": figures["p50"].change.value,
        "interval": interval,
        "inside": interval[0] <= true <= interval[1],
    }


def _true_change(factor: float) -> float:
    """Return the change of P50 in the long run."""
    change = _TRUE.get(factor)
    if change is None:
        due = poisson(LOAD * 50, 4000.0, 3)
        base, other = (
            percentile(SimulatedServer(0.02 * pace, 0.0).latencies(due, 5), 0.5) or 1.0 for pace in (1.0, factor)
        )
        change = _TRUE[factor] = other / base - 1
    return change


_TRUE: dict[float, float] = {}


def _with_latency(template: BenchDocument, latency: np.ndarray[Any, np.dtype[np.float64]]) -> BenchDocument:
    shares = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99, "p99_9": 0.999}
    update = {
        name: getattr(template.latency, name).model_copy(update={"value": 1000 * (percentile(latency, share) or 0.0)})
        for name, share in shares.items()
    }
    update["mean"] = template.latency.mean.model_copy(update={"value": 1000 * float(latency.mean())})
    return template.model_copy(update={"latency": template.latency.model_copy(update=update)})


def seeds() -> Row:
    """Make each open schedule twice with the same seed, in one piece and as shares of three processes."""
    loads = (
        Scenario(kind="sustained", rate_rps=200, duration_s=60),
        Scenario(kind="burst", rate_rps=200, cv=3, duration_s=60),
        Scenario(kind="burst", rate_rps=200, on_s=2, off_s=3, duration_s=60),
        Scenario(kind="ramp", rate_rps=10, to_rps=400, duration_s=60),
    )
    same = 0
    for load in loads:
        first, second = (np.concatenate(list(arrivals.chunks(load))) for _ in range(2))
        shared = np.sort(np.array([due for index in range(3) for due in arrivals.share(load, index=index, workers=3)]))
        same += bool(np.array_equal(first, second) and np.array_equal(first, shared))
    return Row(
        id="4.4",
        what="The same seed and schedule twice, and in one and three processes: the same arrivals, bit for bit",
        value={"schedules": len(loads), "the same": same},
        target="all the same",
        limits=(("the same", len(loads), ">="),),
        command="python -m benchmarks.measure.answer 4.4",
        n=len(loads),
    )


ROWS: dict[str, Callable[[], Row]] = {"4.1": capacity, "4.2": comparison, "4.4": seeds}


def main(arguments: Sequence[str]) -> int:
    """Measure these rows, or all."""
    return measure(ROWS, arguments or ROWS)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
