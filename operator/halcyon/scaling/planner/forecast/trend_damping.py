"""Trend damping: the share of a forecast rise that the planner uses, learnt from earlier rises of the same load.

A rise alone does not show whether it will continue, because a wave rises as steeply as a ramp before it turns. Earlier
forecasts of the same load are better evidence. Each forecast is compared with the actual rate at the forecast time. The
learnt share is a moving average of the part of each forecast rise that occurred.
"""

from __future__ import annotations

from halcyon.scaling.frozen import immutable

WINDOW_S = 30.0
"""Length, in seconds, of the window whose mean rate is compared with a forecast. The window is centred on the time of
the forecast."""
_GAIN = 0.2
"""Weight of one forecast in the moving average `TrendDamping.share`, the part of forecast rises that occurs. Four rises
that end early roughly halve this share. Four rises that continue roughly restore it."""
_MIN_INTERVAL_SHARE = 0.25
"""Minimum ratio of the interval between two stored forecasts to the time that they look ahead. Forecasts closer
together are nearly the same."""
_MIN_INTERVAL_S = 5.0
"""Minimum interval between two stored forecasts, in seconds."""


def min_interval_s(lead_s: float) -> float:
    """Return the minimum seconds between two stored forecasts that look `lead_s` seconds ahead."""
    return max(lead_s * _MIN_INTERVAL_SHARE, _MIN_INTERVAL_S)


@immutable(frozen=True, slots=True)
class TrendDamping:
    """Learnt share of a forecast rise that the planner uses.

    The model is Gardner's damped trend, with a learnt damping factor.
    """

    share: float = 1.0
    """Share of a forecast rise that the planner uses, from 0 to 1. It is 1 until a forecast has been compared with the
    actual rate."""
    due: tuple[tuple[float, float, float], ...] = ()
    """Forecasts that are still to be compared with the actual rate, ascending by time: (time of the comparison, rate
    when the forecast was made, forecast rate). Rates are in requests per second."""

    def of(self, rate: float, rising: float | None) -> float | None:
        """Return the arrival rate to plan with, in requests per second, given the forecast `rising`.

        If `rising` is above the present `rate`, only the learnt share of the rise is used. Otherwise, `rising` is
        returned unchanged, also if it is None. The result never falls if either argument rises.
        """
        return rising if rising is None or rising <= rate else rate + self.share * (rising - rate)

    def with_forecast(self, now: float, mean: float, rate: float, rising: float | None, lead_s: float) -> TrendDamping:
        """Return the damping after comparing due forecasts with the actual rate and storing a new forecast.

        `mean` is the mean rate of the last `WINDOW_S` seconds, `rate` the present rate, and `rising` the undamped
        forecast for `lead_s` seconds from now. All are in requests per second.
        """
        share, first = self.share, 0
        while first < len(self.due) and self.due[first][0] <= now:
            _, base, foreseen = self.due[first]
            realized = (mean - base) / (foreseen - base)
            share += _GAIN * (min(max(realized, 0.0), 1.0) - share)
            first += 1
        due = self.due[first:]
        at = now + lead_s + WINDOW_S / 2
        if rising is not None and rising > rate and (not due or at - due[-1][0] >= min_interval_s(lead_s)):
            return TrendDamping(share, (*due, (at, rate, rising)))
        return TrendDamping(share, due) if first else self
