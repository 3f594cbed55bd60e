"""WebSocket server that receives the agents' reports and sends them notices.

It checks which model an agent may report about, and limits the number and size of reports. An invalid token or report
ends the connection. If the operator is busy, the agent retries later.

A report is processed in slices of at most `SLICE_S`, between which other tasks run. Out of scope: parsing (`report_parsing`) and
storing a report (`observation_store`), and validating a token (the caller's `Authenticator`).
"""

# | input                                                 | response                                       |
# | ----------------------------------------------------- | ---------------------------------------------- |
# | no bearer token, or an invalid one                    | 401                                            |
# | many invalid tokens from one address                  | 429 with Retry-After                           |
# | a token of any account but `NAMESPACE/NAME-balancer`, | 403                                            |
# | or bound to no pod                                    |                                                |
# | a token for a model that doesn't exist                | 403                                            |
# | the authenticator is unavailable                      | 503 with Retry-After                           |
# | the operator starts, or more than `MAX_WAITING` agents | 503 with Retry-After                          |
# | wait for a review                                     |                                                |
# | a report about a model, or by an agent, other than    | close 1008                                     |
# | the token's                                           |                                                |
# | a pod that doesn't exist under the model              | the pod is left out                            |
# | more than `MAX_REPORTS_PER_S`, after `MAX_BURST`      | close 1008                                     |
# | more CPU time than the model's budget                 | the stream is not read until the budget allows |
# | a message that is not a valid report                  | close 1007                                     |
# | a message larger than `MAX_BYTES`                     | close 1009                                     |
# | more than `MAX_STREAMS` streams for one model         | 503                                            |
# | more than `MAX_OPENED_PER_S` new streams of a model   | 429 with Retry-After                           |
# | the model is deleted                                  | close 1008                                     |
# | the operator stops                                    | close 1001: the agent reconnects immediately   |

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import time
from collections import Counter as Count
from collections import defaultdict
from collections.abc import Callable, Coroutine, Generator

from aiohttp import WSCloseCode, WSMsgType, web
from prometheus_client import CollectorRegistry

from halcyon.api.documents.observation_report import AUDIENCE, STREAM_PATH
from halcyon.kube.auth.callers import AgentIdentity, ReviewCache, bearer_token, token_digest
from halcyon.kube.auth.rate_limit import Limiter, TokenBucket
from halcyon.monitoring import instruments, operator_metrics
from halcyon.signals.agents import SUFFIX, Authenticator, ExistingModels, Sender, model_of_account
from halcyon.signals.observation_store import ObservationStore
from halcyon.signals.report_parsing import ForeignReport, parse_in_steps

MAX_BYTES = 512 * 1024
"""Maximum size of a message, in bytes. Each pod takes about 260 bytes, so a report on 1,000 pods (the maximum in a
spec) and the additional pods of a rollout fits."""
MAX_REPORTS_PER_S = 4.0
"""Maximum average rate of reports on one stream, in reports per second. An agent sends one report per second, and an
additional one if a request arrives while there is no replica."""
MAX_BURST = 20.0
MAX_STREAMS = 32
"""Maximum number of streams per model: three times the maximum number of balancers in a spec, so that there are enough
during a rollout of the balancers."""
MAX_OPENED_PER_S, MAX_OPENED_AT_ONCE = 4.0, 64.0
"""Maximum rate of new streams per model, and maximum burst of new streams. Agents reconnect once a second at most, and
each new stream costs a TLS handshake."""
MAX_TOKEN_AGE_S = 60.0
"""Time in seconds for which a valid token is cached. It is short, so that a deleted ServiceAccount soon loses its
access."""
REVIEW_INTERVAL_S = 600.0
"""Interval in seconds at which the token of an open stream is validated again."""
HEARTBEAT_INTERVAL_S = 10.0
SEND_TIMEOUT_S = 5.0
MAX_CONCURRENT_REVIEWS = 128
"""Maximum number of concurrent token reviews. It keeps many invalid tokens from flooding the API server with
TokenReviews.

Each review takes several iterations of the event loop. After a restart with thousands of models, an iteration can take 0.1 s. With
16 reviews at once, 30 agents a second would come back.
"""
MAX_WAITING = 256
"""Maximum number of agents that wait for a token review. If more agents waited for a slow API server, their reviews would
take longer than the 20 s after which agents give up, so none would succeed."""
RETRY_AFTER_S = 2
LARGE_BYTES = 8 * 1024
"""Size, in bytes, above which reports take turns, one slice at a time. A report on 30 pods is smaller."""
SLICE_S = 0.002
"""CPU time, in seconds, after which the processing of a report pauses so that other tasks can run."""
CPU_SHARE, CPU_SHARE_PER_POD, MAX_CPU_SHARE = 0.02, 0.0002, 0.2
"""CPU time allowed for all reports about a model, as a number of cores: a base per model, an addition for each pod, and
the maximum.

Ten agents of a model with one pod need 0.01. If a model has 1,000 pods, each of ten agents can send a report every 2 s.
"""
CPU_BURST_S = 1.0

