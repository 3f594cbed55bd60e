"""HTTP client of Triton, for its metrics, its repository index and its batch statistics.

It parses only the metrics that a report needs. A metric that is missing on the page is None, never 0.
"""

from __future__ import annotations

import asyncio
import json
import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote

import aiohttp

from halcyon.api.documents.observation_report import MAX_SIZES
from halcyon.triton import engine_metrics, repository_index
from halcyon.triton.errors import MAX_ERROR_CHARS, TritonError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from halcyon.api.documents.observation_report import Batches
    from halcyon.triton.repository_index import RepositoryIndex

T = TypeVar("T")

READ_TIMEOUT_S = 0.8
MAX_PAGE_BYTES = 512 * 1024
"""Maximum size of a response from Triton that is read, in bytes. The pages of a pod with one model have 5 to 50 KiB."""
LARGE_PAGE_BYTES = 32 * 1024
"""Size of a response, in bytes, above which it is parsed in a thread, so that it doesn't delay other tasks."""
_LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)\s*=\s*"((?:[^"\\]|\\.)*)"')
_ESCAPE = re.compile(r"\\(.)")
_PENDING = "nv_inference_pending_request_count"
_SUCCESS = "nv_inference_request_success"
_FAILURE = "nv_inference_request_failure"
_REASONS = ("BACKEND", "CANCELED")
_ROWS = "nv_inference_count"
_EXECUTIONS = "nv_inference_exec_count"
_QUEUE_US = "nv_inference_queue_duration_us"
_COMPUTE_US = "nv_inference_compute_infer_duration_us"
_GPU = "nv_gpu_utilization"
_COMPUTE = ("compute_input", "compute_infer", "compute_output")
_MODEL_METRICS = frozenset({_PENDING, _SUCCESS, _FAILURE, _ROWS, _EXECUTIONS, _QUEUE_US, _COMPUTE_US})


@dataclass(frozen=True)
class Endpoint:
    """Pod of a slot, as listed in an EndpointSlice."""

    slot: str
    pod: str
    address: str
    serving: bool
    """Whether the pod passes its readiness probe, according to the endpoint's condition `serving`. The condition
    `ready` is unsuitable, because it is always true if the Service publishes unready addresses."""
    terminating: bool


@dataclass(frozen=True)
class ModelConcurrency:
    """Facts about a pod's concurrency, from the model's configuration in Triton."""

    instances: int = 1
    batches: bool = False
    """Whether Triton itself queues requests (dynamic batcher, sequences or ensemble), in which case the limit in the
    plan applies."""
    decoupled: bool = False


@dataclass(frozen=True)
class Metrics:
    """Metrics of one pod. Counters are summed over all versions of the model."""

    pending: int | None = None
    succeeded: int | None = None
    failed: int | None = None
    """Number of failed requests. Requests that their clients canceled are not counted."""
    backend_failed: int | None = None
    """Number of failures in the backends of the model and of the pod's other models, which it may call."""
    canceled: int | None = None
    """Number of requests that their clients canceled."""
    rows: int | None = None
    executions: int | None = None
    queue_us: int | None = None
    compute_us: int | None = None
    gpu: float | None = None
    """GPU utilisation from 0 to 1, as the mean over the GPUs of the pod."""
    engine_used: float | None = None
    """Highest used share (0 to 1) of an engine's KV cache blocks or of its maximum concurrent requests."""


@dataclass(frozen=True)
class Answer:
    """Response from Triton to a request."""

    status: int
    text: str
    """Beginning of the body of the response."""


def parse_metrics(text: str, model: str) -> Metrics:
    """Parse the metrics of `model` from a page in the Prometheus text format (0.0.4). Skip invalid lines."""
    sums: dict[str, float] = {}
    gpus: dict[str, float] = {}
    engine_samples: dict[tuple[str, str], list[float]] = {}
    companion_failures = 0.0
    for line in text.splitlines():
        if not line.startswith(("nv_", "vllm:")):
            continue
        sample = _sample(line)
        if sample is None:
            continue
        name, labels, value = sample
        if name == _GPU:
            gpus[labels.get("gpu_uuid", "")] = value
        elif name in engine_metrics.LABELS:
            engine_samples.setdefault((name, labels.get(engine_metrics.LABELS[name], "")), []).append(value)
        elif labels.get("model") == model:
            sums[name] = sums.get(name, 0.0) + value
            if name == _FAILURE and (reason := labels.get("reason")) in _REASONS:
                sums[reason] = sums.get(reason, 0.0) + value
        elif name == _FAILURE and labels.get("reason") == "BACKEND":
            companion_failures += value
    # If the page has failures but none for a reason, the number for this reason is 0.
    if _FAILURE in sums:
        sums = {**dict.fromkeys(_REASONS, 0.0), **sums}
        sums[_FAILURE] -= sums["CANCELED"]
        # If a step fails in its backend, Triton counts the ensemble's request under OTHER, as it counts invalid requests.
        # If a model that a Python model calls fails, Triton counts the caller's error response as a success.
        sums["BACKEND"] += companion_failures
    counts = {name: int(value) for name, value in sums.items()}
    engine = engine_metrics.of_pod(engine_samples)
    waits = engine_metrics.waiting(engine)
    return Metrics(
        pending=counts.get(_PENDING) if waits is None else int(waits) + counts.get(_PENDING, 0),
        succeeded=counts.get(_SUCCESS),
        failed=counts.get(_FAILURE),
        backend_failed=counts.get("BACKEND"),
        canceled=counts.get("CANCELED"),
        rows=counts.get(_ROWS),
        executions=counts.get(_EXECUTIONS),
        queue_us=counts.get(_QUEUE_US),
        compute_us=counts.get(_COMPUTE_US),
        gpu=sum(gpus.values()) / len(gpus) if gpus else None,
        engine_used=engine_metrics.used(engine),
    )


