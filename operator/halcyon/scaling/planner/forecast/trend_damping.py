"""How far a rise is believed to go on: as far as rises of this load have gone on before.

A wave rises as steeply as a ramp and then turns, so no look at the rise itself can tell the two apart. What its forecasts came to
can: each is judged when its time has come, by the share of the foreseen rise that has come true.
"""

from __future__ import annotations

from halcyon.scaling.frozen import immutable

WINDOW_S = 30.0
"""A forecast is judged by the mean rate of so many seconds, its own time in their middle."""
_GAIN = 0.2
"""Weight of one judgement: four of a rise that turns halve the faith, and as many of one that goes on bring it back."""
_EVERY = 0.25
"""Share of the lead between two forecasts that are remembered: closer ones are nearly the same forecast."""
_INTERVAL_S = 5.0
"""The least time between two of them."""


@immutable(frozen=True, slots=True)
class TrendDamping:
    """The share of a foreseen rise that is planned with; a damped trend in Gardner's sense, its factor learnt."""

    share: float = 1.0
    """0 to 1. A first rise is believed in full."""
    due: tuple[tuple[float, float, float], ...] = ()
    """(when to judge, requests per second when it was foreseen, requests per second that were foreseen), ascending."""

    def of(self, rate: float, rising: float | None) -> float | None:
        """The rate to plan with where `rising` is foreseen; None where nothing is. Monotone in both."""
        return rising if rising is None or rising <= rate else rate + self.share * (rising - rate)

    def with_forecast(self, now: float, mean: float, rate: float, rising: float | None, lead_s: float) -> TrendDamping:
        """With forecasts that are due judged by `mean`, the rate of the last `WINDOW_S`, and one that is new remembered.

        `rate` is that of now, `rising` the one foreseen for `lead_s` from now, before any damping; all in requests per second.
        """
        share, first = self.share, 0
        while first < len(self.due) and self.due[first][0] <= now:
            _, base, foreseen = self.due[first]
            came = (mean - base) / (foreseen - base)
            share += _GAIN * (min(max(came, 0.0), 1.0) - share)
            first += 1
        due = self.due[first:]
        at = now + lead_s + WINDOW_S / 2
        if rising is not None and rising > rate and (not due or at - due[-1][0] >= max(lead_s * _EVERY, _INTERVAL_S)):
            return TrendDamping(share, (*due, (at, rate, rising)))
        return TrendDamping(share, due) if first else self
