"""Step 4 of a search: measures the configurations that could be the best, and corrects predictions by their errors.

A prediction is corrected by multiplying its batch times by a factor with which the simulated P99 equals the measured
P99. The factors of measured configurations also correct the predictions of others. Errors of rates would be misleading,
because near the limit, a small change of times changes the rate by much. Measurements of a configuration have more
weight than its prediction.

The batch times of a measurement show whether the machine was slower than usual. This noise is separated from the error
of the prediction, and is averaged over all measurements with the same batch times.

The configuration with the best possible score is measured next, until no unmeasured one can be better than the best by
more than its error. Predictions of delays aren't reliable, so delays are measured for the best configuration. If
corrected times are off by more than 15 %, the search changes to successive halving: it measures the configurations near
the best one, and drops the worse half in each round.

The module is pure.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from typing import Protocol

from halcyon_tune.batch_times import Family
from halcyon_tune.estimates import Estimate, Opinion
from halcyon_tune.points import Configuration, Point
from halcyon_tune.space import Space

_PRIOR_ERROR = 0.06
"""Standard error of the logarithm of a predicted batch time before any measurement of step 4."""
_NOISE = 0.05
"""Standard error of the logarithm of a batch time in one measurement, caused by the noise of the machine."""
_DEVIATIONS = ((-math.sqrt(3), 1 / 6), (0.0, 2 / 3), (math.sqrt(3), 1 / 6))
"""Deviations, in standard errors, and their weights, which approximate the mean over a normal distribution. A score is
a mean over the likely batch times, so that the best configuration is good even if its batches take slightly longer."""
_UNMEASURED_ERROR_FACTOR = 3.0
"""Factor of the standard error for a group of configurations without a measurement. Near a tight objective, a small
error of the batch times can hide a much higher rate, so one measurement of such a group is worth its time."""
_MAX_LOG_ERROR = math.log(1.15)
"""Error of a corrected batch time, as a logarithm, above which the time counts as off (`Verification.is_off`)."""
_MIN_CONFIGURATIONS = 3
_MAX_KNOWN_ERROR = 0.04
"""Relative error of the best configuration's batch times above which it is measured again."""
_MAX_POINTS_EACH = 3
"""Maximum number of measurements of one configuration, even if it could still be the best."""
_NEIGHBOURS = 8
_MIN_DELAY_GAIN = 1.03
"""Minimum ratio of the scores with and without a delay for which the delay is preferred."""
_VARIANTS = 2
"""Maximum number of configurations with a delay or preferred batch sizes that are measured before the search ends."""


class Values(Protocol):
    """Function that returns the score and the capacity of a configuration."""

    def __call__(
        self, configuration: Configuration, log_factor: float, /, *, is_hopeful: bool = False
    ) -> tuple[float, float]:
        """Return the score and the capacity for batch times multiplied by a factor, whose logarithm is given.

        If `is_hopeful` is true, batch sizes that were never executed have their shortest likely times.
        """
        ...


