"""The rate of a fine sweep at which 1 % of the requests are late, which judges searches on Triton."""

from __future__ import annotations

import math

import pytest

from benchmarks.measure.capacity import on_triton
from tests.simulator.measure.simulated_server import SimulatedServer, poisson


def points(shares: list[tuple[float, float]], requests: int = 100_000) -> list[dict[str, float]]:
    return [{"rate_rps": rate, "requests": requests, "late": round(requests * share)} for rate, share in shares]


def test_rate_of_a_sweep_is_where_one_percent_is_late() -> None:
    exact = [(50 * step, 0.01 * step**12) for step in on_triton.STEPS]
    assert on_triton.swept_rps(points(exact)) == pytest.approx(50, rel=0.002)
    assert on_triton.swept_rps(points(exact)[:2]) is None
    assert on_triton.swept_rps(points([(48, 0.02), (50, 0.01), (52, 0.005)])) is None


def test_sweep_of_a_simulated_server_finds_its_capacity() -> None:
    server = SimulatedServer(0.02, 0.0)
    true = server.true_capacity(0.1, 0.01, requests=120_000)
    swept = []
    for number, step in enumerate(on_triton.STEPS):
        due = poisson(step * true, 1200.0, 7 + number)
        late = server.latencies(due, 70 + number) > 0.1
        swept.append({"rate_rps": step * true, "requests": len(due), "late": int(late.sum())})
    capacity_rps = on_triton.swept_rps(swept)
    assert capacity_rps is not None
    assert math.log(capacity_rps / true) == pytest.approx(0, abs=0.03)


def test_errors_on_triton_have_the_sweeps_that_there_are() -> None:
    law = SimulatedServer(0.02, 0.0).__dict__
    unswept = {"law": law, "rate_rps": 36.0, "true_rps": 40.0, "saturation_rps": 45.0}
    swept = {**unswept, "sweep": points([(35 * step, 0.01 * step**12) for step in on_triton.STEPS])}
    errors = on_triton.errors([unswept, swept])
    assert errors == {
        "laws on Triton": 2,
        "largest error on Triton, ideal law, in %": 10.0,
        "largest error on Triton, law at the measured saturation, in %": 0.0,
        "laws with a fine sweep": 1,
        "largest error on Triton, fine sweep, in %": pytest.approx(2.9, abs=0.2),
    }
