"""Source of the replica capacity that the planner uses, as data for the status, `halcyon explain` and metrics.

Out of scope: how the capacity is measured (`capacity`, `answer_evidence`).
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
"""Name of the source of a replica's capacity. `Bench`: measured by `halcyon bench --teach`, used until traffic
outweighs it. `WarmUp`: batch times in Triton's statistics before any request. `BatchStatistics`: batch times in
Triton's statistics after requests. `TimeInPods`: requests in execution divided by their time in a pod, measured at the
balancers. `Answers`: requests answered by full pods, counted at the balancers. `EngineMetrics`: like `Answers`, while
the engine's own metrics show that it is full. `Unknown`: no source is usable."""
Contradiction = Literal["AnswersDisagree", "SharedLimit"]
"""Name of a contradiction between two sources of a replica's capacity. `AnswersDisagree`: Triton's batch times predict
faster responses or more answers than were observed. `SharedLimit`: the pods share a limit, so additional pods don't
answer more requests."""


@immutable(frozen=True, slots=True)
class CapacitySource:
    """Capacity of a replica, and its source."""

    name: str
    """Name of the source of the capacity (`SourceName`)."""
    rps: float | None
    """Requests per second that a full replica answers; None if unknown."""
    text: object
    """Reason why this source is used: a string, or an object that formats the string when it is read (`lazy_text`)."""
    contradiction: str | None = None
    """Kind of contradiction between the sources (`Contradiction`); None if there is none."""
    replica: Replica | None = None
    """Capacity in the form that the planner uses: batch times, batch size and instances of one replica; None if
    unknown."""
    line: ServiceLine | None = None
    """Service time of a batch as a function of its number of rows; None if it is unknown, or if the pods' answers
    contradict it."""
    objectives: Objectives | None = None

    @property
    def why(self) -> str:
        """Return the reason why this source is used, with numbers and units."""
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
    """Return the source of the capacity that the planner uses now.

    `replica` is the capacity computed from the batch times in `capacity`; None if there are no batch times.
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
    """Return the capacity that `halcyon bench` measured, for a model that has no scaling decision yet.

    Return None if there is no measurement.
    """
    evidence = AnswerEvidence().with_measured(objectives.measured_answers)
    capacity = Capacity().with_measured(objectives.measured_batches)
    replica = evidence.replica()
    if replica is None and capacity.line is not None:
        replica = Replica(capacity.line, objectives.max_batch, objectives.instances)
    return None if replica is None else source(evidence, replica, capacity=capacity, objectives=objectives)
