"""Step 5 of a search: the best configuration and the current settings are measured in turns. Pure.

The step ends when the difference is significant, or after its maximum number of rounds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from halcyon_measure.stats.student import MIN_VALUES, mean_interval, quantile
from halcyon_tune.estimates import Estimate
from halcyon_tune.points import Configuration

MAX_ROUNDS = 5
MIN_GAIN = 0.03
"""Relative gain of a configuration below which a change isn't worth a rollout."""
_MAX_HALF_WIDTH = 0.05
"""Half width of the gain's confidence interval up to which a significant gain needs no further rounds."""


@dataclass(frozen=True, kw_only=True)
class Gain:
    """Relative gain of the best configuration over the current settings, with its 95 % confidence interval."""

    value: float
    interval: tuple[float, float] | None
    rounds: int

    @property
    def is_shown(self) -> bool:
        """Whether the gain is statistically significant and large enough for a change."""
        return self.interval is not None and self.interval[0] > 0 and self.value >= MIN_GAIN

    @property
    def is_open(self) -> bool:
        """Whether the gain may be large enough for a change, but isn't significant because of noise."""
        return not self.is_shown and self.value >= MIN_GAIN

    def allows(self, gain: float) -> bool:
        """Return whether the confidence interval contains a gain."""
        return self.interval is not None and self.interval[0] <= gain <= self.interval[1]

    def rounds_needed(self, gain: float) -> int | None:
        """Return the approximate number of rounds that would make the gain significant; None if no number would."""
        if self.interval is None or gain <= 0 or self.is_shown:
            return None
        half_width = (math.log1p(self.interval[1]) - math.log1p(self.interval[0])) / 2
        spread = half_width * math.sqrt(self.rounds) / quantile(0.975, max(self.rounds - 1, 1))
        return max(math.ceil((2.2 * spread / math.log1p(gain)) ** 2), self.rounds + 1)


@dataclass(frozen=True, kw_only=True)
class Turns:
    """Rounds of step 5 so far.

    In each round, both configurations are measured once. The order alternates (ABBA), so that a steady drift cancels
    out.
    """

    today: Configuration
    winner: Configuration
    rounds: int = MAX_ROUNDS
    """Maximum number of rounds in step 5."""
    scores: tuple[tuple[Configuration, Estimate | None], ...] = ()
    """Measured configurations in the order of their measurement, each with its estimate; None if the measurement
    failed."""

    def next(self) -> Configuration | None:
        """Return the configuration to measure next; None if no further measurement is needed."""
        if any(estimate is None for _, estimate in self.scores):
            return None
        done, half = divmod(len(self.scores), 2)
        order = (self.today, self.winner) if done % 2 == 0 else (self.winner, self.today)
        if half:
            return order[1]
        if done >= self.rounds:
            return None
        gain = self.gain()
        if gain is not None and gain.interval is not None:
            low, high = gain.interval
            if high < MIN_GAIN or (gain.is_shown and (high - low) / 2 < max(_MAX_HALF_WIDTH, 0.3 * gain.value)):
                return None
        return order[0]

    def after(self, configuration: Configuration, estimate: Estimate | None) -> Turns:
        """Return the rounds with a further measurement. `estimate` is None if the measurement failed."""
        return replace(self, scores=(*self.scores, (configuration, estimate)))

    def gain(self) -> Gain | None:
        """Return the gain over all complete rounds; None if no round is complete."""
        logs = []
        for number in range(len(self.scores) // 2):
            pair = dict(self.scores[2 * number : 2 * number + 2])
            before, after = pair.get(self.today), pair.get(self.winner)
            if before is not None and after is not None and before.score > 0 and after.score > 0:
                logs.append(math.log(after.score / before.score))
        if not logs:
            return None
        interval = mean_interval(logs) if len(logs) >= MIN_VALUES else None
        return Gain(
            value=math.expm1(math.fsum(logs) / len(logs)),
            interval=None if interval is None else (math.expm1(interval[0]), math.expm1(interval[1])),
            rounds=len(logs),
        )

    def has_failed(self, configuration: Configuration) -> bool:
        """Return whether a measurement of a configuration failed."""
        return any(estimate is None for measured, estimate in self.scores if measured == configuration)

    def has_kept(self, configuration: Configuration) -> bool:
        """Return whether a configuration met the objective in at least one measurement."""
        return any(estimate and estimate.score > 0 for measured, estimate in self.scores if measured == configuration)

    def last(self, configuration: Configuration) -> Estimate | None:
        """Return the estimate from a configuration's last turn; None if it had no turn, or the measurement failed."""
        return next((estimate for measured, estimate in reversed(self.scores) if measured == configuration), None)

    def capacities(self, configuration: Configuration) -> list[float]:
        """Return the highest rate within the objective from each measurement of a configuration."""
        return [
            estimate.capacity_rps
            for measured, estimate in self.scores
            if measured == configuration and estimate is not None
        ]
