"""Agent report: measurements of one balancer and of the model's pods, which the agent sends to all operator replicas.

Counters are cumulative since the start of their process, and restart at 0 with it; the operator computes differences. None means
"unknown", never 0. The module uses only the standard library, because the agent's memory is limited.

Fields that were added later have a default, so that reports from older agents can be parsed. Unknown fields are ignored, so that an older
operator can parse reports from newer agents (`codec`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

from halcyon.api.documents import codec
from halcyon.api.documents.codec import NOT_A_DOCUMENT, UnknownVersionError, decoded

REPORT_VERSION = 1

PodState = Literal["starting", "ready", "draining", "maintenance", "unreachable"]
"""State of a server pod as seen by the balancer. starting: not ready in its EndpointSlice. ready: receives requests.
draining: terminating. maintenance: excluded by the agent, because its backend is certainly dead. unreachable: ready in
its EndpointSlice, but does not respond to the agent."""

AUDIENCE = "halcyon-collector"
"""Audience of the ServiceAccount token with which agents authenticate."""
STREAM_PATH = "/collector/v1/stream"
"""Path of the WebSocket for reports on every operator replica.

Each report is a WebSocket text message. The upgrade request has the header `Authorization: Bearer TOKEN`.
"""


class ReportError(ValueError):
    """The document is not a report, or has a version that is not supported."""


Batches = tuple[tuple[int, int, int], ...]
"""Batch statistics of a pod. For each batch size, in ascending order: rows per batch, number of batches, and their
total time in microseconds."""
MAX_SIZES = 64
"""Maximum number of batch sizes in a report for one pod. If there are more, the most frequent ones are reported."""


@dataclass(frozen=True)
class BatchStats:
    """Triton's batch statistics of the model in one pod, summed over all ready versions."""

    at: float
    """Time at which the agent read the statistics, in seconds since the epoch."""
    sizes: Batches
    """Counters for each batch size. The time of a batch includes input, inference and output."""
    spent_us: int | None = None
    """Total execution time of all batches (counter), in microseconds. It includes sizes that are missing in `sizes`.
    The value is None if an older agent does not report it."""


@dataclass(frozen=True)
class SlotLatency:
    """Histogram of the response times of one slot's servers, including the time in the servers' own queues."""

    slot: str
    bounds_ms: tuple[int, ...]
    """Upper bounds of the buckets in milliseconds, in ascending order."""
    counts: tuple[int, ...]
    """Counters of the responses in each bucket. The last one is for an additional bucket without an upper bound."""
    failed: int | None = None
    """Counter of failed responses: HTTP 5xx, or gRPC UNKNOWN, UNIMPLEMENTED, INTERNAL or UNAVAILABLE."""


@dataclass(frozen=True)
class ReportedHistogram:
    """Histogram of response times, as clients see them."""

    bounds_ms: tuple[int, ...]
    """Upper bounds of the buckets in milliseconds, in ascending order."""
    counts: tuple[int, ...]
    """Counters of the responses in each bucket. The last one is for an additional bucket without an upper bound."""


@dataclass(frozen=True)
class BalancerSample:
    """Measurements of one HAProxy process, for HTTP and gRPC together."""

    queued: int
    """Number of requests that wait in HAProxy now, including held requests."""
    inflight: int
    """Number of requests from this HAProxy that servers process now."""
    requests: int
    """Counter of inference requests that HAProxy has received. It includes rejected requests, but not those that a
    client repeats after a rejection."""
    rejected: int
    """Counter of requests that HAProxy rejected because the queue was full, no response was expected in time, or no
    server was free in time. As in `requests`, a request that a client repeats counts once."""
    errors: int
    """Counter of requests that failed because the connection to a server failed or broke."""
    held: int = 0
    """Number of requests that wait now because no server is ready."""
    unavailable: int = 0
    """Counter of requests that a server rejected itself (HTTP 503, gRPC UNAVAILABLE), for example because its own queue
    was full."""
    problem: str = ""
    """Reason why the balancer cannot do everything that its plan requires; empty if it can."""
    latency: tuple[SlotLatency, ...] = ()
    """Response times for each slot; empty unless the model has two slots, whose revisions are then compared."""
    clients: ReportedHistogram | None = None
    """Histogram of the time from a request's arrival until its response starts; None if an older agent omits it."""


