"""Source of the capacity that the planner uses for a replica, as data for the status, `explain` and metrics.

Out of scope: how the sources are measured (`capacity`, `answer_evidence`).
"""

from __future__ import annotations

from typing import Literal

from halcyon.scaling.frozen import immutable
from halcyon.scaling.lazy_text import LazyText
from halcyon.scaling.planner.answer_evidence import MEASURED, AnswerEvidence
from halcyon.scaling.planner.capacity.queueing import Replica, ServiceLine
from halcyon.scaling.planner.capacity.replica_capacity import Capacity
from halcyon.scaling.planner.parts import sustained_rps
from halcyon.scaling.planner.reading import Objectives

SourceName = Literal["Bench", "WarmUp", "BatchStatistics", "TimeInPods", "Answers", "EngineMetrics", "Unknown"]
"""Names of the sources. Bench: a measurement by `halcyon bench --teach`, until traffic outweighs it. WarmUp: batch times in Triton's
statistics before any request. BatchStatistics: the same, with traffic. TimeInPods: requests in execution divided by their time in
a pod, at the balancers. Answers: answers of full pods, counted at the balancers. EngineMetrics: the same, and the engine's own
metrics say that it is full. Unknown: none of them is usable."""
Contradiction = Literal["AnswersDisagree", "SharedLimit"]
"""Names of the contradictions. AnswersDisagree: requests take longer than Triton's batch times say, or pods answer fewer.
SharedLimit: pods share a limit, so more of them answer no more."""


@immutable(frozen=True, slots=True)
class CapacitySource:
    """Capacity of a replica, with its source."""

    name: str
    """A `SourceName`."""
    rps: float | None
    """Requests per second that a full replica answers; None if unknown."""
    text: object
    """Reason for the source: a text, or an object that formats it (`lazy_text`)."""
    contradiction: str | None = None
    """How sources contradict each other, a `Contradiction`; None if they don't."""
    replica: Replica | None = None
    """The replica that the planner plans with; None if its capacity is unknown."""
    line: ServiceLine | None = None
    """Times of batches, in rows; None if they aren't known, or if answers contradict them."""
    objectives: Objectives | None = None

    @property
    def why(self) -> str:
        """Return the reason for the source, with numbers and units."""
        return str(self.text)

    @property
    def sustained_rps(self) -> float | None:
        """Return the requests per second that one replica answers within the objectives; None if unknown."""
        if self.replica is None or self.objectives is None:
            return None
        return sustained_rps(self.objectives, self.replica)


def source(
    evidence: AnswerEvidence,
    replica: Replica | None,
    *,
    capacity: Capacity | None = None,
    objectives: Objectives | None = None,
    has_traffic: bool = True,
) -> CapacitySource:
    """Return the source that is in force.

    `replica` is the capacity by the service line of `capacity`; None if there is no line.
    """
    shared = evidence.shared
    if evidence.is_in_force:
        name = "Unknown" if evidence.rps is None else evidence.found_by or "Answers"
        text: object = evidence.describe()
        kind = None if replica is None or name == MEASURED else "AnswersDisagree"
        if shared is not None:
            text, kind = f"{text}; {shared.describe()}", "SharedLimit"
        return CapacitySource(name, evidence.rps, text, kind, evidence.replica(), None, objectives)
    if replica is None:
        return CapacitySource("Unknown", None, "too few batches have run, and answers don't show it yet")
    line = None if capacity is None else capacity.line
    if shared is not None:
        text = shared.describe()
        return CapacitySource("BatchStatistics", replica.peak_rps, text, "SharedLimit", replica, line, objectives)
    name, how = "BatchStatistics" if has_traffic else "WarmUp", _HOW[has_traffic]
    if capacity is not None and capacity.measured_weight > capacity.weight:
        name, how = MEASURED, "as halcyon bench measured it"
    return CapacitySource(name, replica.peak_rps, _by_line(replica, how), None, replica, line, objectives)


_HOW = {True: "by Triton's batch statistics", False: "by Triton's batch statistics of the warm-up"}


def _by_line(replica: Replica, how: str) -> LazyText:
    each = "one instance" if replica.instances == 1 else f"each of {replica.instances} instances"
    requests = f"request{'' if replica.max_batch == 1 else 's'}"
    return LazyText("{} {} in {:.3g} s on {}, {}", (replica.max_batch, requests, replica.batch_s, each, how))


def measured(objectives: Objectives) -> CapacitySource | None:
    """Return the capacity by what a bench has measured alone, for a model without decisions; None if none has."""
    evidence = AnswerEvidence().with_measured(objectives.measured_answers)
    capacity = Capacity().with_measured(objectives.measured_batches)
    replica = evidence.replica()
    if replica is None and capacity.line is not None:
        replica = Replica(capacity.line, objectives.max_batch, objectives.instances)
    return None if replica is None else source(evidence, replica, capacity=capacity, objectives=objectives)
