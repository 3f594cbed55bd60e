"""Correction of the planner's memory after the system clock was changed.

All stored times are shifted by the same amount as the clock. Otherwise the planner would mistake the change for a time
without requests, or for a surge of requests.
"""

from __future__ import annotations

from dataclasses import replace

from halcyon.scaling.planner.outputs import PlannerMemory
from halcyon.scaling.planner.scale_down_hold import ScaleDownHold


def shifted(memory: PlannerMemory, by_s: float) -> PlannerMemory:
    """Return the planner's memory with its times shifted by `by_s` seconds.

    The times of seasons and spikes stay the same, because their modules handle clock changes themselves.
    """

    def at(time: float | None) -> float | None:
        return None if time is None else time + by_s

    def moved(hold: ScaleDownHold) -> ScaleDownHold:
        needs, bare = (tuple((time + by_s, count) for time, count in entries) for entries in (hold.needs, hold.bare))
        return replace(hold, needs=needs, bare=bare, lowered_at=at(hold.lowered_at), eased_at=at(hold.eased_at))

    arrivals = memory.arrivals
    return replace(
        memory,
        arrivals=replace(
            arrivals,
            times=tuple(time + by_s for time in arrivals.times),
            coarse_times=tuple(time + by_s for time in arrivals.coarse_times),
            spread=replace(arrivals.spread, begin=at(arrivals.spread.begin)),
            last_at=at(arrivals.last_at),
            since=at(arrivals.since),
        ),
        hold=moved(memory.hold),
        drain=moved(memory.drain),
        headroom=replace(memory.headroom, due=tuple((time + by_s, rate) for time, rate in memory.headroom.due)),
        damping=replace(
            memory.damping, due=tuple((time + by_s, rate, rising) for time, rate, rising in memory.damping.due)
        ),
        zero=replace(memory.zero, left=_moved(memory.zero.left, by_s), back=_moved(memory.zero.back, by_s)),
        still=replace(memory.still, since=memory.still.since + by_s),
        rejections=replace(memory.rejections, at=at(memory.rejections.at)),
        evidence=memory.evidence.shifted(by_s),
    )


def _moved(event: tuple[float, int] | None, by_s: float) -> tuple[float, int] | None:
    return None if event is None else (event[0] + by_s, event[1])
