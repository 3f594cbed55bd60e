"""The counts that the formulae give, simulated: enough, and not much more."""

from __future__ import annotations

import numpy as np
import pytest

from halcyon.scaling.planner.capacity.queueing import LATE_SHARE, Replica, ServiceLine, rate_within, replicas_within
from halcyon_simulator.engine.case import Case, ServiceLaw
from halcyon_simulator.engine.run import simulate
from tests.simulator.case_builders import Plan, poisson

DURATION_S = 60.0


LAWS = [
    (ServiceLine(0.4, 0.0), 4),
    (ServiceLine(0.08, 0.008), 16),
    (ServiceLine(0.08, 0.006), 8),
    (ServiceLine(0.01, 0.004), 8),
    (ServiceLine(0.02, 0.001), 32),
    (ServiceLine(0.05, 0.05), 4),
    (ServiceLine(0.1, 0.0), 1),
]
"""Service lines and largest batches, from all fixed cost to all per row, and without batches."""


def late(
    line: ServiceLine, max_batch: int, count: int, rate: float, latency_s: float, *, duration_s: float = DURATION_S
) -> float:
    """The share of the requests that so many replicas answer too late."""
    service = ServiceLaw(t0_s=line.t0_s, a_s=line.row_s, max_batch=max_batch)
    case = Case("sizes", poisson(rate, duration_s, 1), duration_s, service, slo_s=latency_s, start_s=5.0, first=count, high=1000)  # fmt: skip
    return float(np.mean(simulate(case, Plan({0.0: count})).latency_s > latency_s))


@pytest.mark.parametrize("slower", [1.0, 1.2, 1.33, 1.5, 1.75, 2.0])
@pytest.mark.parametrize(
    ("line", "max_batch", "latency_s", "rate"),
    [
        (ServiceLine(0.08, 0.008), 16, 0.5, 769.0),  # 2.4 to 1.2 full batches
        (ServiceLine(0.08, 0.008), 16, 0.5, 60.0),
        (ServiceLine(0.01, 0.004), 8, 0.06, 600.0),  # 1.4 to 0.7
    ],
)
def test_replicas_for_a_tight_objective_suffice_and_a_fifth_fewer_do_not(
    line: ServiceLine, max_batch: int, latency_s: float, rate: float, slower: float
) -> None:
    line = ServiceLine(line.t0_s * slower, line.row_s * slower)
    count = replicas_within(rate, Replica(line, max_batch), latency_s, most=400)
    assert late(line, max_batch, count, rate, latency_s) <= 0.005
    if count >= 5 and slower < 1.75:  # with objectives of less than a full batch it is up to a fifth more than would do
        assert late(line, max_batch, int(0.8 * count), rate, latency_s) > 0.005


def test_replicas_do_not_jump_while_batches_become_slower() -> None:
    counts = [
        replicas_within(769.0, Replica(ServiceLine(0.08 * slower, 0.008 * slower), 16), 0.5, most=400)
        for slower in np.arange(1.0, 2.0, 0.01)
    ]
    steps = np.diff(counts)
    assert min(steps) >= 0
    assert max(steps / counts[:-1]) <= 0.12  # a batch of five in place of six, say


def test_the_rate_that_is_allowed_holds_and_is_nearly_all_that_does() -> None:
    room: list[bool] = []
    for line, max_batch in LAWS:
        for count in (1, 20):
            for batches in (2.4, 4.0, 8.0):
                latency_s = batches * line.seconds(max_batch)
                rate = rate_within(count, Replica(line, max_batch), latency_s)
                share = late(line, max_batch, count, rate, latency_s, duration_s=300.0)
                # The formula's tail is that of an endless objective: at 2.4 batches up to 0.7 % were late, and beyond 4 less than 0.1 %.
                assert share <= (0.01 if batches < 4 else LATE_SHARE), (line, max_batch, count, batches)
                room.append(late(line, max_batch, count, 1.05 * rate, latency_s, duration_s=300.0) <= LATE_SHARE)
    # With a twentieth more it no longer holds in most cases: so in the median at least 95 % of what holds is allowed (98.7 % by bisection).
    assert np.mean(room) < 0.5
