from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from halcyon_simulator.bounds.replica_capacity import capacity_rps, latencies
from halcyon_simulator.engine.case import ServiceLaw
from tests.simulator.case_builders import SECOND, poisson

L1 = ServiceLaw(0.4, 0.0, 4)


def test_at_its_capacity_a_replica_just_meets_the_objective() -> None:
    mu = capacity_rps(L1, 2.4)
    assert 0.8 * L1.peak_rps < mu < L1.peak_rps
    p99 = [np.percentile(latencies(L1, poisson(mu * part, 400_000 / mu, seed=7)), 99) for part in (0.97, 1.03)]
    assert p99[0] < 2.4 < p99[1]


def test_capacity_without_batching_is_that_of_md1() -> None:
    # M/D/1 waits longer than 2 services with probability 1 % at a load of 0.36 (Crommelin's distribution).
    load = 0.36
    waits = latencies(SECOND, poisson(load, 400_000, seed=5)) - 1
    assert capacity_rps(SECOND, 1 + float(np.percentile(waits, 99))) == pytest.approx(load, rel=0.03)


def test_more_time_never_means_less_capacity_and_the_peak_is_the_most() -> None:
    rates = [capacity_rps(L1, slo_s) for slo_s in (0.9, 1.2, 2.4, 24.0)]
    assert rates == sorted(rates)
    assert rates[-1] <= L1.peak_rps


def test_an_objective_below_one_requests_time_is_refused_with_a_good_example() -> None:
    message = (
        "a replica meets an SLO of 300 ms at no rate: a single request takes 400 ms; for example an SLO of 1200 ms"
    )
    with pytest.raises(ValueError, match=f"^{message}$"):
        capacity_rps(L1, 0.3)


@pytest.mark.parametrize("load", [0.3, 0.7, 0.95, 1.2])
@pytest.mark.parametrize(
    "service",
    [
        ServiceLaw(0.01, 0.002, 1),
        ServiceLaw(0.01, 0.002, 8, 2),
        ServiceLaw(0.01, 0.002, 8, 2, delay_s=0.005),
        ServiceLaw(0.01, 0.002, 32, 8, delay_s=0.03),
        ServiceLaw(0.0, 0.0, 4, 3, times_s=(0.03, 0.02, 0.05, 0.1)),
    ],
)
def test_latencies_batch_by_batch_are_those_of_the_event_loop(service: ServiceLaw, load: float) -> None:
    arrivals = poisson(load * service.peak_rps, 3000 / service.peak_rps, seed=3)
    # A lock with room for all instances delays no batch, but is simulated by events.
    by_events = latencies(replace(service, lock=float(service.instances)), arrivals)
    assert latencies(service, arrivals) == pytest.approx(by_events, rel=1e-5, abs=1e-6)
