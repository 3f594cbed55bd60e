"""What-if calculation: the replicas needed for past arrival rates, with the present or with other objectives.

It applies the planner's steady-state targets to means over some minutes. It leaves out shorter bursts, pod starts,
backlogs, the time for which unused replicas are kept, and GPU utilisation, whose past values are not stored. `halcyon
simulate` covers all of these, from arrivals per second.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from halcyon.scaling.planner.capacity.queueing import Replica
from halcyon.scaling.planner.parts import replicas_for_depth, replicas_for_rate
from halcyon.scaling.planner.reading import Objectives

_HOUR_S = 3600.0
"""Seconds per hour, for GPU time in hours."""


@dataclass(frozen=True, slots=True)
class Known:
    """Learnt properties of a model, together with its objectives."""

    objectives: Objectives
    replica: Replica
    dispersion: float
    """Dispersion of the arrivals: the variance of their number divided by its mean."""
    margin: float
    """Headroom: the learnt share by which an arrival rate is increased before the replicas are computed."""


@dataclass(frozen=True, slots=True)
class WhatIfOutcome:
    """Result of a what-if calculation, for each step and in total."""

    counts: tuple[int | None, ...]
    """Number of replicas in each step; None if the arrival rate in the step isn't known."""
    replica_hours: float
    """Total replica-hours in the steps with a known arrival rate."""
    most: int | None
    short_hours: float
    """Number of hours during which the load needed more replicas than the maximum."""


def outcome(known: Known, rates: Sequence[float | None], step_s: float) -> WhatIfOutcome:
    """Return the replicas needed at the given arrival rates (requests per second).

    Each rate is the mean over a step of `step_s` seconds.
    """
    low, high = known.objectives.low, known.objectives.high
    # Rates are rounded to three digits, which is as precise as the means are. Equal rates are then computed only once.
    rounded = [None if rate is None else float(f"{rate:.3g}") for rate in rates]
    by_rate = {rate: _need(known, rate) for rate in set(rounded) if rate is not None}
    needs = [None if rate is None else by_rate[rate] for rate in rounded]
    counts = tuple(None if need is None else min(max(need, low), high) for need in needs)
    valid = [count for count in counts if count is not None]
    short = sum(need is not None and need > high for need in needs)
    return WhatIfOutcome(counts, sum(valid) * step_s / _HOUR_S, max(valid, default=None), short * step_s / _HOUR_S)


def _need(known: Known, rate: float) -> int:
    """Return the replicas needed for an arrival rate, capped at one more than the maximum."""
    if rate <= 0:
        return 0
    objectives, most = known.objectives, known.objectives.high + 1
    spread = known.dispersion
    need = replicas_for_rate(rate * (1 + known.margin), objectives, known.replica, dispersion=spread, most=most)
    if objectives.queue_depth:
        need = replicas_for_depth(rate, objectives.queue_depth, known.replica, dispersion=spread, least=need, most=most)
    return need
