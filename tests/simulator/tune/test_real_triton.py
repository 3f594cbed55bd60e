"""Rows 6.1 and 6.3 to 6.5: the loads of a sweep, and the rows of what was recorded, without Triton."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, replace
from typing import Any

import pytest

from benchmarks.quality.rows import Row, holds
from benchmarks.tune import real_sweep, real_triton
from benchmarks.tune.real_laws import LAWS
from benchmarks.tune.real_sweep import MAX_LOADS, SweptConfiguration, SweptLoad
from benchmarks.tune.real_triton import TimeUpError, rows, states, swept
from benchmarks.tune.truth import SimulatedTrial
from halcyon_tune.points import Configuration, Load, Point, Rate

OBJECTIVE_S = 0.8
LAW = LAWS[0]
BEST = Configuration(instances=2, max_batch=32)
TODAY = Configuration(max_batch=4)


class StepTrial:
    """A measuring side: each configuration keeps the objective up to a rate; batches of 32 rows fail for one law."""

    def __init__(self, *, fails: bool = False) -> None:
        self.fails, self.points = fails, 0

    def measure(self, configuration: Configuration, load: Load) -> Point:
        assert isinstance(load, Rate)
        self.points += 1
        if self.fails:
            return Point(configuration=configuration, load=load, seconds=1, failure="Memory", why="out of memory")
        late = load.rate_rps > 20 * configuration.instances
        return Point(
            configuration=configuration,
            load=load,
            seconds=1,
            throughput_rps=load.rate_rps,
            p99_s=1.0 if late else 0.5,
            requests=load.min_requests,
        )


def measured(guess_rps: float, trial: StepTrial) -> SweptConfiguration:
    found = SweptConfiguration(configuration=TODAY, guess_rps=guess_rps)
    while (rate := found.next_rate(OBJECTIVE_S)) is not None:
        found = found.after(trial.measure(TODAY, real_sweep.load(rate)))
    return found


@pytest.mark.parametrize("guess_rps", [6.0, 19.9, 20.1, 40.0, 90.0])
def test_capacity_is_found_from_any_guess(guess_rps: float) -> None:
    trial = StepTrial()
    found = measured(guess_rps, trial)
    assert trial.points <= MAX_LOADS
    assert 20 / found.capacity_rps(OBJECTIVE_S) < (1.1 if 15 < guess_rps < 50 else 1.5)
    assert found.capacity_rps(OBJECTIVE_S) <= 20


def test_configuration_that_fails_under_a_load_has_no_capacity() -> None:
    found = measured(20, StepTrial(fails=True))
    assert (found.failure, found.capacity_rps(OBJECTIVE_S)) == ("out of memory", 0.0)
    assert found.next_rate(OBJECTIVE_S) is None


def test_recorded_configuration_is_read_as_it_was_written() -> None:
    found = replace(measured(20, StepTrial()), configuration=replace(TODAY, preferred=(2, 4)))
    assert SweptConfiguration.of(json.loads(json.dumps(found.document()))) == found


def test_laws_have_a_best_configuration_that_stays_the_best() -> None:
    for law in LAWS:
        space = real_triton._today(law)
        assert len(space.configurations) >= 36
        assert space.today == TODAY
        fits = [one for one in space.configurations if one.max_batch < law.memory_rows]
        best = max(fits, key=lambda one: law.guess.capacity(one, law.objective_s))
        again = [one for one in real_triton._today(law, best=best).configurations if one.max_batch < law.memory_rows]
        # Larger batches come within reach, and none of them is better.
        rates = {one: law.guess.capacity(one, law.objective_s) for one in again}
        assert max(rates.values()) <= 1.02 * rates[best]
        assert rates[best] > 2 * law.guess.capacity(TODAY, law.objective_s)


def test_sweep_goes_on_where_it_has_ended() -> None:
    state: dict[str, Any] = {}
    saved: list[int] = []
    trial = StepTrial()

    def run(end: float) -> None:
        made = real_triton.LawRun(LAW, state, lambda _: trial, lambda: saved.append(1), end)  # type: ignore[arg-type, return-value]
        made._sweep()

    with pytest.raises(TimeUpError):
        run(-math.inf)
    assert saved == []
    state["sweep"] = {TODAY.text(): measured(20, StepTrial()).document()}
    run(math.inf)
    assert len(swept(state)) == 36
    assert trial.points == len(saved)
    again = trial.points
    run(-math.inf)
    assert trial.points == again


def test_law_is_measured_from_its_sweep_to_its_best_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(real_triton, "SEEDS", 1)
    monkeypatch.setattr(real_triton, "BEST_SEEDS", 1)
    found: dict[str, Any] = {"law": LAW.document()}

    def runner(seed: int) -> SimulatedTrial:
        return SimulatedTrial(LAW.guess, 0.01, seed, requests=5000)

    real_triton.LawRun(LAW, found, runner, lambda: None, math.inf).run()  # type: ignore[arg-type]
    recorded = json.loads(json.dumps(found))
    assert real_triton.is_complete(recorded)
    rates = [one.capacity_rps(LAW.objective_s) for one in swept(recorded)]
    truth = [LAW.guess.capacity(one.configuration, LAW.objective_s) for one in swept(recorded)]
    assert max(rates) == pytest.approx(max(truth), rel=0.05)
    tuning = recorded["tunes"]["0"]
    assert tuning["end"] == "decided"
    assert tuning["kept"]["requests"] == 5000
    assert by_name({LAW.label: recorded})["6.1"].value["worst_share"] > 0.95
    assert recorded["best"]["0"]["end"] == "nothing to change"


def state(*, share: float = 1.0, interval: tuple[float, float] = (0.9, 1.1), p99_ms: float = 700) -> dict[str, Any]:
    """A law whose best configuration has twice the rate of today's, with five equal tunings."""
    winner = replace(BEST, delay_s=0.04)
    sweep = {
        one.text(): SweptConfiguration(
            configuration=one, guess_rps=1, loads=(SweptLoad(rate_rps=rate, p99_ms=500, answered_rps=rate),)
        ).document()
        for one, rate in ((TODAY, 50.0), (BEST, 100.0), (winner, 99.0))
    }
    tuning = {
        "end": "decided",
        "best": asdict(winner),
        "today": asdict(TODAY),
        "interval": interval,
        "points": 20,
        "seconds": 300.0,
        "kept": {"requests": 5000, "p99_ms": p99_ms, "rate_rps": 90},
    }
    made = {
        "sweep": sweep,
        "tunes": {str(seed): tuning for seed in range(5)},
        "turns": {winner.text(): [[100 * share, 100.0]] * 2},
        "best": {str(seed): {"end": "nothing to change"} for seed in range(2)},
    }
    return json.loads(json.dumps(made))  # type: ignore[no-any-return]


