"""Output of the planner: the plan as data, and the memory for the next plan. Out of scope: how a plan is made."""

from __future__ import annotations

from dataclasses import field
from typing import Literal

from typing_extensions import override

from halcyon.scaling.frozen import immutable
from halcyon.scaling.planner.answer_evidence import AnswerEvidence
from halcyon.scaling.planner.capacity.bounded_queue import RejectionBound
from halcyon.scaling.planner.capacity.replica_capacity import Capacity
from halcyon.scaling.planner.forecast.arrival_rate import ArrivalRate
from halcyon.scaling.planner.forecast.recurring_spikes import SpikeMemory
from halcyon.scaling.planner.forecast.seasonality import History
from halcyon.scaling.planner.forecast.trend_damping import TrendDamping
from halcyon.scaling.planner.headroom import Headroom
from halcyon.scaling.planner.plausibility import StuckCounter
from halcyon.scaling.planner.scale_down_hold import ScaleDownHold
from halcyon.scaling.planner.scale_to_zero import IdleTimeout

PartName = Literal[
    "rate", "trend", "season", "spike", "queueDepth", "gpuUtilization", "concurrency", "metric", "backlog", "batch"
]
LimitName = Literal["min", "max", "hold", "veto", "answers", "shared", "unknown", "learning", "idle"]
"""Name of a limit of a plan. `min` and `max`: minReplicas and maxReplicas, or those of an active schedule. `hold`: more
replicas were needed recently. `veto`: the GPUs are too busy for fewer replicas. `answers`: fewer replicas have never
answered this many requests. `shared`: the pods share a limit, so more pods would not answer more. `unknown`: the
reading is implausible. `learning`: too little is known so far. `idle`: there are no requests, so the model can be
scaled to zero."""


@immutable(frozen=True, slots=True)
class PlanPart:
    """Part of a plan: the replicas needed for one cause, such as the arrival rate or the backlog, and the reason."""

    name: PartName
    replicas: int
    text: object
    """Reason for this part of the plan: a string, or an object that formats the string when it is read
    (`lazy_text`)."""

    @property
    def why(self) -> str:
        """Return the reason for this part of the plan, with numbers and units."""
        return str(self.text)


@immutable(frozen=True, slots=True)
class PlanLimit:
    """Limit that changed the number of replicas after the parts of the plan were computed, or prevented a change."""

    name: LimitName
    replicas: int
    text: object
    """Reason for this limit: a string, or an object that formats the string when it is read (`lazy_text`)."""

    @property
    def why(self) -> str:
        """Return the reason for this limit, with numbers and units."""
        return str(self.text)


@immutable(frozen=True, slots=True)
class Sentence:
    """Values from which the sentence about a plan is formatted, which is done only when the sentence is read."""

    count: int
    parts: tuple[PlanPart, ...]
    winner: PartName | None
    limits: tuple[PlanLimit, ...]

    @override
    def __str__(self) -> str:
        """Return one sentence that explains the plan, with its numbers."""
        head = f"{self.count} replica{'' if self.count == 1 else 's'}"
        texts = [part.why for part in self.parts if part.name in {self.winner, "backlog"}]
        texts += [limit.why for limit in self.limits] or ["no limit applies"]
        return f"{head}: {'; '.join(texts)}"


@immutable(frozen=True, slots=True)
class PlannerMemory:
    """State of the planner that is kept from one decision to the next."""

    arrivals: ArrivalRate = field(default_factory=ArrivalRate)
    capacity: Capacity = field(default_factory=Capacity)
    hold: ScaleDownHold = field(default_factory=ScaleDownHold)
    """Recent replicas needed for the load, and how long the planner keeps them."""
    drain: ScaleDownHold = field(default_factory=lambda: ScaleDownHold(patience_s=0.0, min_s=0.0))
    """Recent replicas needed for the backlog, and how long the planner keeps them."""
    headroom: Headroom = field(default_factory=Headroom)
    damping: TrendDamping = field(default_factory=TrendDamping)
    zero: IdleTimeout = field(default_factory=IdleTimeout)
    history: History = field(default_factory=History)
    spikes: SpikeMemory = field(default_factory=SpikeMemory)
    still: StuckCounter = field(default_factory=StuckCounter)
    rejections: RejectionBound = field(default_factory=RejectionBound)
    evidence: AnswerEvidence = field(default_factory=AnswerEvidence)

    def with_changes(
        self,
        *,
        arrivals: ArrivalRate | None = None,
        capacity: Capacity | None = None,
        hold: ScaleDownHold | None = None,
        drain: ScaleDownHold | None = None,
        margin: Headroom | None = None,
        damping: TrendDamping | None = None,
        zero: IdleTimeout | None = None,
        history: History | None = None,
        spikes: SpikeMemory | None = None,
        still: StuckCounter | None = None,
        refusals: RejectionBound | None = None,
        evidence: AnswerEvidence | None = None,
    ) -> PlannerMemory:
        """Return the memory with some parts replaced.

        The method is five times as fast as `dataclasses.replace`, which looks up every field by name.
        """
        return PlannerMemory(
            self.arrivals if arrivals is None else arrivals,
            self.capacity if capacity is None else capacity,
            self.hold if hold is None else hold,
            self.drain if drain is None else drain,
            self.headroom if margin is None else margin,
            self.damping if damping is None else damping,
            self.zero if zero is None else zero,
            self.history if history is None else history,
            self.spikes if spikes is None else spikes,
            self.still if still is None else still,
            self.rejections if refusals is None else refusals,
            self.evidence if evidence is None else evidence,
        )


@immutable(frozen=True, slots=True)
class Plan:
    """Result of the planner for one model: the plan, and the memory for the next plan."""

    count: int
    current: int
    parts: tuple[PlanPart, ...]
    winner: PartName | None
    limits: tuple[PlanLimit, ...]
    next_decision_at: float
    """Time of the next decision if no agent reports before then."""
    memory: PlannerMemory

    def sentence(self) -> Sentence:
        """Return the values for the plan's sentence, without a reference to the memory."""
        return Sentence(self.count, self.parts, self.winner, self.limits)

    def describe(self) -> str:
        """Return one sentence that explains the plan, with its numbers."""
        return str(self.sentence())
