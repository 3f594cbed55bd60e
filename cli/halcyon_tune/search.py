"""Search for the best configuration of a model: the choice of the next point, and the end of the search. Pure.

A point is the measurement of one configuration under one load. The caller measures the points, one after another. The
search ends when no unmeasured configuration can be better than the best one by more than its error. It also ends when
the budget is used up, when several points in a row fail, or when the user interrupts it. Step 4 leaves a part of the
budget for step 5.
"""

# | step | points |
# | --- | --- |
# | 1 | one instance, with a rising number of callers (`profile`) |
# | 2 | more instances, while they raise the throughput (`profile`) |
# | 3 | none: the simulator predicts all configurations (`prediction`); again with the batch times of each point of step 4 |
# | 4 | the configurations that could be best (`verification`), the best one with preferred sizes (`preferred_sizes`) |
# | 5 | the best configuration and the current settings in turns (`turns`) |
# | 6 | none: the planner's sizing gives the replicas (`results.tune_result`) |

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from halcyon_tune.batch_times import BatchTimes, Curve, Family, Shape
from halcyon_tune.criterion import Criterion
from halcyon_tune.errors import TuneError
from halcyon_tune.estimates import Estimate
from halcyon_tune.points import Configuration, Load, Point, Rate
from halcyon_tune.preferred_sizes import preferred_sizes
from halcyon_tune.profile import Profile
from halcyon_tune.space import BATCHING, Space
from halcyon_tune.turns import MAX_ROUNDS, MIN_GAIN, Turns
from halcyon_tune.verification import Verification

MAX_POINTS = 28
"""Maximum number of measurements in a search. Measuring 36 configurations with 8 loads each would take ten times as
many."""
_ROUNDS_POINTS = 6
"""Number of measurements that step 4 leaves for three rounds of step 5."""
_MIN_PEAK_RATIO = 0.85
"""Share of the best score that a configuration must reach with full batches. Others can't be the best, and aren't
simulated."""
_HOPEFUL_LOG_FACTOR = 0.12
"""Logarithm of the factor by which batch times may be shorter than predicted at best. A configuration that can't meet
the objective at any rate even with such short times is dropped."""
_MIN_TURN_SHARE = 0.25
"""Share of the expected capacity below which the capacity shown by a turn of step 5 is considered noise. A turn that
overloads a replica can show any small capacity."""
_MAX_FAILURES = 3

EndReason = Literal["decided", "undecided", "nothing to change", "budget", "interrupted", "failed"]


@dataclass(frozen=True, kw_only=True)
class PointRequest:
    """Request of a search to measure a configuration under a load."""

    step: int
    configuration: Configuration
    load: Load


@dataclass(frozen=True, kw_only=True)
class End:
    """End of a search, with its reason."""

    reason: EndReason
    why: str


@dataclass(frozen=True, kw_only=True)
class Budget:
    """Limits of a search: its duration and its number of measurements."""

    seconds: float = 600.0
    points: int = MAX_POINTS

    @classmethod
    def of(cls, seconds: float) -> Budget:
        """Return the limits for a duration.

        If the duration is longer than the default, proportionally more measurements are allowed.
        """
        return cls(seconds=seconds, points=max(round(MAX_POINTS * seconds / cls.seconds), MAX_POINTS))

    @property
    def rounds(self) -> int:
        """Maximum number of rounds in step 5 of a search."""
        return round(MAX_ROUNDS * self.points / MAX_POINTS)


