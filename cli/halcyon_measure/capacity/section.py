"""Construction of the section `capacity` of a document from the runs of a search."""

from __future__ import annotations

from dataclasses import dataclass, field

from halcyon_measure.capacity.law_fit import Facts
from halcyon_measure.capacity.search import Goal, Judged, Search
from halcyon_measure.results.document import BenchDocument
from halcyon_measure.results.figure import Figure, unmeasured
from halcyon_measure.results.number_text import number
from halcyon_measure.results.sections.capacity import Capacity, CapacityRun

_LATE = "late requests of blocks"
_PERCENTILES = {0.5: "p50", 0.9: "p90", 0.95: "p95", 0.99: "p99", 0.999: "p99_9"}
PERCENTILES = tuple(_PERCENTILES)
"""Percentiles for which an objective can be set."""


@dataclass
class Runs:
    """Runs of a search so far, with their documents."""

    goal: Goal
    documents: list[tuple[str, BenchDocument]] = field(default_factory=list)
    """Purpose and document of each run, in the order of the runs."""
    judged: list[Judged | None] = field(default_factory=list)
    """Result of each run in the search; None for the runs with one caller and at saturation."""
    seconds: float = 0.0

    def add(self, purpose: str, document: BenchDocument, seconds: float, judged: Judged | None = None) -> None:
        """Add a run that took `seconds` including warm-up."""
        self.documents.append((purpose, document))
        self.judged.append(judged)
        self.seconds += seconds


def facts(single: BenchDocument, saturation: BenchDocument) -> Facts | None:
    """Return the facts measured with one caller and at saturation; None if one of these runs has no answers."""
    latency, rate = single.latency.mean.value, saturation.throughput.value
    if not latency or not rate:
        return None
    rows = saturation.requests.rows / max(saturation.requests.answered, 1)
    batches = saturation.batches
    if batches is None or rows <= 0:
        return Facts(single_s=latency / 1000, saturation_rps=rate)
    executed = [size.rows for size in batches.sizes if size.executions >= 2 or size.rows <= rows]
    largest = None if not executed else max(round(max(executed) / rows), 1)
    mean, instances = batches.mean_rows.value, batches.instances.value
    constant, per_row = _line(single, saturation)
    return Facts(
        single_s=latency / 1000,
        saturation_rps=rate,
        constant_s=constant,
        per_request_s=None if per_row is None else per_row * rows,
        largest=largest,
        mean=None if mean is None else mean / rows,
        instances=None if instances is None else round(instances),
    )


def _line(single: BenchDocument, saturation: BenchDocument) -> tuple[float | None, float | None]:
    """Return a and c of the line S(b) = a + c b in seconds. The result is None if all batches have the same size.

    The line goes through the smallest and the largest batch of both runs.
    """
    times = {
        size.rows: ((size.input.value or 0.0) + size.model.value + (size.output.value or 0.0)) / 1000
        for document in (saturation, single)
        if document.batches is not None
        for size in document.batches.sizes
        if size.model.value is not None
    }
    least, most = min(times, default=0), max(times, default=0)
    if least == most:
        return None, None
    per_row = (times[most] - times[least]) / (most - least)
    return times[least] - per_row * least, per_row


def is_objective_below_execution(single: BenchDocument, goal: Goal) -> bool:
    """Return whether the mean latency exceeds the objective even with one caller, whose requests never wait."""
    latency = single.latency.mean.value
    return goal.objective_s is not None and latency is not None and latency > 1000 * goal.objective_s


def build(runs: Runs, search: Search | None, *, reason: str = "") -> Capacity:
    """Return the section `capacity`. If there was no search, `reason` is the reason why there is no result."""
    goal = runs.goal
    by_purpose = dict(runs.documents)
    single, saturation = by_purpose["one caller"], by_purpose.get("saturation")
    rate = _rate(runs, search, reason)
    knee = _knee(search, reason)
    saturated = (
        saturation.throughput if saturation is not None else unmeasured("requests/s", reason or "it wasn't measured")
    )
    capacity = Capacity(
        sentence="",
        objective_ms=None if goal.objective_s is None else 1000 * goal.objective_s,
        percentile=goal.percentile,
        rate=rate,
        saturation=saturated,
        knee=knee,
        single=single.latency.mean,
        confirmed=None if search is None or goal.objective_s is None else search.is_confirmed,
        law="" if search is None else search.law.text(),
        runs=tuple(map(_run, *zip(*runs.documents, strict=True), runs.judged, [goal] * len(runs.judged))),
        seconds=round(runs.seconds, 1),
        seed=goal.seed,
    )
    doubt = "" if search is None or capacity.confirmed else f"; {_doubt(search)}"
    return capacity.model_copy(update={"sentence": _sentence(capacity, single, reason, doubt)})


