"""How often a hold lets the count rise again after a fall, whatever is asked of it."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from halcyon.scaling.planner.scale_down_hold import MIN_HOLD_S, REGRET, ScaleDownHold

HOUR_S = 3600.0
REGRETTED = HOUR_S / (REGRET * 2 * MIN_HOLD_S) + 2
"""Nine: each but the last two follows a calm of four holds of two minutes, which has undone the doubling before it."""
IN_ALL = 16
"""15 by a search over all sequences of regret and calm, from holds of a minute times a power of two; one for those of other lengths."""
WORST = [85.0] * 37 + [125.0, 245.0, 485.0]
"""A hold of a minute is regretted every 510 s, and at last one of two and one of four minutes."""


def played(gaps: list[float], start_s: float = 1.0, dispersion: float = 1.0) -> tuple[list[float], list[float]]:
    """Five are needed for a moment, then two until the gap is over: when a rise followed a release, and when it was regretted."""
    hold, now, held, released = ScaleDownHold(), 0.0, 0, False
    rises, regrets = [], []
    for gap in gaps:
        until, need = now + gap, 5
        while now < until:
            before = hold
            count, hold = hold.with_need(now, need, start_s, dispersion=dispersion)
            if count > held and released:
                rises.append(now)
                regrets += [now] if before.lowered_at is not None and hold.lowered_at is None else []
            released = count < held or (released and count == held)
            held, need, now = count, 2, now + 5.0
    return rises, regrets


def most_in_an_hour(times: list[float]) -> int:
    return max((sum(begin <= at < begin + HOUR_S for at in times) for begin in times), default=0)


@example(gaps=[185.0] * 60, start_s=1.0, dispersion=1.0)
@example(gaps=WORST, start_s=1.0, dispersion=1.0)
@example(gaps=[305.0] * 13 + [65.0, 125.0, 245.0], start_s=1.0, dispersion=1.0)
@given(
    gaps=st.lists(st.one_of(st.floats(5, 700), st.sampled_from([65.0, 85.0, 125.0, 245.0, 305.0])), min_size=9, max_size=90),
    start_s=st.sampled_from([1.0, 60.0, 180.0]),
    dispersion=st.floats(1, 5),
)  # fmt: skip
def test_the_rises_after_a_release_are_bounded_in_any_hour(
    gaps: list[float], start_s: float, dispersion: float
) -> None:
    rises, regrets = played(gaps, start_s, dispersion)
    assert most_in_an_hour(regrets) <= REGRETTED
    assert most_in_an_hour(rises) <= IN_ALL


def test_loads_that_come_back_at_the_worst_moment_come_near_the_bound() -> None:
    assert most_in_an_hour(played(WORST)[1]) == 9
    assert most_in_an_hour(played([305.0] * 13 + [65.0, 125.0, 245.0])[0]) >= 13
