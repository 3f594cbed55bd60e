"""Rows 6.1 and 6.3 to 6.5: jobs of a law, their records, and the rows of what was recorded, without Triton."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks.quality.rows import Row, holds
from benchmarks.tune.real import jobs, sweep
from benchmarks.tune.real.jobs import CalmTrial, DisturbedError, Job, LawRun, TimeUpError, missing, swept
from benchmarks.tune.real.laws import LAWS, TritonLaw
from benchmarks.tune.real.rows import rows
from benchmarks.tune.real.store import Store
from benchmarks.tune.real.sweep import MAX_LOADS, SweptConfiguration, SweptLoad
from benchmarks.tune.truth import SimulatedTrial
from halcyon_tune.points import Configuration, Load, Point, Rate

OBJECTIVE_S = 0.8
LAW = LAWS[0]
BEST = Configuration(instances=2, max_batch=32)
TODAY = Configuration(max_batch=4)


class StepTrial:
    """A measuring side: each configuration keeps the objective up to a rate. The first loads may be late, or all fail."""

    def __init__(self, *, fails: bool = False, late: int = 0) -> None:
        self.fails, self.late, self.points = fails, late, 0

    def measure(self, configuration: Configuration, load: Load) -> Point:
        assert isinstance(load, Rate)
        self.points += 1
        if self.fails:
            return Point(configuration=configuration, load=load, seconds=1, failure="Memory", why="out of memory")
        is_over = load.rate_rps > 20 * configuration.instances
        return Point(
            configuration=configuration,
            load=load,
            seconds=1,
            throughput_rps=load.rate_rps,
            p99_s=1.0 if is_over else 0.5,
            requests=load.min_requests,
            late_p99_s=0.2 if self.points <= self.late else 0.001,
        )


def measured(guess_rps: float, trial: StepTrial, *, is_near: bool = False) -> SweptConfiguration:
    outcome = SweptConfiguration(configuration=TODAY, guess_rps=guess_rps, is_near=is_near)
    while (rate := outcome.next_rate(OBJECTIVE_S)) is not None:
        outcome = outcome.after(trial.measure(TODAY, sweep.load(rate)))
    return outcome


@pytest.fixture
def store(tmp_path: Path) -> Callable[[TritonLaw], Store]:
    return lambda law: Store(law, tmp_path / "recorded", tmp_path / "locks")


@pytest.mark.parametrize("guess_rps", [6.0, 19.9, 20.1, 40.0, 90.0])
def test_capacity_is_found_from_any_guess(guess_rps: float) -> None:
    trial = StepTrial()
    outcome = measured(guess_rps, trial)
    assert trial.points == MAX_LOADS
    assert 20 / outcome.capacity_rps(OBJECTIVE_S) < (1.1 if 15 < guess_rps < 50 else 1.5)
    assert outcome.capacity_rps(OBJECTIVE_S) <= 20


def test_capacity_in_a_turn_needs_fewer_loads_near_a_known_one() -> None:
    trial = StepTrial()
    assert 20 / measured(19.5, trial, is_near=True).capacity_rps(OBJECTIVE_S) < 1.02
    assert trial.points <= 5


def test_configuration_that_fails_under_a_load_has_no_capacity() -> None:
    outcome = measured(20, StepTrial(fails=True))
    assert (outcome.failure, outcome.capacity_rps(OBJECTIVE_S)) == ("out of memory", 0.0)
    assert outcome.next_rate(OBJECTIVE_S) is None


def test_recorded_configuration_is_read_as_it_was_written() -> None:
    outcome = replace(measured(20, StepTrial()), configuration=replace(TODAY, preferred=(2, 4)))
    assert SweptConfiguration.from_document(json.loads(json.dumps(outcome.document()))) == outcome


def test_load_with_a_late_client_is_repeated_and_not_used() -> None:
    trial = CalmTrial(LAW, StepTrial(late=2), pause_s=0)
    point = trial.measure(TODAY, Rate(rate_rps=5, min_requests=200))
    assert point.late_p99_s == 0.001
    assert (trial.repeated, trial.points) == (2, [point])
    with pytest.raises(DisturbedError, match=r"1 instance, batch 4, 5 requests/s"):
        CalmTrial(LAW, StepTrial(late=100), pause_s=0).measure(TODAY, Rate(rate_rps=5, min_requests=200))


@pytest.mark.parametrize(("factor", "counts"), [(1.0, True), (1.08, True), (1.2, False)])
def test_load_with_slow_executions_does_not_count(factor: float, counts: bool) -> None:
    batches = {1: (10, 10 * 0.068 * factor), 4: (5, 5 * 0.092 * factor)}
    point = Point(configuration=TODAY, load=Rate(rate_rps=5), seconds=1, batches=batches)
    assert LAW.excess(point) == pytest.approx(factor - 1)
    assert (jobs.disturbance(LAW, point) == "") is counts
    # On a device that instances share, executions wait for each other.
    shared = replace(point, configuration=BEST)
    assert LAWS[2].excess(shared) is None


def test_laws_have_a_best_configuration_that_stays_the_best() -> None:
    for law in LAWS:
        space = jobs.today(law)
        assert len(space.configurations) >= 36
        assert space.today == TODAY
        fits = [configuration for configuration in space.configurations if configuration.max_batch < law.memory_rows]
        best = max(fits, key=lambda configuration: law.guess.capacity(configuration, law.objective_s))
        again = [
            configuration
            for configuration in jobs.today(law, best=best).configurations
            if configuration.max_batch < law.memory_rows
        ]
        # Larger batches come within reach, and none of them is better.
        rates = {configuration: law.guess.capacity(configuration, law.objective_s) for configuration in again}
        assert max(rates.values()) <= 1.02 * rates[best]
        assert rates[best] > 2 * law.guess.capacity(TODAY, law.objective_s)


def test_sweep_goes_on_where_it_has_ended(store: Callable[[TritonLaw], Store]) -> None:
    trial, records = StepTrial(), store(LAW)
    records.write("sweep", TODAY.text(), measured(20, StepTrial()).document())
    with pytest.raises(TimeUpError):
        LawRun(LAW, records, lambda _: trial, -math.inf).run(Job("sweep", BEST.text()))
    assert trial.points == 0
    open_jobs = [job for job in missing(LAW, records.read()) if job.kind == "sweep"]
    assert len(open_jobs) == 35
    for job in open_jobs:
        LawRun(LAW, records, lambda _: trial, math.inf).run(job)
    assert trial.points == 35 * MAX_LOADS
    assert len(swept(records.read())) == 36
    assert {job.kind for job in missing(LAW, records.read())} == {"tunes", "best", "turns"}


def test_law_is_measured_from_its_sweep_to_its_turns(
    monkeypatch: pytest.MonkeyPatch, store: Callable[[TritonLaw], Store]
) -> None:
    monkeypatch.setattr(jobs, "SEEDS", 1)
    monkeypatch.setattr(jobs, "BEST_SEEDS", 1)
    records = store(LAW)

    def runner(seed: int) -> SimulatedTrial:
        return SimulatedTrial(LAW.guess, 0.01, seed, requests=5000)

    while left := missing(LAW, records.read()):
        LawRun(LAW, records, runner, math.inf).run(left[0])
    recorded = records.read()
    rates = [outcome.capacity_rps(LAW.objective_s) for outcome in swept(recorded)]
    truth = [LAW.guess.capacity(outcome.configuration, LAW.objective_s) for outcome in swept(recorded)]
    assert max(rates) == pytest.approx(max(truth), rel=0.05)
    tuning = recorded["tunes"]["0"]
    assert tuning["end"] == "decided"
    assert tuning["kept"]["requests"] == 5000
    rows = by_name({LAW.kind: recorded})
    assert rows["6.1"].value["worst_share"] > 0.95
    assert rows["6.4"].value["held"] == 1
    assert recorded["best"]["0"]["end"] == "nothing to change"


def test_records_keep_the_results_of_other_processes(store: Callable[[TritonLaw], Store]) -> None:
    first, second = store(LAW), store(LAW)
    first.write("tunes", "0", {"points": 1})
    second.write("sweep", "a", [1])
    first.write("tunes", "1", {"points": 2})
    assert second.read()["tunes"] == {"0": {"points": 1}, "1": {"points": 2}}
    assert second.read()["sweep"] == {"a": [1]}


def test_job_is_claimed_by_one_process_at_a_time(store: Callable[[TritonLaw], Store]) -> None:
    jobs_of_others = (store(LAW).claim("tunes 0"), store(LAW).claim("tunes 1"))
    with store(LAW).claim("tunes 0") as first, jobs_of_others[0] as second, jobs_of_others[1] as other:
        assert (first, second, other) == (True, False, True)
    with store(LAW).claim("tunes 0") as again:
        assert again


def test_records_of_another_law_do_not_count(store: Callable[[TritonLaw], Store]) -> None:
    store(LAW).write("tunes", "0", {"points": 1})
    assert "tunes" in store(LAW).read()
    assert "tunes" not in store(replace(LAW, row_ms=1)).read()


def state(
    law: TritonLaw, *, share: float = 1.0, interval: tuple[float, float] = (0.9, 1.1), p99_ms: float = 700
) -> dict[str, Any]:
    """A law whose best configuration has twice the rate of today's, with five equal tunings."""
    winner = replace(BEST, delay_s=0.04 if law.objective_s == 0.8 else 0.05)
    known = {TODAY: 50.0, BEST: 100.0}

    def capacity(configuration: Configuration, rate: float) -> dict[str, Any]:
        loads = (SweptLoad(rate_rps=rate, p99_ms=500, answered_rps=rate),) * MAX_LOADS
        return SweptConfiguration(configuration=configuration, guess_rps=1, loads=loads).document()

    configurations = jobs.today(law).configurations
    assert winner in configurations
    tuning = {
        "end": "decided",
        "best": asdict(winner),
        "today": asdict(TODAY),
        "interval": interval,
        "points": 20,
        "seconds": 300.0,
        "kept": {"requests": 5000, "p99_ms": p99_ms, "rate_rps": 90},
    }
    document = {
        "law": law.document(),
        "sweep": {
            configuration.text(): capacity(configuration, known.get(configuration, 20.0))
            for configuration in configurations
        },
        "tunes": {str(seed): tuning for seed in range(5)},
        "turns": {
            f"{turn}: {configuration.text()}": capacity(configuration, rate)
            for turn in range(2)
            for configuration, rate in ((TODAY, 50.0), (BEST, 100.0), (winner, 100 * share))
        },
        "best": {str(seed): {"end": "nothing to change"} for seed in range(2)},
    }
    return json.loads(json.dumps(document))  # type: ignore[no-any-return]


