"""The history of a model's measurements in a ConfigMap."""

from __future__ import annotations

import json
from typing import Any

from halcyon_cli.bench.records import history
from halcyon_cli.bench.records.past_results import row
from halcyon_measure.results.document import BenchDocument, FailureKind, Second
from halcyon_measure.results.place import Place
from tests.bench_documents import answers, bench_document
from tests.unit.measure.results.test_summary import EVEN, document

MODEL: dict[str, Any] = {"metadata": {"name": "digits", "namespace": "team", "uid": "u-1"}}


def result(minute: int, **changes: Any) -> BenchDocument:
    defaults = {"made_at": f"2026-11-28T10:{minute:02d}:00Z", "place": Place(kind="copy", revision="digits-abc")}
    return document(EVEN).model_copy(update=defaults | changes)


def test_history_keeps_the_ten_newest() -> None:
    stored: dict[str, Any] | None = None
    for minute in (5, 3, *range(10, 21)):
        stored = history.extended(MODEL, stored, result(minute)) | {}
        stored["metadata"]["resourceVersion"] = str(minute)
    assert stored is not None
    entries = history.entries(stored)
    assert [entry["made_at"][14:16] for entry in entries] == [str(minute) for minute in range(20, 10, -1)]
    assert stored["metadata"]["ownerReferences"][0]["uid"] == "u-1"


def test_write_is_on_condition_of_the_version_that_was_read() -> None:
    first = history.extended(MODEL, None, result(1))
    assert "resourceVersion" not in first["metadata"]
    first["metadata"]["resourceVersion"] = "7"
    assert history.extended(MODEL, first, result(2))["metadata"]["resourceVersion"] == "7"


def test_results_of_the_same_second_are_both_kept() -> None:
    stored = history.extended(MODEL, None, result(1))
    stored["metadata"]["resourceVersion"] = "1"
    assert len(history.entries(history.extended(MODEL, stored, result(1)))) == 2


def test_a_result_of_a_slow_clock_is_kept_as_the_newest() -> None:
    stored: dict[str, Any] | None = None
    for minute in (*range(20, 30), 1, 2):
        stored = history.extended(MODEL, stored, result(minute))
        stored["metadata"]["resourceVersion"] = str(minute)
    entries = history.entries(stored)
    assert [entry["made_at"][14:16] for entry in entries] == ["02", "01", *map(str, range(29, 21, -1))]


def test_summary_is_small_however_long_the_run() -> None:
    second = Second(t_s=1, due=1, answered=1, failed=0, p50_ms=1.5, p99_ms=2.5)
    failure = FailureKind(outcome="error", message="x" * 2000, count=1, first_s=0, last_s=1)
    text = history.summary(result(1, timeline=(second,) * 3600, failures=(failure,) * 20))
    assert len(text.encode()) <= history.MAX_SUMMARY_BYTES
    assert BenchDocument.model_validate_json(text).place is not None


def test_entries_of_other_versions_are_omitted() -> None:
    assert history.entries({"data": {"1.json": "{", "2.json": '{"version": 2}', "3.json": "[]"}}) == []
    assert history.entries(None) == []


def test_row_shows_the_load_and_the_figures() -> None:
    cells = row(json.loads(history.summary(result(1))))
    assert cells[:3] == ["2026-11-28T10:01:00Z", "copy", "digits-abc"]
    assert cells[4].endswith("/s")
    assert cells[6].endswith(" ms")


def test_the_load_of_a_row_is_whole() -> None:
    summary = json.loads(history.summary(bench_document(duration_s=5)))
    assert row(summary)[3] == "sustained 100/s"
    trace = summary | {"scenario": summary["scenario"] | {"kind": "trace", "rate_rps": None, "callers": None}}
    assert row(trace)[3] == "trace"
    sweep = answers()["sweep"].model_dump(mode="json")
    assert row(summary | {"sweep": sweep})[3] == "last of 6 points, sustained 100/s"
    slow = summary | {"throughput": summary["throughput"] | {"value": 0.0033}}
    assert row(slow)[4] == "0.0033/s"
