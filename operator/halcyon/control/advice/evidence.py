"""Evidence for advice: what a model's signals were over the last minutes, as means, and what its planner has learnt.

Out of scope: reading the signals (`control.reporting.model_advice`), and what they mean (`rules`).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from halcyon.api.spec import Spec
from halcyon.scaling.planner import whatif
from halcyon.scaling.planner.capacity.queueing import ServiceLine
from halcyon.scaling.planner.forecast.seasonality import BIN_S, DAY
from halcyon.scaling.planner.outputs import PlannerMemory
from halcyon.scaling.planner.whatif import Known

_MIN_SAMPLES = 5
"""Minimum number of samples of a signal; with fewer, its mean is unknown."""
_MIN_EXECUTIONS = 50
"""Minimum number of executions for means of batches."""
_MIN_SPREAD = 25.0
"""Minimum spread of batch sizes, in rows squared, at which the slope of the line is measured more than assumed."""
_MIN_KNOWN = 0.95
"""Minimum share of the last day whose arrivals must be known."""
_MAX_GAP_S = 90.0
"""Maximum seconds between two samples whose counters are compared."""


@dataclass(frozen=True, slots=True)
class ModelEvidence:
    """Means of a model's signals. None means unknown, never zero; times are in seconds."""

    spec: Spec
    replicas: float | None = None
    """Ready replicas."""
    rate: float | None = None
    """Requests per second that a replica answers."""
    request_rows: float | None = None
    batch_rows: float | None = None
    """Rows in an execution."""
    busy: float | None = None
    """Share of the time, 0 to 1, in which an instance executes."""
    wait_s: float | None = None
    """Time that a request waits in Triton's queue."""
    waiting: float | None = None
    """Requests that wait for each replica, in the balancers and in Triton."""
    gpu: float | None = None
    """GPU utilisation as measured at the GPU, 0 to 1, and never as derived from batch times."""
    line: ServiceLine | None = None
    """Time of a batch by its rows; None if too few sizes of batches were executed to know it."""
    largest_rows: int | None = None
    """Rows in the largest batch ever executed."""
    peak_replicas: int | None = None
    """Replicas that the busiest five minutes of the last day needed; None if less than a day is known."""
    start_s: float | None = None
    """Duration of the last start of a pod."""


@dataclass(frozen=True, slots=True)
class SignalSample:
    """Signals of a model at one monotonic time, in seconds. None means unknown."""

    at: float
    ready: int
    """Ready replicas. The other signals are of all of them."""
    waiting: float | None = None
    """Requests that wait."""
    gpu: float | None = None
    """As in `ModelEvidence`."""
    requests: float | None = None
    """Requests per second that were answered."""
    queue_s: float | None = None
    """Seconds that requests have waited in Triton's queue, per second."""
    executed: tuple[float, float, float] | None = None
    """Counters of executions, of their rows and of their seconds."""


@dataclass(slots=True)
class Window:
    """Sums over the samples since the last evidence."""

    last: SignalSample | None = None
    sums: dict[str, float] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)

    def add(self, sample: SignalSample) -> None:
        """Add a sample. Counters that fell were reset, and count from the next sample on."""
        last, self.last = self.last, sample
        self._add("ready", sample.ready)
        if not sample.ready:
            return
        self._add("waiting", None if sample.waiting is None else sample.waiting / sample.ready)
        self._add("gpu", sample.gpu)
        self._add("requests", sample.requests)
        self._add("queue_s", sample.queue_s)
        if last is None or not last.executed or not sample.executed or not 0 < sample.at - last.at <= _MAX_GAP_S:
            return
        grown = [now - before for now, before in zip(sample.executed, last.executed, strict=True)]
        if min(grown) >= 0:
            for name, more in zip(("executions", "rows", "seconds"), grown, strict=True):
                self._add(name, more)
            self._add("ready_s", (last.ready + sample.ready) / 2 * (sample.at - last.at))

    def evidence(self, spec: Spec) -> ModelEvidence:
        """Return the means since the last evidence, and begin again."""
        replicas, requests, queue_s, ready_s, executions, rows, seconds = (
            self._mean(name) or None
            for name in ("ready", "requests", "queue_s", "ready_s", "executions", "rows", "seconds")
        )
        ran = executions is not None and self.sums["executions"] >= _MIN_EXECUTIONS
        rate = requests / replicas if requests and replicas else None
        made = ModelEvidence(
            spec,
            replicas=replicas,
            rate=rate,
            request_rows=rows / ready_s / rate if ran and rows and ready_s and rate else None,
            batch_rows=rows / executions if ran and rows and executions else None,
            busy=(seconds or 0.0) / (ready_s * instances(spec)) if ready_s else None,
            wait_s=(queue_s or 0.0) / requests if requests and "queue_s" in self.sums else None,
            waiting=self._mean("waiting"),
            gpu=self._mean("gpu"),
        )
        self.sums, self.counts = {}, {}
        return made

    def _add(self, name: str, value: float | None) -> None:
        if value is not None:
            self.sums[name] = self.sums.get(name, 0.0) + value
            self.counts[name] = self.counts.get(name, 0) + 1

    def _mean(self, name: str) -> float | None:
        count = self.counts.get(name, 0)
        return self.sums[name] / count if count >= _MIN_SAMPLES else None


def instances(spec: Spec) -> int:
    """Return the number of instances in a replica."""
    return (spec.runtime.instances_per_gpu or 1) * max(spec.runtime.gpus, 1)


def is_measured(memory: PlannerMemory) -> bool:
    """Return whether batches of different sizes have shown the slope of the line."""
    known = memory.capacity
    return known.weight > 0 and known.rows2 - known.rows**2 / known.weight >= _MIN_SPREAD


def executed(memory: PlannerMemory | None) -> tuple[float, float, float] | None:
    """Return the counters of a sample's executions, from the batches that the planner has read."""
    seen = memory.capacity.seen if memory else ()
    if not seen:
        return None
    return sum(n for _, n, _ in seen), sum(rows * n for rows, n, _ in seen), sum(took for _, _, took in seen)


def with_learnt(means: ModelEvidence, memory: PlannerMemory, known: Known | None, *, measured: bool) -> ModelEvidence:
    """Return the evidence with what the planner has learnt. `measured`: whether the slope of the line was ever known."""
    line, largest = memory.capacity.line, max((rows for rows, _, _ in memory.capacity.seen), default=None)
    if line is not None and largest == 1:
        line, measured = ServiceLine(line.seconds(1), 0.0), True
    rates, need = [rate for rate in memory.history.bins[-DAY:] if rate is not None], None
    if len(rates) >= _MIN_KNOWN * DAY:
        if not (peak := max(rates)):
            need = 0
        elif known is not None:
            need = whatif.outcome(replace(known, objectives=replace(known.objectives, low=1)), [peak], BIN_S).most
    return replace(means, line=line if measured else None, largest_rows=largest, peak_replicas=need)