def by_name(known: dict[str, Any]) -> dict[str, Row]:
    return {str(row.id): row for row in rows(known)}


def test_rows_hold_if_all_laws_are_as_asked() -> None:
    found = by_name({law.label: state() for law in LAWS})
    assert {name: holds(row) for name, row in found.items()} == dict.fromkeys(("6.1", "6.3", "6.4", "6.5"), True)
    assert found["6.1"].value["most_of_a_sweeps_points"] == pytest.approx(20 / 288, abs=1e-4)


@pytest.mark.parametrize(
    ("name", "wrong"),
    [("6.1", {"share": 0.9}), ("6.3", {"p99_ms": 950}), ("6.4", {"interval": (0.1, 0.2)})],
)
def test_row_falls_short_if_one_law_does(name: str, wrong: dict[str, Any]) -> None:
    known = {law.label: state() for law in LAWS}
    known[LAWS[2].label] = state(**wrong)
    assert [row for row, found in by_name(known).items() if not holds(found)] == [name]


def test_unmeasured_rows_fall_short_and_name_the_command() -> None:
    found = by_name({})
    assert not any(holds(row) for row in found.values())
    assert found["6.1"].value["worst_share"] is None
    assert "real_triton goes on" in found["6.1"].why


def test_records_of_another_law_do_not_count(tmp_path: Any) -> None:
    path = tmp_path / "recorded.json"
    assert states(path) == {}
    same, other = {"law": LAW.document()}, {"law": LAWS[1].document() | {"row_ms": 1}}
    path.write_text(json.dumps({LAW.label: same, LAWS[1].label: other}))
    assert list(states(path)) == [LAW.label]
