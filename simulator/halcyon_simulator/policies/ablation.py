"""Halcyon's planner with one of its learning parts switched off, for example `halcyon:without=headroom`.

The planner keeps its learnt values in `PlannerMemory`, which has one object per part, with the part's learning step. To
switch a part off, its object in the initial memory is replaced by a neutral object that learns nothing. The planner
itself has no switch. Out of scope: the effect of each part (`benchmark.ablation`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from typing_extensions import override

from halcyon.scaling.planner.capacity.bounded_queue import RejectionBound
from halcyon.scaling.planner.forecast.arrival_rate import ArrivalRate
from halcyon.scaling.planner.forecast.dispersion import Dispersion
from halcyon.scaling.planner.forecast.recurring_spikes import SpikeMemory
from halcyon.scaling.planner.forecast.seasonality import History
from halcyon.scaling.planner.forecast.trend_damping import TrendDamping
from halcyon.scaling.planner.headroom import Headroom
from halcyon.scaling.planner.outputs import PlannerMemory
from halcyon.scaling.planner.plausibility import MAX_AGE_S, StuckCounter
from halcyon.scaling.planner.reading import Reading
from halcyon.scaling.planner.scale_down_hold import ScaleDownHold
from halcyon.scaling.planner.scale_to_zero import IdleTimeout
from halcyon_simulator.engine.case import Case
from halcyon_simulator.engine.forwarded_view import ForwardedView
from halcyon_simulator.engine.policy_view import PolicyView, SampleColumn
from halcyon_simulator.policies.halcyon import HalcyonPolicy


class _NeverStuck(StuckCounter):
    """Check for stuck counters that never reports one."""

    __slots__ = ()

    @override
    def matches(self, reading: Reading) -> bool:
        return False

    @override
    def with_reading(self, reading: Reading) -> StuckCounter:
        # The last counter is kept, without a time: `matches` never needs it.
        return _NeverStuck(arrived=reading.arrived)


class _Undamped(TrendDamping):
    """Trend damping that always expects rises to continue in full."""

    __slots__ = ()

    @override
    def with_forecast(self, now: float, mean: float, rate: float, rising: float | None, lead_s: float) -> TrendDamping:
        return self


class _NoHeadroom(Headroom):
    """Headroom (the learnt reserve) that never changes."""

    __slots__ = ()

    @override
    def is_due(self, now: float, lead_s: float) -> bool:
        return False


class _Poisson(Dispersion):
    """Dispersion of arrivals that is always that of a Poisson process, and is never learnt."""

    __slots__ = ()

    @property
    @override
    def is_seen(self) -> bool:
        return True

    @property
    @override
    def is_known(self) -> bool:
        return True

    @override
    def beginning(self, at: float) -> Dispersion:
        return self

    @override
    def with_count(self, at: float, total: float, block_s: float) -> Dispersion:
        return self


class _Unbounded(RejectionBound):
    """Queue bound that always treats the queue as unlimited, although balancers reject requests."""

    __slots__ = ()

    @override
    def with_reading(self, at: float, rejected: float | None, waiting: float, lasting_s: float) -> RejectionBound:
        return self


class _FixedTimeout(IdleTimeout):
    """Idle timeout that is always `idleAfter`."""

    __slots__ = ()

    @override
    def with_count(self, now: float, before: int, count: int, *, idle_after_s: float, start_s: float) -> IdleTimeout:
        return self


class _FixedHold(ScaleDownHold):
    """Scale-down hold of constant length: one start time, but at least a minute."""

    __slots__ = ()

    @override
    def seconds(self, start_s: float, *, foreseen: bool = False, dispersion: float = 1.0) -> float:
        return max(start_s, self.min_s)

    @override
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
        held, hold = super().with_need(now, need, start_s, bare=bare, foreseen=foreseen, dispersion=dispersion)
        own_hold = type(self)(needs=hold.needs, min_s=self.min_s, held=held, bare=hold.bare, bare_held=hold.bare_held)
        return held, own_hold


class _NoHold(_FixedHold):
    """Scale-down hold of zero length, which releases capacity as soon as it isn't needed."""

    __slots__ = ()

    @override
    def seconds(self, start_s: float, *, foreseen: bool = False, dispersion: float = 1.0) -> float:
        return 0.0


class _NoSpikes(SpikeMemory):
    """Memory for spikes of the load that never recognises a spike."""

    __slots__ = ()

    @override
    def observed(self, at: float, rate: float) -> SpikeMemory:
        return self


class _NoSeason(History):
    """History for seasonal load that always stays empty."""

    __slots__ = ()

    @override
    def with_sample(self, at: float, *, requests: float, seconds: float) -> History:
        return self


NEUTRAL: Mapping[str, Callable[[PlannerMemory], PlannerMemory]] = {
    "plausibility": lambda memory: replace(memory, still=_NeverStuck()),
    "damping": lambda memory: replace(memory, damping=_Undamped()),
    "headroom": lambda memory: replace(memory, headroom=_NoHeadroom(0.0)),
    "dispersion": lambda memory: replace(memory, arrivals=ArrivalRate(spread=_Poisson(noise=1.0))),
    "rejections": lambda memory: replace(memory, rejections=_Unbounded()),
    "zero": lambda memory: replace(memory, zero=_FixedTimeout()),
    "hold": lambda memory: replace(memory, hold=_NoHold()),
    "patience": lambda memory: replace(memory, hold=_FixedHold()),
    "spikes": lambda memory: replace(memory, spikes=_NoSpikes()),
    "season": lambda memory: replace(memory, history=_NoSeason()),
}
"""Functions that replace an object in the initial memory by a neutral object, by name of the learning part. The parts
`hold` and `patience` belong to the same module. Without `hold`, replicas are released at once. Without `patience`, the
length of the hold is constant."""


class AblatedPolicy(HalcyonPolicy):
    """Policy that uses the planner without one learning part. Its knobs are those of `HalcyonPolicy`."""

    def __init__(self, case: Case, part: str, **knobs: float) -> None:
        if part not in NEUTRAL:
            raise ValueError(
                f"the planner has no part '{part}' that can be off; there are {', '.join(NEUTRAL)}; for example halcyon:without=hold"
            )
        super().__init__(case, **knobs)
        self.memory = NEUTRAL[part](self.memory)
        self._last_known = _LastKnown() if part == "plausibility" else None

    @override
    def desired(self, view: PolicyView) -> int:
        """Return the planner's desired replicas."""
        return super().desired(view if self._last_known is None else self._last_known.update(view))


class _LastKnown(ForwardedView):
    """View of a run that replaces missing samples.

    It returns the last known value for a missing sample, and a timestamp that is at most 10 s old.
    """

    def __init__(self) -> None:
        super().__init__()
        self._values: dict[SampleColumn, float] = {}

    @override
    def value(self, signal: SampleColumn) -> float | None:
        value = super().value(signal)
        if value is not None:
            self._values[signal] = value
        return self._values.get(signal)

    @override
    def sampled_at(self) -> float | None:
        at = super().sampled_at()
        return at if at is None else max(at, self.now - MAX_AGE_S)
