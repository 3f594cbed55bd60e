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
from halcyon_measure.results.sections.second_engine import SecondEngine
from halcyon_measure.results.sections.static import Static
from halcyon_measure.results.sections.sweep import Sweep
from halcyon_measure.results.sections.verdict import Verdict
from halcyon_measure.results.used_files import UsedFile


class InputShape(Part):
    """An input of the model, from its metadata."""

    name: str = Field(description="Name of the input.")
    datatype: str = Field(description="Triton data type, for example FP32.")
    shape: tuple[int, ...] = Field(
        description="Shape, including the dimension of the rows; -1 for a dimension of any size."
    )


class MeasuredTarget(Part):
    """Server and model that were measured."""

    url: str = Field(description="URL of the server.")
    api: str = Field(description="API of the requests: kserve, tfserving or post.")
    protocol: str = Field(description="Protocol of the requests: http or grpc.")
    encoding: str = Field(description="Encoding of the tensors: binary, json, raw or typed.")
    shared_memory: str = Field(
        default="none",
        description="Memory that the client and the server share for the tensors: system, or none if requests contain the tensors.",
    )
    model: str = Field(description="Name of the model in the requests.")
    version: str = Field(description="Model version in the requests; empty if the server chooses the version.")
    inputs: tuple[InputShape, ...] = Field(description="Inputs of the model, from its metadata.")
    rows: str = Field(description="Rows in a request: a number, or a range such as 1..8.")


class MeasuredScenario(Part):
    """Load of the run. Fields that the scenario doesn't use are null."""

    kind: str = Field(description="Kind of load: blocking, sustained, burst, ramp, trace or offline.")
    preset: str = Field(description="Preset that defines the load; empty if there is none.")
    duration_s: float = Field(description="Time in which requests become due, in seconds.")
    requests: int | None = Field(description="Maximum number of measured requests; null if there is no maximum.")
    callers: int | None = Field(
        description="Number of callers for the kind blocking; number of requests in flight for the kind offline."
    )
    think_s: float | None = Field(
        description="Time that a caller waits between an answer and its next request, in seconds."
    )
    rate_rps: float | None = Field(
        description="Requests per second. For a ramp, the rate at its beginning; for a burst, the rate in its busy phases."
    )
    to_rps: float | None = Field(description="Requests per second at the end of a ramp.")
    cv: float | None = Field(description="Coefficient of variation of the intervals between the arrivals of a burst.")
    on_s: float | None = Field(description="Length of the busy phases of a burst, in seconds.")
    off_s: float | None = Field(description="Length of the idle phases of a burst, in seconds.")
    trace_requests: int | None = Field(description="Number of arrivals in the trace.")
    seed: int = Field(description="Seed for the random arrivals and tensor values.")


class RunFacts(Part):
    """Facts about the run."""

    warm_up_s: float = Field(description="Duration of the load before the measured part, in seconds.")
    settled: bool | None = Field(
        description="Whether the rate and the median latency were stable when the measured part began; null if the warm-up had a fixed length."
    )
    measured_s: float = Field(description="Length of the measured part in seconds, by which rates are divided.")
    partial: bool = Field(description="True if the run was interrupted.")
    histogram: bool = Field(
        default=False,
        description="True if there were too many requests to store each latency. Percentiles then come from a histogram, with an error of up to 0.2 %.",
    )
    valid: bool = Field(description="Whether the figures can be relied on.")
    invalid_because: tuple[str, ...] = Field(
        description="Reasons why the figures can't be relied on; empty if they can."
    )


class Requests(Part):
    """Numbers of requests. Each request is in exactly one of the counts, except for `due` and `good`."""

    due: int = Field(description="Requests that became due in the measured part.")
    answered: int = Field(
        description="Requests with a complete answer that matches the expected answer, if there is one."
    )
    rejected: int = Field(
        description="Requests rejected because the server or its balancer had no free capacity or no replica."
    )
    timed_out: int = Field(description="Requests without an answer within the timeout of the client or the server.")
    disconnected: int = Field(description="Requests whose connection could not be opened or was lost.")
    errors: int = Field(
        description="Requests that the server answered with any other error, with a redirect, or without outputs."
    )
    wrong: int = Field(description="Answers that differ from the expected ones.")
    not_sent: int = Field(
        description="Requests that were never sent, because too many were in flight, the client was late, or their preparation had not finished."
    )
    good: int | None = Field(description="Answers within the latency objective; null if there is no objective.")
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

    outcome: str = Field(
        description="Outcome of the requests: rejected, timed_out, disconnected, error, wrong or not_sent."
    )
    message: str = Field(description="Status and error message of the failures.")
    count: int = Field(description="Number of failures.")
    first_s: float = Field(
        description="Time at which the first failed request was due, in seconds since the measured part began."
    )
    last_s: float = Field(
        description="Time at which the last failed request was due, in seconds since the measured part began."
    )