def _sample(line: str) -> tuple[str, dict[str, str], float] | None:
    end = line.find("{")
    name = line[:end] if end >= 0 else line.split(None, 1)[0]
    name = name.strip()
    if name != _GPU and name not in _MODEL_METRICS and name not in engine_metrics.LABELS:
        return None
    labels: dict[str, str] = {}
    remainder = line[len(name) :]
    if end >= 0:
        at = end + 1 + len(line[end + 1 :]) - len(line[end + 1 :].lstrip())
        while label := _LABEL.match(line, at):
            labels[label[1]] = _ESCAPE.sub(lambda m: "\n" if m[1] == "n" else m[1], label[2])
            at = label.end()
            while at < len(line) and line[at] in ", \t":
                at += 1
        if line[at : at + 1] != "}":
            return None
        remainder = line[at + 1 :]
    try:
        value = float(remainder.split()[0])
    except (ValueError, IndexError):
        return None
    # Infinity and NaN cannot be summed or compared, so they count as unknown.
    return (name, labels, value) if math.isfinite(value) and value >= 0 else None


def parse_batches(document: Any, model: str, *, pod: str) -> tuple[Batches, int]:
    """Parse the batch statistics of `model` from the response of `pod`, summed over all versions; empty if no batch has run.

    If there are more than `MAX_SIZES` batch sizes, keep those that ran most often; of sizes that ran equally often,
    keep the smaller ones.

    Returns: the counters by batch size, and the total time of the batches of all sizes, in microseconds.

    Raises:
        TritonError: the document does not contain statistics.
    """
    sums: dict[int, list[int]] = {}
    try:
        for entry in document["model_stats"]:
            if entry["name"] != model:
                continue
            for size in entry.get("batch_stats") or ():
                rows, executions = int(size.get("batch_size", 0)), int(size["compute_infer"].get("count", 0))
                spent_ns = sum(int(size[part].get("ns", 0)) for part in _COMPUTE if part in size)
                if rows < 1 or executions < 1 or spent_ns < 0:
                    continue
                sums.setdefault(rows, [0, 0])
                sums[rows][0] += executions
                sums[rows][1] += spent_ns
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise TritonError(f"the statistics of pod {pod} can't be parsed: {error!r}") from error
    most = sorted(sums, key=lambda rows: (-sums[rows][0], rows))[:MAX_SIZES]
    spent_us = sum(spent_ns for _, spent_ns in sums.values()) // 1000
    return tuple((rows, sums[rows][0], sums[rows][1] // 1000) for rows in sorted(most)), spent_us


def parse_facts(document: Any) -> ModelConcurrency:
    """Parse the facts about a pod's concurrency from the model's configuration.

    Raises:
        TritonError: the document is not a model configuration.
    """
    try:
        batch = int(document.get("max_batch_size") or 0)
        groups: Iterable[Mapping[str, Any]] = document.get("instance_group") or ({},)
        instances = sum(int(group.get("count") or 1) * max(len(group.get("gpus") or ()), 1) for group in groups)
        decoupled = (document.get("model_transaction_policy") or {}).get("decoupled") is True
        queued = "sequence_batching" in document or "ensemble_scheduling" in document
        return ModelConcurrency(max(instances, 1), queued or (batch > 1 and "dynamic_batching" in document), decoupled)
    except (AttributeError, TypeError, ValueError) as error:
        raise TritonError(f"the model's configuration can't be parsed: {error!r}") from error


@dataclass(frozen=True)
class TritonClient:
    """Client of Triton servers. The caller owns the HTTP session, which limits connections and reuses them."""

    session: aiohttp.ClientSession
    model: str
    http_port: int = 8000
    metrics_port: int = 8002

    async def metrics(self, address: str, *, last: bool = False) -> Metrics:
        """Return the pod's metrics.

        Args:
            address: IP address of the pod.
            last: whether to close the connection afterwards. An open connection can delay the exit of a stopping Triton.

        Raises:
            TritonError: the pod does not respond in time.
        """
        headers = _CLOSE if last else {}
        body = await self._request("GET", _url(address, self.metrics_port, "/metrics"), headers)
        return await _parsed(body, lambda: parse_metrics(body.decode(errors="replace"), self.model))

    async def index(self, address: str, *, pod: str) -> RepositoryIndex:
        """Return the model's state in the repository index of the pod at this IP address; `pod` is its name, for messages.

        Raises:
            TritonError: the pod does not respond in time.
        """
        path = "/v2/repository/index"
        return await self._read(
            address, path, lambda index: repository_index.parse(index, self.model, pod=pod), method="POST"
        )

    async def facts(self, address: str) -> ModelConcurrency:
        """Return the facts about concurrency in the model's configuration, read from the pod at this IP address.

        Raises:
            TritonError: the pod does not respond in time.
        """
        return await self._read(address, f"/v2/models/{self.model}/config", parse_facts)

    async def batches(self, address: str, *, pod: str) -> tuple[Batches, int]:
        """Return the batch statistics of the pod at this IP address (`parse_batches`); `pod` is its name, for messages.

        The response is larger than the metrics page, so call this method less often.

        Raises:
            TritonError: the pod does not respond in time.
        """
        path = f"/v2/models/{self.model}/stats"
        return await self._read(address, path, lambda statistics: parse_batches(statistics, self.model, pod=pod))

    async def config(self, address: str, *, model: str | None = None) -> dict[str, Any]:
        """Return a model's configuration as loaded by the pod at this IP address. The default is the served model.

        Raises:
            TritonError: the pod does not respond in time.
        """
        return await self._read(address, f"/v2/models/{quote(model or self.model, safe='')}/config", dict[str, Any])

    async def post(
        self, address: str, path: str, headers: Mapping[str, str], body: bytes, *, timeout_s: float
    ) -> Answer:
        """Send a POST request to the model, and return the response, whatever its status is.

        `path` is the path below the model's URL, for example `infer`.

        Raises:
            TritonError: the connection failed.
            TimeoutError: there was no response within `timeout_s` seconds.
        """
        url = _url(address, self.http_port, f"/v2/models/{self.model}/{path}")
        try:
            async with (
                asyncio.timeout(timeout_s),
                self.session.post(
                    url, headers={**_CLOSE, **headers}, data=body, timeout=aiohttp.ClientTimeout(total=None)
                ) as response,
            ):
                text = (await response.content.read(MAX_ERROR_CHARS)).decode(errors="replace")
                return Answer(response.status, text)
        except TimeoutError:
            raise
        except (aiohttp.ClientError, OSError) as error:
            raise TritonError(f"{url} does not respond: {error!r}") from error

    async def _read(self, address: str, path: str, parse: Callable[[Any], T], *, method: str = "GET") -> T:
        """Return the result of `parse` for the JSON document at a path."""
        url = _url(address, self.http_port, path)
        body = await self._request(method, url, _CLOSE)
        try:
            return await _parsed(body, lambda: parse(json.loads(body)))
        except (ValueError, TypeError, RecursionError) as error:
            raise TritonError(f"{url}: {error}") from error

    async def _request(self, method: str, url: str, headers: Mapping[str, str]) -> bytes:
        try:
            timeout = aiohttp.ClientTimeout(total=READ_TIMEOUT_S)
            async with self.session.request(method, url, headers=headers, timeout=timeout) as response:
                if response.status != 200:
                    raise TritonError(f"{url} answers {response.status}")
                body = bytearray()
                while part := await response.content.read(MAX_PAGE_BYTES + 1 - len(body)):
                    body += part
                if len(body) > MAX_PAGE_BYTES:
                    raise TritonError(f"{url} answers more than {MAX_PAGE_BYTES} bytes, which is the limit")
                return bytes(body)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise TritonError(f"{url} does not respond: {error!r}") from error


async def _parsed(body: bytes, parse: Callable[[], T]) -> T:
    return parse() if len(body) <= LARGE_PAGE_BYTES else await asyncio.to_thread(parse)


_CLOSE: Mapping[str, str] = {"Connection": "close"}
"""Header that makes Triton close the connection after its response. On exit, Triton waits for open connections, even
idle ones, up to its exit timeout. With this header, an idle pod exits in 4 s instead of 30 s (measured)."""


def _url(address: str, port: int, path: str) -> str:
    host = f"[{address}]" if ":" in address else address
    return f"http://{host}:{port}{path}"
