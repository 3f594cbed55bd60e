"""Invariants of the planner's memory: conditions that a stored part must meet before the planner continues from it.

Out of scope: the types and the format of the stored parts (`serialization`).
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

from halcyon.scaling.planner.answer_evidence import AnswerEvidence
from halcyon.scaling.planner.capacity.bounded_queue import RejectionBound
from halcyon.scaling.planner.capacity.replica_capacity import Capacity
from halcyon.scaling.planner.forecast.arrival_rate import ArrivalRate
from halcyon.scaling.planner.forecast.recurring_spikes import SpikeMemory
from halcyon.scaling.planner.forecast.seasonality import History
from halcyon.scaling.planner.forecast.trend_damping import TrendDamping
from halcyon.scaling.planner.headroom import Headroom
from halcyon.scaling.planner.scale_down_hold import ScaleDownHold
from halcyon.scaling.planner.scale_to_zero import MAX_TIMEOUT_S, IdleTimeout

MAX_COUNT = 10**6
"""Maximum plausible number of replicas in a stored planner memory. The planner never stores a larger number."""


def broken_invariant(part: Any) -> str | None:
    """Return the reason why the planner can't continue from this part of its memory, or None if it can."""
    checks: dict[type, Callable[[Any], str | None]] = {
        ArrivalRate: _unsound_arrivals,
        Capacity: _unsound_capacity,
        ScaleDownHold: _unsound_hold,
        Headroom: _unsound_margin,
        TrendDamping: _unsound_damping,
        IdleTimeout: _unsound_zero,
        RejectionBound: _unsound_refusals,
        AnswerEvidence: _unsound_evidence,
        SpikeMemory: _unsound_spikes,
        History: _unsound_history,
    }
    check = checks.get(type(part))
    return None if check is None else check(part)


def _unsound_arrivals(part: ArrivalRate) -> str | None:
    for times, counts in ((part.times, part.counts), (part.coarse_times, part.coarse_counts)):
        if len(times) != len(counts):
            return f"there are {len(times)} times but {len(counts)} counts"
        if any(b < a for a, b in pairwise(times)) or any(b < a for a, b in pairwise(counts)):
            return "times or counts are not in ascending order"
    if bool(part.times) != bool(part.coarse_times):
        return "there are fine samples without coarse ones, or coarse ones without fine ones"
    spread = part.spread
    figures = (spread.value, spread.noise, spread.before or 0.0, spread.before_s, spread.quiet_s)
    if min(*figures, *spread.first, spread.later, spread.edge) < 0:
        figures_text = ", ".join(f"{figure:g}" for figure in (*figures, spread.later, spread.edge))
        return f"a value of the dispersion is below 0: value, noise, before, before_s, quiet_s, later and edge are {figures_text}"
    return None


def _unsound_capacity(part: Capacity) -> str | None:
    sums = (part.weight, part.rows, part.rows2, part.seconds, part.rows_seconds)
    if min(sums) < 0 or (part.weight > 0) != (part.rows > 0) or (part.weight > 0 and part.seconds <= 0):
        return f"sums over batches are {sums}; all must be above 0, or all 0"
    if part.line is not None and (min(part.line.t0_s, part.line.row_s) < 0 or part.line.t0_s + part.line.row_s <= 0):
        t0_s, row_s = part.line.t0_s, part.line.row_s
        return f"the service line is {t0_s:g} s + {row_s:g} s per row; neither can be below 0, nor both 0"
    if any(min(rows, count, seconds) < 0 for rows, count, seconds in part.seen):
        return "a batch counter is below 0"
    if part.batches < 0 or any(rows < 1 or not seconds > 0 for rows, seconds in part.measured):
        return "the number of batches is below 0, or a measured batch time isn't above 0"
    return None


def _unsound_hold(part: ScaleDownHold) -> str | None:
    needs = (*part.needs, *part.bare)
    counts = [*(count for _, count in needs), *(count for count in (part.held, part.bare_held) if count is not None)]
    if any(not 0 <= count <= MAX_COUNT for count in counts):
        return f"a number of replicas is not between 0 and {MAX_COUNT}"
    if (
        any(b < a for entries in (part.needs, part.bare) for (a, _), (b, _) in pairwise(entries))
        or min(part.patience_s or 0.0, part.min_s) < 0
    ):
        return "times are not in ascending order, or patience is below 0"
    return None


def _unsound_margin(part: Headroom) -> str | None:
    if not 0 <= part.value <= 10 or any(b < a for (a, _), (b, _) in pairwise(part.due)):
        return f"value is {part.value:g}, or forecasts are not in the order of their times"
    return None


def _unsound_damping(part: TrendDamping) -> str | None:
    if not 0 <= part.share <= 1 or any(b[0] < a[0] for a, b in pairwise(part.due)):
        return f"share is {part.share:g}, or forecasts are not in the order of their times"
    if any(foreseen <= base for _, base, foreseen in part.due):
        return "a forecast rise is not above the rate at its start"
    return None


def _unsound_zero(part: IdleTimeout) -> str | None:
    counts = [event[1] for event in (part.left, part.back) if event is not None]
    if not 0 <= part.patience_s <= 10 * MAX_TIMEOUT_S or any(not 0 < count <= MAX_COUNT for count in counts):
        return f"patience is {part.patience_s:g} s, or a number of replicas is not between 1 and {MAX_COUNT}"
    return None


def _unsound_refusals(part: RejectionBound) -> str | None:
    if min(part.counted or 0.0, part.waiting) < 0:
        return f"{part.counted} requests were rejected while {part.waiting:g} waited; neither can be below 0"
    return None


def _unsound_evidence(part: AnswerEvidence) -> str | None:
    rates = (part.least_rps, part.seconds, *(rate for _, rate, _ in part.peaks))
    if min(rates) < 0 or not 0 < part.at_once <= MAX_COUNT or (part.rps is not None and part.rps <= 0):
        return f"rps is {part.rps}, at_once is {part.at_once:g}; both must be above 0, and no rate or time below 0"
    if part.shared is not None and (not 0 < part.shared.replicas <= MAX_COUNT or part.shared.rps <= 0):
        return f"the shared limit is {part.shared.rps:g} requests per second of {part.shared.replicas} replicas"
    if any(not 0 < count <= MAX_COUNT for count, _, _ in part.peaks):
        return f"a number of pods is not between 1 and {MAX_COUNT}"
    return None


def _unsound_spikes(part: SpikeMemory) -> str | None:
    if min(part.base, part.learnt_s, part.count, part.seconds, part.mass, part.square) < 0 or part.burstiness < 1:
        return "a rate, a time or a count is below 0, or burstiness below 1"
    if part.bet is not None and part.bet.period_s <= 0:
        return f"the interval between spikes is {part.bet.period_s:g} s; it must be above 0"
    return None


def _unsound_history(part: History) -> str | None:
    fit = part.fit
    weights = [value for score in fit.scores for value in score]
    if min((*weights, part.requests, part.seconds, fit.spread, fit.scale or 0.0, fit.calm or 0.0)) < 0:
        return "a rate, a time or an error is below 0"
    if not -1 <= part.open <= 2**40 or (part.open < 0 and part.bins):
        return f"the open bin has the impossible number {part.open}"
    return None
