"""Scale-down hold: how long replicas are kept after they were last needed.

The rule is that of the ski-rental problem. Keeping an unused pod costs GPU time, and so does releasing it and starting
another one. If an unused pod is kept for as long as a start takes, the cost is at most twice that of perfect foresight.

The time for which a pod is kept is called the hold, and adapts to the load. If the load rises again within `REGRET`
times the hold after a release, the release was a mistake, and the hold doubles. If nothing changes for that long, the
hold halves.

The hold limits how often the replicas change. In one hour, at most 15 releases are followed by a rise, so the replicas
needed for the load reverse direction at most 30 times. At most nine of these releases are mistakes. These numbers come
from a search over all sequences of releases, mistaken or not.

Until a hold is learnt, it depends on how bursty the arrivals are. Arrivals with dispersion I contain 1/I of the
information of the same number of Poisson arrivals. So I minutes of such a load are as much evidence as one minute of a
Poisson load. If the time of the next rise is known, the hold is only as long as a pod start: a pod is then kept if the
rise comes before a new pod could be ready.
"""

from __future__ import annotations

from dataclasses import replace

from halcyon.scaling.frozen import immutable

MIN_HOLD_S = 60.0
"""Minimum time, in seconds, for which replicas are kept after the load last needed them. It is one minute because a
falling rate follows the mean of the last minute."""
MAX_FIRST_HOLD_S = 180.0
"""Maximum time, in seconds, for which replicas are kept before the hold for this load has been learnt. After this time,
most bursty loads have shown how long their gaps are."""
MAX_HOLD_S = 1800.0
"""Maximum learnt time, in seconds, for which replicas are kept after they were last needed. If a pod start takes
longer, its time is the maximum."""

REGRET = 4.0
"""A release of replicas counts as a mistake if the next rise comes within this multiple of the hold."""


@immutable(frozen=True, slots=True)
class ScaleDownHold:
    """Recent replicas needed, and the learnt hold: how long replicas are kept after they were last needed."""

    needs: tuple[tuple[float, int], ...] = ()
    """Recent numbers of replicas needed that still affect the result, as (time, replicas). Times ascend and replicas
    descend."""
    patience_s: float | None = None
    """Learnt time, in seconds, for which replicas are kept after they were last needed; None until it is first doubled
    or halved."""
    min_s: float = MIN_HOLD_S
    """Minimum time, in seconds, for which replicas are kept after they were last needed."""
    lowered_at: float | None = None
    """Time at which the number of replicas that are kept last fell."""
    eased_at: float | None = None
    """Time at which the learnt hold was last doubled or halved."""
    held: int | None = None
    """Number of replicas to keep, as returned by the last call."""
    bare: tuple[tuple[float, int], ...] = ()
    """Recent replicas needed, as in `needs`, but without replicas kept only because the noise of the load is
    uncertain."""
    bare_held: int | None = None
    """Number of replicas that the last call would have returned with `bare` instead of `needs`."""

    def seconds(self, start_s: float, *, foreseen: bool = False, dispersion: float = 1.0) -> float:
        """Return for how many seconds replicas are kept after they were last needed.

        `foreseen` is true if the time of the next rise is known.
        """
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
        """Return the number of replicas to keep now, and the updated state.

        `need` is the number of replicas needed now. `bare` is the number that would be needed if the noise of the load
        were fully learnt; its default is `need`. `foreseen` is true if the time of the next rise is known, so that
        scaling down before this rise doesn't count as a mistake. `dispersion`, the variance of the number of arrivals
        in a short time divided by its mean, is used until a hold is learnt.
        """
        bare = need if bare is None else bare
        span = self.seconds(start_s, foreseen=foreseen, dispersion=dispersion)
        needs = bares = _with(self.needs, now, need, span)
        if self.bare is not self.needs or bare != need:  # the two are nearly always the same object
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
        """Return the state with a need for `count` replicas now as the only recent need."""
        needs = ((now, count),)
        return replace(self, needs=needs, held=count, bare=needs, bare_held=count)

    def released(self) -> ScaleDownHold:
        """Return the state without earlier needs, so that the next need alone determines the replicas."""
        return replace(self, needs=(), bare=())

    def forgotten(self) -> ScaleDownHold:
        """Return the state without earlier needs or kept replicas. Their release doesn't count as a mistake."""
        return replace(self, needs=(), bare=(), held=0, bare_held=0, lowered_at=None)

    @property
    def is_forgotten(self) -> bool:
        """Return whether earlier needs are unknown, because the state is the result of `forgotten`."""
        return not self.needs and self.held == 0

    def excused(self) -> ScaleDownHold:
        """Return the state in which the last release doesn't count as a mistake if the replicas rise again.

        Use it if a wrong capacity, and not the load, caused the release.
        """
        return self if self.lowered_at is None else replace(self, lowered_at=None)

    def blind(self, now: float) -> ScaleDownHold:
        """Return the state after a time without valid readings.

        The replicas that were kept last count as needed now.
        """
        return self if self.held is None else self.at_least(now, self.held)


def _with(needs: tuple[tuple[float, int], ...], now: float, need: int, span_s: float) -> tuple[tuple[float, int], ...]:
    """Return the recent needs with a new one added.

    Earlier needs remain if they are higher than the new one and at most `span_s` seconds old.
    """
    since = now - span_s
    return (*[(at, count) for at, count in needs if count > need and at > since], (now, need))


def _is_lower(before: int | None, after: int) -> bool:
    return before is not None and after < before


def _is_higher(before: int | None, after: int) -> bool:
    return before is not None and after > before
