"""Construction of the section `sweep` of a document from the documents of its points."""

from __future__ import annotations

from halcyon_measure.results.document import BenchDocument, RunFacts
from halcyon_measure.results.sections.sweep import Sweep, SweepPoint


def point(document: BenchDocument) -> SweepPoint:
    """Return the point of a sweep from the document of its run."""
    target, scenario = document.target, document.scenario
    return SweepPoint(
        rows=target.rows,
        protocol=target.protocol,
        encoding=target.encoding,
        shared_memory=target.shared_memory,
        callers=scenario.callers,
        rate_rps=scenario.rate_rps,
        replicas=document.place.replicas if document.place is not None else None,
        throughput=document.throughput,
        rows_per_second=document.rows,
        p50=document.latency.p50,
        p99=document.latency.p99,
        cpu_per_request=document.client.cpu_per_request,
        failed=document.requests.due - document.requests.answered,
        valid=document.run.valid,
        invalid_because=document.run.invalid_because,
        second_engine=document.second_engine,
    )


def facts(last: RunFacts, sweep: Sweep) -> RunFacts:
    """Return the facts of a sweep: those of its last run, but valid only if all points are valid."""
    invalid = sum(not point.valid for point in sweep.points)
    reasons = ["the sweep was interrupted"] if sweep.partial else []
    reasons += [f"{invalid} of {len(sweep.points)} points aren't valid; the table has the reasons"] if invalid else []
    return last.model_copy(update={"partial": sweep.partial, "valid": not reasons, "invalid_because": tuple(reasons)})