@dataclass(frozen=True, kw_only=True)
class Search:
    """State of a search for the best configuration. Each step returns a new state."""

    space: Space
    criterion: Criterion
    budget: Budget
    profile: Profile
    times: BatchTimes | None = None
    """Batch times for the predictions in step 3; None before this step."""
    verification: Verification | None = None
    """State of step 4 of the search; None before this step."""
    turns: Turns | None = None
    """State of step 5 of the search; None before this step, or if the current settings are the best."""
    unfinished: str = ""
    """Reason why step 4 ended although other configurations could be better; empty if there is none."""
    points: tuple[Point, ...] = ()
    request: PointRequest | None = None
    stopped: End | None = None

    @classmethod
    def begin(cls, space: Space, criterion: Criterion, budget: Budget | None = None) -> Search:
        """Return a search without measurements.

        Raises:
            TuneError: there is only one configuration, so no field can be tuned.
        """
        if len(space.configurations) < 2:
            why = "; ".join(f"{entry.field}: {entry.why}" for entry in space.left_out)
            raise TuneError(
                f"no field of this model can be tuned. {why}. Replicas follow from its rate: halcyon explain"
            )
        profile = Profile(space, criterion.predictor.objective_s)
        return cls(space=space, criterion=criterion, budget=budget or Budget(), profile=profile)

    def next(self) -> tuple[Search, PointRequest | End]:
        """Return the search and its next measurement, or its end if there is none.

        The returned search expects the result of this measurement.

        Raises:
            TuneError: the objective can't be met, or no configuration works.
        """
        state: Search = self
        while isinstance(outcome := state.outcome(), Search):
            state = outcome
        return replace(state, request=outcome if isinstance(outcome, PointRequest) else None), outcome

    def outcome(self) -> PointRequest | End | Search:
        """Return the next measurement, the end, or the search at the beginning of its next step.

        Raises:
            TuneError: the objective can't be met, or no configuration works.
        """
        if self.stopped is not None:
            return self.stopped
        turn = None if self.turns is None else self.turns.next()
        if self.turns is not None and turn is None:
            return self._decided(self.turns)
        if why := self._used_up(0):
            return End(reason="budget", why=why)
        if len(self.points) >= _MAX_FAILURES and all(point.failure for point in self.points[-_MAX_FAILURES:]):
            return End(reason="failed", why=f"the last {_MAX_FAILURES} points failed: {self.points[-1].why}")
        if self.verification is None:
            measurement = self.profile.next()
            if measurement is None:
                return self.predicted(self.profile.times)
            step, configuration, load = measurement
            return PointRequest(step=step, configuration=configuration, load=load)
        return self._next_of_step_4(self.verification) if turn is None else self._request(5, turn)

    def _next_of_step_4(self, verification: Verification) -> PointRequest | End | Search:
        """Return the next measurement of step 4; after the last one, the search at the start of step 5, or its end."""
        chosen = verification.next() or self._with_preferred_sizes(verification)
        if chosen is None:
            return self._winner(verification)
        if why := self._used_up(_ROUNDS_POINTS):
            return self._winner(verification, unfinished=why)
        return self._request(4, chosen)

    def after(self, point: Point) -> Search:
        """Return the search extended by the measurement that `next` requested."""
        request = self.request
        assert request is not None  # noqa: S101  # a point follows its question
        state = replace(self, points=(*self.points, point), request=None)
        if request.step <= 2:
            return replace(state, profile=self.profile.after(point))
        assert self.verification is not None  # noqa: S101  # from step 4 on
        assert self.times is not None  # noqa: S101  # as above
        if self.turns is None:
            return state.predicted(self.times.with_point(point)).verified()
        estimate = self._estimate(point)
        return replace(
            state,
            verification=self.verification.after(point, estimate),
            turns=self.turns.after(request.configuration, estimate),
        )

    def interrupted(self, why: str = "it was interrupted") -> Search:
        """Return the search after an interrupt by the user, or after the loss of the component that measures."""
        return replace(self, stopped=End(reason="interrupted", why=f"{why}; this is the best so far"))

    def seconds(self) -> float:
        """Return the total duration of all measurements, in seconds."""
        return sum(point.seconds for point in self.points)

    def best(self) -> Configuration | None:
        """Return the best measured configuration; None before the first measurement of step 4.

        From step 5 on, the best configuration no longer changes.
        """
        if self.turns is not None:
            return self.turns.winner
        return None if self.verification is None else self.verification.best()

    def preferred_sizes(self) -> tuple[int, ...]:
        """Return the batch sizes to prefer with the best configuration.

        The result is empty if a preference would make no difference.
        """
        best = self.best()
        if best is None or self.times is None:
            return ()
        return preferred_sizes(self.times.pooled(best.family), best.max_batch)

    def shape(self, configuration: Configuration) -> Shape | None:
        """Return the batch times with which a configuration is predicted; None if they are unknown."""
        times = self.profile.times if self.times is None else self.times
        return times.shape(configuration, self.space.rows_per_request)

    def _with_preferred_sizes(self, verification: Verification) -> Configuration | None:
        """Return the best configuration with preferred batch sizes, if these could help and weren't measured yet."""
        best, sizes = verification.best(), self.preferred_sizes()
        if (
            best is None
            or not sizes
            or BATCHING not in self.space.tuned
            or any(configuration.preferred for configuration in verification.estimates)
        ):
            return None
        variant = replace(best, preferred=sizes)
        return None if variant in verification.failed else variant

    def _winner(self, verification: Verification, *, unfinished: str = "") -> End | Search:
        """Return the search at the beginning of step 5, or its end if there is nothing to compare.

        `unfinished` is the reason why step 4 ended although other configurations could be better.
        """
        winner = verification.best()
        if not verification.estimates and (why := self._used_up(_ROUNDS_POINTS)):
            return End(reason="budget", why=f"{why}, and no configuration was measured at a rate before")
        if winner is None:
            return End(reason="failed", why="no configuration was shown to keep the objective at any rate")
        winner_opinion = verification.opinion(winner)
        today_opinion = verification.opinion(self.space.today) if self.space.today in verification.estimates else None
        if today_opinion is not None and winner_opinion.score < (1 + MIN_GAIN) * today_opinion.score:
            others = "no other settings are better than today's by 3 %"
            if unfinished:
                others = f"no measured settings are better than today's by 3 %, but others could be: {unfinished}"
            return End(reason="nothing to change", why=others)
        rounds = min(max((self.budget.points - len(self.points)) // 2, 1), self.budget.rounds)
        turns = Turns(today=self.space.today, winner=winner, rounds=rounds)
        return replace(self, turns=turns, unfinished=unfinished)

    def _request(self, step: int, configuration: Configuration) -> PointRequest:
        return PointRequest(
            step=step, configuration=configuration, load=self.criterion.load(self._capacity(configuration))
        )

    def _used_up(self, reserve: int) -> str:
        """Return the reason why the budget doesn't allow another measurement and `reserve` more; empty if it does."""
        longest = max((point.seconds for point in self.points), default=0.0)
        limit = f"--budget {self.budget.seconds:.0f}s"
        if len(self.points) + reserve >= self.budget.points:
            if reserve:
                return f"the last {reserve} of {self.budget.points} points compare the best with today's settings"
            return f"{len(self.points)} points were measured, as many as it has"
        if self.points and self.seconds() + longest * (reserve + 1) > self.budget.seconds:
            if reserve:
                return f"the rest of {limit} is for the comparison of the best with today's settings"
            return f"the next point would end after {limit}"
        return ""

    def verified(self) -> Search:
        """Return the search in which all measurements at a rate are compared with the new predictions."""
        verification = self.verification
        assert verification is not None  # noqa: S101  # it follows a prediction
        for point in self.points:
            if isinstance(point.load, Rate):
                verification = verification.after(point, self._estimate(point))
        return replace(self, verification=verification)

    def predicted(self, times: BatchTimes) -> Search:
        """Return the search at the beginning of step 4, with predictions from these batch times.

        The candidates are the configurations that could be the best according to simulations.
        """
        profile, predictor = self.profile, self.criterion.predictor
        rows = self.space.rows_per_request
        shapes = {c: shape for c in self.space.configurations if (shape := times.shape(c, rows)) is not None}
        tried = [
            c
            for c in shapes
            if not any(point.rules_out(c) for point in self.points)
            and (c == self.space.today or not profile.exclusion_reason(c))
        ]
        powers = {c: profile.power_w(c.family) for c in tried}
        # The rate with full batches is an upper bound for any objective.
        peaks = {c: predictor.peak_rps(shapes[c], c) / (powers[c] or 1.0) for c in tried}
        candidates: set[Configuration] = set()
        best = 0.0
        for candidate in sorted(tried, key=lambda candidate: (-peaks[candidate], candidate)):
            if peaks[candidate] < _MIN_PEAK_RATIO * best:
                break
            score = self.criterion.score(shapes[candidate], candidate, power_w=powers[candidate])
            best = max(best, score if self.criterion.minimise != "latency" else 0.0)
            if (
                score
                or candidate == self.space.today
                or self.criterion.score(shapes[candidate], candidate, -_HOPEFUL_LOG_FACTOR, powers[candidate])
            ):
                candidates.add(candidate)

        def values(
            configuration: Configuration, log_factor: float, /, *, is_hopeful: bool = False
        ) -> tuple[float, float]:
            # Preferred sizes change neither the times of batches nor the simulation.
            plain = replace(configuration, preferred=())
            shape = shapes[configuration if configuration in shapes else plain]
            if is_hopeful and isinstance(shape, Curve):
                shape = times.shape(plain, rows, is_hopeful=True) or shape
            score = self.criterion.score(shape, configuration, log_factor, powers.get(configuration, powers.get(plain)))
            return score, predictor.capacity_near(shape, configuration, log_factor)

        verification = Verification(
            space=self.space,
            candidates=frozenset(candidates),
            values=values,
            batch_log_factors=_batch_log_factors(times, self.points),
        )
        return replace(self, times=times, verification=verification)

    def _capacity(self, configuration: Configuration) -> float:
        """Return the rate at which a configuration is measured: its expected capacity.

        If the configuration could have a much higher rate than its measurements show, the result is above the expected
        capacity. If it missed the objective in its last turn, the result is below it, because a measurement above the
        capacity shows mostly noise.
        """
        assert self.verification is not None  # noqa: S101  # from step 4 on
        opinion = self.verification.opinion(configuration)
        if self.turns is not None:
            last = self.turns.last(configuration)
            if last is None or last.kept or last.capacity_rps >= opinion.capacity_rps:
                return opinion.capacity_rps
            return math.sqrt(opinion.capacity_rps * max(last.capacity_rps, _MIN_TURN_SHARE * opinion.capacity_rps))
        if not opinion.points or not opinion.hides_more:
            return opinion.capacity_rps
        return math.sqrt(opinion.capacity_rps * opinion.upper_rps)

    def _estimate(self, point: Point) -> Estimate | None:
        shape = self.shape(point.configuration)
        if point.failure is not None or shape is None:
            return None
        times = self.times
        return self.criterion.estimate(shape, point, None if times is None else times.excess(point))

    def _decided(self, turns: Turns) -> End:
        gain = turns.gain()
        if gain is None:
            if turns.has_failed(turns.today):
                return End(reason="undecided", why=f"today's settings can't be compared: {self.points[-1].why}")
            if turns.has_failed(turns.winner) or not turns.has_kept(turns.winner):
                return End(reason="failed", why=f"{turns.winner.text()} kept the objective once, and then no more")
            if turns.has_kept(turns.today):
                return End(reason="undecided", why="in no round, both the best and today's settings kept the objective")
            return End(reason="decided", why="today's settings keep the objective at no rate")
        if gain.is_shown:
            others = "nothing unmeasured can beat the best by more than its error"
            if self.unfinished:
                others = f"other settings could be better still: {self.unfinished}"
            return End(reason="decided", why=others)
        assert self.verification is not None  # noqa: S101  # from step 4 on
        winner, today = (self.verification.opinion(c).score for c in (turns.winner, turns.today))
        pooled = winner / today - 1 if today else math.inf
        if pooled >= MIN_GAIN and (gain.is_open or gain.allows(pooled)):
            likely = gain.value if gain.is_open else pooled
            needed = gain.rounds_needed(likely)
            more = "" if needed is None else self._more_rounds(needed - gain.rounds, gain.rounds)
            return End(reason="undecided", why=f"the noise is too large to show a gain of {100 * likely:.0f} %{more}")
        return End(reason="nothing to change", why="the best that was found is no better than today's settings")

    def _more_rounds(self, more: int, rounds: int) -> str:
        """Return a text on how much longer step 5 must take for a significant gain, with the option for this."""
        each_s = sum(point.seconds for point in self.points[-2 * rounds :]) / rounds
        needed_s = max(self.seconds() + more * each_s, Budget.seconds * (rounds + more) / MAX_ROUNDS)
        minutes = math.ceil(needed_s / 60)
        return f"; about {more} more rounds, {more * each_s / 60:.0f} min, would show it: --budget {minutes}m"


def _batch_log_factors(times: BatchTimes, points: Sequence[Point]) -> Mapping[Family, tuple[float, ...]]:
    """Return the logarithm of the ratio of measured to predicted batch times with the most callers, by family."""
    factors: dict[Family, tuple[float, ...]] = {}
    for point in points:
        if not isinstance(point.load, Rate) and (excess := times.excess(point)) is not None:
            # The last one has the fullest batches, as near the capacity. A line fits small batches worse.
            factors[point.configuration.family] = (excess,)
    return factors
