"""JSON document of a what-if calculation, which applies other targets to past arrivals. Pure.

Out of scope: the calculation itself (`scaling.planner.whatif`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from halcyon.api.types import duration_s
from halcyon.dashboard.model_table import InvalidQuery, int_parameter
from halcyon.dashboard.ports import Past
from halcyon.scaling.planner.whatif import Known, WhatIfOutcome, outcome

MAX_HOURS = 360
"""Maximum number of past hours in a calculation; planners store 15 days of arrivals."""
MAX_REPLICAS = 1000
_HOUR_S = 3600.0


@dataclass(frozen=True, slots=True)
class WhatIfQuery:
    """Targets for a what-if calculation. None means the current target."""

    latency_s: float | None = None
    low: int | None = None
    high: int | None = None
    hours: int = 24

    @classmethod
    def of(cls, query: Mapping[str, str]) -> WhatIfQuery:
        """Parse the query parameters latency (for example 200ms), min, max and hours. Missing ones keep their value.

        Raises:
            InvalidQuery: a parameter is invalid.
        """
        parameters = {key: value for key, value in query.items() if value}
        latency = parameters.get("latency")
        try:
            latency_s = None if latency is None else duration_s(latency)
        except ValueError:
            latency_s = 0.0
        if latency_s is not None and latency_s <= 0:
            raise InvalidQuery(f"latency is {str(latency)[:50]!r}; it must be a duration, for example 200ms")
        low = int_parameter(parameters, "min", 0, 0, MAX_REPLICAS) if "min" in parameters else None
        high = int_parameter(parameters, "max", 1, 1, MAX_REPLICAS) if "max" in parameters else None
        return cls(latency_s, low, high, int_parameter(parameters, "hours", 24, 1, MAX_HOURS))


def comparison(query: WhatIfQuery, known: Known | None, past: Past | None) -> dict[str, Any]:
    """Return the replicas over time and the totals, both for the current targets and for those of the query.

    If they cannot be calculated, the document has only the field `why` with the reason.

    Raises:
        InvalidQuery: the minimum is greater than the maximum.
    """
    if past is None:
        return {"why": "No past arrivals are known. Only planners record arrivals, as five-minute means."}
    if known is None:
        return {"why": "The throughput of a replica is not known yet: no batch was observed."}
    low = known.objectives.low if query.low is None else query.low
    high = known.objectives.high if query.high is None else query.high
    if low > high:
        raise InvalidQuery(f"min is {low} and max is {high}, which is below min; for example min={high}&max={high}")
    latency_s = known.objectives.latency_s if query.latency_s is None else query.latency_s
    other = replace(known, objectives=replace(known.objectives, low=low, high=high, latency_s=latency_s))
    rates = list(past.rates)[-int(query.hours * _HOUR_S / past.step_s) :]
    current, alternative = outcome(known, rates, past.step_s), outcome(other, rates, past.step_s)
    return {
        "end": past.end,
        "step": past.step_s,
        "rate": rates,
        "current": list(current.counts),
        "alternative": list(alternative.counts),
        "totals": {"current": _totals(current, known), "alternative": _totals(alternative, other)},
        "known_hours": round(sum(rate is not None for rate in rates) * past.step_s / _HOUR_S, 2),
    }


def _totals(result: WhatIfOutcome, known: Known) -> dict[str, Any]:
    objectives = known.objectives
    return {
        "min": objectives.low,
        "max": objectives.high,
        "latency_ms": None if objectives.latency_s is None else round(objectives.latency_s * 1000, 3),
        "replica_hours": round(result.replica_hours, 2),
        "peak": result.most,
        "short_hours": round(result.short_hours, 2),
    }
