"""`bench.json`, version 1: the result of a run. Tables and reports are made from it. Pure.

A figure that wasn't measured has no value but a reason. Latencies are measured from the due time of a request.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from halcyon_measure.results.figure import Figure, Part
from halcyon_measure.results.place import Place
from halcyon_measure.results.sections.alone import Alone
from halcyon_measure.results.sections.batches import Batches
from halcyon_measure.results.sections.capacity import Capacity
from halcyon_measure.results.sections.cold_start import ColdStart
from halcyon_measure.results.sections.comparison import Comparison
from halcyon_measure.results.sections.distribution import Distribution
from halcyon_measure.results.sections.energy import Energy
from halcyon_measure.results.sections.hardware import Hardware
from halcyon_measure.results.sections.phases import Phases
from halcyon_measure.results.sections.roofline import Roofline
from halcyon_measure.results.sections.static import Static
from halcyon_measure.results.sections.sweep import Sweep
from halcyon_measure.results.sections.verdict import Verdict
from halcyon_measure.results.used_files import UsedFile


class InputShape(Part):
    """An input of the model, from its metadata."""

    name: str = Field(description="Name of the input.")
    datatype: str = Field(description="Data type of Triton, for example FP32.")
    shape: tuple[int, ...] = Field(description="Shape with the rows; -1 for any size.")


class MeasuredTarget(Part):
    """Server and model that were measured."""

    url: str = Field(description="URL of the server.")
    api: str = Field(description="kserve, tfserving or post.")
    protocol: str = Field(description="http or grpc.")
    encoding: str = Field(description="Form of the tensors: binary, json, raw or typed.")
    shared_memory: str = Field(
        default="none",
        description="Memory that client and server shared for the tensors: system, or none if requests contained them.",
    )
    model: str = Field(description="Name of the model in the requests.")
    version: str = Field(description="Version in the requests; empty for the server's choice.")
    inputs: tuple[InputShape, ...] = Field(description="Inputs of the model, from its metadata.")
    rows: str = Field(description="Rows of a request: a number, or a range such as 1..8.")


class MeasuredScenario(Part):
    """Load of the run. Fields that the scenario doesn't use are null."""

    kind: str = Field(description="blocking, sustained, burst, ramp, trace or offline.")
    preset: str = Field(description="Preset that it came from; empty if none.")
    duration_s: float = Field(description="Time in which requests become due, in seconds.")
    requests: int | None = Field(description="Largest number of measured requests.")
    callers: int | None = Field(description="Callers of `blocking`; requests in flight of `offline`.")
    think_s: float | None = Field(description="Pause of a caller after its answer, in seconds.")
    rate_rps: float | None = Field(
        description="Requests per second; at the beginning of a ramp, or in the busy phases of a burst."
    )
    to_rps: float | None = Field(description="Requests per second at the end of a ramp.")
    cv: float | None = Field(description="Coefficient of variation of a burst's gaps.")
    on_s: float | None = Field(description="Length of the busy phases of a burst, in seconds.")
    off_s: float | None = Field(description="Length of its idle phases, in seconds.")
    trace_requests: int | None = Field(description="Arrivals of the trace.")
    seed: int = Field(description="Seed of arrivals and values.")


class RunFacts(Part):
    """Facts about the run."""

    warm_up_s: float = Field(description="Duration of the warm-up before the measured part, in seconds.")
    settled: bool | None = Field(
        description="Whether rate and median had settled when the measured part began; null if warm-up was fixed."
    )
    measured_s: float = Field(description="Length of the measured part in seconds, by which rates are divided.")
    partial: bool = Field(description="True if the run was interrupted.")
    histogram: bool = Field(
        default=False,
        description="True if there were too many requests to keep each: percentiles are those of a histogram, within 0.2 %.",
    )
    valid: bool = Field(description="Whether the figures can be relied on.")
    invalid_because: tuple[str, ...] = Field(
        description="Reasons why the figures can't be relied on; empty if they can."
    )


class Requests(Part):
    """Numbers of requests. Each request is in exactly one of the counts, except for `due` and `good`."""

    due: int = Field(description="Requests of the measured part.")
    answered: int = Field(
        description="Requests with a complete answer, which is the expected one if --expect is given."
    )
    rejected: int = Field(
        description="Requests rejected because the server or its balancer was full, or had no replica."
    )
    timed_out: int = Field(description="Requests without an answer within the time-out of the client or the server.")
    disconnected: int = Field(description="Requests whose connection could not be opened, or broke.")
    errors: int = Field(description="Requests answered with any other error, with a redirect, or without outputs.")
    wrong: int = Field(description="Answers that differ from the expected ones.")
    not_sent: int = Field(
        description="Requests that were never sent: too many were in flight, the client was late, or prepare had not ended."
    )
    good: int | None = Field(description="Answers within the objective; null without one.")
    rows: int = Field(description="Rows of the answered requests.")


