"""Construction of the section `second_engine` from the document of a run and the result of perf_analyzer. Pure."""

from __future__ import annotations

from typing import Any

from halcyon_measure.perf_analyzer.command_line import LIMITS, CommandLine
from halcyon_measure.perf_analyzer.program import Program
from halcyon_measure.perf_analyzer.reading import Reading
from halcyon_measure.results.document import BenchDocument
from halcyon_measure.results.figure import Figure, unmeasured
from halcyon_measure.results.sections.second_engine import EngineDifference, SecondEngine

_RATE = "throughput"
_WHOLE_SECONDS = "perf_analyzer divides a fixed number of requests by a time that it rounds up to full seconds, so its rate is too low"
_LATENCIES = ("mean", "p50", "p90", "p95", "p99")


def build(document: BenchDocument, program: Program, command: CommandLine, reading: Reading) -> SecondEngine:
    """Return the section for a result of perf_analyzer."""
    others = {name: _latency(reading, name) for name in _LATENCIES}
    source = "perf_analyzer, throughput"
    others[_RATE] = (
        Figure(value=reading.rate_rps, unit="requests/s", n=reading.requests, source=source)
        if command.has_windows
        else unmeasured("requests/s", _WHOLE_SECONDS, source)
    )
    return SecondEngine(
        engine="perf_analyzer",
        version=program.version,
        load=command.load,
        arguments=command.recorded,
        requests=reading.requests,
        delayed=reading.delayed if command.has_schedule else None,
        reason="",
        limits=command.limits,
        **_differences(document, others),
    )


def _latency(reading: Reading, name: str) -> Figure:
    value, source = reading.latencies_ms.get(name), "perf_analyzer, from send"
    if value is None:
        return unmeasured("ms", "perf_analyzer didn't report it, for example because of its option percentile", source)
    return Figure(value=value, unit="ms", n=reading.requests, source=source)


def without_result(document: BenchDocument, program: Program, command: CommandLine | None, reason: str) -> SecondEngine:
    """Return the section for an execution of perf_analyzer without a result."""
    others = {name: unmeasured("ms", reason, "perf_analyzer, from send") for name in _LATENCIES}
    others[_RATE] = unmeasured("requests/s", reason, "perf_analyzer, throughput")
    return SecondEngine(
        engine="perf_analyzer",
        version=program.version,
        load="" if command is None else command.load,
        arguments=() if command is None else command.recorded,
        requests=0,
        delayed=None,
        reason=reason,
        limits=LIMITS if command is None else command.limits,
        **_differences(document, others),
    )


def _differences(document: BenchDocument, others: dict[str, Figure]) -> dict[str, Any]:
    own = {name: getattr(document.from_send, name) for name in _LATENCIES} | {_RATE: document.throughput}
    return {name: _difference(own[name], other) for name, other in others.items()}


def _difference(own: Figure, other: Figure) -> EngineDifference:
    source = "perf_analyzer minus halcyon"
    n = min(own.n, other.n)
    if own.value is None or other.value is None:
        reason = other.reason or own.reason
        difference, relative = unmeasured(own.unit, reason, source), unmeasured("ratio", reason, source)
    else:
        change = other.value - own.value
        difference = Figure(value=change, unit=own.unit, n=n, source=source)
        relative = (
            Figure(value=change / own.value, unit="ratio", n=n, source=source)
            if own.value
            else unmeasured("ratio", "the value of halcyon is 0", source)
        )
    return EngineDifference(halcyon=own, other=other, difference=difference, relative=relative)
