"""Pace of scaling: the HPA's stabilisation and rate limits, with and without `spec.scaling.behavior`.

Source: the HPA controller of Kubernetes 1.35 (podautoscaler/horizontal.go). The results are checked against this
controller (tests/unit/scaling/golden). The code also discards history as the HPA does: each new entry overwrites one
expired entry. An entry expires after the longest period among the policies of its direction. Out of scope: the replicas
that the signals propose.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from halcyon.api.spec.scaling import Behavior, ScalingPolicy, ScalingRules
from halcyon.scaling.hpa.recommendation import RecommendationLimit

DOWN_WINDOW_S = 300
"""Stabilisation window of a scale-down, in seconds: the default of
`--horizontal-pod-autoscaler-downscale-stabilization`."""
_UP = ScalingRules(
    stabilization_window_seconds=0,
    select_policy="Max",
    policies=(
        ScalingPolicy(type="Pods", value=4, period_seconds=15),
        ScalingPolicy(type="Percent", value=100, period_seconds=15),
    ),
)
_DOWN = ScalingRules(
    stabilization_window_seconds=DOWN_WINDOW_S,
    select_policy="Max",
    policies=(ScalingPolicy(type="Percent", value=100, period_seconds=15),),
)

Entries = tuple[tuple[float, int], ...]
"""Entries of a history as (time in seconds, number of replicas), in the order in which the HPA stores them."""


@dataclass(frozen=True)
class HpaMemory:
    """State of the HPA's algorithm between two evaluations."""

    recommendations: Entries = ()
    """Replicas that the signals proposed at recent evaluations, before stabilisation."""
    added: Entries = ()
    """Number of pods added by each recent scale-up."""
    removed: Entries = ()
    """Number of pods removed by each recent scale-down."""


def first_seen(memory: HpaMemory, *, now: float, current: int) -> HpaMemory:
    """Return the memory. If it has no recommendation, the current replicas become the first one.

    This prevents a fast scale-down after a restart of the operator.
    """
    return memory if memory.recommendations else replace(memory, recommendations=((now, current),))


def paced(
    proposed: int, *, now: float, current: int, behavior: Behavior | None, low: int, high: int, memory: HpaMemory
) -> tuple[int, tuple[RecommendationLimit, ...], HpaMemory]:
    """Apply stabilisation and rate limits to `proposed`, the replicas that the signals propose.

    Returns: the replicas to set, the limits that changed them, and the memory for the next call.
    """
    if behavior is None:
        return _without_behavior(proposed, now=now, current=current, low=low, high=high, memory=memory)
    up, down = _with_defaults(behavior.scale_up, _UP), _with_defaults(behavior.scale_down, _DOWN)
    steady, memory = _stabilised(proposed, now=now, current=current, up=up, down=down, memory=memory)
    limits = [] if steady == proposed else [RecommendationLimit("stabilisation", steady)]
    count = steady
    if steady > current:
        allowed = max(_allowed(now, current, memory, up, sign=1), current)
        count = min(steady, allowed, high)
        if count < steady:
            limits.append(RecommendationLimit("pace" if allowed < high else "max", count))
    elif steady < current:
        allowed = min(_allowed(now, current, memory, down, sign=-1), current)
        count = max(steady, allowed, low)
        if count > steady:
            limits.append(RecommendationLimit("pace" if allowed > low else "min", count))
    return count, tuple(limits), memory


def written(memory: HpaMemory, *, now: float, before: int, after: int, behavior: Behavior | None) -> HpaMemory:
    """Return the memory with a change of the replicas from `before` to `after` added.

    Without `behavior` the memory stays the same, because the HPA then stores no changes.
    """
    if behavior is None or before == after:
        return memory
    if after > before:
        longest = max(p.period_seconds for p in _policies(_with_defaults(behavior.scale_up, _UP)))
        return replace(memory, added=_stored(memory.added, (now, after - before), older_than=now - longest))
    longest = max(p.period_seconds for p in _policies(_with_defaults(behavior.scale_down, _DOWN)))
    return replace(memory, removed=_stored(memory.removed, (now, before - after), older_than=now - longest))


