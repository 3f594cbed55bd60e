"""`halcyon report`: a page beside the results, tables, CSV, and the results of a page."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from halcyon_cli.commands.app import run
from halcyon_cli.commands.measure.report import chart_library
from tests.bench_documents import bench_document


@pytest.fixture
def result(tmp_path: Path) -> Path:
    path = tmp_path / "bench.json"
    path.write_text(bench_document(duration_s=5).model_dump_json(indent=2))
    return path


def test_a_report_is_written_beside_the_result(result: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["report", str(result)]) == 0
    page = (result.parent / "report.html").read_text()
    assert page.startswith("<!doctype html>")
    assert f"halcyon report: wrote {result.parent}/report.html" in capsys.readouterr().err


def test_report_of_a_folder_is_written_into_it(result: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["report", str(result.parent)]) == 0
    assert f"halcyon report: wrote {result.parent}/report.html" in capsys.readouterr().err


def test_the_results_of_a_report_are_those_of_its_files(result: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = result.parent / "two.html"
    assert run(["report", str(result), str(result), "-o", str(page)]) == 0
    capsys.readouterr()
    assert run(["report", str(page), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == [json.loads(result.read_text())] * 2


def test_csv_and_table_are_printed(result: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["report", str(result), "--csv"]) == 0
    assert capsys.readouterr().out.startswith("file,version,made_by,made_at,target.url")
    assert run(["report", str(result), str(result), "--table"]) == 0
    assert capsys.readouterr().out.startswith("run ")
    assert not (result.parent / "report.html").exists()


def test_an_invalid_file_is_named_on_one_line(result: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result.write_text(result.read_text()[:300])
    assert run(["report", str(result)]) == 2
    assert capsys.readouterr().err.startswith(f"halcyon report: {result}: cut off after 300 bytes")


def test_a_form_that_prints_refuses_a_file(result: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["report", str(result), "--csv", "-o", "x.csv"]) == 2
    assert "--csv prints" in capsys.readouterr().err


@pytest.mark.parametrize("to", ["json", "csv", "bench.json"])
def test_a_page_is_not_written_under_the_name_of_another_form(
    result: Path, to: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(result.parent)
    before = result.read_text()
    assert run(["report", "bench.json", "-o", to]) == 2
    form = to.removeprefix("bench.")
    assert (
        f"-o {to}: the page is HTML; for {form.upper()}: halcyon report bench.json --{form}" in capsys.readouterr().err
    )
    assert [path.name for path in result.parent.iterdir()] == ["bench.json"]
    assert result.read_text() == before


def test_the_chart_library_is_that_of_the_dashboard() -> None:
    source, style = chart_library()
    assert bool(source) == bool(style)


def test_rows_of_files_with_one_name_have_their_paths(result: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = result.parent / "int8" / "bench.json"
    other.parent.mkdir()
    other.write_bytes(result.read_bytes())
    assert run(["report", str(result), str(other), "--csv"]) == 0
    assert [line.partition(",")[0] for line in capsys.readouterr().out.splitlines()] == [
        "file",
        str(result),
        str(other),
    ]


def test_a_report_replaces_none_of_several_files(result: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = result.parent / "report.html"
    assert run(["report", str(result)]) == 0
    before = page.read_bytes()
    assert run(["report", str(page), str(result)]) == 2
    assert "is one of the 2 files, and would be replaced; for example -o runs.html" in capsys.readouterr().err
    assert page.read_bytes() == before


def test_a_file_of_any_name_has_its_page(result: Path) -> None:
    odd = Path(os.fsdecode(os.fsencode(result.parent) + b"/r\xe9sultat.json"))
    odd.write_bytes(result.read_bytes())
    assert run(["report", str(odd)]) == 0
