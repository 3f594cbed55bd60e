"""How far the load outruns what was foreseen, learnt from the model's own past: headroom where it is due, none where it isn't."""

from __future__ import annotations

from halcyon.scaling.frozen import immutable

_SHARE = 0.99
"""Share of the forecasts that are to hold with the margin, as a p99 objective has it. With 0.97 a day's load (S5) has 0.10 and 0.19 % late at
starts of 60 and 180 s, with 0.99 half of that, for 0.3 % more GPU time in the mean of all scenarios (and 7 to 11 % there)."""
_STEP = 0.005
"""How much one forecast moves the margin at most."""
_FIRST = 0.05
"""Before anything is known: what ten surprises would have taught. Unlearnt in 1,000 calm forecasts.
Twice of it costs 2 % more GPU time; what it keeps back, and where not, is in docs/decisions/0022."""
_MAX_SHARE = 0.5
"""More would be a second copy of the load's own peak."""
_EVERY = 0.25
"""Share of the lead between two forecasts that are remembered: closer ones are nearly the same forecast."""
_INTERVAL_S = 5.0
"""The least time between two of them."""
_MAX_PERIOD_S = 900.0
"""Forecasts further ahead than this are judged at this lead."""


@immutable(frozen=True, slots=True)
class Headroom:
    """The `_SHARE` quantile of load over forecast, less 1, one start time ahead.

    Followed by its stochastic gradient: up by `_STEP` x share where the load outran it, down by `_STEP` x (1 - share) where
    not, so that a single surprise counts as one, however large. Forecasts that were made before it are of a load that is past: they
    are dropped, or one step would count four times.
    """

    value: float = _FIRST
    due: tuple[tuple[float, float], ...] = ()
    """(time, rate that was foreseen for it), ascending."""

    def is_due(self, now: float, lead_s: float) -> bool:
        """Whether `with_forecast` has anything to judge, or to remember."""
        return not self.due or self.due[0][0] <= now or self._is_new(now, lead_s)

    def _is_new(self, now: float, lead_s: float) -> bool:
        lead = min(lead_s, _MAX_PERIOD_S)
        return not self.due or now + lead - self.due[-1][0] >= max(lead * _EVERY, _INTERVAL_S)

    def with_forecast(self, now: float, rate: float, foreseen: float, lead_s: float) -> Headroom:
        """With the forecast for now + lead_s remembered, and those that are due judged by `rate`, that of now."""
        value, due = self.value, self.due
        first = 0
        while first < len(due) and due[first][0] <= now:
            if due[first][1] > 0:
                outrun = rate > due[first][1] * (1 + value)
                value += _STEP * (_SHARE if outrun else _SHARE - 1)
                if outrun:
                    first = len(due)
                    break
            first += 1
        if self._is_new(now, lead_s):
            due = (*due[first:], (now + min(lead_s, _MAX_PERIOD_S), foreseen))
        elif first:
            due = due[first:]
        else:
            return self
        return Headroom(min(max(value, 0.0), _MAX_SHARE), due)