def carried_out(
    memory: HpaMemory, *, at: float, before: int, recommended: int, current: int, behavior: Behavior | None
) -> HpaMemory:
    """Return the memory with a recommended change added, as far as it has been carried out.

    `memory` comes from the recommendation of `recommended` replicas at the time `at`, when there were `before`
    replicas. `current` shows how much of this change was made: only a part if a quota or a budget limited it. If
    `current` is not between `before` and `recommended`, another writer has set it, and nothing is added.
    """
    is_applied = min(before, recommended) <= current <= max(before, recommended)
    return written(memory, now=at, before=before, after=current, behavior=behavior) if is_applied else memory


def _without_behavior(
    proposed: int, *, now: float, current: int, low: int, high: int, memory: HpaMemory
) -> tuple[int, tuple[RecommendationLimit, ...], HpaMemory]:
    cutoff = now - DOWN_WINDOW_S
    steady = max([proposed, *(count for at, count in memory.recommendations if at >= cutoff)])
    stored = _stored(memory.recommendations, (now, proposed), older_than=cutoff)
    limits = [] if steady == proposed else [RecommendationLimit("stabilisation", steady)]
    allowed = max(2 * current, 4)
    count = low if steady < low else min(steady, allowed, high)
    if count < steady:
        limits.append(RecommendationLimit("pace" if allowed < high else "max", count))
    elif count > steady:
        limits.append(RecommendationLimit("min", count))
    return count, tuple(limits), replace(memory, recommendations=stored)


def _stabilised(
    proposed: int, *, now: float, current: int, up: ScalingRules, down: ScalingRules, memory: HpaMemory
) -> tuple[int, HpaMemory]:
    up_cutoff = now - (up.stabilization_window_seconds or 0)
    down_cutoff = now - (down.stabilization_window_seconds or 0)
    lowest = min([proposed, *(count for at, count in memory.recommendations if at > up_cutoff)])
    highest = max([proposed, *(count for at, count in memory.recommendations if at > down_cutoff)])
    stored = _stored(memory.recommendations, (now, proposed), older_than=min(up_cutoff, down_cutoff))
    return min(max(current, lowest), highest), replace(memory, recommendations=stored)


def _allowed(now: float, current: int, memory: HpaMemory, rules: ScalingRules, *, sign: int) -> int:
    """Return the replicas that the scaling policies allow now.

    If `sign` is 1, this is the maximum for a scale-up. If `sign` is -1, this is the minimum for a scale-down.
    """
    if rules.select_policy == "Disabled":
        return current
    reached = []
    for policy in _policies(rules):
        cutoff = now - policy.period_seconds
        added = sum(count for at, count in memory.added if at > cutoff)
        removed = sum(count for at, count in memory.removed if at > cutoff)
        start = current - added + removed
        if policy.type == "Pods":
            reached.append(start + sign * policy.value)
        elif sign > 0:
            reached.append(math.ceil(start * (1 + policy.value / 100)))
        else:
            reached.append(math.trunc(start * (1 - policy.value / 100)))
    # selectPolicy Max selects the largest change: the most replicas for a scale-up, the fewest for a scale-down.
    return max(reached) if (rules.select_policy == "Max") == (sign > 0) else min(reached)


def _stored(entries: Entries, entry: tuple[float, int], *, older_than: float) -> Entries:
    """Return the entries of a history with `entry` added.

    The new entry replaces the last entry that is older than `older_than`, if there is one.
    """
    for index in range(len(entries) - 1, -1, -1):
        if entries[index][0] < older_than:
            return (*entries[:index], entry, *entries[index + 1 :])
    return (*entries, entry)


def _with_defaults(rules: ScalingRules | None, default: ScalingRules) -> ScalingRules:
    if rules is None:
        return default
    window = rules.stabilization_window_seconds
    return ScalingRules(
        stabilization_window_seconds=default.stabilization_window_seconds if window is None else window,
        select_policy=rules.select_policy or default.select_policy,
        policies=rules.policies or default.policies,
    )


def _policies(rules: ScalingRules) -> tuple[ScalingPolicy, ...]:
    return rules.policies or ()
