"""Rows 4.1 and 4.4: a step of the load on pods that take 20 s to start.

    python -m benchmarks.right.step [4.1|4.4] [--run NAME] [--again] [--trial]

Each run keeps its samples in build/quality/raw. A row that was interrupted continues with the runs that this commit
lacks, and is recorded once it has all of them. 4.1 takes 6 minutes a seed, and 4.4 takes 2 minutes a run.
"""

import argparse
import asyncio
import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from benchmarks import step as step_on_pods
from benchmarks.profile import Profile, step
from benchmarks.quality import rows
from benchmarks.quality.rows import Row
from benchmarks.right.step import scene
from benchmarks.right.step.figures import Samples, StepFigures, excess, figures, most
from benchmarks.right.step.scene import Client
from e2e.cluster.progress import say

MAX_ABOVE_FLOOR, MAX_RATIO, MAX_P99_MS = 0.6, 1.25, 550.0
MAX_MORE = 1
_PROFILE = step_on_pods.STEPS[0][1]
"""The step of docs/benchmarks/reaction.md. The ratio depends on how long the load is high and low again."""
_SHORT = step(low_rps=step_on_pods.LOW_RPS, high_rps=step_on_pods.HIGH_RPS, before_s=30.0, for_s=60.0, after_s=5.0)
"""A step whose end does not matter, because only the largest number of replicas counts."""
_REPEATS = 3


_CLIENTS: Mapping[str, Client] = {
    "grpc": Client(),
    "http_own": Client("http", connections="own"),
    "http_pool": Client("http", connections="pool"),
}
"""Kinds of clients by name: over gRPC, over HTTP with a connection for each request in progress, and with one pool of
connections for all requests."""


@dataclass(frozen=True)
class Run:
    """One run of a row."""

    name: str
    profile: Profile
    seed: int = 1
    client: Client = field(default_factory=Client)


RUNS: Mapping[str, Sequence[Run]] = {
    "4.1": tuple(Run(f"seed_{seed}", profile, seed) for _, profile, seed in step_on_pods.STEPS),
    "4.4": tuple(
        Run(name + ("_repeated" if repeats else ""), _SHORT, client=replace(client, repeats=repeats))
        for name, client in _CLIENTS.items()
        for repeats in (0, _REPEATS)
    ),
}


def step_figures(samples: Samples, profile: Profile) -> StepFigures:
    """Return the figures of a run with the law, the objective and the start of this step."""
    return figures(
        samples,
        profile,
        objective_s=scene.LAW.objective_ms / 1000,
        pod_rps=scene.LAW.peak_rps,
        capacity_rps=step_on_pods.capacity(),
        start_s=step_on_pods.START_S,
    )


def floor_row(runs: Mapping[str, Samples]) -> Row:
    """Return row 4.1 from the samples of its seeds."""
    by_seed = {name: step_figures(samples, _PROFILE) for name, samples in runs.items()}
    slow = [
        name for name, seed in by_seed.items() if (seed.batch_time_ratio or 1.0) > 1.05 or seed.late_sending_ms > 100
    ]
    return Row(
        "4.1",
        f"step 35 -> 210/s on pods that take {step_on_pods.START_S:g} s, README's fields and no others, two balancers, an open-loop "
        "client, seeds 1 to 3",
        {
            "above_floor_points": max(seed.above_floor_points for seed in by_seed.values()),
            "pod_seconds_ratio": max(seed.pod_seconds_ratio for seed in by_seed.values()),
            "answered_p99_ms": max(seed.answered_p99_ms for seed in by_seed.values()),
            "seeds": len(by_seed),
            **{name: asdict(seed) for name, seed in by_seed.items()},
        },
        "lost or late at most 0.6 points above the same run's floor (arrivals above 62.5/s per ready pod) in each, <= 1.25 x, p99 of the "
        "answered <= 550 ms",
        [
            ("above_floor_points", MAX_ABOVE_FLOOR, "<="),
            ("pod_seconds_ratio", MAX_RATIO, "<="),
            ("answered_p99_ms", MAX_P99_MS, "<="),
            ("seeds", len(RUNS["4.1"]), "=="),
        ],
        "python -m benchmarks.right.step 4.1",
        scene.STAND_INS,
        f"the machine was slow in {', '.join(slow)}: batches or requests were late by themselves" if slow else "",
        n=sum(seed.requests for seed in by_seed.values()),
        law=scene.LAW.text,
        load=_text(_PROFILE),
        raw={name: asdict(samples) for name, samples in runs.items()},
    )


