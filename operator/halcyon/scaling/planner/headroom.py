"""Headroom: the share by which the load exceeds its forecasts, learnt from the model's own load."""

from __future__ import annotations

from halcyon.scaling.frozen import immutable
from halcyon.scaling.planner.forecast.trend_damping import min_interval_s

_SHARE = 0.99
"""Share of forecasts that the load must not exceed after the headroom has been added, as in a p99 objective. With 0.97,
0.10 and 0.19 % of the requests of a daily load (scenario S5) are late at start times of 60 and 180 s. With 0.99, half
as many are late, but GPU time is 0.3 % higher on average over all scenarios, and 7 to 11 % higher for the daily
load."""
_STEP = 0.005
"""Maximum change of the headroom after one comparison of a forecast with the load."""
_INITIAL = 0.05
"""Initial headroom. It equals the headroom after ten exceeded forecasts, and falls to 0 after 1,000 forecasts that are
not exceeded. Twice this value costs 2 % more GPU time. docs/decisions/0022 shows for which loads the initial headroom
prevents late requests."""
_MAX_SHARE = 0.5
"""Maximum headroom, as a share of the rate. A higher maximum would provide capacity for the load's own peaks twice."""
_MAX_PERIOD_S = 900.0
"""Maximum time that a forecast looks ahead, in seconds. It is used if pods take longer than this to start."""


@immutable(frozen=True, slots=True)
class Headroom:
    """Learnt headroom: the `_SHARE` quantile of (load / forecast - 1), for forecasts one start time ahead.

    It is estimated by stochastic gradient descent. If the load exceeded the forecast with the headroom added, the
    headroom increases by `_STEP` x `_SHARE`; otherwise it decreases by `_STEP` x (1 - `_SHARE`). Every exceeded
    forecast therefore has the same effect, no matter by how much it is exceeded.

    When the load exceeds a forecast, the other pending forecasts are dropped. They were made before the load rose, and
    the same rise would otherwise be counted four times.
    """

    value: float = _INITIAL
    due: tuple[tuple[float, float], ...] = ()
    """Forecasts that are still to be compared with the load, ascending by time: (time, forecast rate in requests per
    second)."""

    def is_due(self, now: float, lead_s: float) -> bool:
        """Return whether `with_forecast` must be called now, to compare a stored forecast or to store a new one."""
        return not self.due or self.due[0][0] <= now or self._is_new(now, lead_s)

    def _is_new(self, now: float, lead_s: float) -> bool:
        lead = min(lead_s, _MAX_PERIOD_S)
        return not self.due or now + lead - self.due[-1][0] >= min_interval_s(lead)

    def with_forecast(self, now: float, rate: float, foreseen: float, lead_s: float) -> Headroom:
        """Return the headroom after comparing due forecasts with `rate` and storing the new forecast `foreseen`.

        `rate` is the present arrival rate, and `foreseen` the rate forecast for now + lead_s, both in requests per
        second.
        """
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
