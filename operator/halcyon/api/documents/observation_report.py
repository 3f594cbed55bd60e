"""The record: what one agent saw of its balancer and of the model's pods, as it travels to every operator replica.

Counters are cumulative since the start of their process and may restart at zero; the reader takes differences.
None means "not known", which is never zero. Standard library only: the agent's memory is a budget.

Agents and operator are not replaced in one moment: a field that a later version adds has a default, so that records of older
agents are read, and a field that this version doesn't know is left out, so that an operator that was rolled back still hears.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any, Literal, TypeVar

T = TypeVar("T")
RECORD_VERSION = 1

PodState = Literal["starting", "ready", "draining", "maintenance", "unreachable"]
"""starting: not ready by its EndpointSlice. ready: takes requests. draining: terminating. maintenance: taken out by the
agent because its backend is dead. unreachable: ready by its EndpointSlice, but it could not be read."""

AUDIENCE = "halcyon-collector"
"""Audience of the token that an agent presents."""
STREAM_PATH = "/collector/v1/stream"
"""WebSocket on every operator replica; one text message per record, `Authorization: Bearer TOKEN` on the upgrade."""


_BROKEN = (KeyError, TypeError, AttributeError, RecursionError, UnicodeDecodeError, json.JSONDecodeError)


class RecordError(ValueError):
    """The document is not a record that this version understands."""


Batches = tuple[tuple[int, int, int], ...]
"""Counters by batch size: (rows in the batch, batches computed, microseconds that they took in all), sizes ascending."""
MAX_SIZES = 64
"""Batch sizes that are told of one pod: where there are more, those that ran most often."""


@dataclass(frozen=True)
class BatchStats:
    """What Triton's statistics say of the model's batches, all its ready versions together."""

    at: float
    """When they were read, seconds since the epoch."""
    sizes: Batches
    """Time is input, inference and output together."""


@dataclass(frozen=True)
class SlotLatency:
    """How long one slot's servers took for their answers, their own queue included."""

    slot: str
    bounds_ms: tuple[int, ...]
    """Upper bounds of the buckets, ascending."""
    counts: tuple[int, ...]
    """Counters: answers per bucket, and last those above all bounds: one more than there are bounds."""


@dataclass(frozen=True)
class ReportedHistogram:
    """How long answers took."""

    bounds_ms: tuple[int, ...]
    """Upper bounds of the buckets, ascending."""
    counts: tuple[int, ...]
    """Counters: answers per bucket, and last those above all bounds: one more than there are bounds."""


@dataclass(frozen=True)
class BalancerSample:
    """One HAProxy process, both protocols together."""

    queued: int
    """Requests that wait in it now, those held included."""
    inflight: int
    """Requests that servers are working on for it now."""
    requests: int
    """Counter: requests that reached it for inference, refused ones included."""
    refused: int
    """Counter: requests that it refused (queue full, no hope of an answer in time, no server in time, waited too long)."""
    errors: int
    """Counter: answers lost on the way (connection to a server failed or broke)."""
    held: int = 0
    """Requests that wait in it now because no server is up."""
    trouble: str = ""
    """Why it does not do all that it was asked to, in a sentence; empty where it does."""
    latency: tuple[SlotLatency, ...] = ()
    """Told while there are two slots, which is while two revisions are compared."""
    clients: ReportedHistogram | None = None
    """From a request's arrival until its answer begins: held, queued and computed. None: an older agent doesn't tell."""


@dataclass(frozen=True)
class PodSample:
    """One Triton pod."""

    name: str
    state: PodState
    at: float
    """When its metrics were read, seconds since the epoch."""
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
    """GPU utilisation, 0 to 1, mean of the pod's GPUs; None where Triton reports none."""
    load_error: str | None = None
    """Why the model isn't loaded, in Triton's words."""
    versions: tuple[str, ...] = ()
    """Model versions that are ready."""
    batches: BatchStats | None = None
    """Read less often than the rest, and told of some of the pods only where there are many."""


@dataclass(frozen=True)
class Record:
    """What one agent saw at one time."""

    namespace: str
    name: str
    """The ModelDeployment that it speaks for."""
    agent: str
    """Name of the balancer pod."""
    at: float
    """Seconds since the epoch, by the agent's clock."""
    balancer: BalancerSample | None
    """None where HAProxy does not answer."""
    pods: tuple[PodSample, ...] = ()
    sent: float | None = None
    """When it was sent, by the same clock: it may have waited for its turn, or for a connection. None: an older agent doesn't tell."""

    def to_json(self) -> str:
        """One line."""
        return json.dumps({"version": RECORD_VERSION, **asdict(self)}, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str | bytes) -> Record:
        """The record in `text`.

        Raises:
            RecordError: where it is none, or of another version.
        """
        try:
            raw: dict[str, Any] = json.loads(text)
            version = raw.pop("version")
            if version != RECORD_VERSION:
                raise RecordError(f"record has version {version}; this operator reads version {RECORD_VERSION}")
            balancer = raw.pop("balancer")
            pods = tuple(_pod(pod) for pod in raw.pop("pods"))
            return _made(cls, {**raw, "balancer": _balancer(balancer) if balancer else None, "pods": pods})
        except _BROKEN as error:
            raise RecordError(f"not a record: {error}") from error


def _balancer(raw: dict[str, Any]) -> BalancerSample:
    told = raw.get("latency") or ()
    latency = (_made(SlotLatency, {name: _row(value) for name, value in slot.items()}) for slot in told)
    clients = raw.get("clients")
    if clients is not None:
        bounds_ms = _row(clients["bounds_ms"])
        # Every record of every agent brings the same ones.
        clients = ReportedHistogram(
            _shared(bounds_ms) if isinstance(bounds_ms, tuple) else bounds_ms, _row(clients["counts"])
        )
    return _made(BalancerSample, {**raw, "latency": tuple(latency), "clients": clients})


@lru_cache(maxsize=64)
def _shared(bounds_ms: tuple[int, ...]) -> tuple[int, ...]:
    return bounds_ms


def _row(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _pod(raw: dict[str, Any]) -> PodSample:
    batches = raw.get("batches")
    if batches is not None:
        batches = _made(BatchStats, {**batches, "sizes": tuple(tuple(size) for size in batches["sizes"])})
    return _made(PodSample, {**raw, "versions": tuple(raw["versions"]), "batches": batches})


def _made(kind: type[T], raw: dict[str, Any]) -> T:
    """Of the fields that this version knows."""
    known = kind.__dataclass_fields__  # type: ignore[attr-defined]  # only dataclasses are given
    return kind(**{name: value for name, value in raw.items() if name in known})
