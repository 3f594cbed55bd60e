"""WebSocket server for the agents' reports: checks who may report for which model, and how much. Also sends them notices.

| input                                                 | response                                       |
| ----------------------------------------------------- | ---------------------------------------------- |
| no bearer token, or an invalid one                    | 401                                            |
| a token of any account but `NAMESPACE/NAME-balancer`  | 403                                            |
| the authenticator is unavailable                      | 503: the agent retries                         |
| a report about another model than the token's         | close 1008                                     |
| more reports than `MAX_PER_S` for long                | close 1008                                     |
| a message that is no report                           | close 1007                                     |
| a message above `MAX_BYTES`                           | close 1009                                     |
| too many streams for one model                        | 503                                            |
| the operator stops                                    | close 1001: the agent connects elsewhere at once |

Out of scope: the meaning of a report (`observation_store`), and checking a token (the caller's `Authenticator`).
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

from halcyon.api.documents.observation_report import AUDIENCE, STREAM_PATH, Record
from halcyon.kube.auth.callers import ReviewCache, bearer_token, service_account, token_digest
from halcyon.monitoring import instruments, operator_metrics
from halcyon.signals.observation_store import ObservationStore
from halcyon.signals.validation import Vetted, vet

MAX_BYTES = 512 * 1024
"""Maximum size of a message. A pod takes about 260 bytes, so the 1,000 pods that a spec allows fit, with a rollout's surge."""
MAX_PER_S = 4.0
"""Reports per second of one stream; agents send one, plus one at once when a request finds no replica."""
BURST = 20.0
MAX_STREAMS = 32
"""Streams per model: three times the maximum balancers of a spec, so that their rollout fits."""
REMEMBER_S = 60.0
"""Time for which an accepted token is cached; short, because a deleted account must lose its access."""
REVIEW_INTERVAL_S = 600.0
"""Time after which a stream's token is reviewed again."""
HEARTBEAT_S = 10.0
TELL_WITHIN_S = 5.0
MAX_ASKING = 16
"""Concurrent reviews: a storm of bad tokens must not become a storm of TokenReviews."""
_SUFFIX = "-balancer"

_log = logging.getLogger(__name__)


class Authenticator(Protocol):
    """Callable that authenticates a token."""

    async def __call__(self, token: str, audience: str) -> str | None:
        """Return the user name of the token; None if it is not valid for this audience.

        Raises:
            Exception: the token can't be checked now.
        """


def speaks_for(username: str) -> tuple[str, str] | None:
    """Return namespace and name of the model that this account may report for; None if it is no balancer's account."""
    account = service_account(username)
    if account is None or not account.name.endswith(_SUFFIX):
        return None
    name = account.name.removesuffix(_SUFFIX)
    return (account.namespace, name) if name else None


