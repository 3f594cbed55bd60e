"""Trend damping: how far a rise is expected to continue, judged by how far former rises of this load continued.

A wave rises as steeply as a ramp and then turns, so the rise itself cannot tell the two apart. The success of former forecasts
can: each is judged when its time has come, by the share of the foreseen rise that has come true.
"""

from __future__ import annotations

from halcyon.scaling.frozen import immutable

WINDOW_S = 30.0
"""Window of the mean rate by which a forecast is judged, centred on the forecast's time."""
_GAIN = 0.2
"""Weight of one judgement: four judgements of a turning rise halve the share, and as many of a continuing one restore it."""
_MIN_INTERVAL_SHARE = 0.25
"""Minimum time between two remembered forecasts, as a share of the lead. Closer forecasts are nearly the same."""
_MIN_INTERVAL_S = 5.0
"""Minimum time between two remembered forecasts, in seconds."""


@immutable(frozen=True, slots=True)
class TrendDamping:
    """Share of a foreseen rise to plan with; a damped trend in Gardner's sense, with a learnt factor."""

    share: float = 1.0
    """0 to 1. A first rise counts in full."""
    due: tuple[tuple[float, float, float], ...] = ()
    """(time to judge, requests per second when the forecast was made, requests per second forecast), ascending."""

    def of(self, rate: float, rising: float | None) -> float | None:
        """Return the rate to plan with if `rising` is foreseen; None if nothing is. Monotone in both."""
        return rising if rising is None or rising <= rate else rate + self.share * (rising - rate)

    def with_forecast(self, now: float, mean: float, rate: float, rising: float | None, lead_s: float) -> TrendDamping:
        """Judge forecasts whose time has come by `mean`, the rate of the last `WINDOW_S`, and remember a new one.

        `rate` is the present rate, `rising` the one foreseen for `lead_s` from now, before any damping; all in requests per
        second.
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
