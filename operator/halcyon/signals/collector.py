"""WebSocket server that receives the agents' reports and sends them notices.

It checks which model an agent may report about, and limits the number and size of reports:

| input                                                 | response                                       |
| ----------------------------------------------------- | ---------------------------------------------- |
| no bearer token, or an invalid one                    | 401                                            |
| a token of any account but `NAMESPACE/NAME-balancer`  | 403                                            |
| the authenticator is unavailable                      | 503: the agent retries                         |
| a report about a model other than the token's         | close 1008                                     |
| more than `MAX_REPORTS_PER_S`, after `MAX_BURST`      | close 1008                                     |
| a message that is not a valid report                  | close 1007                                     |
| a message larger than `MAX_BYTES`                     | close 1009                                     |
| more than `MAX_STREAMS` streams for one model         | 503                                            |
| the operator stops                                    | close 1001: the agent reconnects immediately   |

Out of scope: processing a report (`observation_store`), and validating a token (the caller's `Authenticator`).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter as Count
from collections import defaultdict
from collections.abc import Callable
from typing import Protocol

from aiohttp import WSCloseCode, WSMsgType, web
from prometheus_client import CollectorRegistry

from halcyon.api.documents.observation_report import AUDIENCE, STREAM_PATH, AgentReport
from halcyon.kube.auth.callers import ReviewCache, bearer_token, service_account, token_digest
from halcyon.monitoring import instruments, operator_metrics
from halcyon.signals.observation_store import ObservationStore
from halcyon.signals.validation import ValidatedReport, validate

MAX_BYTES = 512 * 1024
"""Maximum size of a message, in bytes. A pod takes about 260 bytes, so a report of 1,000 pods (the maximum in a spec) fits,
including the extra pods of a rollout."""
MAX_REPORTS_PER_S = 4.0
"""Maximum average rate of reports on one stream. Agents send one per second, and an extra one if a request finds no replica."""
MAX_BURST = 20.0
MAX_STREAMS = 32
"""Maximum number of streams per model: three times the maximum number of balancers in a spec, which leaves room for
their rollout."""
MAX_TOKEN_AGE_S = 60.0
"""Time in seconds for which a valid token is cached. It is short, because a deleted ServiceAccount must lose its access
soon."""
REVIEW_INTERVAL_S = 600.0
"""Interval in seconds at which the token of an open stream is validated again."""
HEARTBEAT_INTERVAL_S = 10.0
SEND_TIMEOUT_S = 5.0
MAX_CONCURRENT_REVIEWS = 16
"""Maximum concurrent token reviews, so that many invalid tokens don't cause a flood of TokenReviews at the API server."""
_SUFFIX = "-balancer"

_log = logging.getLogger(__name__)


class Authenticator(Protocol):
    """Callable that authenticates the bearer token of an agent."""

    async def __call__(self, token: str, audience: str) -> str | None:
        """Return the user name in the token; None if the token is not valid for this audience.

        Raises:
            Exception: the token can't be validated at present.
        """


def model_of_account(username: str) -> tuple[str, str] | None:
    """Return (namespace, name) of the model whose balancers use this ServiceAccount; None for any other account."""
    account = service_account(username)
    if account is None or not account.name.endswith(_SUFFIX):
        return None
    name = account.name.removesuffix(_SUFFIX)
    return (account.namespace, name) if name else None