class Collector:
    """Handler of `STREAM_PATH`. `monotonic` must be the clock of the store's readers."""

    def __init__(
        self,
        hub: ObservationStore,
        authenticate: Authenticator,
        *,
        monotonic: Callable[[], float],
        registry: CollectorRegistry | None = None,
    ) -> None:
        self._hub, self._authenticate, self._monotonic = hub, authenticate, monotonic
        self._accepted: ReviewCache[str] = ReviewCache(monotonic)
        self._asking = asyncio.Semaphore(MAX_ASKING)
        self._answers: dict[bytes, asyncio.Task[str | None]] = {}
        """Reviews in progress: an agent that disconnects and retries waits for the same one."""
        self.waiting = 0
        """Number of agents that wait for one."""
        self._streams: defaultdict[tuple[str, str], set[web.WebSocketResponse]] = defaultdict(set)
        self._telling: set[asyncio.Task[None]] = set()
        self._per_model: Count[tuple[str, str]] = Count()
        registry = registry or CollectorRegistry()
        self.records = instruments.counter(operator_metrics.RECORDS, registry)
        self.absurd = instruments.counter(operator_metrics.ABSURD_VALUES, registry)
        self.logins = instruments.counter(operator_metrics.LOGINS, registry)
        self.streams = instruments.gauge(operator_metrics.STREAMS, registry)

    def routes(self) -> list[web.RouteDef]:
        """Return the routes to mount on the operator's TLS site."""
        return [web.get(STREAM_PATH, self.handle)]

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Serve one agent's stream until it ends."""
        token = bearer_token(request.headers)
        if not token:
            self.logins.labels("refused").inc()
            raise web.HTTPUnauthorized(text="needs the header Authorization: Bearer TOKEN")
        try:
            held = self._accepted.get(token_digest(token))
            username = await self._reviewed(token) if held is None else held[0]
        except Exception as error:
            _log.warning("a token could not be checked: %s", error)
            self.logins.labels("unknown").inc()
            raise web.HTTPServiceUnavailable(text="the token could not be checked; try again") from error
        if username is None:
            self.logins.labels("refused").inc()
            raise web.HTTPUnauthorized(text=f"the token is not valid for audience {AUDIENCE}")
        model = speaks_for(username)
        if model is None:
            self.logins.labels("foreign").inc()
            raise web.HTTPForbidden(text=f"{username} may not send records; only a model's account NAME{_SUFFIX} may")
        if self._per_model[model] >= MAX_STREAMS:
            self.logins.labels("crowded").inc()
            raise web.HTTPServiceUnavailable(text=f"{model[1]} has {MAX_STREAMS} streams already; the limit is that")
        self.logins.labels("accepted").inc()
        # Without compression: zlib's windows would cost more memory per stream than everything else.
        stream = web.WebSocketResponse(max_msg_size=MAX_BYTES, heartbeat=HEARTBEAT_S, compress=False)
        self._per_model[model] += 1
        try:
            try:
                await stream.prepare(request)
            except ConnectionError:
                _log.debug("an agent of %s/%s went away before its stream began", *model)
                return web.Response(status=503)  # the agent is gone; a stream that never began can't be ended
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

    def tell(self, namespace: str, name: str, text: str) -> None:
        """Send a text to each of a model's agents. Never waits and never fails: an agent that is too slow misses it."""
        for stream in self._streams.get((namespace, name), ()):
            task = asyncio.create_task(_told(stream, text))
            self._telling.add(task)
            task.add_done_callback(self._telling.discard)

    async def close(self) -> None:
        """End every stream; the agents connect to another replica at once."""
        await asyncio.gather(
            *(
                stream.close(code=WSCloseCode.GOING_AWAY, message=b"the operator stops")
                for streams in self._streams.values()
                for stream in streams
            ),
            return_exceptions=True,
        )

    async def _read(self, stream: web.WebSocketResponse, token: str, model: tuple[str, str]) -> None:
        allowance, asked = _Allowance(self._monotonic()), self._monotonic()
        async for message in stream:
            now = self._monotonic()
            if message.type is WSMsgType.ERROR:
                break
            if not allowance.take(now):
                await self._end(stream, "flood", model, WSCloseCode.POLICY_VIOLATION, "too many records")
                break
            vetted = _parsed(message.data)
            if isinstance(vetted, str):
                await self._end(stream, "garbage", model, WSCloseCode.INVALID_TEXT, vetted)
                break
            record = vetted.record
            if (record.namespace, record.name) != model:
                why = f"the token speaks for {model[0]}/{model[1]}, the record for {record.namespace}/{record.name}"
                await self._end(stream, "foreign", model, WSCloseCode.POLICY_VIOLATION, why)
                break
            if now - asked >= REVIEW_INTERVAL_S:
                asked = now
                if not await self._still(token, model):
                    await self._end(stream, "foreign", model, WSCloseCode.POLICY_VIOLATION, "the token has expired")
                    break
            self.absurd.inc(vetted.absurd)
            self.records.labels("accepted" if self._hub.receive(record, now) else "late").inc()

    async def _end(
        self, stream: web.WebSocketResponse, result: str, model: tuple[str, str], code: WSCloseCode, why: str
    ) -> None:
        self.records.labels(result).inc()
        _log.warning("stream of %s/%s closed: %s", *model, why)
        # A close frame holds 123 bytes of reason.
        await stream.close(code=code, message=why.encode()[:120])

    async def _still(self, token: str, model: tuple[str, str]) -> bool:
        """Return whether the token is still valid. An unavailable authenticator ends no stream: that would be an outage."""
        try:
            username = await self._reviewed(token)
        except Exception as error:  # noqa: BLE001  # whatever the caller's client raises
            _log.warning("the token of %s/%s could not be checked again: %s", *model, error)
            return True
        return username is not None and speaks_for(username) == model

    async def _reviewed(self, token: str) -> str | None:
        digest = token_digest(token)
        answer = self._answers.get(digest)
        if answer is None:
            answer = self._answers[digest] = asyncio.create_task(self._asked(token, digest))
            answer.add_done_callback(lambda done: self._answered(digest, done))
        self.waiting += 1
        try:
            # Shielded: a disconnecting agent must not end the review that others, or it itself, will wait for.
            return await asyncio.shield(answer)
        finally:
            self.waiting -= 1

    def _answered(self, digest: bytes, done: asyncio.Task[str | None]) -> None:
        del self._answers[digest]
        if not done.cancelled():
            done.exception()  # so that asyncio doesn't report an unread exception if all agents have disconnected

    async def _asked(self, token: str, digest: bytes) -> str | None:
        now = self._monotonic()
        async with self._asking:
            username = await self._authenticate(token, AUDIENCE)
        if username is None:
            self._accepted.discard(digest)
            return None
        return self._accepted.put(digest, username, expires_at=now + REMEMBER_S)


async def _told(stream: web.WebSocketResponse, text: str) -> None:
    # A closing stream raises, and one whose agent does not read would block forever.
    with contextlib.suppress(ConnectionError, TimeoutError, RuntimeError):
        async with asyncio.timeout(TELL_WITHIN_S):
            await stream.send_str(text)


class _Allowance:
    """A token bucket."""

    def __init__(self, now: float) -> None:
        self._left, self._at = BURST, now

    def take(self, now: float) -> bool:
        self._left = min(self._left + (now - self._at) * MAX_PER_S, BURST) - 1.0
        self._at = now
        return self._left >= 0


def _parsed(data: object) -> Vetted | str:
    """Return the report in a message, or why there is none."""
    if not isinstance(data, str):
        return "not a record: binary"
    try:
        return vet(Record.from_json(data))
    except (ValueError, RecursionError) as error:  # RecordError, numbers too long for int(), brackets too deep
        return str(error)[:200]
