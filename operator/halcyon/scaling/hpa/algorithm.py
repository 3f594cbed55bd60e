"""The HPA's algorithm for External metrics with AverageValue targets, as a pure function.

It replaces the HPA if the operator writes the replicas itself (`actuator: Direct`), and returns the same replicas as
the HPA for the same readings. Source: the HPA controller of Kubernetes 1.35 (podautoscaler). The caller evaluates it
every `SYNC_INTERVAL_S`, as the HPA does.
"""

from __future__ import annotations

import math

from halcyon.api.spec.defaults import ResolvedTargets
from halcyon.api.spec.scaling import Behavior
from halcyon.scaling.hpa.behavior import HpaMemory, first_seen, paced, written
from halcyon.scaling.hpa.metrics import CONCURRENCY, GPU_UTILIZATION, METRIC, QUEUE_DEPTH, RulesReading
from halcyon.scaling.hpa.recommendation import Reasons, Recommendation, RecommendationLimit, SignalName, SignalProposal
from halcyon.scaling.observations import Missing, Value

SYNC_INTERVAL_S = 15.0
"""Interval between two evaluations, in seconds: the default of `--horizontal-pod-autoscaler-sync-period`."""
TOLERANCE = 0.1
"""Relative deviation from the target that causes no scaling: the default of `--horizontal-pod-autoscaler-tolerance`."""
MAX_REPLICAS = 2**31 - 1
"""Largest value of a replicas field in Kubernetes, an int32."""


def milli(value: float) -> int:
    """Return the value in thousandths, rounded up. The HPA calculates in this unit, and Kubernetes rounds this way.

    Raises:
        ValueError: the value is negative, NaN or infinite.
    """
    if not 0 <= value < math.inf:
        raise ValueError(f"a metric's value is {value}; it must be a number from 0 up, for example 12.5")
    # Sums of means have rounding errors of about 1e-12, which must not be rounded up to a whole thousandth.
    return min(math.ceil(round(value * 1000, 6)), 2**63 - 1)


def desired(
    now: float,
    current: int,
    reading: RulesReading,
    targets: ResolvedTargets,
    behavior: Behavior | None,
    *,
    low: int,
    high: int,
    memory: HpaMemory,
) -> Recommendation[HpaMemory]:
    """Return the replicas that an HPA would set now.

    `current` is spec.replicas, `low` and `high` are minReplicas and maxReplicas. All times are in seconds on the same
    clock.

    Like the HPA, the function treats scaling as off and returns 0 if `current` is 0 and `low` is above 0. If `current`
    is below `low` or above `high`, the result is that limit. If all metrics are missing, or if some are missing and the
    others propose fewer replicas, the result is `current`. Otherwise it is the largest proposal of the metrics, limited
    by `behavior`.
    """
    # | current                 | metrics                                      | replicas                               |
    # | ----------------------- | -------------------------------------------- | -------------------------------------- |
    # | 0, and low is above 0   | any                                          | 0: scaling is off                      |
    # | above high / below low  | any                                          | high / low                             |
    # | between low and high    | all missing                                  | current                                |
    # | between low and high    | some missing, the others propose fewer       | current                                |
    # | between low and high    | otherwise                                    | the largest proposal, after `behavior` |
    memory = first_seen(memory, now=now, current=current)
    if current == 0 and low != 0:
        return _decide(now, 0, Reasons(current, None, limits=(RecommendationLimit("off", 0),)), memory, behavior)
    if not low <= current <= high:
        bound = RecommendationLimit("max", high) if current > high else RecommendationLimit("min", low)
        return _decide(now, bound.count, Reasons(current, None, limits=(bound,)), memory, behavior)

    proposals = signal_proposals(reading, targets)
    proposed, winner = 0, None
    for term in proposals:
        if term.proposal is not None and (proposed == 0 or term.proposal > proposed):
            proposed, winner = term.proposal, term.name
    missing = sum(term.proposal is None for term in proposals)
    if missing == len(proposals) or (missing and proposed < current):
        reasons = Reasons(current, None, proposals, None, (RecommendationLimit("unknown", current),))
        return _decide(now, current, reasons, memory, behavior)
    count, limits, memory = paced(
        proposed, now=now, current=current, behavior=behavior, low=low, high=high, memory=memory
    )
    return _decide(now, count, Reasons(current, proposed, proposals, winner, limits), memory, behavior)


def signal_proposals(reading: RulesReading, targets: ResolvedTargets) -> tuple[SignalProposal, ...]:
    """Return the replicas that each signal proposes, as the HPA computes them before it applies any limit."""
    unsampled, unqueried = Missing("it was not sampled"), Missing("it was not queried")
    values: tuple[tuple[SignalName, Value | Missing, int | None], ...] = (
        (QUEUE_DEPTH, reading.queue_depth, targets.queue_depth),
        (GPU_UTILIZATION, reading.gpu_utilization or unsampled, targets.gpu_utilization),
        (CONCURRENCY, reading.concurrency or unsampled, targets.concurrency),
        (METRIC, reading.metric or unqueried, targets.metric),
    )
    return tuple(_term(name, value, target, reading.replicas) for name, value, target in values if target is not None)


def _term(name: SignalName, value: Value | Missing, target: int, replicas: int) -> SignalProposal:
    if isinstance(value, Missing):
        return SignalProposal(name, target, missing=value.reason)
    try:
        total = milli(value.value)
    except ValueError as error:
        return SignalProposal(name, target, missing=str(error))
    goal = float(target * 1000)
    ratio = total / (goal * replicas) if replicas else math.inf
    tolerated = 1.0 - TOLERANCE <= ratio <= 1.0 + TOLERANCE
    proposal = replicas if tolerated else min(math.ceil(total / goal), MAX_REPLICAS)
    return SignalProposal(name, target, value.value, ratio, proposal, tolerated)


def _decide(
    now: float, count: int, reasons: Reasons, memory: HpaMemory, behavior: Behavior | None
) -> Recommendation[HpaMemory]:
    after = written(memory, now=now, before=reasons.current, after=count, behavior=behavior)
    return Recommendation(count=count, reasons=reasons, memory=after, unwritten=memory)
