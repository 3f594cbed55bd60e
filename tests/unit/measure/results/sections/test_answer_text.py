"""Answers of a measurement as text."""

from __future__ import annotations

from halcyon_measure.compare import section
from halcyon_measure.results.figure import Figure
from halcyon_measure.results.sections import answer_text
from halcyon_measure.results.sections.sweep import Sweep, SweepPoint
from tests.bench_documents import bench_document


def figure(value: float) -> Figure:
    return Figure(value=value, unit="ms", n=1000, source="due to answered")


def point(*, callers: int | None, rate_rps: float | None, protocol: str, encoding: str, valid: bool) -> SweepPoint:
    """Return a point with figures that are as wide as they get."""
    return SweepPoint(
        rows="128",
        protocol=protocol,
        encoding=encoding,
        callers=callers,
        rate_rps=rate_rps,
        replicas=1,
        throughput=figure(123456.7),
        rows_per_second=figure(12345678.9),
        p50=figure(12345.6),
        p99=figure(123456.7),
        cpu_per_request=figure(123456.7),
        failed=123456,
        valid=valid,
        invalid_because=() if valid else ("the client was the bottleneck",),
    )


def test_figures_with_the_same_reason_share_its_line() -> None:
    results = [bench_document(seed=seed) for seed in (1, 2)]
    lines = answer_text.comparison(section.build(("A", results), ("B", results), in_turns=True))
    assert lines[-2:] == [
        "throughput, mean, p50, p95, p99, cpu: fewer than 3 rounds, so there is no",
        "interval",
    ]
    rows = [(name, result) for name, result in zip("AB", results, strict=True)]
    lines = answer_text.comparison(section.leaderboard(rows, anyway=True))
    assert "requests/s, cost/1000, J, mg CO2: it isn't in this result" in lines


def test_the_table_of_a_sweep_is_at_most_80_columns_wide() -> None:
    points = (
        point(callers=1024, rate_rps=None, protocol="http", encoding="binary", valid=False),
        point(callers=None, rate_rps=123456.0, protocol="grpc", encoding="typed", valid=True),
    )
    lines = answer_text.sweep(Sweep(grid="rows=128", points=points, payloads=(), partial=False))

    assert max(map(len, lines)) == 80
    assert [line.split() for line in lines[1:3]] == [
        ["128", "http", "binary", "1024", "callers", "123457", "12345679", "12346", "123457", "123457", "123456!"],
        ["128", "grpc", "typed", "123456/s", "123457", "12345679", "12346", "123457", "123457", "123456"],
    ]
    assert lines[3:] == ["!: not valid, the client was the bottleneck"]
