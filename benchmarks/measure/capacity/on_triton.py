"""Part of row 4.1: searches on real Tritons with sleeping models, and a fine sweep around each result.

python -m benchmarks.measure.capacity.on_triton search [LAW...]
python -m benchmarks.measure.capacity.on_triton sweep [LAW...]

A search takes about 4 minutes, a sweep 10. Without numbers, the laws that have no result of this kind are measured. Each
result is written at once into docs/quality/data/capacity, which is in git, so an interrupted run is resumed.
"""

from __future__ import annotations

import json
import math
import os
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.dataplane import tritons
from benchmarks.dataplane.tritons import HTTP_PORT, METRICS_PORT, Triton, Work
from benchmarks.quality.rows import DATA, commit, today
from benchmarks.quality.rows import replace as write
from e2e.cluster.progress import say
from halcyon_cli.bench import capacity_runs
from halcyon_measure.engine.pool import WarmUp
from halcyon_measure.measurement import Measurement
from halcyon_measure.protocols import target
from halcyon_measure.sampling.sampler import SamplingSettings, Source
from halcyon_measure.schedule.scenario import Scenario
from tests.simulator.measure.simulated_server import SimulatedServer

FOLDER = DATA / "capacity"
SWEEP_S = float(os.environ.get("SWEEP_S", "120"))
"""Length of each run of a sweep in seconds."""
STEPS = (0.96, 0.98, 1.0, 1.02, 1.04)
"""Rates of a sweep, as shares of the rate that the search has found."""
LIMIT = 0.01
"""Share of requests that may be late."""


@dataclass(frozen=True)
class Law:
    """A model of a real Triton, and its objective in seconds."""

    work: Work
    objective_s: float

    @property
    def server(self) -> SimulatedServer:
        """Return the simulated server of this law."""
        return SimulatedServer(self.work.t0_ms / 1000, self.work.a_ms / 1000, self.work.max_batch)


LAWS = (
    Law(Work("m", t0_ms=20, a_ms=2, max_batch=32), 0.25),
    Law(Work("m", t0_ms=80, a_ms=6, max_batch=8), 0.5),
    Law(Work("m", t0_ms=10, a_ms=1, max_batch=8), 0.06),
    Law(Work("m", t0_ms=5, a_ms=0.5, max_batch=16), 0.05),
    Law(Work("m", t0_ms=20, a_ms=0.01, max_batch=1), 0.1),
    Law(Work("m", t0_ms=40, a_ms=0.01, max_batch=1), 0.25),
)


def search(number: int) -> None:
    """Search for the capacity of a law, and write the result in place of an earlier one and of its sweep."""
    law = LAWS[number - 1]
    with tritons.running([law.work]) as (triton,):
        prepared = replace(_measurement(triton), objective_s=law.objective_s).prepare()
        began = time.monotonic()
        document = capacity_runs.run(prepared, 100 * (1 - LIMIT), lambda _: None)[1]
    capacity = document.capacity
    assert capacity is not None, "the search adds it"
    _write(number, {
        "law": law.server.__dict__, "objective_s": law.objective_s, "true_rps": law.server.true_capacity(law.objective_s, LIMIT),
        "rate_rps": capacity.rate.value, "interval": capacity.rate.interval, "saturation_rps": capacity.saturation.value,
        "confirmed": capacity.confirmed, "runs": len(capacity.runs), "seconds": round(time.monotonic() - began, 1),
        "commit": commit(), "date": today(),
    })  # fmt: skip
    say(f"4.1 on Triton: law {number}: {capacity.sentence}")


