"""Trend damping: the share of a forecast rise to plan with, learnt from earlier rises of the same load.

The rise alone does not show whether it will continue, because a wave rises as steeply as a ramp before it turns.
Earlier forecasts show it better. Each one is compared with the actual rate once its time has come. The learnt share is
an average of how much of each forecast rise occurred.
"""

from __future__ import annotations

from halcyon.scaling.frozen import immutable

WINDOW_S = 30.0
"""Length of the window, in seconds, whose mean rate is compared with the forecast. It is centred on the time of the
forecast."""
_GAIN = 0.2
"""Weight of one comparison in the average. Four comparisons with a rise that ended roughly halve the share. Four with a
rise that continued roughly restore it."""
_MIN_INTERVAL_SHARE = 0.25
"""Minimum interval between two stored forecasts, as a share of the lead. Forecasts closer together are nearly the same.
"""
_MIN_INTERVAL_S = 5.0
"""Minimum interval between two stored forecasts, in seconds."""


@immutable(frozen=True, slots=True)
class TrendDamping:
    """Learnt share of a forecast rise to plan with, as in Gardner's damped trend but with a factor that is learnt."""

    share: float = 1.0
    """Share of a forecast rise to plan with, from 0 to 1. It is 1 until the first comparison with an actual rate."""
    due: tuple[tuple[float, float, float], ...] = ()
    """Stored forecasts, ascending by time: (time of the comparison, rate when the forecast was made, forecast rate).
    Rates are in requests per second."""

    def of(self, rate: float, rising: float | None) -> float | None:
        """Return the rate to plan with if the forecast is `rising`, in requests per second.

        A forecast above the present `rate` is damped. Any other forecast, and None, is returned unchanged. The result
        never falls if either argument rises.
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
            came = (mean - base) / (foreseen - base)
            share += _GAIN * (min(max(came, 0.0), 1.0) - share)
            first += 1
        due = self.due[first:]
        at = now + lead_s + WINDOW_S / 2
        if (
            rising is not None
            and rising > rate
            and (not due or at - due[-1][0] >= max(lead_s * _MIN_INTERVAL_SHARE, _MIN_INTERVAL_S))
        ):
            return TrendDamping(share, (*due, (at, rate, rising)))
        return TrendDamping(share, due) if first else self
