"""Rate at which a full pod answers requests, from samples of the requests sent to pods and answered by them.

Out of scope: whether this rate or the batch times determine the capacity (`answer_evidence`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from halcyon.scaling.planner.capacity.answer_samples import (
    BY_ENGINE,
    EXECUTING,
    HOT,
    MIN_ANSWERS,
    READY,
    Sample,
    answer_rate,
    answers_s,
    within,
)

GROWN = 1.5
"""Ratio of the time in a pod to the shortest time so far, from which the requests in a pod are assumed to slow each
other down."""
_LEVEL = 0.25
"""Maximum relative change of the number of requests in execution at which the number counts as constant."""
SHORT_S, WINDOW_S = 3.0, 10.0
"""Minimum lengths, in seconds, of the window in which a rate of answers is measured. The first value applies to full
pods, the second to other pods."""


def recent_s(seconds: float) -> float:
    """Return for how many seconds pods must have been full in order to count as full.

    `seconds` is the time that a request takes.
    """
    return min(max(seconds / 4, SHORT_S), WINDOW_S)


def full_rate(
    samples: Sequence[Sample], seconds: float, fastest_s: float, *, is_full_now: bool
) -> tuple[float, float, str] | None:
    """Return the rate of answers of a full pod as (requests per second, requests in execution, name of the method).

    The method is a value of `AnswerEvidence.found_by`. Return None if the pods aren't full.
    """
    ready = samples[-1][READY]
    if seconds < GROWN * fastest_s:
        # Requests don't slow each other down, so each request in a pod takes this time.
        held = [s[EXECUTING] for s in within(samples, recent_s(seconds))]
        mean = sum(held) / len(held)
        if is_full_now and seconds > 0 and mean > 0 and max(held) - min(held) <= max(_LEVEL * mean, 2.0):
            return mean / (ready * seconds), mean / ready, "TimeInPods"
        return None
    # The request that was answered last waited in its pod or shared it with others, so the pod was full all that time.
    span_s = max(seconds, SHORT_S, answers_s(samples))
    window = within(samples, span_s)
    rate, covered_s = answer_rate(samples, span_s)
    answers, grown = rate * covered_s, window[-1][EXECUTING] - window[0][EXECUTING]
    if answers < MIN_ANSWERS or covered_s < seconds or any(s[READY] != ready for s in window):
        return None
    is_growing = grown > max(3.0 * math.sqrt(answers), _LEVEL * (answers + grown))
    if is_full_now or is_growing or all(s[HOT] for s in window):
        by_engine = all(s[HOT] == BY_ENGINE for s in window)
        return rate / ready, max(rate * fastest_s / ready, 1.0), "EngineMetrics" if by_engine else "Answers"
    return None
