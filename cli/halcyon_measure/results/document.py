"""`bench.json`, version 1: the result of a run, of which tables and reports are views. Pure.

A figure that wasn't measured has no value and says why. Latencies run from the time when a request was due.
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class Part(BaseModel):
    """A part of the document. Unknown fields are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Figure(Part):
    """A measured number."""

    value: float | None = Field(description="The number; null if it wasn't measured.")
    unit: Literal["s", "ms", "requests/s", "rows/s", "requests", "ratio", "us", "cores"]
    n: int = Field(description="Requests that it is computed from.")
    interval: tuple[float, float] | None = Field(
        default=None, description="Its 95 % interval, from a bootstrap of one-second blocks; null if there are too few."
    )
    source: str = Field(description="What it was computed from.")
    reason: str = Field(default="", description="Why it wasn't measured, or why it is uncertain; else empty.")


class InputShape(Part):
    """An input of the model, from its metadata."""

    name: str
    datatype: str = Field(description="Data type of Triton, for example FP32.")
    shape: tuple[int, ...] = Field(description="Shape with the rows; -1 for any size.")


class MeasuredTarget(Part):
    """What was measured."""

    url: str
    api: str = Field(description="kserve, tfserving or post.")
    protocol: str = Field(description="http or grpc.")
    encoding: str = Field(description="Form of the tensors: binary, json, raw or typed.")
    model: str
    version: str = Field(description="Version in the requests; empty for the server's choice.")
    inputs: tuple[InputShape, ...]
    rows: str = Field(description="Rows of a request: a number, or a range such as 1..8.")


class MeasuredScenario(Part):
    """The load. Fields that the scenario doesn't use are null."""

    kind: str = Field(description="blocking, sustained, burst, ramp, trace or offline.")
    preset: str = Field(description="Preset that it came from; empty if none.")
    duration_s: float
    requests: int | None
    callers: int | None
    think_s: float | None
    rate_rps: float | None
    to_rps: float | None
    cv: float | None
    on_s: float | None
    off_s: float | None
    trace_requests: int | None = Field(description="Arrivals of the trace.")
    seed: int


class RunFacts(Part):
    """How the run went."""

    warm_up_s: float = Field(description="Load before the measured part, in seconds.")
    settled: bool | None = Field(
        description="Whether rate and median had settled when the measured part began; null if warm-up was fixed."
    )
    measured_s: float = Field(description="Time in which requests became due, in seconds.")
    partial: bool = Field(description="True if the run was interrupted.")
    valid: bool
    invalid_because: tuple[str, ...] = Field(description="Reasons why the figures don't answer the question.")


class Requests(Part):
    """Numbers of requests. Each request is in exactly one of the counts but `due` and `good`."""

    due: int
    answered: int
    rejected: int
    timed_out: int
    disconnected: int
    errors: int
    wrong: int = Field(description="Answers that differ from the expected ones.")
    not_sent: int = Field(description="Requests that were due while too many were in flight.")
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
    """Failures with one message."""

    outcome: str = Field(description="rejected, timed_out, disconnected, error, wrong or not_sent.")
    message: str
    count: int
    first_s: float = Field(description="When the first of them was due, in seconds since the measured part began.")
    last_s: float


class Second(Part):
    """Requests that became due in one second."""

    t_s: float = Field(description="Beginning of the second.")
    due: int
    answered: int
    failed: int
    p50_ms: float | None
    p99_ms: float | None


class PodShare(Part):
    """Answers of one replica."""

    pod: str
    answered: int


class ClientUse(Part):
    """What the client used of its machine, and whether that limited the run."""

    processes: int
    cores: Figure = Field(description="Cores that all processes used together.")
    cpu_per_request: Figure
    late_p99: Figure = Field(description="99th percentile of the delay between due and sent.")
    gc_longest: Figure = Field(description="Longest pause of the garbage collector.")
    limit: str = Field(description="none, preparing, client CPU or cores.")
    evidence: str
    remedy: str


class BenchDocument(Part):
    """The result of a run."""

    version: Literal[1] = 1
    made_by: str = Field(description="Program and version.")
    made_at: str = Field(description="When the measured part ended, in RFC 3339.")
    target: MeasuredTarget
    scenario: MeasuredScenario
    run: RunFacts
    requests: Requests
    offered: Figure = Field(description="Requests that became due per second.")
    throughput: Figure = Field(description="Answers per second.")
    goodput: Figure = Field(description="Answers within the objective per second.")
    rows: Figure = Field(description="Answered rows per second.")
    latency: Latencies = Field(description="From due to the whole answer, of answered requests.")
    from_send: Latencies = Field(description="From sending to the whole answer: what most tools call latency.")
    first_byte: Latencies = Field(description="From due to the first byte of the answer.")
    prepare: Latencies = Field(description="Time of the function that prepared the request.")
    failures: tuple[FailureKind, ...]
    timeline: tuple[Second, ...]
    pods: tuple[PodShare, ...]
    client: ClientUse
