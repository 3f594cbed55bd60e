"""The report: what one agent observed of its balancer and of the model's pods, as it is sent to every operator replica.

Counters are cumulative since the start of their process and may restart at zero; the reader takes differences. None
means "not known", which is never zero. Standard library only: the agent's memory is a budget.

A field that a later version adds has a default, so that reports of older agents can be read. A field that this version
does not know is ignored, so that an operator that was rolled back can still read reports (`codec`).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

from halcyon.api.documents import codec
from halcyon.api.documents.codec import NOT_A_DOCUMENT, UnknownVersionError, made

REPORT_VERSION = 1

PodState = Literal["starting", "ready", "draining", "maintenance", "unreachable"]
"""starting: not ready in its EndpointSlice. ready: receives requests. draining: terminating. maintenance: taken out by
the agent because its backend is dead. unreachable: ready in its EndpointSlice, but it could not be read."""

AUDIENCE = "halcyon-collector"
"""Audience of the token that an agent presents."""
STREAM_PATH = "/collector/v1/stream"
"""WebSocket on every operator replica; one text message per report, `Authorization: Bearer TOKEN` on the upgrade."""


class ReportError(ValueError):
    """The document is not a report that this version understands."""


Batches = tuple[tuple[int, int, int], ...]
"""Counters by batch size: (rows in the batch, batches computed, total microseconds of their computing), sizes ascending."""
MAX_SIZES = 64
"""Maximum number of batch sizes that are reported for one pod. If there are more, those that ran most often are reported."""


@dataclass(frozen=True)
class BatchStats:
    """Triton's statistics of the model's batches, over all its ready versions."""

    at: float
    """Time at which they were read, seconds since the epoch."""
    sizes: Batches
    """The time is that of input, inference and output together."""


@dataclass(frozen=True)
class SlotLatency:
    """Response times of one slot's servers, including their own queue."""

    slot: str
    bounds_ms: tuple[int, ...]
    """Upper bounds of the buckets, ascending."""
    counts: tuple[int, ...]
    """Counters: responses per bucket, and last those above all bounds, so one more than there are bounds."""


@dataclass(frozen=True)
class ReportedHistogram:
    """Histogram of response times."""

    bounds_ms: tuple[int, ...]
    """Upper bounds of the buckets, ascending."""
    counts: tuple[int, ...]
    """Counters: responses per bucket, and last those above all bounds, so one more than there are bounds."""


@dataclass(frozen=True)
class BalancerSample:
    """Sample of one HAProxy process, both protocols together."""

    queued: int
    """Requests that wait in it now, including those held."""
    inflight: int
    """Requests from it that servers are computing now."""
    requests: int
    """Counter: inference requests that reached it, including rejected ones."""
    rejected: int
    """Counter: requests that it rejected (queue full, no response expected in time, no server in time, waited too long)."""
    errors: int
    """Counter: responses lost on the way (connection to a server failed or broke)."""
    held: int = 0
    """Requests that wait in it now because no server is up."""
    problem: str = ""
    """Reason, in a sentence, why it does not do everything that its plan requires; empty if it does."""
    latency: tuple[SlotLatency, ...] = ()
    """Reported while there are two slots, which is while two revisions are compared."""
    clients: ReportedHistogram | None = None
    """Time from a request's arrival until its response starts: held, queued and computed. None: an older agent, which
    does not report it."""


@dataclass(frozen=True)
class PodSample:
    """Sample of one Triton pod."""

    name: str
    state: PodState
    at: float
    """Time at which its metrics were read, seconds since the epoch."""
    pending: int | None = None
    """Requests in Triton's queue now (`nv_inference_pending_request_count`)."""
    succeeded: int | None = None
    """Counter: requests answered."""
    failed: int | None = None
    """Counter: requests failed for any reason."""
    backend_failed: int | None = None
    """Counter: requests failed in the backend (`reason="BACKEND"`)."""
    rows: int | None = None
    """Counter: rows computed (`nv_inference_count`)."""
    executions: int | None = None
    """Counter: batches computed (`nv_inference_exec_count`)."""
    queue_us: int | None = None
    """Counter: microseconds that requests waited in Triton."""
    compute_us: int | None = None
    """Counter: microseconds of computing, summed over requests."""
    gpu: float | None = None
    """GPU utilisation, 0 to 1, mean of the pod's GPUs; None if Triton reports none."""
    load_error: str | None = None
    """Triton's error message if the model is not loaded."""
    versions: tuple[str, ...] = ()
    """Model versions that are ready."""
    batches: BatchStats | None = None
    """Read less often than the rest. If there are many pods, it is reported for some of them only."""


@dataclass(frozen=True)
class AgentReport:
    """The observations of one agent at one time."""

    namespace: str
    name: str
    """Name of the agent's ModelDeployment."""
    agent: str
    """Name of the balancer pod."""
    at: float
    """Seconds since the epoch, by the agent's clock."""
    balancer: BalancerSample | None
    """None if HAProxy does not respond."""
    pods: tuple[PodSample, ...] = ()
    sent: float | None = None
    """Time at which it was sent, by the same clock; it may have waited for its turn, or for a connection. None: an
    older agent, which does not report it."""

    def to_json(self) -> str:
        """Return the report on one line."""
        return codec.encoded(self, REPORT_VERSION)

    @classmethod
    def from_json(cls, text: str | bytes) -> AgentReport:
        """Return the report in `text`.

        Raises:
            ReportError: the text is not a report, or has another version.
        """
        try:
            raw = codec.fields_of(text, REPORT_VERSION)
            balancer = raw.pop("balancer")
            pods = tuple(_pod(pod) for pod in raw.pop("pods"))
            return made(cls, {**raw, "balancer": _balancer(balancer) if balancer else None, "pods": pods})
        except UnknownVersionError as error:
            raise ReportError(f"report has {error}; this operator reads version {REPORT_VERSION}") from error
        except NOT_A_DOCUMENT as error:
            raise ReportError(f"not a valid report: {error}") from error


def _balancer(raw: dict[str, Any]) -> BalancerSample:
    told = raw.get("latency") or ()
    latency = (made(SlotLatency, {name: _row(value) for name, value in slot.items()}) for slot in told)
    clients = raw.get("clients")
    if clients is not None:
        bounds_ms = _row(clients["bounds_ms"])
        # Every report of every agent has the same bounds.
        clients = ReportedHistogram(
            _shared(bounds_ms) if isinstance(bounds_ms, tuple) else bounds_ms, _row(clients["counts"])
        )
    return made(BalancerSample, {**raw, "latency": tuple(latency), "clients": clients})


@lru_cache(maxsize=64)
def _shared(bounds_ms: tuple[int, ...]) -> tuple[int, ...]:
    return bounds_ms


def _row(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _pod(raw: dict[str, Any]) -> PodSample:
    batches = raw.get("batches")
    if batches is not None:
        batches = made(BatchStats, {**batches, "sizes": tuple(tuple(size) for size in batches["sizes"])})
    return made(PodSample, {**raw, "versions": tuple(raw["versions"]), "batches": batches})
