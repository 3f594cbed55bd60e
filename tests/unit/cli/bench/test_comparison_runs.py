"""`halcyon bench --against` and leaderboards: results that can't be compared cost no measurement."""

from __future__ import annotations

from pathlib import Path

import pytest

from halcyon_cli.bench import comparison_runs, several_results
from halcyon_cli.bench.options.answer import AnswerOptions
from halcyon_cli.commands.bench import _status
from halcyon_measure.errors import SettingError
from halcyon_measure.results.document import BenchDocument
from tests.bench_documents import answers, bench_document


def test_a_result_that_can_not_be_compared_is_kept(capsys: pytest.CaptureFixture[str]) -> None:
    made, answer = bench_document(rate_rps=50.0), AnswerOptions(against="old.json")
    found = comparison_runs.with_result(("old.json", bench_document()), ("m", made), answer)
    assert (found, _status(found, answer)) == (made, 1)
    assert "old.json and m can't be compared, because they differ in load" in capsys.readouterr().err


def test_a_comparable_result_has_its_comparison() -> None:
    answer = AnswerOptions(against="old.json")
    found = comparison_runs.with_result(("old.json", bench_document()), ("m", bench_document()), answer)
    assert found.comparison is not None
    assert _status(found, answer) == 0


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
