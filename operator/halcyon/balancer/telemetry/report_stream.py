"""Streams of reports from the agent to all operator replicas, over one WebSocket per replica.

A stream always sends the newest report. Reports are not queued: a new report replaces one that has not been sent.

Without changes, a report is sent every 4.5 s. Changes are reported at most once per second, and urgent reports at once.
If a replica is unavailable, the agent reconnects after a pause (`reconnect_pause`).
"""

# no change              a report every 4.5 s
# a change               at most one report per second
# urgent report          sent at once, together with the unsent report before it
# replica unavailable    reconnect after a pause. Resolve the name again for a new replica; other streams are not affected
# incoming message       a notice about a pod, which is passed to the caller

from __future__ import annotations

import asyncio
import random
import socket
import ssl
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import aiohttp

from halcyon.api.documents.observation_report import STREAM_PATH
from halcyon.api.documents.pod_notice import Notice, NoticeError
from halcyon.balancer.telemetry.reconnect_pause import (
    CONNECT_TIMEOUT_S,
    MAX_RETRY_AFTER_S,
    Failure,
    PauseLimits,
    ReconnectPause,
)
from halcyon.triton.json_log import log

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from halcyon.api.documents.balancer_plan import CollectorAddress
    from halcyon.api.documents.observation_report import AgentReport

RESOLVE_INTERVAL_S = 2.0
"""Interval of DNS lookups while all streams are open, in seconds."""
SEARCH_INTERVAL_S, SEARCH_TIMEOUT_S = 0.5, 10.0
"""Interval of DNS lookups after a stream was lost, and how long this interval applies, in seconds.

A new replica may have another address. The time is limited because all agents query DNS four times as often during it.
A replica whose address appears later is found at the normal interval.
"""
MAX_REPLICAS = 8
_HEARTBEAT_INTERVAL_S = 10.0


@dataclass(frozen=True)
class SendInterval:
    """Intervals at which a stream of reports sends, in seconds, and limits of the pauses before it reconnects."""

    min_s: float = 0.9
    """Minimum time between two reports, in seconds. It is less than the sampling interval of 1 s, so that a late sample
    does not delay the next ones."""
    max_s: float = 4.5
    """Maximum time between two reports, in seconds. Operator replicas expect one every 5 s. The difference allows for
    delays."""
    pauses: PauseLimits = field(default_factory=PauseLimits)
    steady_s: float = 1.0
    """Time for which a stream must stay open to count as accepted, in seconds. After an accepted stream, reconnecting
    starts again with the short first pause."""


class _Mailbox:
    """Reports of one stream that have not been sent: the newest one, and whether it is urgent."""

    def __init__(self) -> None:
        self.report: AgentReport | None = None
        self.is_sent = False
        self.is_urgent = False
        self.before_urgent: AgentReport | None = None
        """Unsent report from just before an urgent one. Both are sent, because the operator computes growth as their
        difference."""
        self.changed = asyncio.Event()

    def put(self, report: AgentReport, *, urgent: bool) -> None:
        if urgent and not self.is_sent:
            self.before_urgent = self.report
        self.report, self.is_sent = report, False
        self.is_urgent = self.is_urgent or urgent
        self.changed.set()

    def take(self) -> list[AgentReport]:
        """Remove and return the reports to send now, oldest first."""
        reports = [report for report in (self.before_urgent, self.report) if report is not None]
        self.before_urgent, self.is_urgent, self.is_sent = None, False, True
        return reports