@dataclass(frozen=True)
class _Contest:
    """Configurations that could be better than the best measured one."""

    opinions: Mapping[Configuration, Opinion]
    """Opinions on all configurations that haven't failed."""
    measured: AbstractSet[Configuration]
    best: Configuration | None

    @property
    def unmeasured(self) -> list[Configuration]:
        """Configurations without a measurement that may meet the objective."""
        return [
            configuration
            for configuration, opinion in self.opinions.items()
            if configuration not in self.measured and opinion.upper > 0
        ]

    @property
    def repeatable(self) -> list[Configuration]:
        """Measured configurations, except the best one, that may be measured again."""
        return [
            configuration
            for configuration in self.measured
            if configuration in self.opinions
            and configuration != self.best
            and self.opinions[configuration].points < _MAX_POINTS_EACH
        ]

    @property
    def rival(self) -> Configuration | None:
        """Configuration with the best possible score, except the best measured one; None if there is none."""
        return self.most_promising([*self.unmeasured, *self.repeatable])

    @property
    def variant(self) -> Configuration | None:
        """Best unmeasured configuration with a delay or preferred batch sizes, and the best one's other settings."""
        best = self.best
        variants = [
            configuration
            for configuration in self.unmeasured
            if best is not None
            and _is_variant(configuration)
            and (configuration.family, configuration.max_batch) == (best.family, best.max_batch)
        ]
        return max(variants, key=lambda variant: (self.opinions[variant].score, -variant.delay_s), default=None)

    def most_promising(self, configurations: Iterable[Configuration]) -> Configuration | None:
        """Return the configuration with the best possible score; None if there is none."""
        # A shorter delay, and then the configuration itself, decide between equal scores.
        return max(configurations, key=lambda other: (self._possible(other), -other.delay_s, other), default=None)

    def reaches(self, configuration: Configuration, score: float) -> bool:
        """Return whether the best possible score of a configuration is above a score of the best configuration."""
        return self.best is not None and self._possible(configuration) > score * _plainness(self.best)

    def _possible(self, configuration: Configuration) -> float:
        return self.opinions[configuration].upper * _plainness(configuration)


