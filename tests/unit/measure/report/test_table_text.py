"""Results as the text of a terminal."""

from __future__ import annotations

from halcyon_measure.report import table_text
from halcyon_measure.results import text
from tests.bench_documents import bench_document, stored


def test_one_run_is_the_text_of_bench() -> None:
    document = bench_document()
    assert table_text.page(stored(document)) == text.page(document)


def test_several_runs_are_lines_of_a_table() -> None:
    lines = table_text.page(stored(bench_document(rows=1), bench_document(rows=8, seed=2))).splitlines()
    assert lines[0].split() == ["run", "requests/s", "p50", "ms", "p99", "ms", "p99.9", "ms", "failed", "valid"]
    assert [line[:6] for line in lines[1:3]] == ["1 row ", "8 rows"]
    assert lines[1].endswith("yes")


def test_control_characters_of_a_name_are_escaped() -> None:
    page = table_text.page(stored(bench_document(model="a\x1b[31m"), bench_document(model="b")))
    assert "\x1b" not in page
    assert "a\\u001b[31m" in page
