"""Search for the maximum rate at which an objective is met: the choice of the next run, and the end of the search.

The runs with one caller and at saturation determine a queueing law, which predicts the rate. Runs near this rate
measure the late share, and the slope of the law corrects the rate. A last run at a slightly lower rate confirms the
result.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from halcyon_measure.capacity import late_share, law_fit
from halcyon_measure.capacity.late_share import Bools, LateShare
from halcyon_measure.capacity.law_fit import Facts
from halcyon_measure.capacity.long_run import LongRun
from halcyon_measure.capacity.queue_law import QueueLaw
from halcyon_measure.results.columns import Floats
from halcyon_measure.stats.student import quantile

MAX_RUNS = 8
MAX_S = 345.0
"""Maximum total time of all runs, in seconds. The rest of a search's six minutes is for starting runs and for last
answers."""
_BLOCKS = {"search": 16, "confirmation": 26, "knee": 16}
_MIN_RUN_S, _MAX_RUN_S, _MAX_LONG_RUN_S = 5.0, 60.0, 110.0
_FIT_S, _FIT_SHARE = 15.0, 0.7
"""Length in seconds of the run that selects a queueing law, and its rate as a share of the saturation rate. At lower
rates, all laws predict similar latencies."""
_WARM_S = (2.0, 10.0)
_MAX_RATE_DISTANCE = 0.025
"""Maximum difference between the logarithms of a run's rate and the estimated rate for which both count as equal."""
_CORRECTION_ERROR = 0.25
"""Assumed error of a correction of the estimated rate, as a share of its size, because the law's slope is only
approximate."""
_MIN_MARGIN, _MAX_MARGIN = 0.006, 0.025
_MAX_STEP = 0.25
_MAX_CAUTION = 0.025
"""Maximum relative difference by which a confirmed rate may be below the estimated rate for the search to end."""
_MAX_SHORTFALL = 0.03
"""Maximum relative difference by which a confirmed rate may be below the estimated rate. With a larger difference, the
estimated rate is the result instead of the confirmed one."""
_EARLY_CONFIDENCE = 0.998
"""Confidence that is required to end a run early. It is high, because the test is repeated every second."""
_EARLY_BLOCKS = 7
_CONFIDENCE = 0.95
Purpose = Literal["search", "confirmation", "knee"]


@dataclass(frozen=True)
class Goal:
    """Goal of a search: a latency objective at a percentile, or the knee of the latency curve."""

    objective_s: float | None
    """Latency objective in seconds; None for the knee."""
    percentile: float = 0.99
    seed: int = 1

    @property
    def limit(self) -> float:
        """Maximum share of late requests with which the objective is met."""
        return 1 - self.percentile


@dataclass(frozen=True)
class Step:
    """Parameters of one run of the search."""

    purpose: Purpose
    rate_rps: float
    duration_s: float
    warm_up_s: float
    block_s: float
    seed: int


@dataclass(frozen=True)
class Observed:
    """Measured requests of a run with random arrivals."""

    due: Floats
    """Due times of the requests in seconds, ascending."""
    latency: Floats
    """Latencies of the requests in seconds; NaN for failures."""
    length_s: float
    wall_s: float
    """Duration of the whole run including warm-up, in seconds."""
    ended_early: bool = False


@dataclass(frozen=True)
class Judged:
    """Run of the search with its result."""

    step: Step
    observed: Observed
    late: LateShare | None
    kept: bool | None


