"""What a run on a trial pod shows as a point."""

from __future__ import annotations

import math

import numpy as np
import pytest

from halcyon_cli.bench.trial.trial_runner import ending, point, rate_s
from halcyon_measure.protocols.reply import Outcome
from halcyon_measure.results.columns import Columns
from halcyon_measure.results.observations import (
    Counters,
    GpuSample,
    Observations,
    ProcessSample,
    Readings,
    ServerSample,
    SizeCounters,
    Statistics,
)
from halcyon_measure.results.run import Run
from halcyon_tune.points import Callers, Configuration, Rate


def run(latencies_s: list[float], failed: int = 0, seen: Observations | None = None) -> Run:
    rows = [
        (n / 10, n / 10, n / 10, math.nan, n / 10 + s, n / 10 + s, n / 10 + s, 0, 0, Outcome.ANSWERED, -1, 2, 9, 9, -1)
        for n, s in enumerate(latencies_s)
    ]
    rows += [(5.0, 5.0, 5.0, math.nan, 5.1, 5.1, 5.1, 0, 0, Outcome.REJECTED, 0, 2, 9, 0, -1)] * failed
    return Run(Columns.of(rows), ("full",), (), 1.0, None, 10.0, False, (), seen)


def shown(measurement: Run) -> tuple[float, float, float, int]:
    measured = point(Configuration(), Rate(rate_rps=10), measurement, seconds=12.0)
    assert measured.seconds == 12.0
    assert measured.failure is None
    return measured.throughput_rps, measured.mean_s, measured.p99_s, measured.requests


def test_point_has_the_figures_of_its_run() -> None:
    throughput, mean, p99, requests = shown(run([0.01] * 98 + [0.2, 0.3]))
    assert throughput == pytest.approx(10.0)
    assert mean == pytest.approx((0.98 + 0.5) / 100)
    assert p99 == pytest.approx(0.2)
    assert requests == 100


def test_point_of_an_overloaded_server_has_the_rate_at_which_it_answered() -> None:
    # 10 requests/s are due for 10 s, and each takes 0.2 s, one after the other.
    overloaded = run([(n + 1) / 5 - n / 10 for n in range(100)])
    measured = point(Configuration(), Rate(rate_rps=10), overloaded, seconds=12.0)
    assert measured.offered_rps == pytest.approx(10)
    assert measured.throughput_rps == pytest.approx(5, rel=0.02)
    called = point(Configuration(), Callers(callers=4), overloaded, seconds=12.0)
    assert called.throughput_rps == pytest.approx(10)


def test_point_has_the_offered_rate_and_the_delay_of_sending() -> None:
    rows = [
        (n, n, n + (0.3 if n == 7 else 0.001), math.nan, *(n + 1.0,) * 3, 0, 0, Outcome.ANSWERED, -1, 1, 9, 9, -1)
        for n in range(10)
    ]
    rows.append((11, 11, *(math.nan,) * 5, 0, 0, Outcome.NOT_SENT, -1, 1, 0, 0, -1))
    measured_run = Run(Columns.of(rows), (), (), 1.0, None, 10.0, False, (), None)
    late = [0.001] * 9 + [0.3]
    measured = point(Configuration(), Rate(rate_rps=1), measured_run, seconds=12.0)
    assert measured.offered_rps == pytest.approx(1.1)
    assert measured.throughput_rps == pytest.approx(1.0)
    assert measured.late_p99_s == pytest.approx(np.quantile(late, 0.99))


@pytest.mark.parametrize(
    ("load", "seconds"),
    [
        (Rate(rate_rps=500), 3.0),
        (Rate(rate_rps=20), 10.0),
        (Rate(rate_rps=500, min_s=8.0), 8.0),
        (Rate(rate_rps=2, min_s=8.0), 30.0),
        (Rate(rate_rps=20, min_requests=5000), 250.0),
    ],
)
def test_load_at_a_rate_lasts_for_enough_requests_and_objectives(load: Rate, seconds: float) -> None:
    assert rate_s(load) == seconds


def test_failed_requests_are_late_without_end() -> None:
    assert shown(run([0.01] * 100, failed=1))[2] == pytest.approx(0.01)
    assert shown(run([0.01] * 100, failed=2))[2] == math.inf


def test_batches_memory_and_power_come_from_the_readings() -> None:
    def statistics(single: float, eight: float) -> Statistics:
        total = Counters(single + eight, single + 8 * eight, single + eight, 0, 0, single + eight, 0)
        sizes = {
            1: SizeCounters(single, single * 0.001, single * 0.008, single * 0.001),
            8: SizeCounters(eight, 0, eight * 0.05, 0),
        }
        return Statistics(total, sizes)

    seen = Observations(
        before=statistics(2, 0),
        after=statistics(5, 10),
        servers=(Readings("a", tuple(ServerSample(t, gpus={"g": GpuSample(memory=m, power_w=90 + t)}) for t, m in ((0, 1e9), (1, 3e9)))),),
        processes=(Readings("a", (ProcessSample(0, memory=5e9),)),),
    )  # fmt: skip
    measured = point(Configuration(), Rate(rate_rps=10), run([0.01] * 10, seen=seen), seconds=1.0)
    assert {rows: executions for rows, (executions, _) in measured.batches.items()} == {1: 3, 8: 10}
    assert [seconds for _, seconds in measured.batches.values()] == pytest.approx([0.03, 0.5])
    assert measured.memory_bytes == 3_000_000_000
    assert measured.power_w == pytest.approx(90.5)
    assert measured.rows_per_request == 2
    without = point(Configuration(), Rate(rate_rps=10), run([0.01] * 10), seconds=1.0)
    assert (dict(without.batches), without.memory_bytes, without.power_w) == ({}, None, None)
    assert np.isfinite(without.p99_s)


@pytest.mark.parametrize(
    ("error", "memory", "kind", "why"),
    [
        ("connection reset", None, "Ended", "the server has ended: connection reset"),
        ("", (1.0 * 2**30, 4.0 * 2**30), "Ended", "the server has ended; it had 1024 of 4096 MiB of memory"),
        (
            "reset",
            (3.9 * 2**30, 4.0 * 2**30),
            "Memory",
            "the server has ended: reset; it had 3994 of 4096 MiB of memory",
        ),
        ("CUDA out of memory", None, "Memory", "the server has ended: CUDA out of memory"),
    ],
)
def test_server_that_ends_near_its_limit_had_too_little_memory(
    error: str, memory: tuple[float, float] | None, kind: str, why: str
) -> None:
    assert ending(error, memory) == (kind, why)
