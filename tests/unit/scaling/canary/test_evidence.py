"""What a window adds to the evidence, case by case; whole rollouts are simulated in tests/simulator."""

from __future__ import annotations

import math

import pytest

from halcyon.scaling.canary.analysis import CanaryMemory, Histogram, Rules, Sample, judge
from halcyon.scaling.canary.evidence import FIRST_S, SETTLE_S

BOUNDS_S = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
LATENCY = Rules(error_margin=None, queue_ratio=None)


def sample(count: int, took_s: float, *, newest_s: float = math.inf, compute_s: float = 0.008) -> Sample:
    """Return the sample of a second in which all responses took equally long."""
    counts = [0] * (len(BOUNDS_S) + 1)
    counts[next(n for n, bound in enumerate((*BOUNDS_S, math.inf)) if took_s <= bound)] = count
    latency = Histogram(BOUNDS_S, tuple(counts))
    return Sample(
        requests=count, failures=0, latency=latency, compute_us=round(1e6 * compute_s * count), newest_s=newest_s
    )


def seconds(took_s: list[float], *, from_s: float, compute_s: float) -> int | None:
    """Return the number of seconds until a canary with these response times is rolled back; None if it isn't."""
    memory: CanaryMemory | None = None
    for second, response_s in enumerate(took_s, start=1):
        canary = sample(30, response_s, newest_s=from_s + second, compute_s=compute_s)
        decision = judge(sample(120, 0.008), canary, LATENCY, memory)
        memory = decision.memory
        if decision.action == "rollback":
            return second
    return None


@pytest.mark.parametrize(
    ("took_s", "from_s", "compute_s", "expected"),
    [
        pytest.param([0.1] * 12, 0, 0.09, FIRST_S + 2, id="very late, executions too: three windows from FIRST_S on"),
        pytest.param([0.1] * 12, 0, 0.008, None, id="very late, executions are not: a queue that a cold start left"),
        pytest.param([0.1] * 30, 0, 0.008, SETTLE_S + 2, id="very late, executions are not, once it has settled"),
        pytest.param([0.05] * 12, 0, 0.016, None, id="late while it settles"),
        pytest.param([0.05] * 30, 0, 0.016, SETTLE_S + 7, id="late, once it has settled: eight windows"),
        pytest.param([1.0, 0.5, 0.2, 0.1, 0.05] * 1, 60, 0.09, None, id="a queue that ends"),
        pytest.param([0.5, 0.5], 60, 0.09, None, id="a stall of two seconds"),
        pytest.param([0.008] * 60, 60, 0.008, None, id="as fast as stable"),
    ],
)
def test_a_late_canary_is_rolled_back_when_nothing_else_explains_it(
    took_s: list[float], from_s: float, compute_s: float, expected: float | None
) -> None:
    assert seconds(took_s, from_s=from_s, compute_s=compute_s) == expected
