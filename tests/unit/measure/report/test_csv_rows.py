"""Results as CSV: the names of the document, a row for each run, and no formulas."""

from __future__ import annotations

import csv
import io

from halcyon_measure.report import csv_rows
from tests.bench_documents import answers, bench_document, stored


def rows(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_a_run_is_a_row_with_the_names_of_the_document() -> None:
    first, second = bench_document(), bench_document(seed=2, rate_rps=50)
    table = rows(csv_rows.text(stored(first, second)))
    assert [float(row["latency.p99 [ms]"]) for row in table] == [first.latency.p99.value, second.latency.p99.value]
    interval = first.latency.p99.interval
    assert interval is not None
    assert (float(table[0]["latency.p99.low"]), float(table[0]["latency.p99.high"])) == interval
    assert [row["scenario.rate_rps"] for row in table] == ["100.0", "50.0"]


def test_a_figure_without_a_value_is_an_empty_cell() -> None:
    table = rows(csv_rows.text(stored(bench_document(sections=True), bench_document(objective_s=None))))
    assert table[1]["goodput [requests/s]"] == ""
    assert table[1]["energy.per_inference [J]"] == ""
    assert "energy.gpu [J]" not in table[0]


def test_text_is_never_a_formula() -> None:
    table = rows(csv_rows.text(stored(bench_document(model="=1+1"))))
    assert table[0]["target.model"] == "'=1+1"


def test_the_points_of_a_sweep_are_rows() -> None:
    document = bench_document().model_copy(update=answers())
    table = rows(csv_rows.text(stored(document)))
    assert len(table) == 7
    assert [row["sweep.points.p99 [ms]"] for row in table] == ["", "5.0", "10.0", "15.0", "40.0", "80.0", "120.0"]
    assert table[0]["capacity.rate [requests/s]"] == "98.0"