class Collector:
    """WebSocket handler of `STREAM_PATH`. `monotonic` must be the clock from which callers of the store take `now`."""

    def __init__(
        self,
        store: ObservationStore,
        authenticate: Authenticator,
        *,
        monotonic: Callable[[], float],
        registry: CollectorRegistry | None = None,
    ) -> None:
        self._store, self._authenticate, self._monotonic = store, authenticate, monotonic
        self._accepted: ReviewCache[str] = ReviewCache(monotonic)
        self._review_slots = asyncio.Semaphore(MAX_CONCURRENT_REVIEWS)
        self._reviews: dict[bytes, asyncio.Task[str | None]] = {}
        """Token reviews in progress, by token digest. An agent that reconnects waits for the review already in progress."""
        self.waiting = 0
        """Number of agents that wait for a token review."""
        self._streams: defaultdict[tuple[str, str], set[web.WebSocketResponse]] = defaultdict(set)
        self._sending: set[asyncio.Task[None]] = set()
        self._per_model: Count[tuple[str, str]] = Count()
        registry = registry or CollectorRegistry()
        self.reports = instruments.counter(operator_metrics.REPORTS, registry)
        self.implausible = instruments.counter(operator_metrics.IMPLAUSIBLE_VALUES, registry)
        self.stream_requests = instruments.counter(operator_metrics.STREAM_REQUESTS, registry)
        self.streams = instruments.gauge(operator_metrics.STREAMS, registry)

    def routes(self) -> list[web.RouteDef]:
        """Return the routes of this handler, for the operator's TLS server."""
        return [web.get(STREAM_PATH, self.handle)]

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Serve one agent's stream until it ends."""
        token = bearer_token(request.headers)
        if not token:
            self.stream_requests.labels("unauthenticated").inc()
            raise web.HTTPUnauthorized(text="the header Authorization: Bearer TOKEN is required")
        try:
            cached = self._accepted.get(token_digest(token))
            username = await self._reviewed(token) if cached is None else cached[0]
        except Exception as error:
            _log.warning("a token could not be checked: %s", error)
            self.stream_requests.labels("unreviewed").inc()
            raise web.HTTPServiceUnavailable(text="the token could not be checked; retry later") from error
        if username is None:
            self.stream_requests.labels("unauthenticated").inc()
            raise web.HTTPUnauthorized(text=f"the token is not valid for audience {AUDIENCE}")
        model = model_of_account(username)
        if model is None:
            self.stream_requests.labels("forbidden").inc()
            raise web.HTTPForbidden(text=f"{username} may not send reports; only a model's account NAME{_SUFFIX} may")
        if self._per_model[model] >= MAX_STREAMS:
            self.stream_requests.labels("over_limit").inc()
            raise web.HTTPServiceUnavailable(text=f"{model[1]} has {MAX_STREAMS} streams already, which is the limit")
        self.stream_requests.labels("accepted").inc()
        # No compression: zlib's buffers would use more memory per stream than everything else.
        stream = web.WebSocketResponse(max_msg_size=MAX_BYTES, heartbeat=HEARTBEAT_INTERVAL_S, compress=False)
        self._per_model[model] += 1
        try:
            try:
                await stream.prepare(request)
            except ConnectionError:
                _log.debug("an agent of %s/%s disconnected before its stream began", *model)
                return web.Response(status=503)  # the agent has disconnected; the response is discarded
            self._streams[model].add(stream)
            self.streams.inc()
            await self._read(stream, token, model)
        finally:
            if stream in self._streams[model]:
                self._streams[model].discard(stream)
                self.streams.dec()
            if not self._streams[model]:
                del self._streams[model]
            self._per_model[model] -= 1
            if not self._per_model[model]:
                del self._per_model[model]
        return stream

    def send(self, namespace: str, name: str, text: str) -> None:
        """Send a text message to all agents of a model, in the background.

        Errors are ignored, and an agent that does not read within `SEND_TIMEOUT_S` does not receive the message.
        """
        for stream in self._streams.get((namespace, name), ()):
            sending = asyncio.create_task(_send(stream, text))
            self._sending.add(sending)
            sending.add_done_callback(self._sending.discard)

    async def close(self) -> None:
        """Close all streams with code 1001; the agents connect to another replica of the operator immediately."""
        await asyncio.gather(
            *(
                stream.close(code=WSCloseCode.GOING_AWAY, message=b"the operator is shutting down")
                for streams in self._streams.values()
                for stream in streams
            ),
            return_exceptions=True,
        )

    async def _read(self, stream: web.WebSocketResponse, token: str, model: tuple[str, str]) -> None:
        bucket, reviewed_at = _TokenBucket(self._monotonic()), self._monotonic()
        async for message in stream:
            now = self._monotonic()
            if message.type is WSMsgType.ERROR:
                break
            if not bucket.take(now):
                await self._end(stream, "rate_limited", model, WSCloseCode.POLICY_VIOLATION, "too many reports")
                break
            validated = _parse(message.data)
            if isinstance(validated, str):
                await self._end(stream, "malformed", model, WSCloseCode.INVALID_TEXT, validated)
                break
            report = validated.report
            if (report.namespace, report.name) != model:
                reason = f"the token is for {model[0]}/{model[1]}, the report for {report.namespace}/{report.name}"
                await self._end(stream, "forbidden", model, WSCloseCode.POLICY_VIOLATION, reason)
                break
            if now - reviewed_at >= REVIEW_INTERVAL_S:
                reviewed_at = now
                if not await self._is_still_valid(token, model):
                    await self._end(stream, "forbidden", model, WSCloseCode.POLICY_VIOLATION, "the token has expired")
                    break
            self.implausible.inc(validated.implausible)
            self.reports.labels("accepted" if self._store.receive(report, now) else "late").inc()

    async def _end(
        self, stream: web.WebSocketResponse, result: str, model: tuple[str, str], code: WSCloseCode, reason: str
    ) -> None:
        self.reports.labels(result).inc()
        _log.warning("stream of %s/%s closed: %s", *model, reason)
        # The reason in a close frame is limited to 123 bytes.
        await stream.close(code=code, message=reason.encode()[:120])

    async def _is_still_valid(self, token: str, model: tuple[str, str]) -> bool:
        """Return whether the token is still valid.

        It counts as valid if the authenticator is unavailable: otherwise an outage of the API server would close all streams.
        """
        try:
            username = await self._reviewed(token)
        except Exception as error:  # noqa: BLE001  # whatever the caller's client raises
            _log.warning("the token of %s/%s could not be checked again: %s", *model, error)
            return True
        return username is not None and model_of_account(username) == model

    async def _reviewed(self, token: str) -> str | None:
        digest = token_digest(token)
        review = self._reviews.get(digest)
        if review is None:
            review = self._reviews[digest] = asyncio.create_task(self._review(token, digest))
            review.add_done_callback(lambda done: self._review_done(digest, done))
        self.waiting += 1
        try:
            # Shielded: if this agent disconnects, the review must continue for other waiting agents and for its retry.
            return await asyncio.shield(review)
        finally:
            self.waiting -= 1

    def _review_done(self, digest: bytes, done: asyncio.Task[str | None]) -> None:
        del self._reviews[digest]
        if not done.cancelled():
            done.exception()  # marks it as retrieved, or asyncio logs it if all agents have disconnected

    async def _review(self, token: str, digest: bytes) -> str | None:
        now = self._monotonic()
        async with self._review_slots:
            username = await self._authenticate(token, AUDIENCE)
        if username is None:
            self._accepted.discard(digest)
            return None
        return self._accepted.put(digest, username, expires_at=now + MAX_TOKEN_AGE_S)


async def _send(stream: web.WebSocketResponse, text: str) -> None:
    # Sending on a closing stream raises, and without a timeout it would block forever if the agent does not read.
    with contextlib.suppress(ConnectionError, TimeoutError, RuntimeError):
        async with asyncio.timeout(SEND_TIMEOUT_S):
            await stream.send_str(text)


class _TokenBucket:
    """Token bucket that limits the reports of one stream."""

    def __init__(self, now: float) -> None:
        self._left, self._at = MAX_BURST, now

    def take(self, now: float) -> bool:
        self._left = min(self._left + (now - self._at) * MAX_REPORTS_PER_S, MAX_BURST) - 1.0
        self._at = now
        return self._left >= 0


def _parse(data: object) -> ValidatedReport | str:
    """Parse and validate a message; return the report, or the reason why it is invalid."""
    if not isinstance(data, str):
        return "not a report: binary"
    try:
        return validate(AgentReport.from_json(data))
    except (ValueError, RecursionError) as error:  # ReportError, integers with too many digits, JSON nested too deeply
        return str(error)[:200]