def _doubt(search: Search) -> str:
    """Return a phrase about the certainty of the result if no run confirmed its rate."""
    confirmed_rps = search.confirmed_rps
    return "no run confirmed this rate" + (
        "" if confirmed_rps is None else f", but one at {number(confirmed_rps)} requests/s met the objective"
    )


def _rate(runs: Runs, search: Search | None, reason: str) -> Figure:
    if runs.goal.objective_s is None:
        return unmeasured("requests/s", "no objective is given; for example --objective 500ms")
    rate, interval = search.answer() if search is not None else (None, None)
    if rate is None or search is None:
        return unmeasured("requests/s", reason or "no run had enough requests")
    return Figure(
        value=rate,
        unit="requests/s",
        n=sum(run.late.requests for run in search.judged if run.late is not None),
        interval=interval,
        source="largest rate that keeps the objective",
        reason="" if search.is_confirmed else f"estimated: {_doubt(search)}",
    )


def _knee(search: Search | None, reason: str) -> Figure:
    if search is None:
        return unmeasured("requests/s", reason)
    knee_runs = [run for run in search.judged if run.step.purpose == "knee"]
    return Figure(
        value=knee_runs[0].step.rate_rps if knee_runs else search.long_run.knee(),
        unit="requests/s",
        n=len(knee_runs[0].observed.due) if knee_runs else 0,
        source="largest rate / mean latency of the law",
        reason="" if knee_runs else "predicted from the law, not run",
    )


def _run(purpose: str, document: BenchDocument, judged: Judged | None, goal: Goal) -> CapacityRun:
    late = None if judged is None else judged.late
    share = unmeasured("ratio", "this run has no random arrivals" if judged is None else "too few requests for blocks")
    if late is not None:
        share = Figure(
            value=late.share,
            unit="ratio",
            n=late.requests,
            interval=late.interval(),
            source=f"{_LATE}, less those of the law on these arrivals" if late.luck_removed else _LATE,
        )
    scenario = document.scenario
    return CapacityRun(
        purpose=purpose,
        rate_rps=None if judged is None else scenario.rate_rps,
        callers=scenario.callers,
        seconds=document.run.measured_s,
        requests=document.requests.due,
        throughput=document.throughput,
        latency=getattr(document.latency, _PERCENTILES[goal.percentile]),
        late=share,
        blocks=0 if late is None else late.blocks,
        block_s=None if late is None else round(late.block_s, 3),
        autocorrelation=None if late is None else late.autocorrelation,
        kept=None if judged is None else judged.kept,
        ended_early=judged is not None and judged.observed.ended_early,
    )


def _sentence(capacity: Capacity, single: BenchDocument, reason: str, doubt: str) -> str:
    name = single.target.model or single.target.url
    if capacity.objective_ms is None:
        if capacity.saturation.value is None or capacity.knee.value is None:
            return f"{name}: no capacity: {reason}."
        return (
            f"{name} takes at most {number(capacity.saturation.value)} requests/s; its knee is at {number(capacity.knee.value)} "
            "requests/s, above which waiting grows faster than throughput. An objective, for example --objective 500ms, "
            "gives the rate that keeps it."
        )
    goal = f"P{100 * capacity.percentile:g} within {capacity.objective_ms:g} ms"
    if capacity.rate.value is None:
        return f"{name} has no rate with {goal}: {reason or capacity.rate.reason}."
    interval = ""
    if capacity.rate.interval is not None:
        interval = f" [{number(capacity.rate.interval[0])}, {number(capacity.rate.interval[1])}]"
    return f"{name} takes {number(capacity.rate.value)} requests/s{interval} with {goal}{doubt}."
