"""Section 8, canaries: how soon a fault ends a canary, and how many equal canaries are rolled back.

`python -m benchmarks.right.canary [8.1] [8.2]` simulates both. `canary_live` has the same on the embedded cluster.
"""

from __future__ import annotations

import random
import sys
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from statistics import median
from typing import Any, NamedTuple

from benchmarks.quality.rows import Row, record
from benchmarks.right.simulated_canary import LAWS, Disturbances, Fault, Law, Rollout
from halcyon.scaling.canary.analysis import judge
from halcyon.scaling.canary.data import CanaryMemory, Rules

FAULTS = (
    ("p95 x 8", Fault(slower=8), "latency", 10.0),
    ("every answer fails", Fault(failing=1.0), "errors", 5.0),
    ("5 % fail against 0.1 %", Fault(failing=0.05), "errors", 40.0),
    ("p95 x 2", Fault(slower=2), "latency", 60.0),
)
"""Name, fault, check that finds it, and limit in seconds from the first answer to the rollback."""
DELAY_S = 1.0
"""Time in seconds from the end of a sample until the requests go back: a report, a reconcile and a plan."""
PAUSE_S, AFTER_PAUSE_S = 60, 30
SEEDS, EQUAL = 20, 400
_LOAD = "Poisson, 150/s, of which 20 % to the canary"
_STAND_IN = "pods and requests are simulated, one second per sample; {:g} s are added for report, reconcile and plan"


class SimulatedResult(NamedTuple):
    """Result of a simulated canary."""

    action: str
    seconds: float
    """Time from the first answer to the decision."""
    checks: tuple[str, ...]
    """Checks that found the canary worse."""
    ended_s: int | None
    """First second at or after the pause in which the step could end."""


def run(rollout: Rollout, *, limit_s: int) -> SimulatedResult:
    """Return how a canary goes within a time limit in seconds; a promotion doesn't end it."""
    memory: CanaryMemory | None = None
    ended_s: int | None = None
    first_s: int | None = None
    for second, (stable, canary, newest_s) in enumerate(rollout.seconds(), start=1):
        first_s = second - 1 if first_s is None and canary.requests else first_s
        decision = judge(stable, replace(canary, newest_s=newest_s), Rules(), memory)
        memory = decision.memory
        if decision.action == "rollback":
            worse = tuple(check.name for check in decision.checks if check.finding == "worse")
            return SimulatedResult("rollback", second - (first_s or 0) + DELAY_S, worse, ended_s)
        if ended_s is None and second >= PAUSE_S and decision.action == "promote":
            ended_s = second
        if second >= limit_s:
            return SimulatedResult(decision.action, second, (), ended_s)
    raise AssertionError("a rollout has no end of its own")


def faults(seeds: int = SEEDS) -> Row:
    """Measure row 8.1: for each fault and law, the time from the first answer to the rollback."""
    raw: dict[str, dict[str, list[Any]]] = {}
    value: dict[str, Any] = {}
    for name, fault, check, _ in FAULTS:
        times: dict[str, list[Any]] = {}
        for law in LAWS:
            results = [run(Rollout(seed, law=law, fault=fault), limit_s=150) for seed in range(seeds)]
            times[law.name] = [result.seconds if check in result.checks else None for result in results]
        raw[name] = times
        demo = times[LAWS[0].name]
        value[f"{name}, longest s"] = None if None in demo else max(demo)
        # No rollback for this reason counts as the time limit.
        others = [150.0 if seconds is None else seconds for law in LAWS[1:] for seconds in times[law.name]]
        value[f"{name}, other laws, median s"] = median(others)
        value[f"{name}, other laws, longest s"] = max(others)
    return Row(
        id="8.1",
        what="time from the first answer of a canary with a fault until it is gone back from, for that reason",
        value=value,
        target="within 10 s, 5 s, 40 s and 60 s in the demo's model",
        limits=[(f"{name}, longest s", limit_s, "<=") for name, _, _, limit_s in FAULTS],
        command="python -m benchmarks.right.canary 8.1",
        stand_ins=_STAND_IN.format(DELAY_S),
        n=seeds * len(FAULTS) * len(LAWS),
        law="; ".join(law.name for law in LAWS),
        load=_LOAD,
        raw=raw,
    )


def equal(count: int = EQUAL) -> Row:
    """Measure row 8.2: canaries without a fault, most of them with disturbances."""
    with ProcessPoolExecutor(2) as pool:
        results = list(pool.map(_run_equal, range(count), chunksize=4))
    in_time = [result.ended_s is not None and result.ended_s <= PAUSE_S + AFTER_PAUSE_S for result in results]
    demo = [is_in_time for seed, is_in_time in enumerate(in_time) if _law(seed) is LAWS[0]]
    rolled_back = sum(result.action == "rollback" for result in results)
    return Row(
        id="8.2",
        what="canaries that equal the stable revision, with bursts, drifts, stalls, pods that start cold, an outage behind both",
        value={
            "gone back from %": 100 * rolled_back / count,
            "steps ended within 30 s of the pause, demo's model %": round(100 * sum(demo) / len(demo), 1),
            "the same, all laws %": round(100 * sum(in_time) / count, 1),
        },
        target="at most 1 % gone back from; the step ends at most 30 s after its pause",
        limits=[("gone back from %", 1, "<="), ("steps ended within 30 s of the pause, demo's model %", 95, ">=")],
        command="python -m benchmarks.right.canary 8.2",
        stand_ins="pods and requests are simulated, one second per sample; requests that clients canceled are in no count",
        why="steps that don't end in time are those after an outage, in long bursts, or with several requests in a batch, "
        "which count as one",
        n=count,
        law="; ".join(law.name for law in LAWS),
        load=f"{_LOAD}, half of them with bursts of 2 times the rate",
        raw=[result._asdict() for result in results],
    )


def _law(seed: int) -> Law:
    return LAWS[seed % len(LAWS)]


def _run_equal(seed: int) -> SimulatedResult:
    disturbances = Disturbances.drawn(random.Random(seed))
    return run(Rollout(seed, law=_law(seed), disturbances=disturbances), limit_s=PAUSE_S + 2 * AFTER_PAUSE_S)


if __name__ == "__main__":
    names = sys.argv[1:] or ["8.1", "8.2"]
    rows = {"8.1": faults, "8.2": equal}
    for row in record("right", [rows[name]() for name in names]):
        print(row["id"], row["value"], "holds" if row["holds"] else "falls short")