_log = logging.getLogger(__name__)


class Collector:
    """WebSocket handler of `STREAM_PATH`, which receives the agents' reports.

    All times that callers pass to the store must come from the same clock, `monotonic`.
    """

    def __init__(
        self,
        store: ObservationStore,
        authenticate: Authenticator,
        models: ExistingModels,
        *,
        monotonic: Callable[[], float],
        cpu_time: Callable[[], float] = time.thread_time,
        registry: CollectorRegistry | None = None,
    ) -> None:
        self._store, self._authenticate, self._models = store, authenticate, models
        self._monotonic, self._cpu_time = monotonic, cpu_time
        self._accepted: ReviewCache[AgentIdentity] = ReviewCache(monotonic)
        self._failures = Limiter(monotonic)
        """Rate limit for invalid tokens, by client address."""
        self._review_slots = asyncio.Semaphore(MAX_CONCURRENT_REVIEWS)
        self._reviews: dict[bytes, asyncio.Task[AgentIdentity | None]] = {}
        """Token reviews in progress, by digest of the token. An agent that reconnects during a review waits for its
        result."""
        self.waiting = 0
        """Number of agents that wait for a token review."""
        self._streams: defaultdict[tuple[str, str], set[web.WebSocketResponse]] = defaultdict(set)
        self._background: set[asyncio.Task[None]] = set()
        self._per_model: Count[tuple[str, str]] = Count()
        self._turn = asyncio.Lock()
        """Lock that is held while a slice of a large report is processed."""
        self._budgets: dict[tuple[str, str], TokenBucket] = {}
        """CPU time left for reports about each model. An entry exists from the model's first stream until the model is
        deleted."""
        self._openings = Limiter(monotonic, rate_per_s=MAX_OPENED_PER_S, burst=MAX_OPENED_AT_ONCE)
        """Rate limit for new streams, by model."""
        registry = registry or CollectorRegistry()
        self.reports = instruments.counter(operator_metrics.REPORTS, registry)
        self.implausible = instruments.counter(operator_metrics.IMPLAUSIBLE_VALUES, registry)
        self.stream_requests = instruments.counter(operator_metrics.STREAM_REQUESTS, registry)
        self.streams = instruments.gauge(operator_metrics.STREAMS, registry)

    def routes(self) -> list[web.RouteDef]:
        """Return the routes of this handler, for the operator's TLS server."""
        return [web.get(STREAM_PATH, self.handle)]

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Serve the stream of one agent until it ends."""
        sender = await self._sender(bearer_token(request.headers), request.remote or "")
        model = (sender.namespace, sender.name)
        if self._per_model[model] >= MAX_STREAMS:
            raise self._refusal(
                "over_limit",
                web.HTTPServiceUnavailable,
                f"{model[1]} has {MAX_STREAMS} streams already, which is the limit",
            )
        if wait_s := self._openings.take("/".join(model)):
            raise self._refusal("over_limit", web.HTTPTooManyRequests, f"too many new streams of {model[1]}", wait_s)
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
            await self._read(stream, request, sender)
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

    async def _sender(self, token: str, address: str) -> Sender:
        """Return the agent to which the token of the request belongs.

        Raises:
            HTTPException: the token does not permit a stream, or can't be checked now.
        """
        if not token:
            raise self._refusal(
                "unauthenticated", web.HTTPUnauthorized, "the header Authorization: Bearer TOKEN is required"
            )
        if not self._models.synced:
            raise self._refusal(
                "overloaded", web.HTTPServiceUnavailable, "the operator is starting; retry later", RETRY_AFTER_S
            )
        if (cached := self._accepted.get(token_digest(token))) is not None:
            identity: AgentIdentity | None = cached[0]
        elif wait_s := self._failures.wait_s(address):
            raise self._refusal(
                "unauthenticated", web.HTTPTooManyRequests, "too many invalid tokens from this address", wait_s
            )
        elif self.waiting >= MAX_WAITING:
            raise self._refusal(
                "overloaded", web.HTTPServiceUnavailable, "too many agents connect now; retry later", RETRY_AFTER_S
            )
        else:
            try:
                identity = await self._reviewed(token)
            except Exception as error:
                _log.warning("a token could not be checked: %s", error)
                text = "the token could not be checked; retry later"
                raise self._refusal("unreviewed", web.HTTPServiceUnavailable, text, RETRY_AFTER_S) from error
        if identity is None:
            self._failures.take(address)
            raise self._refusal(
                "unauthenticated", web.HTTPUnauthorized, f"the token is not valid for audience {AUDIENCE}"
            )
        sender = self._sender_of(identity)
        if isinstance(sender, str):
            raise self._refusal("forbidden", web.HTTPForbidden, sender)
        return sender

    def _sender_of(self, identity: AgentIdentity) -> Sender | str:
        """Return the agent with this identity, or the reason why it may not send reports."""
        model = model_of_account(identity.account)
        if model is None:
            return f"{identity.account} may not send reports; only a model's account NAME{SUFFIX} may"
        if not identity.pod:
            return f"the token of {identity.account} is bound to no pod; the kubelet's tokens are"
        if not self._models.has_model(*model):
            return f"there is no ModelDeployment {model[0]}/{model[1]}"
        return Sender(*model, identity.pod)

    def _refusal(
        self, result: str, kind: type[web.HTTPException], text: str, retry_after_s: float | None = None
    ) -> web.HTTPException:
        self.stream_requests.labels(result).inc()
        headers = None if retry_after_s is None else {"Retry-After": str(math.ceil(retry_after_s))}
        return kind(text=text, headers=headers)

    def forget(self, namespace: str, name: str) -> None:
        """Close the streams of a deleted model, and drop its stored data."""
        self._store.forget(namespace, name)
        self._budgets.pop((namespace, name), None)
        for stream in self._streams.get((namespace, name), ()):
            self._run(_close(stream, f"there is no ModelDeployment {namespace}/{name} any more"))

    def send(self, namespace: str, name: str, text: str) -> None:
        """Send a text message to all agents of a model, in the background.

        Errors are ignored. An agent that does not read within `SEND_TIMEOUT_S` does not receive the message.
        """
        for stream in self._streams.get((namespace, name), ()):
            self._run(_send(stream, text))

    def _run(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    async def close(self) -> None:
        """Close all streams with code 1001. The agents then connect to another replica of the operator immediately."""
        code, message = WSCloseCode.GOING_AWAY, b"the operator is shutting down"
        closing = [s.close(code=code, message=message) for streams in self._streams.values() for s in streams]
        await asyncio.gather(*closing, return_exceptions=True)

    async def _read(self, stream: web.WebSocketResponse, request: web.Request, sender: Sender) -> None:
        model = (sender.namespace, sender.name)
        reviewed_at = self._monotonic()
        bucket = TokenBucket(MAX_REPORTS_PER_S, MAX_BURST, reviewed_at)
        async for message in stream:
            now = self._monotonic()
            if message.type is WSMsgType.ERROR or not self._models.has_model(*model):
                break
            if not bucket.take(now):
                await self._end(stream, "rate_limited", model, WSCloseCode.POLICY_VIOLATION, "too many reports")
                break
            try:
                result = await self._in_slices(
                    model, self._take(message.data, sender, now), is_large=len(message.data or "") > LARGE_BYTES
                )
            except ForeignReport as error:
                await self._end(stream, "forbidden", model, WSCloseCode.POLICY_VIOLATION, str(error))
                break
            except (ValueError, RecursionError) as error:  # ReportError, or JSON nested too deeply
                await self._end(stream, "malformed", model, WSCloseCode.INVALID_TEXT, str(error)[:200])
                break
            self.reports.labels(result).inc()
            if now - reviewed_at >= REVIEW_INTERVAL_S:
                reviewed_at = now
                # The request's headers contain the token, about 1 KiB, so the stream keeps no second copy of it.
                self._run(self._review_again(stream, bearer_token(request.headers), sender))

    def _take(self, text: object, sender: Sender, now: float) -> Generator[None, None, str]:
        """Parse, validate and store a report in several steps.

        Return the outcome, as a label value for the metric of reports.
        """
        namespace, name, _ = sender
        validated = yield from parse_in_steps(text, sender, lambda pod: self._models.has_pod(namespace, name, pod))
        self.implausible.inc(validated.implausible)
        if (budget := self._budgets.get((namespace, name))) is not None:
            budget.rate_per_s = min(CPU_SHARE + CPU_SHARE_PER_POD * len(validated.report.pods), MAX_CPU_SHARE)
        stored = yield from self._store.receive_in_steps(validated.report, now)
        return "accepted" if stored else "late"

    async def _in_slices(self, model: tuple[str, str], steps: Generator[None, None, str], *, is_large: bool) -> str:
        """Process a report, and then wait until the model has CPU time left.

        Large reports take turns, so that each iteration of the event loop processes only one slice of one large report.
        While the model has no CPU time left, the stream isn't read. The agent then replaces its unsent report with a
        newer one.
        """
        budget = self._budgets.setdefault(model, TokenBucket(CPU_SHARE, CPU_BURST_S, self._monotonic()))
        turn = self._turn if is_large else contextlib.nullcontext()
        result: str | None = None
        while result is None:
            async with turn:
                began = self._cpu_time()
                try:
                    next(steps)
                    while self._cpu_time() - began < SLICE_S:
                        next(steps)
                except StopIteration as end:
                    result = str(end.value)
                finally:
                    budget.take(self._monotonic(), self._cpu_time() - began)
                if is_large:
                    await asyncio.sleep(0)
        await asyncio.sleep(budget.wait_s)
        return result

    async def _end(
        self, stream: web.WebSocketResponse, result: str, model: tuple[str, str], code: WSCloseCode, reason: str
    ) -> None:
        self.reports.labels(result).inc()
        _log.warning("stream of %s/%s closed: %s", *model, reason)
        # The reason in a close frame is limited to 123 bytes.
        await stream.close(code=code, message=reason.encode()[:120])

    async def _review_again(self, stream: web.WebSocketResponse, token: str, sender: Sender) -> None:
        """Close the stream of an agent if its token is no longer valid.

        The token counts as valid while the authenticator is unavailable, because an outage of the API server would
        otherwise close all streams.
        """
        model = (sender.namespace, sender.name)
        try:
            identity = await self._reviewed(token)
        except Exception as error:  # noqa: BLE001  # whatever the caller's client raises
            _log.warning("the token of %s/%s could not be checked again: %s", *model, error)
            return
        if identity is None or model_of_account(identity.account) != model or identity.pod != sender.agent:
            # Not a rejected report: the tokens of agents expire after an hour, and agents reconnect with the renewed ones.
            _log.debug("stream of %s/%s closed: its token has expired", *model)
            await _close(stream, "the token has expired")

    async def _reviewed(self, token: str) -> AgentIdentity | None:
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

    def _review_done(self, digest: bytes, done: asyncio.Task[AgentIdentity | None]) -> None:
        del self._reviews[digest]
        if not done.cancelled():
            done.exception()  # marks it as retrieved, or asyncio logs it if all agents have disconnected

    async def _review(self, token: str, digest: bytes) -> AgentIdentity | None:
        now = self._monotonic()
        async with self._review_slots:
            identity = await self._authenticate(token, AUDIENCE)
        if identity is None:
            self._accepted.discard(digest)
            return None
        return self._accepted.put(digest, identity, expires_at=now + MAX_TOKEN_AGE_S)


async def _send(stream: web.WebSocketResponse, text: str) -> None:
    # Sending on a closing stream raises, and without a timeout it would block forever if the agent does not read.
    with contextlib.suppress(ConnectionError, TimeoutError, RuntimeError):
        async with asyncio.timeout(SEND_TIMEOUT_S):
            await stream.send_str(text)


async def _close(stream: web.WebSocketResponse, reason: str) -> None:
    with contextlib.suppress(ConnectionError, RuntimeError):
        await stream.close(code=WSCloseCode.POLICY_VIOLATION, message=reason.encode()[:120])
