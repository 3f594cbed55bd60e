"""Source of the capacity that the planner uses for a replica, as data for the status, `explain` and metrics.

Out of scope: how the sources are measured (`capacity`, `answer_evidence`).
"""

from __future__ import annotations

from typing import Literal

from halcyon.scaling.frozen import immutable
from halcyon.scaling.lazy_text import LazyText
from halcyon.scaling.planner.answer_evidence import AnswerEvidence
from halcyon.scaling.planner.capacity.queueing import Replica

SourceName = Literal["BatchStatistics", "TimeInPods", "Answers", "EngineMetrics", "Unknown"]
"""Names of the sources. BatchStatistics: batch times in Triton's statistics. TimeInPods: requests in execution divided by their
time in a pod, at the balancers. Answers: answers of full pods, counted at the balancers. EngineMetrics: the same, and the engine's own metrics say that
it is full. Unknown: none of them is usable."""
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

    @property
    def why(self) -> str:
        """Return the reason for the source, with numbers and units."""
        return str(self.text)


def source(evidence: AnswerEvidence, replica: Replica | None) -> CapacitySource:
    """Return the source that is in force. `replica` is the capacity by the service line; None if there is no line."""
    shared = evidence.shared
    if evidence.is_in_force:
        name = "Unknown" if evidence.rps is None else evidence.found_by or "Answers"
        text, kind = evidence.describe(), None if replica is None else "AnswersDisagree"
        if shared is not None:
            text, kind = f"{text}; {shared.describe()}", "SharedLimit"
        return CapacitySource(name, evidence.rps, text, kind)
    if replica is None:
        return CapacitySource("Unknown", None, "too few batches have run, and answers don't show it yet")
    if shared is not None:
        return CapacitySource("BatchStatistics", replica.peak_rps, shared.describe(), "SharedLimit")
    each = "one instance" if replica.instances == 1 else f"each of {replica.instances} instances"
    values = (f"{replica.max_batch} request{'' if replica.max_batch == 1 else 's'}", replica.batch_s, each)
    by_batches = LazyText("{} in {:.3g} s on {}, by Triton's batch statistics", values)
    return CapacitySource("BatchStatistics", replica.peak_rps, by_batches)
