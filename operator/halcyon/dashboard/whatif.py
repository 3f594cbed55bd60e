"""What other targets would have made of a model's past, as JSON has it. Pure; how it is reckoned: `scaling.planner.whatif`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from halcyon.api.types import duration_s
from halcyon.dashboard.model_table import BadQuestion, whole
from halcyon.dashboard.ports import Past
from halcyon.scaling.planner.whatif import Known, WhatIfOutcome, outcome

MAX_HOURS = 360
"""15 days: what planners remember."""
MAX_REPLICAS = 1000
_HOUR_S = 3600.0


@dataclass(frozen=True, slots=True)
class Wish:
    """What is asked for; None: as it is."""

    latency_s: float | None = None
    low: int | None = None
    high: int | None = None
    hours: int = 24

    @classmethod
    def of(cls, query: Mapping[str, str]) -> Wish:
        """The wish in a URL's parameters: latency=200ms, min, max, hours; an empty one is as it is.

        Raises:
            BadQuestion: one of them can't be used.
        """
        given = {key: value for key, value in query.items() if value}
        latency = given.get("latency")
        try:
            latency_s = None if latency is None else duration_s(latency)
        except ValueError:
            latency_s = 0.0
        if latency_s is not None and latency_s <= 0:
            raise BadQuestion(f"latency is {str(latency)[:50]!r}; good: 200ms")
        low = whole(given, "min", 0, 0, MAX_REPLICAS) if "min" in given else None
        high = whole(given, "max", 1, 1, MAX_REPLICAS) if "max" in given else None
        return cls(latency_s, low, high, whole(given, "hours", 24, 1, MAX_HOURS))


def told(wish: Wish, known: Known | None, past: Past | None) -> dict[str, Any]:
    """Both courses of the count and what they come to; `why` where nothing can be said.

    Raises:
        BadQuestion: the limits contradict each other.
    """
    if past is None:
        return {
            "why": "Nothing is remembered of its arrivals: planners keep means of five minutes, and models without one have none."
        }
    if known is None:
        return {"why": "What a replica can do isn't known yet: no batch was seen."}
    low = known.objectives.low if wish.low is None else wish.low
    high = known.objectives.high if wish.high is None else wish.high
    if low > high:
        raise BadQuestion(f"min is {low} and max is {high}; good: min={high}&max={high}")
    latency_s = known.objectives.latency_s if wish.latency_s is None else wish.latency_s
    other = replace(known, objectives=replace(known.objectives, low=low, high=high, latency_s=latency_s))
    rates = list(past.rates)[-int(wish.hours * _HOUR_S / past.step_s) :]
    as_is, then = outcome(known, rates, past.step_s), outcome(other, rates, past.step_s)
    return {
        "end": past.end,
        "step": past.step_s,
        "rate": rates,
        "as_is": list(as_is.counts),
        "then": list(then.counts),
        "came_to": {"as_is": _came_to(as_is, known), "then": _came_to(then, other)},
        "known_hours": round(sum(rate is not None for rate in rates) * past.step_s / _HOUR_S, 2),
    }


def _came_to(found: WhatIfOutcome, known: Known) -> dict[str, Any]:
    aims = known.objectives
    return {
        "min": aims.low,
        "max": aims.high,
        "latency_ms": None if aims.latency_s is None else round(aims.latency_s * 1000, 3),
        "replica_hours": round(found.replica_hours, 2),
        "most": found.most,
        "short_hours": round(found.short_hours, 2),
    }