class Second(Part):
    """Requests that became due in one second."""

    t_s: float = Field(description="Time at which this second begins, in seconds since the measured part began.")
    due: int = Field(description="Requests that became due in this second.")
    answered: int = Field(description="Requests due in this second that were answered.")
    failed: int = Field(description="Requests due in this second that were not answered.")
    p50_ms: float | None = Field(
        description="Median latency of the answered requests, in milliseconds; null if there were none."
    )
    p99_ms: float | None = Field(
        description="99th percentile of the latency of the answered requests, in milliseconds; null if there were none."
    )


class PodShare(Part):
    """Answers of one replica."""

    pod: str = Field(description="Name of the replica, from the response header that contains it.")
    answered: int = Field(description="Number of answers from this replica.")


class ClientUse(Part):
    """Resources that the client used, and whether they limited the run."""

    processes: int = Field(description="Number of client processes that sent requests.")
    cores: Figure = Field(description="CPU cores that all client processes used together.")
    cpu_per_request: Figure = Field(description="CPU time of all client processes per due request.")
    late_p99: Figure = Field(
        description="99th percentile of the delay between the time at which a request was due and the time at which it was sent."
    )
    gc_longest: Figure = Field(description="Longest pause of the garbage collector.")
    limit: str = Field(description="Limit of the client: none, preparing, client CPU or cores.")
    evidence: str = Field(description="Measured values that indicate the limit.")
    remedy: str = Field(description="How to remove the limit; empty if there is none.")


class BenchDocument(Part):
    """Result of a run."""

    version: Literal[1] = Field(default=1, description="Version of the document's format.")
    made_by: str = Field(description="Program that wrote the document, and its version.")
    made_at: str = Field(description="Time at which the measured part ended, in the format of RFC 3339.")
    target: MeasuredTarget
    scenario: MeasuredScenario
    run: RunFacts
    requests: Requests
    offered: Figure = Field(description="Requests that became due per second.")
    throughput: Figure = Field(
        description="Answers per second. If the server did not keep up with the load, the rate covers the whole time in which it answered."
    )
    goodput: Figure = Field(description="Answers within the latency objective per second.")
    rows: Figure = Field(description="Rows of answered requests per second.")
    latency: Latencies = Field(
        description="Time from when a request was due until its answer was complete, for answered requests."
    )
    from_send: Latencies = Field(
        description="Time from sending a request until its answer was complete. Most tools call this time latency."
    )
    first_byte: Latencies = Field(description="Time from when a request was due until the first byte of its answer.")
    prepare: Latencies = Field(
        description="Time from when a request was due until it was prepared: the wait for a process, and the function that prepares the request."
    )
    failures: tuple[FailureKind, ...]
    timeline: tuple[Second, ...]
    pods: tuple[PodShare, ...]
    client: ClientUse
    distribution: Distribution | None = Field(default=None, description="Latency at many percentiles of the requests.")
    files: tuple[UsedFile, ...] = Field(default=(), description="Files that were used to generate the load.")
    place: Place | None = Field(default=None, description="Place where the server ran; null if it is unknown.")
    phases: Phases | None = Field(default=None, description="Mean duration of each phase of a request.")
    hardware: Hardware | None = Field(
        default=None, description="Usage of GPUs, CPU and memory, sampled during the run."
    )
    batches: Batches | None = Field(default=None, description="Number of executions of the model by batch size.")
    energy: Energy | None = Field(default=None, description="Energy, carbon emissions and cost of an inference.")
    verdict: Verdict | None = Field(default=None, description="Cause that limited the rate or the latency.")
    cold_start: ColdStart | None = Field(default=None, description="Durations of the starts of new replicas.")
    static: Static | None = Field(default=None, description="Operations, parameters and bytes of the model's graph.")
    roofline: Roofline | None = Field(
        default=None, description="Roofline of the machine, and the performance that the model reached."
    )
    alone: Alone | None = Field(default=None, description="The same model in one process, without a server.")
    accuracy: Figure | None = Field(
        default=None, description="Share of the answers that match the file of --expect; null if the option is not set."
    )
    capacity: Capacity | None = Field(default=None, description="Largest rate at which the latency objective is met.")
    sweep: Sweep | None = Field(default=None, description="Results for a grid of loads.")
    comparison: Comparison | None = Field(
        default=None, description="Differences between servers, measured in several rounds."
    )
    second_engine: SecondEngine | None = Field(
        default=None, description="The same load measured by the engine of --engine; null if the option is not set."
    )

    @property
    def is_limited_by_clients(self) -> bool:
        """True if the result is the last of several steps on a served model, which ended because clients were affected.

        The rate is then a result of the measurement, not its load.
        """
        return bool(self.place and self.place.kind == "live" and self.place.ended) and not self.run.partial

    @property
    def unlisted_failures(self) -> int:
        """Number of failed requests that aren't counted in `failures`, which lists only the most frequent kinds."""
        return self.requests.due - self.requests.answered - sum(kind.count for kind in self.failures)
