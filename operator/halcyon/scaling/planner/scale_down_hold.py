"""How long capacity is kept after it was needed: the ski-rental rule, and patience that grows with regret.

Keeping a pod through a gap costs its time; releasing it and starting one again costs a start. Whoever keeps it for as long
as a start takes pays at most twice what foresight would. Each time a release was followed by a new rise within `REGRET` holds,
the hold doubles; calm for as long halves it. So in an hour at most nine releases are regretted, since each but the last two follows a
calm of `REGRET` holds of two minutes which undid the doubling before it; and at most 15 are followed by a rise at all (one that comes
later is no regret), so what the load needs turns the count around 30 times at most (a search over all sequences of regret and calm).
A load whose gaps nobody knows yet is met with patience by its bursts: so many arrivals that come in clumps tell as much as an I-th of them
would that come by chance alone, I being the dispersion. What a minute shows of a Poisson load takes I minutes of this one.
Where the next rise is foreseen there is nothing to be patient for: a pod is kept only if the gap is shorter than its start.
"""

from __future__ import annotations

from dataclasses import replace

from halcyon.scaling.frozen import immutable

MIN_HOLD_S = 60.0
"""No release of what the rate needs is sooner than this: the rate falls with the mean of a minute."""
FIRST_S = 180.0
"""The most patience with a load whose gaps nobody knows; burstier ones have mostly shown theirs by then."""
MAX_HOLD_S = 1800.0
"""Patience ends here, unless a start itself takes longer."""

REGRET = 4.0
"""A rise so many holds after a release makes it one to regret."""


@immutable(frozen=True, slots=True)
class ScaleDownHold:
    """What was needed lately."""

    needs: tuple[tuple[float, int], ...] = ()
    """(time, count), ascending in time and falling in count: only what still counts."""
    patience_s: float | None = None
    """None until a rise after a release, or calm, has taught it."""
    shortest_s: float = MIN_HOLD_S
    """Where patience ends on its way down."""
    lowered_at: float | None = None
    """When the held count fell last."""
    eased_at: float | None = None
    """When the patience was changed last."""
    held: int | None = None
    """The count that was held last."""
    bare: tuple[tuple[float, int], ...] = ()
    """As `needs`, without what is kept because not all of the load's noise is learnt yet."""
    would: int | None = None
    """The count that would have been held last by those alone."""

    def seconds(self, start_s: float, *, foreseen: bool = False, dispersion: float = 1.0) -> float:
        """How long a need is kept now."""
        if foreseen:
            return max(start_s, self.shortest_s)
        if self.patience_s is not None:
            return max(start_s, self.patience_s)
        return max(start_s, min(max(dispersion, 1.0) * self.shortest_s, FIRST_S))

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
        """The count to hold now that `need` is needed, and the memory with it.

        `bare`: the need without what is kept because noise isn't learnt yet, where it is another. `foreseen`: it is known when the next rise is
        due, so a rise now is no reason for regret. `dispersion`: variance over mean of the arrivals in a short time, which counts
        until patience is learnt.
        """
        bare = need if bare is None else bare
        span = self.seconds(start_s, foreseen=foreseen, dispersion=dispersion)
        needs = bares = _with(self.needs, now, need, span)
        if self.bare is not self.needs or bare != need:  # they are one nearly always
            bares = _with(self.bare, now, bare, span)
            bares = needs if bares == needs else bares
        held, would = needs[0][1], bares[0][1]
        patience, lowered, eased = self.patience_s, self.lowered_at, now if self.eased_at is None else self.eased_at
        if _is_lower(self.held, held) or _is_lower(self.would, would):
            lowered = now
        elif (_is_higher(self.held, held) or _is_higher(self.would, would)) and not foreseen:
            if lowered is not None and now - lowered < REGRET * span:
                patience, lowered, eased = min(2 * span, max(MAX_HOLD_S, start_s)), None, now
        elif now - eased > 4 * span and (patience is None or patience > self.shortest_s):
            patience, eased = max((span if patience is None else patience) / 2, self.shortest_s), now
        return held, ScaleDownHold(needs, patience, self.shortest_s, lowered, eased, held, bares, would)

    def at_least(self, now: float, count: int) -> ScaleDownHold:
        """The memory in which just `count` was needed."""
        needs = ((now, count),)
        return replace(self, needs=needs, held=count, bare=needs, would=count)

    def released(self) -> ScaleDownHold:
        """The memory in which nothing is needed any more: the next count is the next need."""
        return replace(self, needs=(), bare=())

    def blind(self, now: float) -> ScaleDownHold:
        """The memory where nothing can be known now: what was held last is needed."""
        return self if self.held is None else self.at_least(now, self.held)


def _with(needs: tuple[tuple[float, int], ...], now: float, need: int, span_s: float) -> tuple[tuple[float, int], ...]:
    """The needs with a new one: older ones stay where they are higher and no older than the span."""
    since = now - span_s
    return (*[(at, count) for at, count in needs if count > need and at > since], (now, need))


def _is_lower(before: int | None, after: int) -> bool:
    return before is not None and after < before


def _is_higher(before: int | None, after: int) -> bool:
    return before is not None and after > before