@dataclass(frozen=True)
class Search:
    """Immutable state of a search for the maximum rate."""

    goal: Goal
    facts: Facts
    law: QueueLaw
    is_known: bool
    """Whether the queueing law was computed from the server's statistics."""
    spent_s: float
    """Total duration of the runs so far, in seconds, including the runs with one caller and at saturation."""
    runs: int
    judged: tuple[Judged, ...] = ()
    long_run: LongRun = field(kw_only=True)

    @classmethod
    def begin(cls, goal: Goal, facts: Facts, *, spent_s: float, runs: int) -> Search:
        """Return the initial search, after the runs with one caller and at saturation."""
        computed = law_fit.computed_law(facts)
        law = computed if computed is not None else _middle(law_fit.candidates(facts), goal)
        return cls(goal, facts, law, computed is not None, spent_s, runs, long_run=_long_run(law, goal))

    def next(self) -> Step | None:
        """Return the parameters of the next run; None if the search has ended, or its runs or its time are used up."""
        left = MAX_S - self.spent_s
        if self.runs >= MAX_RUNS or left < _MIN_RUN_S + _WARM_S[1]:
            return None
        if self.goal.objective_s is None:
            return self._step("knee", self.long_run.knee(), left) if not self.judged else None
        if not self.judged:
            if not self.is_known and len(law_fit.candidates(self.facts)) > 1:
                step = self._step("search", self._rate(_FIT_SHARE * self.facts.saturation_rps), left)
                return replace(step, duration_s=min(step.duration_s, max(_FIT_S, 20 * self.facts.single_s)))
            return self._step("search", self._rate(self.long_run.capacity(self.goal.limit)), left)
        last_run = self.judged[-1]
        rate, error = self.estimate()
        if rate <= 0:  # the law's shortest execution is longer than the objective
            return None
        # A first confirmation at a cautiously low rate is followed by a second one nearer to the estimate.
        if (
            last_run.step.purpose == "confirmation"
            and last_run.kept
            and last_run.step.rate_rps >= rate * (1 - _MAX_CAUTION)
        ):
            return None
        is_near = abs(math.log(last_run.step.rate_rps / rate)) <= max(_MAX_RATE_DISTANCE, error)
        searched = sum(run.step.purpose == "search" for run in self.judged)
        is_last = self.runs >= MAX_RUNS - 1 or left < 2 * last_run.step.duration_s
        if is_near or is_last or last_run.step.purpose == "confirmation" or searched >= 3:
            cautious = self._rate(rate * math.exp(-self._margin(error)))
            if (self.confirmed_rps or 0.0) >= min(rate * (1 - _MAX_RATE_DISTANCE), cautious):
                return None
            return self._step("confirmation", cautious, left)
        return self._step("search", self._rate(rate), left)

    def after(self, step: Step, observed: Observed) -> Search:
        """Return the search after the run `step`, with its result added."""
        law, long_run = self.law, self.long_run
        if not self.is_known and not self.judged and np.isfinite(observed.latency).any():
            law = law_fit.best(law_fit.candidates(self.facts), observed.due, observed.latency)
            long_run = long_run if law == self.law else _long_run(law, self.goal)
        late = None
        if self.goal.objective_s is not None:
            late = late_share.estimate(
                observed.due,
                _late(observed.latency, self.goal.objective_s),
                _expected(law, long_run, step.rate_rps, observed.due, by_end=False),
                length_s=observed.length_s,
                block_s=min(step.block_s, observed.length_s / (late_share.MIN_BLOCKS + 1)),
                limit=self.goal.limit,
            )
        kept = None if late is None else late.kept(self.goal.limit, _CONFIDENCE)
        return replace(
            self,
            law=law,
            long_run=long_run,
            judged=(*self.judged, Judged(step, observed, late, kept)),
            runs=self.runs + 1,
            spent_s=self.spent_s + observed.wall_s,
        )

    def estimate(self) -> tuple[float, float]:
        """Return the estimated maximum rate at which the objective is met, and the standard error of its logarithm."""
        limit, total, weights = self.goal.limit, 0.0, 0.0
        predicted = self.long_run.capacity(limit)
        for run in self.judged:
            if run.late is None or predicted <= 0:
                continue
            rate = run.step.rate_rps
            slope = self.long_run.slope(predicted)
            # A share far below the limit shows only that the rate is too low, so it is raised to 0.2 x limit.
            share, expected = (min(max(late, 0.2 * limit), 0.5) for late in (run.late.share, self.long_run.late(rate)))
            correction = max(min(math.log(expected / share) / slope, _MAX_STEP), -_MAX_STEP)
            distance = abs(math.log(predicted / rate)) + abs(correction)
            variance = (run.late.error / share / slope) ** 2 + (_CORRECTION_ERROR * distance) ** 2 + 0.003**2
            total += (math.log(predicted) + correction) / variance
            weights += 1 / variance
        if not weights:
            return self.long_run.capacity(limit), _MAX_STEP
        return math.exp(total / weights), 1 / math.sqrt(weights)

    def answer(self) -> tuple[float | None, tuple[float, float] | None]:
        """Return the rate to report, and the interval of the maximum rate.

        Both are None if no run had enough requests.
        """
        if not any(run.late is not None for run in self.judged):
            return None, None
        rate, error = self.estimate()
        blocks = max(run.late.blocks for run in self.judged if run.late is not None)
        half_width = quantile(0.975, max(blocks - 1, 1)) * error
        low, high = rate * math.exp(-half_width), rate * math.exp(half_width)
        confirmed = self.confirmed_rps
        reported = confirmed if confirmed is not None and confirmed > (1 - _MAX_SHORTFALL) * rate else rate
        return reported, (min(low, reported), max(high, reported))

    @property
    def is_confirmed(self) -> bool | None:
        """Whether a run at the reported rate met the objective; None if that is undecided."""
        confirmed = self.confirmed_rps
        if confirmed is not None and confirmed == self.answer()[0]:
            return True
        return False if self.judged and self.judged[-1].kept is False else None

    def early_end(self, step: Step) -> EarlyEnd | None:
        """Return the rule that ends the run `step` early; None if the goal has no objective."""
        if self.goal.objective_s is None:
            return None
        return EarlyEnd(step, self.law, self.long_run, self.goal)

    @property
    def confirmed_rps(self) -> float | None:
        """Maximum rate at which a run met the objective; None if there is none.

        Rates above a rate at which a run missed the objective are ignored.
        """
        missed_rps = min((run.step.rate_rps for run in self.judged if run.kept is False), default=math.inf)
        kept_rates = [run.step.rate_rps for run in self.judged if run.kept and run.step.rate_rps < missed_rps]
        return max(kept_rates, default=None)

    def _margin(self, error: float) -> float:
        """Return the distance of the confirmation run below the estimated rate, as a difference of logarithms."""
        slope = self.long_run.slope(self.estimate()[0])
        blocks = max((run.late.blocks for run in self.judged if run.late is not None), default=_BLOCKS["confirmation"])
        half_width = quantile(0.975, max(blocks - 1, 1)) * max(
            1 / _BLOCKS["confirmation"], 1 / (2 * blocks), error * slope / 2
        )
        failed = sum(run.step.purpose == "confirmation" for run in self.judged)
        return min(max(half_width / slope, _MIN_MARGIN), _MAX_MARGIN) + 0.012 * failed

    def _rate(self, rate_rps: float) -> float:
        """Return the rate limited to the range that can be measured, rounded to four digits."""
        max_rps = self.law.saturation_rps * 1.02
        return float(f"{max(min(rate_rps, max_rps), 0.02 * max_rps):.4g}")

    def _step(self, purpose: Purpose, rate_rps: float, left_s: float) -> Step:
        full_s = self.law.execution_s(self.law.batch)
        block = late_share.block_s(
            rate_rps=rate_rps, saturation_rps=self.law.saturation_rps, execution_s=full_s, longest_s=_MAX_LONG_RUN_S / 6
        )
        max_s = _MAX_RUN_S if block * (late_share.MIN_BLOCKS + 1) <= _MAX_RUN_S else _MAX_LONG_RUN_S
        max_s = min(
            max_s, left_s - _WARM_S[1], max((left_s - _WARM_S[1]) / (2 if purpose == "search" else 1), _MIN_RUN_S)
        )
        duration = max(min(_BLOCKS[purpose] * block, max_s), _MIN_RUN_S)
        return Step(
            purpose=purpose,
            rate_rps=rate_rps,
            duration_s=round(duration, 1),
            warm_up_s=round(min(max(block, _WARM_S[0]), _WARM_S[1]), 1),
            block_s=min(block, duration / (late_share.MIN_BLOCKS + 1)),
            seed=self.goal.seed + self.runs,
        )