@dataclass(frozen=True)
class PodSample:
    """Measurements of one Triton pod."""

    name: str
    state: PodState
    at: float
    """Time at which the agent read the pod's metrics, in seconds since the epoch."""
    pending: int | None = None
    """Number of requests in Triton's queue now (`nv_inference_pending_request_count`), plus those in the queue of an
    engine (such as vLLM), if it reports them."""
    succeeded: int | None = None
    """Counter of successful requests."""
    failed: int | None = None
    """Counter of failed requests, without those that their clients canceled. Older agents include canceled requests."""
    backend_failed: int | None = None
    """Counter of requests that failed in the backend (`reason="BACKEND"`)."""
    rows: int | None = None
    """Counter of rows on which inference was executed (`nv_inference_count`)."""
    executions: int | None = None
    """Counter of executed batches (`nv_inference_exec_count`)."""
    queue_us: int | None = None
    """Total time that all requests spent in Triton's queue (counter), in microseconds."""
    compute_us: int | None = None
    """Total compute time of all requests (counter), in microseconds."""
    gpu: float | None = None
    """GPU utilisation from 0 to 1, as the mean over the pod's GPUs; None if Triton does not report it."""
    load_error: str | None = None
    """Triton's error message if the model could not be loaded; else None."""
    versions: tuple[str, ...] = ()
    """Versions of the model that are ready in the pod."""
    canceled: int | None = None
    """Counter of requests that their clients canceled; None if an older agent does not report it."""
    batches: BatchStats | None = None
    """Batch statistics of the pod. They are read less often than the other values. With many pods, a report includes
    the statistics of some pods only."""
    engine_used: float | None = None
    """Used share of an inference engine's capacity, from 0 to 1. The capacity is its KV cache blocks, or the number of
    requests that it can execute at once. The value is None if no engine reports it."""
    backend_failure: str | None = None
    """Description of a failure of the pod's backend. If the state is maintenance or starting, it says why the backend
    is dead. If the state is ready, it says that every request fails."""

    @classmethod
    def of_fields(cls, raw: dict[str, Any]) -> PodSample:
        """Return the sample of a pod from a parsed document; raise one of `NOT_A_DOCUMENT` if it is invalid."""
        batches = raw.get("batches")
        if batches is not None:
            batches = decoded(BatchStats, {**batches, "sizes": tuple(tuple(size) for size in batches["sizes"])})
        return decoded(cls, {**raw, "versions": tuple(raw["versions"]), "batches": batches})


@dataclass(frozen=True)
class AgentReport:
    """Report of one agent about its balancer and the model's pods."""

    namespace: str
    name: str
    """Name of the agent's ModelDeployment."""
    agent: str
    """Name of the balancer pod."""
    at: float
    """Time of the measurements, in seconds since the epoch, from the agent's clock."""
    balancer: BalancerSample | None
    """Measurements of HAProxy; None if HAProxy does not respond."""
    pods: tuple[PodSample, ...] = ()
    sent: float | None = None
    """Time at which the report was sent, from the agent's clock; None if an older agent does not report it.

    It can be later than `at`, because a report may wait for the minimum interval or for a connection."""

    def to_json(self) -> str:
        """Return the report as one line of JSON."""
        return codec.encoded(self, REPORT_VERSION)

    @classmethod
    def from_json(cls, text: str | bytes) -> AgentReport:
        """Parse a report.

        Raises:
            ReportError: the text is not a report, or has another version.
        """
        with report_errors():
            raw = codec.fields_of(text, REPORT_VERSION)
            return cls.of_fields(raw, tuple(PodSample.of_fields(pod) for pod in raw.pop("pods")))

    @classmethod
    def of_fields(cls, raw: dict[str, Any], pods: tuple[PodSample, ...] = ()) -> AgentReport:
        """Return a report with the given pods, and with the other fields from a parsed document.

        Raise one of the exceptions in `NOT_A_DOCUMENT` if the fields are invalid.
        """
        balancer = raw.get("balancer")
        return decoded(cls, {**raw, "balancer": _balancer(balancer) if balancer else None, "pods": pods})


@contextmanager
def report_errors() -> Iterator[None]:
    """Return a context manager that converts any error in reading a document into a `ReportError`."""
    try:
        yield
    except UnknownVersionError as error:
        raise ReportError(f"report has {error}; this operator reads version {REPORT_VERSION}") from error
    except NOT_A_DOCUMENT as error:
        raise ReportError(f"not a valid report: {error}") from error


def _balancer(raw: dict[str, Any]) -> BalancerSample:
    latencies = raw.get("latency") or ()
    latency = (decoded(SlotLatency, {name: _row(value) for name, value in slot.items()}) for slot in latencies)
    clients = raw.get("clients")
    if clients is not None:
        bounds_ms = _row(clients["bounds_ms"])
        # Share one tuple of bounds between reports, because all reports normally have the same bounds.
        clients = ReportedHistogram(
            _shared(bounds_ms) if isinstance(bounds_ms, tuple) else bounds_ms, _row(clients["counts"])
        )
    return decoded(BalancerSample, {**raw, "latency": tuple(latency), "clients": clients})


@lru_cache(maxsize=64)
def _shared(bounds_ms: tuple[int, ...]) -> tuple[int, ...]:
    return bounds_ms


def _row(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
