"""Evidence for advice on a model's settings: means of signals over the last minutes, and results of its planner.

Out of scope: reading the signals (`control.reporting.model_advice`), and advice derived from the evidence (`rules`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

from halcyon.api.spec import Spec
from halcyon.scaling.planner import whatif
from halcyon.scaling.planner.capacity.queueing import ServiceLine
from halcyon.scaling.planner.forecast.season_models import DAY
from halcyon.scaling.planner.forecast.seasonality import BIN_S
from halcyon.scaling.planner.outputs import PlannerMemory
from halcyon.scaling.planner.whatif import Known

_MIN_SAMPLES = 5
"""Minimum number of samples of a signal. If there are fewer, the mean of the signal is unknown."""
_MIN_EXECUTIONS = 50
"""Minimum number of executions for computing a mean batch size."""
_MIN_SPREAD = 25.0
"""Minimum variation of the sizes of batches, as a weighted sum of squared deviations in rows squared. With less
variation, the execution time of each further row in a batch is regarded as assumed rather than measured."""
_MIN_KNOWN = 0.95
"""Minimum share of the last day for which the request rate must be known."""
_MAX_GAP_S = 90.0
"""Maximum time between two samples whose counters are compared, in seconds."""


@dataclass(frozen=True, slots=True)
class ModelEvidence:
    """Means of a model's signals, and what its planner has learnt. Unknown values are None. Times are in seconds."""

    spec: Spec
    replicas: float | None = None
    """Mean number of ready replicas."""
    rate: float | None = None
    """Mean number of requests per second that one replica answers."""
    request_rows: float | None = None
    batch_rows: float | None = None
    """Mean number of rows in an execution."""
    busy: float | None = None
    """Mean share of the time during which a model instance executes, from 0 to 1."""
    wait_s: float | None = None
    """Mean time that a request waits in Triton's queue, in seconds."""
    waiting: float | None = None
    """Mean number of waiting requests per replica, in the balancers and in Triton."""
    gpu: float | None = None
    """Mean GPU utilisation from 0 to 1, as measured at the GPU. It is never derived from batch times."""
    line: ServiceLine | None = None
    """Execution time of a batch as a function of its number of rows; None if too few batch sizes were executed to
    measure it."""
    largest_rows: int | None = None
    """Number of rows in the largest batch executed so far."""
    peak_replicas: int | None = None
    """Number of replicas that the busiest five minutes of the last day needed; None if less than a day is known."""
    start_s: float | None = None
    """Duration of the last start of a pod, in seconds."""


Executed = tuple[int, int, float]
"""Cumulative counters of a model: executions, executed rows, and execution time in seconds."""
_NAMES = ("ready", "waiting", "gpu", "requests", "queue_s", "ready_s", "executions", "rows", "seconds")


@dataclass(slots=True)
class Window:
    """Sums of a model's samples since evidence was last computed."""

    last: tuple[float, int, Executed | None] = (-math.inf, 0, None)
    """Time, number of ready replicas whose executions are counted, and counters in the last sample."""
    sums: list[float] = field(default_factory=lambda: [0.0] * len(_NAMES))
    counts: list[int] = field(default_factory=lambda: [0] * len(_NAMES))

    def add(  # noqa: PLR0917  # the signals of one sample
        self,
        now: float,
        ready: int,
        waiting: float | None,
        gpu: float | None,
        requests: float | None,
        queue_s: float | None,
        executed: Executed | None,
        *,
        counted: int | None = None,
    ) -> None:
        """Add a sample. If a counter is lower than before, it was reset, and the counters of this sample are ignored.

        `ready` is the number of ready replicas, and the other signals cover all of them. `waiting` is the number of
        waiting requests, and `requests` that of answered requests per second. `queue_s` is the time that all requests
        spent in Triton's queue, in seconds per second. `counted` is the number of ready replicas whose executions are
        in `executed`; None for all of them.
        """
        counted = ready if counted is None else counted
        (sampled_at, counted_before, executed_before), self.last = self.last, (now, counted, executed)
        values: list[float | None] = [ready]
        if ready:
            values += [None if waiting is None else waiting / ready, gpu, requests, queue_s]
            if executed_before is not None and executed is not None and now - sampled_at <= _MAX_GAP_S:
                growth = [new - old for new, old in zip(executed, executed_before, strict=True)]
                values += [(counted_before + counted) / 2 * (now - sampled_at), *growth] if min(growth) >= 0 else []
        for index, value in enumerate(values):
            if value is not None:
                self.sums[index] += value
                self.counts[index] += 1

    def evidence(self, spec: Spec) -> ModelEvidence:
        """Return the means of all samples since the previous call, and reset the sums."""
        means = [
            total / count if count >= _MIN_SAMPLES else None
            for total, count in zip(self.sums, self.counts, strict=True)
        ]
        ready, waiting, gpu, requests, queue_s, ready_s, executions, rows, seconds = means
        is_known = self.sums[_NAMES.index("executions")] >= _MIN_EXECUTIONS
        self.sums, self.counts = [0.0] * len(_NAMES), [0] * len(_NAMES)
        rate = requests / ready if requests and ready else None
        return ModelEvidence(
            spec,
            replicas=ready or None,
            rate=rate,
            request_rows=rows / ready_s / rate if is_known and rows and ready_s and rate else None,
            batch_rows=rows / executions if is_known and rows and executions else None,
            busy=seconds / (ready_s * spec.runtime.instances) if ready_s and seconds is not None else None,
            wait_s=queue_s / requests if requests and queue_s is not None else None,
            waiting=waiting,
            gpu=gpu,
        )


def is_measured(memory: PlannerMemory) -> bool:
    """Return whether the executed batches differ enough in size to measure how their time depends on their rows."""
    capacity = memory.capacity
    return capacity.weight > 0 and capacity.rows2 - capacity.rows**2 / capacity.weight >= _MIN_SPREAD


def executed(memory: PlannerMemory | None) -> Executed | None:
    """Return the counters of executions, from the batches in the planner's memory; None if it has no batches."""
    if memory is None or not memory.capacity.seen:
        return None
    executions, rows, seconds = 0, 0, 0.0
    for size, count, duration_s in memory.capacity.seen:
        executions, rows, seconds = executions + count, rows + size * count, seconds + duration_s
    return executions, rows, seconds


def with_learnt(
    means: ModelEvidence, memory: PlannerMemory, knowledge: Known | None, *, measured: bool
) -> ModelEvidence:
    """Return the evidence, extended by the results of the planner. `measured` is true if `line` was ever measured."""
    line, largest = memory.capacity.line, max((rows for rows, _, _ in memory.capacity.seen), default=None)
    if line is not None and largest == 1:
        line, measured = ServiceLine(line.seconds(1), 0.0), True
    rates, need = [rate for rate in memory.history.bins[-DAY:] if rate is not None], None
    if len(rates) >= _MIN_KNOWN * DAY:
        if not (peak := max(rates)):
            need = 0
        elif knowledge is not None:
            objectives = replace(knowledge.objectives, low=1)
            need = whatif.outcome(replace(knowledge, objectives=objectives), [peak], BIN_S).most
    return replace(means, line=line if measured else None, largest_rows=largest, peak_replicas=need)