def by_name(known: dict[str, Any]) -> dict[str, Row]:
    return {str(row.id): row for row in rows(known)}


def test_rows_hold_if_all_laws_are_as_asked() -> None:
    rows = by_name({law.kind: state(law) for law in LAWS})
    assert {name: holds(row) for name, row in rows.items()} == dict.fromkeys(("6.1", "6.3", "6.4", "6.5"), True)
    assert rows["6.1"].value["most_of_a_sweeps_points"] == pytest.approx(20 / 288, abs=1e-4)
    assert rows["6.1"].why == ""


@pytest.mark.parametrize(
    ("name", "wrong"),
    [("6.1", {"share": 0.96}), ("6.3", {"p99_ms": 950}), ("6.4", {"interval": (0.1, 0.2)})],
)
def test_row_falls_short_if_one_law_does(name: str, wrong: dict[str, Any]) -> None:
    known = {law.kind: state(law) for law in LAWS}
    known[LAWS[2].kind] = state(LAWS[2], **wrong)
    assert [row for row, quality in by_name(known).items() if not holds(quality)] == [name]


def test_row_without_turns_of_a_law_falls_short() -> None:
    known = {law.kind: state(law) for law in LAWS}
    del known[LAWS[1].kind]["turns"]
    rows = by_name(known)
    assert rows["6.1"].value["laws"] == 3
    assert [name for name, row in rows.items() if not holds(row)] == ["6.1", "6.4"]


def test_unmeasured_rows_fall_short_and_name_the_command() -> None:
    rows = by_name({})
    assert not any(holds(row) for row in rows.values())
    assert rows["6.1"].value["worst_share"] is None
    assert "benchmarks.tune.real goes on" in rows["6.1"].why
