"""Headroom: how far the load exceeds its forecasts, learnt from the model's own past."""

from __future__ import annotations

from halcyon.scaling.frozen import immutable

_SHARE = 0.99
"""Share of forecasts that must hold with the headroom, as in a p99 objective. With 0.97, a daily load (S5) has 0.10 and 0.19 %
late requests at start times of 60 and 180 s. With 0.99 it has half of that, for 0.3 % more GPU time on average over all
scenarios (and 7 to 11 % more in this one)."""
_STEP = 0.005
"""Maximum change of the headroom by one forecast."""
_INITIAL = 0.05
"""Initial headroom: the result of ten surprises. It is unlearnt after 1,000 calm forecasts. Twice this value costs 2 % more GPU
time. docs/decisions/0022 shows where it prevents late requests and where not."""
_MAX_SHARE = 0.5
"""Maximum headroom. More would be a second copy of the load's own peak."""
_MIN_INTERVAL_SHARE = 0.25
"""Minimum time between two remembered forecasts, as a share of the lead. Closer forecasts are nearly the same."""
_MIN_INTERVAL_S = 5.0
"""Minimum time between two remembered forecasts, in seconds."""
_MAX_PERIOD_S = 900.0
"""Maximum lead of a judged forecast. Longer start times are judged at this lead."""


@immutable(frozen=True, slots=True)
class Headroom:
    """The `_SHARE` quantile of load over forecast, minus 1, one start time ahead.

    It is tracked by stochastic gradient: up by `_STEP` x share if the load exceeded the forecast, else down by `_STEP` x (1 -
    share). A single surprise thus counts once, however large. Forecasts made before a surprise are about a load that is past.
    They are dropped, or one step would count four times.
    """

    value: float = _INITIAL
    due: tuple[tuple[float, float], ...] = ()
    """(time, rate forecast for it), ascending."""

    def is_due(self, now: float, lead_s: float) -> bool:
        """Return whether `with_forecast` has a forecast to judge or to remember."""
        return not self.due or self.due[0][0] <= now or self._is_new(now, lead_s)

    def _is_new(self, now: float, lead_s: float) -> bool:
        lead = min(lead_s, _MAX_PERIOD_S)
        return not self.due or now + lead - self.due[-1][0] >= max(lead * _MIN_INTERVAL_SHARE, _MIN_INTERVAL_S)

    def with_forecast(self, now: float, rate: float, foreseen: float, lead_s: float) -> Headroom:
        """Remember the forecast for now + lead_s, and judge those whose time has come by the present `rate`."""
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
