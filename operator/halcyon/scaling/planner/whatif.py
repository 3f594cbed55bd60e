"""What if: the counts that the planner's targets ask for at arrivals of the past, with the limits and the latency as they are, or with others.

From means of some minutes, in steady state: what the planner does about bursts within them, starts, backlogs and what it holds is not
in it, nor GPU utilisation, of which no past is kept. `halcyon simulate` has all that, from arrivals by the second.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from halcyon.scaling.planner.capacity.queueing import Replica
from halcyon.scaling.planner.parts import for_depth, sized
from halcyon.scaling.planner.reading import Objectives

_HOUR_S = 3600.0
"""GPU time is told in hours."""


@dataclass(frozen=True, slots=True)
class Known:
    """What was learnt of a model, and what is asked of it."""

    objectives: Objectives
    replica: Replica
    dispersion: float
    """Variance of the number of arrivals over its mean."""
    margin: float
    """Share that is put on top of a rate."""


@dataclass(frozen=True, slots=True)
class WhatIfOutcome:
    """What would have been, step by step and in all."""

    counts: tuple[int | None, ...]
    """None where the rate isn't known."""
    replica_hours: float
    """Of the steps that are known."""
    most: int | None
    short_hours: float
    """For so long more was needed than the upper limit allows."""


def outcome(known: Known, rates: Sequence[float | None], step_s: float) -> WhatIfOutcome:
    """The counts at these rates (requests/s), each the mean of `step_s` seconds."""
    low, high = known.objectives.low, known.objectives.high
    # A rate to three digits is as good as the mean that it is, and many are the same then.
    rounded = [None if rate is None else float(f"{rate:.3g}") for rate in rates]
    by_rate = {rate: _need(known, rate) for rate in set(rounded) if rate is not None}
    needs = [None if rate is None else by_rate[rate] for rate in rounded]
    counts = tuple(None if need is None else min(max(need, low), high) for need in needs)
    there = [count for count in counts if count is not None]
    short = sum(need is not None and need > high for need in needs)
    return WhatIfOutcome(counts, sum(there) * step_s / _HOUR_S, max(there, default=None), short * step_s / _HOUR_S)


def _need(known: Known, rate: float) -> int:
    """What a rate asks for; one more than the limit stands for whatever is above it."""
    if rate <= 0:
        return 0
    objectives, most = known.objectives, known.objectives.high + 1
    spread = known.dispersion
    need = sized(rate * (1 + known.margin), objectives, known.replica, dispersion=spread, most=most)
    if objectives.queue_depth:
        need = for_depth(rate, objectives.queue_depth, known.replica, dispersion=spread, least=need, most=most)
    return need
