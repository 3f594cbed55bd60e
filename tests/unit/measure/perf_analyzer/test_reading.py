"""Reading of perf_analyzer's table and output."""

from __future__ import annotations

import pytest

from halcyon_measure.perf_analyzer import reading

TABLE = """Concurrency,Inferences/Second,p50 latency,p90 latency,p95 latency,p99 latency,Avg latency
4,260.8,29930,31664,33101,37398,30509
"""
OUTPUT = """
Request concurrency: 4
  Client:
    Request count: 470
    Delayed Request Count: 12 (2.5%)
  Server:
    Successful request count: 470
"""


def test_inferences_of_several_rows_are_requests() -> None:
    result = reading.parse(TABLE, OUTPUT, rows=2)
    assert result is not None
    assert (result.rate_rps, result.requests, result.delayed) == (130.4, 470, 12)
    assert result.latencies_ms == pytest.approx(
        {"mean": 30.509, "p50": 29.93, "p90": 31.664, "p95": 33.101, "p99": 37.398}
    )


def test_table_without_a_mean_has_the_percentiles() -> None:
    table = "\n".join(line.rpartition(",")[0] for line in TABLE.splitlines())
    result = reading.parse(table, OUTPUT, rows=1)
    assert result is not None
    assert "mean" not in result.latencies_ms
    assert "p99" in result.latencies_ms


@pytest.mark.parametrize(
    ("table", "output"),
    [("", OUTPUT), (TABLE, ""), (TABLE.partition("\n")[0], OUTPUT), (TABLE[:90], OUTPUT), (TABLE[:105], OUTPUT)],
    ids=["no table", "no count", "no row", "cut head", "cut row"],
)
def test_output_without_a_result_has_no_reading(table: str, output: str) -> None:
    assert reading.parse(table, output, rows=1) is None
