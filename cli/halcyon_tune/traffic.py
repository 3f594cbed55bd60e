"""Predictions from the batch times that the planner has learnt from a model's traffic, without a trial pod. Pure.

`status.capacity.lines` contains a line of batch times for some numbers of instances. Nothing is known about other
numbers of instances, delays or threads, so these settings stay unchanged. A learnt line is used for batches of up to
twice the largest executed size.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from halcyon.scaling.planner.capacity.queueing import ServiceLine
from halcyon_measure.results.number_text import significant
from halcyon_tune.criterion import Criterion
from halcyon_tune.errors import TuneError
from halcyon_tune.points import Configuration
from halcyon_tune.space import Space

_MAX_EXTRAPOLATION = 2
"""Ratio of a batch size to the largest executed one up to which batches are predicted."""


@dataclass(frozen=True)
class LearntLine:
    """Line of batch times that the planner has learnt from traffic, for one number of instances."""

    line: ServiceLine
    largest: int
    """Number of rows in the largest batch that was executed."""


@dataclass(frozen=True, kw_only=True)
class Forecast:
    """Predictions for all configurations whose line of batch times is known."""

    rates: Mapping[Configuration, float]
    """Highest rate within the objective by configuration, in requests per second; 0 if the objective can't be met at
    any rate."""
    best: Configuration
    lines: Mapping[int, LearntLine]

    def extrapolates(self, configuration: Configuration) -> bool:
        """Return whether a configuration's largest batch is larger than any batch that was executed."""
        return configuration.max_batch > self.lines[configuration.instances].largest


def lines(status: Mapping[str, Any]) -> dict[int, LearntLine]:
    """Return the learnt lines of batch times in a ModelDeployment's status, by number of instances.

    Invalid entries are omitted.
    """
    capacity = status.get("capacity")
    learnt = {}
    for entry in (capacity.get("lines") if isinstance(capacity, Mapping) else None) or ():
        try:
            line = ServiceLine(float(entry["constantMilliseconds"]) / 1000, float(entry["perRowMilliseconds"]) / 1000)
            instances, largest = int(entry["instances"]), int(entry["maxBatchSize"])
        except (KeyError, TypeError, ValueError):
            continue
        if math.isfinite(line.seconds(1)) and line.t0_s >= 0 <= line.row_s and line.seconds(1) > 0 and largest > 0:
            learnt[instances] = LearntLine(line, largest)
    return learnt


def forecast(space: Space, criterion: Criterion, learnt: Mapping[int, LearntLine], *, name: str) -> Forecast:
    """Predict the performance of all configurations whose line of batch times is known.

    Raises:
        TuneError: the current number of instances has no line, or the objective can't be met.
    """
    today, objective_s = space.today, criterion.predictor.objective_s
    if today.instances not in learnt:
        raise TuneError(
            f"{name}: status.capacity has no batch times for {today.instances} instances yet; they are learnt from traffic and from a "
            f"warm-up. Without --from-traffic, they are measured in a pod: halcyon tune {name}"
        )
    single_s = min(learnt_line.line.seconds(1) for learnt_line in learnt.values())
    if single_s > objective_s:
        raise TuneError(
            f"the objective is {significant(1000 * objective_s, 4)} ms, and one row alone takes {significant(1000 * single_s, 4)} ms, S(1): no configuration "
            f"keeps it; the least that can be kept is about {significant(1200 * single_s, 3)} ms"
        )
    rates = {
        configuration: criterion.score(learnt[configuration.instances].line, configuration)
        for configuration in space.configurations
        if configuration.instances in learnt
        and configuration.max_batch
        <= max(_MAX_EXTRAPOLATION * learnt[configuration.instances].largest, today.max_batch)
        and (configuration.delay_s, configuration.preferred, configuration.threads)
        == (today.delay_s, today.preferred, today.threads)
    }
    best = max(
        rates, key=lambda configuration: (rates[configuration], configuration == today, -configuration.max_batch)
    )
    # A difference below the precision of a simulation doesn't count.
    return Forecast(rates=rates, best=today if rates[best] < 1.02 * rates[today] else best, lines=learnt)