class ReportStream:
    """Streams of reports to all operator replicas that have the same DNS name."""

    def __init__(
        self,
        collector: CollectorAddress,
        token_path: Path,
        *,
        intervals: SendInterval = SendInterval(),
        on_notice: Callable[[Notice], None] = lambda _: None,
        resolve: Callable[[str, int], Awaitable[list[str]]] | None = None,
        local_address: str | None = None,
    ) -> None:
        """Create the streams without opening them.

        Args:
            collector: DNS name, port and CA certificate of the operator's collector.
            token_path: file with the bearer token. It is read for each connection, because the token rotates.
            intervals: intervals between reports, and pauses before reconnecting.
            on_notice: called with each notice from any replica.
            resolve: returns the addresses of a name and port. Default: DNS.
            local_address: address of this machine from which the streams are opened. Default: the system chooses it.
        """
        self._collector = collector
        self._token_path = token_path
        self._intervals = intervals
        self._on_notice = on_notice
        self._resolve = resolve or _lookup
        self._local_address = local_address
        self._mailboxes: dict[str, _Mailbox] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._last: AgentReport | None = None
        self._is_resolved = True
        self._lost = asyncio.Event()
        self._lost_at = float("-inf")
        """Time at which an open stream ended most recently, from the event loop's clock."""
        self.connected = 0
        """Number of streams that are open now."""

    def publish(self, report: AgentReport, *, urgent: bool = False) -> None:
        """Send this report on all streams as soon as their intervals allow. The call never blocks and never fails."""
        self._last = report
        for mailbox in self._mailboxes.values():
            mailbox.put(report, urgent=urgent)

    async def run(self) -> None:
        """Resolve the DNS name repeatedly, and keep one connection to each address, until cancelled."""
        tls = ssl.create_default_context(cadata=self._collector.ca_pem)
        local_address = None if self._local_address is None else (self._local_address, 0)
        connector = aiohttp.TCPConnector(limit=MAX_REPLICAS, local_addr=local_address)
        async with aiohttp.ClientSession(connector=connector) as session:
            try:
                while True:
                    await self._resolve_replicas(session, tls)
                    await self._wait()
            finally:
                for task in self._tasks.values():
                    task.cancel()
                await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    async def _wait(self) -> None:
        """Wait until the next DNS lookup.

        The wait is short after a stream was lost, and randomised, so that agents do not all query DNS at once.
        """
        self._lost.clear()
        clock = asyncio.get_running_loop().time
        if clock() - self._lost_at < SEARCH_TIMEOUT_S:
            await asyncio.sleep(SEARCH_INTERVAL_S * random.uniform(0.75, 1.25))  # noqa: S311 - spreads load, keeps no secret
            return
        try:
            async with asyncio.timeout(RESOLVE_INTERVAL_S):
                await self._lost.wait()
        except TimeoutError:
            return
        await asyncio.sleep(random.uniform(0.0, SEARCH_INTERVAL_S))  # noqa: S311 - the same

    async def _resolve_replicas(self, session: aiohttp.ClientSession, tls: ssl.SSLContext) -> None:
        try:
            addresses = (await self._resolve(self._collector.host, self._collector.port))[:MAX_REPLICAS]
        except OSError as error:
            if self._is_resolved:
                log("warning", "the collector's name can't be resolved", host=self._collector.host, error=str(error))
            self._is_resolved = False
            return
        self._is_resolved = True
        for address in self._mailboxes.keys() - set(addresses):
            self._tasks.pop(address).cancel()
            del self._mailboxes[address]
        for address in addresses:
            if address not in self._mailboxes:
                mailbox = self._mailboxes[address] = _Mailbox()
                if self._last is not None:
                    mailbox.put(self._last, urgent=False)
                self._tasks[address] = asyncio.create_task(self._keep_connected(session, tls, address, mailbox))

    async def _keep_connected(
        self, session: aiohttp.ClientSession, tls: ssl.SSLContext, address: str, mailbox: _Mailbox
    ) -> None:
        host = f"[{address}]" if ":" in address else address
        url = f"wss://{host}:{self._collector.port}{STREAM_PATH}"
        clock = asyncio.get_running_loop().time
        pause, is_logged = ReconnectPause(self._intervals.pauses), False
        while True:
            opened_at: float | None = None
            failure: Failure = "other"
            retry_after_s = 0.0
            try:
                headers = {"Authorization": f"Bearer {self._token_path.read_text().strip()}"}
                async with asyncio.timeout(CONNECT_TIMEOUT_S):
                    ws = await session.ws_connect(
                        url,
                        headers=headers,
                        ssl=tls,
                        server_hostname=self._collector.server_name,
                        heartbeat=_HEARTBEAT_INTERVAL_S,
                        max_msg_size=65536,
                    )
                async with ws:
                    is_logged, opened_at = False, clock()
                    await self._exchange(ws, mailbox)
            except (aiohttp.ClientError, OSError) as error:
                failure, retry_after_s = _failure(error), _retry_after_s(error)
                if not is_logged:
                    log("warning", "an operator replica does not accept reports", url=url, error=repr(error))
                    is_logged = True
            if opened_at is not None:
                self._lost_at = clock()
                self._lost.set()
                # A stream that closes right after it opened was rejected by the replica. Keep the longer pause then, so that the
                # agent does not reconnect ten times per second.
                if self._lost_at - opened_at >= self._intervals.steady_s:
                    pause.reset()
            await asyncio.sleep(pause.after(failure, retry_after_s))

    async def _exchange(self, ws: aiohttp.ClientWebSocketResponse, mailbox: _Mailbox) -> None:
        self.connected += 1
        sender = asyncio.create_task(self._send(ws, mailbox))
        try:
            # Reading also responds to pings and detects the end of the connection.
            async for message in ws:
                self._receive(message)
        finally:
            self.connected -= 1
            sender.cancel()
            await asyncio.gather(sender, return_exceptions=True)

    def _receive(self, message: aiohttp.WSMessage) -> None:
        if message.type is not aiohttp.WSMsgType.TEXT:
            return
        try:
            notice = Notice.from_json(message.data)
        except NoticeError as error:
            log(
                "warning",
                "a notice of the operator can't be parsed; the EndpointSlices have the same change",
                error=str(error),
            )
        else:
            self._on_notice(notice)

    async def _send(self, ws: aiohttp.ClientWebSocketResponse, mailbox: _Mailbox) -> None:
        clock = asyncio.get_running_loop().time
        sent: AgentReport | None = None
        sent_at = float("-inf")
        try:
            while True:
                report = mailbox.report
                waited = clock() - sent_at
                is_new = report is not None and (sent is None or without_times(report) != without_times(sent))
                due_s = (
                    0.0 if mailbox.is_urgent else (self._intervals.min_s if is_new else self._intervals.max_s) - waited
                )
                if report is not None and due_s <= 0:
                    # An urgent report does not change the schedule of the regular ones.
                    sent_at = sent_at if mailbox.is_urgent else clock()
                    for sent in mailbox.take():
                        await ws.send_str(replace(sent, sent=time.time()).to_json())
                    continue
                mailbox.changed.clear()
                try:
                    async with asyncio.timeout(due_s if report is not None else None):
                        await mailbox.changed.wait()
                except TimeoutError:
                    continue
        finally:
            await ws.close()


def without_times(report: AgentReport) -> AgentReport:
    """Return a copy of the report with all times set to 0 and without batch statistics.

    The copies of two reports are compared to detect changes. Batch statistics can be left out, because each batch also
    changes other counters.
    """
    return replace(report, at=0.0, pods=tuple(replace(pod, at=0.0, batches=None) for pod in report.pods))


def _failure(error: Exception) -> Failure:
    """Return the reason why an attempt to open a stream failed."""
    if isinstance(error, TimeoutError):
        return "timeout"
    if isinstance(error, aiohttp.ClientConnectorError) and isinstance(error.os_error, ConnectionError):
        return "refused"
    return "busy" if _retry_after_s(error) and getattr(error, "status", 0) == 503 else "other"


def _retry_after_s(error: Exception) -> float:
    """Return the seconds to wait before the next attempt, as requested by the operator replica; 0 without a request."""
    if not isinstance(error, aiohttp.WSServerHandshakeError) or error.headers is None:
        return 0.0
    value = error.headers.get("Retry-After", "")
    return min(float(value), MAX_RETRY_AFTER_S) if value.isdecimal() else 0.0


async def _lookup(host: str, port: int) -> list[str]:
    infos = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return sorted({str(info[4][0]) for info in infos})