@dataclass(frozen=True, kw_only=True)
class Verification:
    """State of step 4 of a search, which measures the configurations that could be the best."""

    space: Space
    candidates: frozenset[Configuration]
    values: Values
    batch_log_factors: Mapping[Family, tuple[float, ...]] = field(default_factory=dict)
    """Logarithms of the ratios of measured to predicted batch times, by family, from the measurements before step 4."""
    estimates: Mapping[Configuration, tuple[Estimate, ...]] = field(default_factory=dict)
    failed: frozenset[Configuration] = frozenset()
    halving: tuple[Configuration, ...] = ()
    """Configurations that remain in the successive halving; empty while the predictions are good."""
    surprises: tuple[float, ...] = ()
    """Logarithms of the ratios of measured to predicted batch times, from the first measurement of each configuration.
    """

    def next(self) -> Configuration | None:
        """Return the configuration to measure next; None if the best configuration is known well enough."""
        opinions = {
            configuration: self.opinion(configuration)
            for configuration in (self.candidates | self.estimates.keys()) - self.failed
        }
        best = self.best()
        contest = _Contest(opinions, self.estimates.keys(), best)
        if best is None:
            return contest.rival
        if self.halving:
            return self._halved(opinions)
        best_opinion = opinions[best]
        rival = contest.rival
        if rival is not None and (
            len(self.estimates) < _MIN_CONFIGURATIONS or contest.reaches(rival, best_opinion.upper)
        ):
            return rival
        # What a measured configuration may still gain is its own error. An unmeasured one has the error of its prediction.
        close = contest.most_promising(
            configuration for configuration in contest.repeatable if contest.reaches(configuration, best_opinion.score)
        )
        if close is not None:
            return close
        if best_opinion.points < _MAX_POINTS_EACH and (self._error(best) > _MAX_KNOWN_ERROR or best_opinion.hides_more):
            return best
        return contest.variant if sum(map(_is_variant, self.estimates)) < _VARIANTS else None

    def after(self, point: Point, estimate: Estimate | None) -> Verification:
        """Return the state after a measurement. `estimate` is None if the measurement failed."""
        configuration = point.configuration
        if estimate is None:
            ruled_out = {candidate for candidate in self.candidates if point.rules_out(candidate)}
            return replace(self, failed=self.failed | ruled_out | {configuration})
        previous = self.estimates.get(configuration, ())
        surprises = (
            self.surprises if previous else (*self.surprises, estimate.log_factor - self.correction(configuration)[0])
        )
        verification = replace(
            self, estimates={**self.estimates, configuration: (*previous, estimate)}, surprises=surprises
        )
        return (
            verification
            if verification.halving or not verification.is_off
            else replace(verification, halving=verification.neighbourhood())
        )

    @property
    def is_off(self) -> bool:
        """Whether the corrected batch times deviate too much from the measurements.

        This is the case if two errors exceed `_MAX_LOG_ERROR`, or one error exceeds twice that limit. The first
        measured configuration is ignored, because its prediction wasn't corrected.
        """
        corrected = [abs(surprise) for surprise in self.surprises[1:]]
        return (
            sum(error > _MAX_LOG_ERROR for error in corrected) >= 2 or max(corrected, default=0.0) > 2 * _MAX_LOG_ERROR
        )

    @property
    def worst_surprise(self) -> float:
        """Largest relative error of corrected batch times; 0 if no prediction was corrected."""
        return max((math.expm1(abs(surprise)) for surprise in self.surprises[1:]), default=0.0)

    def best(self) -> Configuration | None:
        """Return the best measured configuration; None if no measured configuration can meet the objective."""
        scores = {
            configuration: self.opinion(configuration).score
            for configuration in self.estimates
            if configuration not in self.failed
        }
        best = max(
            scores,
            key=lambda configuration: (scores[configuration] * _plainness(configuration), configuration),
            default=None,
        )
        return best if best is not None and scores[best] > 0 else None

    def opinion(self, configuration: Configuration) -> Opinion:
        """Return the combined estimate of a configuration, from its prediction and its measurements."""
        middle, error = self.times(configuration)
        estimates = self.estimates.get(configuration, ())
        _, capacity = self.values(configuration, middle)
        score = math.fsum(
            weight * self.values(configuration, middle + deviations * error)[0] for deviations, weight in _DEVIATIONS
        )
        upper, upper_rps = self.values(configuration, middle - error, is_hopeful=not estimates)
        # A rate that was measured within the objective counts, even if the simulator predicts less from its P99.
        # If the machine was faster than usual in the measurement, the usual rate is lower in proportion.
        usual = self.batch_log_factor(configuration.family)[0]
        paces = [math.exp(min(estimate.batch_log_factor - usual, 0.0)) for estimate in estimates]
        score = max(score, *(estimate.kept * ratio for estimate, ratio in zip(estimates, paces, strict=True)), 0.0)
        capacity = max(
            capacity, *(estimate.kept_rps * ratio for estimate, ratio in zip(estimates, paces, strict=True)), 0.0
        )
        return Opinion(
            score=score,
            upper=max(upper, score),
            capacity_rps=capacity,
            upper_rps=max(upper_rps, capacity),
            points=len(estimates),
        )

    def times(self, configuration: Configuration) -> tuple[float, float]:
        """Return the logarithm of the factor of a configuration's batch times, and its standard error."""
        correction, error = self.correction(configuration)
        weights, total = 1 / error**2, correction / error**2
        for estimate in self.estimates.get(configuration, ()):
            weights += 1 / estimate.error**2
            total += estimate.log_factor / estimate.error**2
        batch_log_factor, batch_error = self.batch_log_factor(configuration.family)
        return total / weights + batch_log_factor, math.hypot(1 / math.sqrt(weights), batch_error)

    def batch_log_factor(self, family: Family) -> tuple[float, float]:
        """Return the logarithm of the ratio of a family's batch times to the predicted ones, and its standard error.

        All measurements of the family count, because its configurations have the same batch times. Therefore the noise
        of one measurement has little effect.
        """
        log_factors = [
            *self.batch_log_factors.get(family, ()),
            *(
                estimate.batch_log_factor
                for configuration, estimates in self.estimates.items()
                if configuration.family == family
                for estimate in estimates
            ),
        ]
        return (math.fsum(log_factors) / len(log_factors) if log_factors else 0.0), _NOISE / math.sqrt(
            max(len(log_factors), 1)
        )

    def factor(self, configuration: Configuration) -> float:
        """Return the ratio of a configuration's batch times to those of its fitted line."""
        return math.exp(self.times(configuration)[0])

    def correction(self, configuration: Configuration) -> tuple[float, float]:
        """Return the logarithm of the factor that corrects predicted batch times, and its remaining standard error.

        The factor is a mean over the configurations with the same instances, threads and use of a delay. The mean over
        all configurations is included with the weight of one configuration. The configuration's own factors are
        excluded, because `times` adds its measurements separately.
        """
        factors = {other: _mean(estimates) for other, estimates in self.estimates.items() if other != configuration}
        group = [factor for other, factor in factors.items() if _group(other) == _group(configuration)]
        overall = math.fsum(factors.values()) / (len(factors) + 0.5)
        correction = (math.fsum(group) + overall) / (len(group) + 1)
        squares = math.fsum((factor - correction) ** 2 for factor in group)
        squares += math.fsum(
            (factor - overall) ** 2 for other, factor in factors.items() if _group(other) != _group(configuration)
        )
        # The noise of the measurements is in these squares, and is no error of the predictions.
        squares = max(squares - math.fsum(self._error(other) ** 2 for other in factors), 0.0)
        spread = math.sqrt((2 * _PRIOR_ERROR**2 + squares) / (2 + len(factors)))
        return correction, spread * (1 if group else _UNMEASURED_ERROR_FACTOR)

    def neighbourhood(self) -> tuple[Configuration, ...]:
        """Return the best configuration and those at most two steps away from it, sorted by distance, then by score."""
        best = self.best()
        if best is None:
            return ()
        batches, counts = (
            self.space.batches,
            sorted({configuration.instances for configuration in self.space.configurations}),
        )

        def distance(configuration: Configuration) -> int:
            steps = abs(batches.index(configuration.max_batch) - batches.index(best.max_batch))
            steps += abs(counts.index(configuration.instances) - counts.index(best.instances))
            others = (configuration.delay_s, configuration.preferred, configuration.threads) != (
                best.delay_s,
                best.preferred,
                best.threads,
            )
            return steps + others

        neighbours = [configuration for configuration in self.candidates - self.failed if distance(configuration) <= 2]
        neighbours.sort(
            key=lambda configuration: (distance(configuration), -self.opinion(configuration).score, configuration)
        )
        return tuple(neighbours[:_NEIGHBOURS])

    def _halved(self, opinions: Mapping[Configuration, Opinion]) -> Configuration | None:
        """Return the configuration to measure next in the successive halving; None at its end.

        In each round, all remaining configurations are measured once more, then the worse half is dropped.
        """
        remaining, need = [configuration for configuration in self.halving if configuration not in self.failed], 1
        while len(remaining) > 1 and need <= _MAX_POINTS_EACH:
            missing = [
                configuration for configuration in remaining if len(self.estimates.get(configuration, ())) < need
            ]
            if missing:
                return missing[0]
            remaining.sort(key=lambda configuration: -opinions[configuration].score)
            remaining, need = remaining[: (len(remaining) + 1) // 2], need + 1
        return None

    def _error(self, configuration: Configuration) -> float:
        weights = math.fsum(1 / estimate.error**2 for estimate in self.estimates.get(configuration, ()))
        return 1 / math.sqrt(weights) if weights else math.inf


def _plainness(configuration: Configuration) -> float:
    """Return the factor by which a configuration's score is multiplied in comparisons.

    The factor is below 1 for a configuration with a delay, because most configurations don't benefit from a delay.
    """
    return 1 / _MIN_DELAY_GAIN if _is_variant(configuration) else 1.0


def _is_variant(configuration: Configuration) -> bool:
    return configuration.delay_s > 0 or bool(configuration.preferred)


def _group(configuration: Configuration) -> tuple[object, ...]:
    return *configuration.family, _is_variant(configuration)


def _mean(estimates: tuple[Estimate, ...]) -> float:
    """Return the mean of the estimates' `log_factor`, weighted by the inverse squares of their errors."""
    weights = [1 / estimate.error**2 for estimate in estimates]
    return math.fsum(
        weight * estimate.log_factor for weight, estimate in zip(weights, estimates, strict=True)
    ) / math.fsum(weights)