class EarlyEnd:
    """Rule that ends a run as soon as its result is decided.

    The input is the late and failed requests of each second.
    """

    def __init__(self, step: Step, law: QueueLaw, long_run: LongRun, goal: Goal) -> None:
        self._step, self._law, self._long_run, self._goal = step, law, long_run, goal
        self.objective_s = long_run.objective_s
        self._seconds: list[tuple[int, int]] = []
        self._expected: tuple[Floats, Bools, float] | None = None

    def arrivals(self, due: Floats) -> None:
        """Set the due times of the run, which are determined by its seed."""
        self._expected = _expected(self._law, self._long_run, self._step.rate_rps, due, by_end=True)

    def second(self, ended: int, late: int) -> bool:
        """Add one second in which `ended` requests ended, `late` of which failed or were late.

        Return True if the run should end.
        """
        self._seconds.append((ended, late))
        length = float(len(self._seconds))
        if self._expected is None or length < _EARLY_BLOCKS * self._step.block_s:
            return False
        times, is_late = [], []
        for second, (count, late_count) in enumerate(self._seconds):
            times += [second + 0.5] * count
            is_late += [True] * late_count + [False] * (count - late_count)
        share = late_share.estimate(
            np.array(times, dtype=np.float64),
            np.array(is_late, dtype=bool),
            self._expected,
            length_s=length,
            block_s=self._step.block_s,
            limit=self._goal.limit,
        )
        return share is not None and share.kept(self._goal.limit, _EARLY_CONFIDENCE) is not None


def _late(latency: Floats, objective_s: float) -> Bools:
    return ~(latency <= objective_s)  # a failure's NaN is late


def _expected(
    law: QueueLaw, long_run: LongRun, rate_rps: float, due: Floats, *, by_end: bool
) -> tuple[Floats, Bools, float]:
    """Return the times and lateness of requests that a queueing law predicts, and its long-run late share."""
    latency = law.latencies(due)
    return (due + latency if by_end else due), latency > long_run.objective_s, long_run.late(rate_rps)


def _long_run(law: QueueLaw, goal: Goal) -> LongRun:
    return LongRun(law, objective_s=goal.objective_s or math.inf, seed=goal.seed)


def _middle(laws: list[QueueLaw], goal: Goal) -> QueueLaw:
    """Return the queueing law whose predicted rate is the median of the predictions of all the laws."""
    if len(laws) == 1 or goal.objective_s is None:
        return laws[0]
    # A few draws are enough, because the first run selects the law.
    by_rate = sorted(laws, key=lambda law: law.latencies(np.arange(64) / law.saturation_rps)[-1])
    return by_rate[len(by_rate) // 2]
