"""Step 5: the winner and today's settings in turns, until an interval decides between them. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from halcyon_measure.stats.student import MIN_VALUES, mean_interval, quantile
from halcyon_tune.estimates import Estimate
from halcyon_tune.points import Configuration

MAX_ROUNDS = 5
WORTH = 0.03
"""Gain below which a change isn't worth a rollout."""
_NARROW = 0.05
"""Half width of the interval, as a ratio, at which a clear gain needs no more rounds."""


@dataclass(frozen=True, kw_only=True)
class Gain:
    """Winner over today's settings: a ratio minus 1, with its 95 % interval."""

    value: float
    interval: tuple[float, float] | None
    rounds: int

    @property
    def is_shown(self) -> bool:
        """Whether the winner is better beyond doubt, and by enough for a change."""
        return self.interval is not None and self.interval[0] > 0 and self.value >= WORTH

    @property
    def is_open(self) -> bool:
        """Whether the winner could be better by enough for a change, but the noise is too large to show it."""
        return not self.is_shown and self.value >= WORTH

    def rounds_needed(self) -> int | None:
        """Return about how many rounds would decide; None if the gain is too small to be shown by any."""
        if self.interval is None or self.value <= 0 or not self.is_open:
            return None
        reach = (math.log1p(self.interval[1]) - math.log1p(self.interval[0])) / 2
        spread = reach * math.sqrt(self.rounds) / quantile(0.975, max(self.rounds - 1, 1))
        return max(math.ceil((2.2 * spread / math.log1p(self.value)) ** 2), self.rounds + 1)


@dataclass(frozen=True, kw_only=True)
class Turns:
    """Rounds so far. In each, both configurations have one point, in the order ABBA, so that a steady drift counts for none."""

    today: Configuration
    winner: Configuration
    rounds: int = MAX_ROUNDS
    """Most rounds."""
    scores: tuple[tuple[Configuration, Estimate | None], ...] = ()
    """Points of the step in their order; None if one failed."""

    def next(self) -> Configuration | None:
        """Return the configuration of the next point; None if no more is needed."""
        if any(found is None for _, found in self.scores):
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
            if high < WORTH or (gain.is_shown and (high - low) / 2 < max(_NARROW, 0.3 * gain.value)):
                return None
        return order[0]

    def after(self, configuration: Configuration, estimate: Estimate | None) -> Turns:
        """Return the rounds with a point; None if it failed or kept the objective at no rate."""
        return replace(self, scores=(*self.scores, (configuration, estimate)))

    def gain(self) -> Gain | None:
        """Return the gain over the whole rounds; None before the first."""
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

    def capacities(self, configuration: Configuration) -> list[float]:
        """Return the largest rates within the objective that the points of a configuration show."""
        return [found.capacity_rps for one, found in self.scores if one == configuration and found is not None]