def sweep(number: int) -> None:
    """Run the rates of a sweep that have no result yet, around the rate that the search of a law has found."""
    law, result = LAWS[number - 1], read(number)
    if result is None or result["rate_rps"] is None:
        say(f"4.1 on Triton: law {number} has no rate yet; search it first")
        return
    measured_steps = {point["step"] for point in result.get("sweep", ())}
    with tritons.running([law.work]) as (triton,):
        for step in STEPS:
            if step in measured_steps:
                continue
            scenario = Scenario(
                kind="sustained", rate_rps=step * result["rate_rps"], duration_s=SWEEP_S, seed=100 + number
            )
            prepared = replace(_measurement(triton), scenario=scenario, warm_up=WarmUp(5.0, fixed=True)).prepare()
            columns = prepared.run().columns
            late = int(np.sum(~(columns.done - columns.due <= law.objective_s)))
            point = {"step": step, "rate_rps": scenario.rate_rps, "requests": len(columns), "late": late}
            result = {**result, "sweep": [*result.get("sweep", ()), point]}
            _write(number, result)
            say(f"4.1 on Triton: law {number}: {point}")


def swept_rps(points: Sequence[Mapping[str, Any]]) -> float | None:
    """Return the rate at which `LIMIT` of the requests are late, from a line through the logarithms of rates and shares.

    None with fewer than three rates, or if the share doesn't grow with the rate.
    """
    if len(points) < 3:
        return None
    # A rate without a late request has less than one.
    shares = [math.log(max(point["late"], 0.5) / point["requests"]) for point in points]
    slope, constant = np.polyfit([math.log(point["rate_rps"]) for point in points], shares, 1)
    return math.exp((math.log(LIMIT) - constant) / slope) if slope > 0 else None


def errors(results: Sequence[Mapping[str, Any]]) -> dict[str, float | int | None]:
    """Return how far the found rates are from those of their sweeps, and of their laws at the measured saturation."""
    ideal, slowed, swept = [], [], []
    for result in results:
        if result["rate_rps"] is None:
            continue
        pace = result["saturation_rps"] / SimulatedServer(**result["law"]).saturation_rps
        ideal.append(abs(result["rate_rps"] / result["true_rps"] - 1))
        slowed.append(abs(result["rate_rps"] / (pace * result["true_rps"]) - 1))
        if (true := swept_rps(result.get("sweep", ()))) is not None:
            swept.append(abs(result["rate_rps"] / true - 1))
    return {
        "laws on Triton": len(results),
        "largest error on Triton, ideal law, in %": _percent(ideal),
        "largest error on Triton, law at the measured saturation, in %": _percent(slowed),
        "laws with a fine sweep": len(swept),
        "largest error on Triton, fine sweep, in %": _percent(swept),
    }


def results() -> list[dict[str, Any]]:
    """Return the stored results, by law."""
    return [result for number in range(1, len(LAWS) + 1) if (result := read(number)) is not None]


def read(number: int) -> dict[str, Any] | None:
    """Return the stored result of a law; None if there is none."""
    file = _file(number)
    result: dict[str, Any] | None = json.loads(file.read_text()) if file.exists() else None
    return result


def _percent(values: Sequence[float]) -> float | None:
    return round(100 * max(values), 1) if values else None


def _write(number: int, result: Mapping[str, Any]) -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    write(_file(number), json.dumps(result, indent=1) + "\n")


def _file(number: int) -> Path:
    return FOLDER / f"law-{number}.json"


def _measurement(triton: Triton) -> Measurement:
    page = Source(pod=triton.address, url=f"http://{triton.address}:{METRICS_PORT}/metrics")
    return Measurement(
        target=target.parse(
            f"http://{triton.address}:{HTTP_PORT}", api="kserve", transport=None, encoding=None, model=triton.model
        ),
        scenario=Scenario(),
        sampling=SamplingSettings(servers=(page,), idle_s=0),
    )


def main(arguments: Sequence[str]) -> int:
    """Measure these laws, or those that have no such result."""
    kind, *names = arguments or [""]
    every = range(1, len(LAWS) + 1)
    if kind not in {"search", "sweep"} or any(not name.isdigit() or int(name) not in every for name in names):
        say(f"measure: give search or sweep and numbers from 1 to {len(LAWS)}, for example search 1 2")
        return 2
    numbers = [int(name) for name in names]
    if kind == "search":
        for number in numbers or [law_number for law_number in every if read(law_number) is None]:
            search(number)
    else:
        for number in numbers or [
            law_number for law_number in every if len((read(law_number) or {}).get("sweep", ())) < len(STEPS)
        ]:
            sweep(number)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
