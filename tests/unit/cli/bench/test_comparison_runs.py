"""`halcyon bench --against` and leaderboards: results that can't be compared cost no measurement."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from halcyon_cli.bench import comparison_runs, from_here, several_results
from halcyon_cli.bench.options.answer import AnswerOptions
from halcyon_cli.bench.options.inputs import InputOptions
from halcyon_cli.bench.options.load import LoadOptions
from halcyon_cli.bench.options.place import PlaceOptions
from halcyon_cli.bench.options.server import ServerOptions
from halcyon_cli.bench.place.bench_request import BenchRequest
from halcyon_cli.commands.bench import _status
from halcyon_cli.errors import InputError
from halcyon_measure.errors import ScenarioError, SettingError
from halcyon_measure.measurement import Measurement
from halcyon_measure.protocols.target import parse
from halcyon_measure.results.document import BenchDocument
from halcyon_measure.results.used_files import used
from halcyon_measure.schedule.scenario import Scenario
from tests.bench_documents import answers, bench_document


def test_a_result_that_can_not_be_compared_is_kept(capsys: pytest.CaptureFixture[str]) -> None:
    measured, answer = bench_document(rate_rps=50.0), AnswerOptions(against="old.json")
    result = comparison_runs.with_result(("old.json", bench_document()), ("m", measured), answer)
    assert (result, _status(result, answer)) == (measured, 1)
    assert "old.json and m can't be compared, because they differ in load" in capsys.readouterr().err


def test_a_comparable_result_has_its_comparison() -> None:
    answer = AnswerOptions(against="old.json")
    result = comparison_runs.with_result(("old.json", bench_document()), ("m", bench_document()), answer)
    assert result.comparison is not None
    assert _status(result, answer) == 0


def test_a_result_with_files_is_compared_with_a_run_of_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "x.npy").write_bytes(b"1")
    files = used([str(tmp_path / "x.npy")])
    baseline = tmp_path / "bench.json"
    baseline.write_text(bench_document().model_copy(update={"files": files}).model_dump_json())
    monkeypatch.setattr(from_here, "run", lambda _: (None, bench_document()))
    prepared, answer, load = cast(Measurement, None), AnswerOptions(against=str(baseline)), LoadOptions(callers=1)
    _, result = from_here.run_comparison(prepared, ServerOptions(), load, answer, lambda _: prepared, files=files)
    assert capsys.readouterr().err == ""
    assert (result.comparison is not None, result.files) == (True, files)


def test_a_comparison_that_decides_nothing_fails_a_pipeline() -> None:
    answer = AnswerOptions(against="old.json", fail_if=["capacity < -5%"])
    result = comparison_runs.with_result(("old.json", bench_document()), ("m", bench_document()), answer)
    assert _status(result, answer) == 1
    slower = AnswerOptions(against="old.json", fail_if=["p50 > +5%"])
    result = comparison_runs.with_result(("old.json", bench_document()), ("m", bench_document()), slower)
    assert _status(result, slower) == 0


def test_rounds_without_an_interval_decide_no_condition() -> None:
    with pytest.raises(InputError, match=r"--fail-if needs an interval, and --rounds 2 gives none; .*--rounds 3"):
        AnswerOptions(against="http://a:8000", rounds=2, fail_if=["p99 > +5%"]).check()
    AnswerOptions(against="last", rounds=2, fail_if=["p99 > +5%"]).check()


class _Interrupted:
    """Rounds of two servers, of which Ctrl-C interrupts the run with the number `at`."""

    def __init__(self, at: int) -> None:
        self.at, self.count = at, 0

    def measure(self, *_: object, **__: object) -> tuple[Any, BenchDocument]:
        self.count += 1
        partial = self.count == self.at
        document = bench_document(rate_rps=50.0, seed=self.count) if not partial else bench_document(duration_s=1.0)
        return SimpleNamespace(partial=partial), document


def test_an_interrupted_round_is_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comparison_runs, "_measure", _Interrupted(8).measure)
    side: Any = SimpleNamespace(scenario=Scenario(kind="sustained", rate_rps=50.0))
    result = comparison_runs.in_turns(
        side, side, AnswerOptions(against="http://a"), has_load=True, show=lambda _: None, named=("a", "b")
    )[1]
    assert result.comparison is not None
    assert result.comparison.rounds == 3
    assert result.run.invalid_because[-1] == "the comparison was interrupted after 3 of 6 rounds"
    assert _status(result, AnswerOptions()) == 1


def test_a_comparison_interrupted_at_saturation_has_no_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    rounds = _Interrupted(1)
    monkeypatch.setattr(comparison_runs, "_measure", rounds.measure)
    side: Any = SimpleNamespace(scenario=Scenario())
    with pytest.raises(ScenarioError, match="interrupted before its first round"):
        comparison_runs.in_turns(
            side, side, AnswerOptions(against="http://a"), has_load=False, show=lambda _: None, named=("a", "b")
        )
    assert rounds.count == 1


def test_a_leaderboard_reads_its_files_before_it_measures(tmp_path: Path) -> None:
    (tmp_path / "cut.json").write_text('{"version": 1')

    def measured(name: str) -> BenchDocument:
        raise AssertionError(name)

    with pytest.raises(Exception, match=r"cut.json: cut off after 13 bytes"):
        several_results.leaderboard(
            ("http://a:8000#m", str(tmp_path / "cut.json")), AnswerOptions(), measured, lambda _: None
        )


def test_a_leaderboard_of_two_objectives_prints_what_was_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stored = tmp_path / "old.json"
    stored.write_text(bench_document(objective_s=None).model_dump_json())
    full = bench_document().model_copy(update={"capacity": answers()["capacity"]})
    assert full.capacity is not None
    with pytest.raises(SettingError, match="a leaderboard is at one objective"):
        several_results.leaderboard(("http://a:8000#m", str(stored)), AnswerOptions(), lambda _: full, lambda _: None)
    assert f"http://a:8000#m: {full.capacity.sentence}" in capsys.readouterr().err


def test_interruption_between_two_rounds_keeps_the_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    rounds = _Interrupted(8)

    def measure(*arguments: object, **others: object) -> tuple[Any, BenchDocument]:
        run, document = rounds.measure(*arguments, **others)
        if run.partial:
            raise KeyboardInterrupt
        return run, document

    monkeypatch.setattr(comparison_runs, "_measure", measure)
    side: Any = SimpleNamespace(scenario=Scenario(kind="sustained", rate_rps=50.0))
    result = comparison_runs.in_turns(
        side, side, AnswerOptions(against="http://a"), has_load=True, show=lambda _: None, named=("a", "b")
    )[1]
    assert result.comparison is not None
    assert (result.comparison.rounds, result.run.partial) == (3, True)


def test_load_of_an_earlier_result_keeps_the_limit_in_flight() -> None:
    target = parse("http://m:8000", api="kserve", transport=None, encoding=None, model="m")
    prepared = Measurement(target=target, scenario=Scenario(max_in_flight=32))
    scenario = comparison_runs.with_load_of(prepared, bench_document(rate_rps=50.0)).scenario
    assert (scenario.rate_rps, scenario.max_in_flight) == (50.0, 32)


def test_objective_of_an_earlier_result_is_that_of_its_repetition() -> None:
    target = parse("http://m:8000", api="kserve", transport=None, encoding=None, model="m")
    prepared, stored = Measurement(target=target, scenario=Scenario()), bench_document(rate_rps=50.0, objective_s=0.25)
    assert comparison_runs.with_load_of(prepared, stored).objective_s == 0.25
    other = replace(prepared, objective_s=0.1)
    assert comparison_runs.with_load_of(other, stored).objective_s == 0.1
    without = bench_document(rate_rps=50.0, objective_s=None)
    assert comparison_runs.with_load_of(prepared, without).objective_s is None


def test_load_of_an_earlier_result_is_repeated_for_a_model_deployment() -> None:
    request = BenchRequest(
        name="m", server=ServerOptions(), load=LoadOptions(), inputs=InputOptions(), place=PlaceOptions()
    )
    repeated = several_results.repeating(request, bench_document(rate_rps=50.0, seed=7)).load
    assert repeated.has_load
    scenario = repeated.build_scenario()
    assert (scenario.kind, scenario.rate_rps, scenario.seed) == ("sustained", 50.0, 7)
    callers = replace(request, load=LoadOptions(callers=4))
    assert several_results.repeating(callers, bench_document(rate_rps=50.0)) is callers
    search = bench_document().model_copy(update={"capacity": answers()["capacity"]})
    assert several_results.repeating(request, search) is request