class Latencies(Part):
    """Percentiles of one duration. The names are the same everywhere in Halcyon."""

    mean: Figure
    p50: Figure
    p90: Figure
    p95: Figure
    p99: Figure
    p99_9: Figure
    max: Figure


class FailureKind(Part):
    """Failures with the same message."""

    outcome: str = Field(description="rejected, timed_out, disconnected, error, wrong or not_sent.")
    message: str = Field(description="Status and text of the failures.")
    count: int = Field(description="Number of failures.")
    first_s: float = Field(description="Due time of the first failure, in seconds since the measured part began.")
    last_s: float = Field(description="Due time of the last failure, in seconds since the measured part began.")


class Second(Part):
    """Requests that became due in one second."""

    t_s: float = Field(description="Beginning of the second, in seconds since the measured part began.")
    due: int = Field(description="Requests that became due.")
    answered: int = Field(description="Number of these requests that were answered.")
    failed: int = Field(description="Number of these requests that were not answered.")
    p50_ms: float | None = Field(description="Median latency of the answered requests; null if none was answered.")
    p99_ms: float | None = Field(description="99th percentile of the latency of the answered requests.")


class PodShare(Part):
    """Answers of one replica."""

    pod: str = Field(description="Name of the replica, from the header that names it.")
    answered: int = Field(description="Number of its answers.")


class ClientUse(Part):
    """Resources that the client used, and whether they limited the run."""

    processes: int = Field(description="Processes that sent requests.")
    cores: Figure = Field(description="Cores that all processes used together.")
    cpu_per_request: Figure = Field(description="CPU of all processes for each request that was due.")
    late_p99: Figure = Field(description="99th percentile of the delay between due and sent.")
    gc_longest: Figure = Field(description="Longest pause of the garbage collector.")
    limit: str = Field(description="none, preparing, client CPU or cores.")
    evidence: str = Field(description="Figures that show whether the client limited the run.")
    remedy: str = Field(description="Change that would remove the limit; empty if the client did not limit the run.")


class BenchDocument(Part):
    """Result of a run."""

    version: Literal[1] = Field(default=1, description="Version of the document.")
    made_by: str = Field(description="Program and version.")
    made_at: str = Field(description="End of the run, as a time in the form of RFC 3339.")
    target: MeasuredTarget
    scenario: MeasuredScenario
    run: RunFacts
    requests: Requests
    offered: Figure = Field(description="Requests that became due per second.")
    throughput: Figure = Field(
        description="Answers per second; of a server that fell behind its schedule, over the time in which it answered."
    )
    goodput: Figure = Field(description="Answers within the objective per second.")
    rows: Figure = Field(description="Answered rows per second.")
    latency: Latencies = Field(description="From due to the whole answer, of answered requests.")
    from_send: Latencies = Field(description="From sending to the whole answer: what most tools call latency.")
    first_byte: Latencies = Field(description="From due to the first byte of the answer.")
    prepare: Latencies = Field(
        description="From due to prepared: the function that prepares a request, and the wait for its process."
    )
    failures: tuple[FailureKind, ...]
    timeline: tuple[Second, ...]
    pods: tuple[PodShare, ...]
    client: ClientUse
    distribution: Distribution | None = Field(default=None, description="Latency at many shares of the requests.")
    files: tuple[UsedFile, ...] = Field(default=(), description="Files from which the requests were made.")
    place: Place | None = Field(
        default=None, description="Location and hardware of the server; null if they are unknown."
    )
    phases: Phases | None = Field(default=None, description="Mean durations of the phases of a request.")
    hardware: Hardware | None = Field(default=None, description="Use of GPUs, CPU and memory, sampled over the run.")
    batches: Batches | None = Field(default=None, description="Executions of the model by the size of their batches.")
    energy: Energy | None = Field(default=None, description="Energy, carbon and cost of an inference.")
    verdict: Verdict | None = Field(default=None, description="Limit of the rate or the latency, with evidence.")
    cold_start: ColdStart | None = Field(default=None, description="Durations of the starts of new replicas.")
    static: Static | None = Field(default=None, description="Operations, parameters and bytes of the model's graph.")
    roofline: Roofline | None = Field(
        default=None, description="Peak speeds of the machine, and the speed that the model reached."
    )
    alone: Alone | None = Field(default=None, description="The same model in one process, without a server.")
    accuracy: Figure | None = Field(
        default=None, description="Share of the answers that are those of --expect; null without it."
    )
    capacity: Capacity | None = Field(default=None, description="Largest rate that keeps the objective.")
    sweep: Sweep | None = Field(default=None, description="Figures over a grid of loads.")
    comparison: Comparison | None = Field(default=None, description="Differences between servers over several rounds.")

    @property
    def unlisted_failures(self) -> int:
        """Number of failed requests that aren't counted in `failures`, which lists only the most frequent kinds."""
        return self.requests.due - self.requests.answered - sum(kind.count for kind in self.failures)
