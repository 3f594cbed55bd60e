"""The load of each point of a sweep."""

from __future__ import annotations

import pytest

from halcyon_cli.bench import sweep_runs
from halcyon_cli.bench.options.answer import AnswerOptions
from halcyon_cli.bench.sweep_runs import point_scenario
from halcyon_measure.measurement import Measurement
from halcyon_measure.protocols.target import parse
from halcyon_measure.results.run import Run
from halcyon_measure.schedule.scenario import Scenario
from halcyon_measure.sweep.grid import Point
from tests.bench_documents import bench_run


def test_callers_of_a_sweep_keep_their_think_time() -> None:
    swept = point_scenario(Scenario(think_s=0.1, seed=7), Point(callers=8), 5.0).check()
    assert (swept.kind, swept.callers, swept.think_s, swept.duration_s, swept.seed) == ("blocking", 8, 0.1, 5.0, 7)
    sustained = Scenario(kind="sustained", rate_rps=10)
    assert point_scenario(sustained, Point(callers=8), 5.0).check().think_s == 0


def test_rates_of_a_sweep_keep_their_bursts() -> None:
    scenario = point_scenario(
        Scenario(kind="burst", rate_rps=10, cv=3, max_in_flight=64), Point(rate_rps=50), 5.0
    ).check()
    assert (scenario.kind, scenario.cv, scenario.rate_rps, scenario.max_in_flight) == ("burst", 3, 50, 64)
    scenario = point_scenario(Scenario(max_in_flight=64), Point(rate_rps=50), 5.0).check()
    assert (scenario.kind, scenario.cv, scenario.rate_rps, scenario.max_in_flight) == ("sustained", None, 50, 64)


def test_a_sweep_of_rows_has_the_load_of_the_options() -> None:
    base = Scenario(callers=4, think_s=0.1, requests=10)
    scenario = point_scenario(base, Point(rows=8), 5.0)
    assert (scenario.callers, scenario.think_s, scenario.requests, scenario.duration_s) == (4, 0.1, None, 5.0)


def test_interruption_between_two_points_keeps_the_points(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = iter([bench_run(), bench_run()])

    def next_run(*_: object) -> Run:
        run = next(runs, None)
        if run is None:
            raise KeyboardInterrupt
        return run

    monkeypatch.setattr(Measurement, "prepare", lambda self: self)
    monkeypatch.setattr(Measurement, "run", next_run)
    target = parse("http://m:8000/predict", api="post", transport=None, encoding=None)
    prepared = Measurement(target=target, scenario=Scenario(), sampling=None)
    answer = AnswerOptions(sweep=["callers=1,2,4"])
    _, document = sweep_runs.run(prepared, answer, duration_s=None, show=lambda _: None)
    assert document.sweep is not None
    assert (len(document.sweep.points), document.sweep.partial, document.run.valid) == (2, True, False)
