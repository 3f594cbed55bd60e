"""How long capacity is kept after it was needed: the ski-rental rule, with patience that grows with regret.

Keeping a pod through a gap costs its time; releasing it and starting one again costs a start. A pod kept for as long as a start
takes costs at most twice what perfect foresight would.

If a new rise follows a release within `REGRET` holds, the hold doubles; calm for the same time halves it. In an hour at most
nine releases are thus regretted: each but the last two follows a calm of `REGRET` holds of two minutes, which undid the
doubling before it. At most 15 are followed by a rise at all (a later one is no regret). What the load needs therefore changes
direction at most 30 times (by a search over all sequences of regret and calm).

If the gaps of a load are unknown, its bursts set the patience. With dispersion I, clustered arrivals carry 1/I of the
information of as many Poisson arrivals. A minute of a Poisson load is thus worth I minutes of this one. If the next rise is
foreseen, patience is not needed: a pod is kept only if the gap is shorter than its start.
"""

from __future__ import annotations

from dataclasses import replace

from halcyon.scaling.frozen import immutable

MIN_HOLD_S = 60.0
"""Minimum time before a release of what the rate needs: the rate falls with the mean of a minute."""
MAX_FIRST_HOLD_S = 180.0
"""Maximum patience with a load whose gaps are unknown. Burstier loads have mostly shown theirs by then."""
MAX_HOLD_S = 1800.0
"""Maximum patience, unless a start itself takes longer."""

REGRET = 4.0
"""Number of holds after a release within which a rise makes it a regret."""


@immutable(frozen=True, slots=True)
class ScaleDownHold:
    """Recent needs, and the patience learnt from them."""

    needs: tuple[tuple[float, int], ...] = ()
    """(time, replicas), ascending in time and descending in replicas: only entries that still count."""
    patience_s: float | None = None
    """Learnt patience in seconds; None until a rise after a release, or calm, has taught it."""
    min_s: float = MIN_HOLD_S
    """Minimum patience in seconds."""
    lowered_at: float | None = None
    """Time when the held replicas last fell."""
    eased_at: float | None = None
    """Time when the patience last changed."""
    held: int | None = None
    """Replicas held last."""
    bare: tuple[tuple[float, int], ...] = ()
    """The same as `needs`, without replicas kept because not all of the load's noise is learnt yet."""
    bare_held: int | None = None
    """Replicas that would have been held last if `bare` alone decided."""

    def seconds(self, start_s: float, *, foreseen: bool = False, dispersion: float = 1.0) -> float:
        """Return how long a need is kept now."""
        if foreseen:
            return max(start_s, self.min_s)
        if self.patience_s is not None:
            return max(start_s, self.patience_s)
        return max(start_s, min(max(dispersion, 1.0) * self.min_s, MAX_FIRST_HOLD_S))

    def with_need(
        self,
        now: float,
        need: int,
        start_s: float,
        *,
        bare: int | None = None,
        foreseen: bool = False,
        dispersion: float = 1.0,
    ) -> tuple[int, ScaleDownHold]:
        """Return the replicas to hold now that `need` is needed, and the memory with it.

        `bare`: the need without replicas kept because noise isn't learnt yet, if it differs. `foreseen`: the time of the next
        rise is known, so a rise now is no reason for regret. `dispersion`: variance over mean of the arrivals in a short time,
        used until patience is learnt.
        """
        bare = need if bare is None else bare
        span = self.seconds(start_s, foreseen=foreseen, dispersion=dispersion)
        needs = bares = _with(self.needs, now, need, span)
        if self.bare is not self.needs or bare != need:  # they are nearly always the same object
            bares = _with(self.bare, now, bare, span)
            bares = needs if bares == needs else bares
        held, bare_held = needs[0][1], bares[0][1]
        patience, lowered, eased = self.patience_s, self.lowered_at, now if self.eased_at is None else self.eased_at
        if _is_lower(self.held, held) or _is_lower(self.bare_held, bare_held):
            lowered = now
        elif (_is_higher(self.held, held) or _is_higher(self.bare_held, bare_held)) and not foreseen:
            if lowered is not None and now - lowered < REGRET * span:
                patience, lowered, eased = min(2 * span, max(MAX_HOLD_S, start_s)), None, now
        elif now - eased > 4 * span and (patience is None or patience > self.min_s):
            patience, eased = max((span if patience is None else patience) / 2, self.min_s), now
        return held, ScaleDownHold(needs, patience, self.min_s, lowered, eased, held, bares, bare_held)

    def at_least(self, now: float, count: int) -> ScaleDownHold:
        """Return the memory with just `count` as the need."""
        needs = ((now, count),)
        return replace(self, needs=needs, held=count, bare=needs, bare_held=count)

    def released(self) -> ScaleDownHold:
        """Return the memory with no need left: the next replicas are the next need."""
        return replace(self, needs=(), bare=())

    def blind(self, now: float) -> ScaleDownHold:
        """Return the memory for a time without information: the replicas held last are the need."""
        return self if self.held is None else self.at_least(now, self.held)


def _with(needs: tuple[tuple[float, int], ...], now: float, need: int, span_s: float) -> tuple[tuple[float, int], ...]:
    """Add a new need; older ones stay if they are higher and no older than the span."""
    since = now - span_s
    return (*[(at, count) for at, count in needs if count > need and at > since], (now, need))


def _is_lower(before: int | None, after: int) -> bool:
    return before is not None and after < before


def _is_higher(before: int | None, after: int) -> bool:
    return before is not None and after > before