def repeats_row(runs: Mapping[str, Samples]) -> Row:
    """Return row 4.4 from the samples of its clients."""
    replicas = {name: most(samples.replicas) for name, samples in runs.items()}
    additional = [replicas[f"{name}_repeated"] - replicas[name] for name in _CLIENTS]
    return Row(
        "4.4",
        f"the step, clients that repeat {_REPEATS} times after 1 s, gRPC and HTTP (a connection for each request in progress, and one pool for all)",
        {
            "more_replicas": max(additional),
            "kinds_of_clients": len(additional),
            **{f"replicas_{name}": count for name, count in replicas.items()},
        },
        "at most one replica more than without",
        [("more_replicas", MAX_MORE, "<=")],
        "python -m benchmarks.right.step 4.4",
        scene.STAND_INS,
        "a balancer recognizes a repeated HTTP request by its connection; from a pool, it comes on any connection, and counts as new demand"
        if max(additional) > MAX_MORE
        else "",
        n=sum(len(samples.arrivals_s) for samples in runs.values()),
        law=scene.LAW.text,
        load=_text(_SHORT),
        raw={name: asdict(samples) for name, samples in runs.items()},
    )


ROWS: Mapping[str, Callable[[Mapping[str, Samples]], Row]] = {"4.1": floor_row, "4.4": repeats_row}


def _text(profile: Profile) -> str:
    spans = ", ".join(f"{rate:g}/s for {end - begin:g} s" for begin, end, rate in profile.spans())
    return f"Poisson, {spans}, {scene.CHANNELS} channels"


def kept_samples(row: str, commit: str) -> dict[str, Samples]:
    """Return the samples of this row's runs that were measured on this commit, by the name of the run."""
    by_run = {}
    for run in RUNS[row]:
        content: dict[str, Any] | None = rows.raw("right", f"{row}-{run.name}")
        if content is not None and content["commit"] == commit:
            by_run[run.name] = Samples(**content["samples"])
    return by_run


def keep(row: str, run: Run, commit: str, samples: Samples) -> None:
    """Write the samples of a run."""
    folder = rows.OUT / "raw"
    folder.mkdir(parents=True, exist_ok=True)
    content = {"commit": commit, "samples": asdict(samples)}
    rows.replace(folder / f"right-{row}-{run.name}.json", json.dumps(content))


def measure(row: str, runs: Sequence[Run], *, again: bool) -> None:
    """Measure those of these runs that this commit lacks, and record the row if it has all of its runs."""
    commit = rows.commit()
    for run in runs:
        if again or run.name not in kept_samples(row, commit):
            keep(row, run, commit, _measure_run(run))
    by_run = kept_samples(row, commit)
    if missing := [run.name for run in RUNS[row] if run.name not in by_run]:
        say(f"step: row {row} is not recorded, because these runs are missing: {', '.join(missing)}")
        return
    recorded = ROWS[row](by_run)
    rows.record("right", [recorded])
    say(f"step: {row}: {recorded.value}; holds: {rows.holds(recorded)}")


def _measure_run(run: Run) -> Samples:
    began_s = time.monotonic()
    samples = asyncio.run(scene.measure(run.profile, seed=run.seed, client=run.client))
    say(f"step: {run.name} in {time.monotonic() - began_s:.0f} s: {step_figures(samples, run.profile)}")
    for line in excess(
        samples, objective_s=scene.LAW.objective_ms / 1000, pod_rps=scene.LAW.peak_rps, until_s=run.profile.until_s
    ):
        say("step: second {}: {} late, {} lost, {} above the capacity".format(*line))
    say(
        f"step: {run.name}: {dict(samples.failures)}; {samples.reported}; replicas {samples.replicas}; ready {samples.ready}"
    )
    return samples


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure the rows."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.right.step", description=__doc__)
    parser.add_argument("rows", nargs="*", help="4.1, 4.4; default: both")
    parser.add_argument("--run", help="this run alone: seed_1 to seed_3, grpc, http_own, http_pool, grpc_repeated, ...")
    parser.add_argument("--again", action="store_true", help="measure runs again that this commit already has")
    parser.add_argument("--trial", action="store_true", help="a step of 95 s, which no row uses")
    options = parser.parse_args(arguments)
    names = options.rows or list(ROWS)
    runs = {name: [run for run in RUNS.get(name, ()) if options.run in {None, run.name}] for name in names}
    if unknown := [name for name, selected in runs.items() if not selected]:
        parser.error(f"row {', '.join(unknown)} has no such run; a good example: 4.1 --run seed_1")
    for name, selected in runs.items():
        if options.trial:
            for run in selected:
                trial = Run(f"{run.name}-trial", _SHORT, run.seed, run.client)
                keep(name, trial, rows.commit(), _measure_run(trial))
        else:
            measure(name, selected, again=options.again)
    return 0


if __name__ == "__main__":
    sys.exit(main())
