"""Sender of the requests of a batch. It sends each row until the row has a result or has failed.

After a rejection, or without a valid API key, the sender waits. After a broken connection, it retries the request.
After an error, it splits the request into smaller ones, so that an invalid row doesn't affect the results of others.

A row can crash the server's process, and with it all requests in progress. Therefore requests that are lost several
times are suspected, and sent one at a time. If the server answers an earlier row again after such a loss, the rows of
the suspected request are considered the cause.
"""

from __future__ import annotations

import asyncio
import random
import re
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from halcyon.api.documents.balancer_plan import ROWS_HEADER
from halcyon_batch.errors import RowError
from halcyon_batch.request_rows import RequestRows
from halcyon_batch.request_window import RequestWindow
from halcyon_batch.row_tensors import RowTensors, payload, split
from halcyon_measure.errors import MeasureError
from halcyon_measure.protocols.connect import outputs
from halcyon_measure.protocols.http_client import MAX_RETRY_AFTER_S
from halcyon_measure.protocols.reply import Client, Outcome, Reply
from halcyon_measure.protocols.target import Target

_FIRST_WAIT_S, _MAX_WAIT_S = 0.25, 30.0
_MAX_DOUBLINGS = 10
"""Maximum number of times that the wait doubles. Above 1023, the power of two would overflow."""
_MIN_LOSSES = 2
"""Number of times that a request must be lost (by a broken connection) before its rows are suspected as the cause."""
_MAX_BLAMED = 3
"""Number of times that a row may break the connection to the server before the row counts as failed. A request with
several rows is split after it has broken the connection once."""
_MAX_CHECKS, _CHECK_WAIT_S = 3, 1.0
"""Number of failed checks after which the server counts as down, and the time before each check in seconds. A check
sends a row that was answered before."""
_MAX_SUSPECTED = 4
"""Maximum number of requests suspected of crashing the server that don't count as in progress, so that other requests
can be sent meanwhile."""
_MAX_ERRORS, _ERROR_WAIT_S = 2, 0.1
"""Number of errors from the model after which a row has failed, and the time between two attempts in seconds."""
_TOO_MANY_ROWS = re.compile(r"batch-size must be <= (\d+)")
_BROKEN = re.compile(r"^502: ")
"""Pattern of the balancer's error for a server that closed the connection without an answer."""
_NOT_READY = re.compile(r"unknown model|is not ready|unloading|^404: not found: this address serves", re.IGNORECASE)
"""Pattern of errors that are not caused by the rows. They come from a server that is stopping or is still loading the
model, and from balancers that route another name of the model during a rollout."""
_DEAD_STUB = re.compile(r"Stub process\b[^\n]{0,200} is not healthy")
"""Pattern of Triton's error for all requests to a model whose Python process has ended, until its container restarts.
The rows of such a request need not be the cause."""
_DENIED = re.compile(r"^401: ")
"""Pattern of the error for a request without a valid API key. If keys are rotated during a batch, it waits for the new
key."""
_LOST = frozenset({Outcome.TIMED_OUT, Outcome.DISCONNECTED})


@dataclass
class _Tries:
    """Numbers of failures of one request so far, by type of failure."""

    failures: int = 0
    lost: int = 0
    blamed: int = 0
    errors: int = 0

    @property
    def is_suspected(self) -> bool:
        """Whether the request was lost so often that its rows may be the cause."""
        return self.lost >= _MIN_LOSSES


@dataclass
class Sender:
    """Sender of requests to one model, with a limit on the requests in progress."""

    client: Client
    target: Target
    window: RequestWindow
    sizes: RequestRows
    key_header: Callable[[], tuple[tuple[str, str], ...]] = tuple
    """Function that returns the header with the API key; the header is empty if the model needs no key."""
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep

    def __post_init__(self) -> None:
        """Initialise the state without requests in progress."""
        self._in_progress = 0
        self._in_progress_changed = asyncio.Condition()
        self._suspected = 0
        self._sent_suspected, self._together = 0, 1
        """Number of requests in progress that are suspected of crashing the server, and the limit on it, which is 1
        after a crash."""
        self._answered: Sequence[RowTensors] = ()
        """Row that was answered; empty until there is one."""
        self._not_before_s = 0.0
        self._number = 0
        self._key: tuple[tuple[str, str], ...] | None = None
        self.waiting = ""
        """Reason why no requests are answered now; empty while requests are answered."""

    async def enter(self) -> None:
        """Wait until the limit allows another request in progress.

        The caller must then call `outcomes`, and `leave` at the end.
        """
        async with self._in_progress_changed:
            await self._in_progress_changed.wait_for(self._is_below_limit)
            self._in_progress += 1

    def _is_below_limit(self) -> bool:
        limit = self.window.limit if self.sizes.is_chosen else 1
        return self._in_progress - min(self._suspected, _MAX_SUSPECTED) < limit

    async def leave(self) -> None:
        """Count a request as no longer in progress, so that another request may begin."""
        async with self._in_progress_changed:
            self._in_progress -= 1
            self._in_progress_changed.notify_all()

    async def outcomes(self, rows: Sequence[RowTensors]) -> list[Mapping[str, Any] | str]:
        """Return, for each row, its outputs, or the reason why it has none, as text."""
        return await self._outcomes(rows, _Tries())

    async def _outcomes(self, rows: Sequence[RowTensors], tries: _Tries) -> list[Mapping[str, Any] | str]:
        while True:
            await self._pause()
            reply, latency_s = await (self._send_suspected(rows, tries) if tries.is_suspected else self._send(rows))
            if reply.outcome is Outcome.ANSWERED:
                outcomes = self._read(reply, len(rows))
                if outcomes is not None:
                    self._record_answer(rows, latency_s)
                    return outcomes
            elif await self._is_repeated(reply, rows, tries):
                continue
            if len(rows) > 1:
                return await self._halves(rows, tries)
            cause = "the server ends at this row, or doesn't answer it: " if reply.outcome in _LOST else ""
            return [cause + reply.message]

    async def _send_suspected(self, rows: Sequence[RowTensors], tries: _Tries) -> tuple[Reply, float]:
        """Send a request suspected of crashing the server, and count a loss if its rows are the cause.

        Suspected requests are sent one at a time. After each answer, one more may be in progress, because the losses
        were probably caused by an outage. After another loss, a request is sent alone.
        """
        is_lost_again = tries.lost > _MIN_LOSSES
        async with self._in_progress_changed:
            self._suspected += 1
            self._in_progress_changed.notify_all()
            await self._in_progress_changed.wait_for(
                lambda: self._sent_suspected < (1 if is_lost_again else self._together)
            )
            self._sent_suspected += 1
            if is_lost_again:
                self._together = 1
        try:
            is_alone = self._together == 1
            reply, latency_s = await self._send(rows)
            if reply.outcome is Outcome.ANSWERED:
                self._together += 1
            elif reply.outcome in _LOST:
                self._together = 1
                may_be_cause = is_alone and not _NOT_READY.search(reply.message)
                tries.blamed += may_be_cause and await self._is_served()
            return reply, latency_s
        finally:
            async with self._in_progress_changed:
                self._suspected -= 1
                self._sent_suspected -= 1
                self._in_progress_changed.notify_all()

    async def _is_served(self) -> bool:
        """Return whether the server answers a row that it has answered before.

        The request is retried if it is rejected, or if the model's Python process has ended and its container restarts.
        """
        lost = 0
        while self._answered and lost < _MAX_CHECKS:
            await self.sleep(_CHECK_WAIT_S)
            await self._pause()
            reply, _ = await self._send(self._answered)
            if reply.outcome is Outcome.REJECTED or _DEAD_STUB.search(reply.message):
                await self._wait(reply, 1)
            elif reply.outcome in _LOST:
                lost += 1
            else:
                return True
        return False

    def _read(self, reply: Reply, rows: int) -> list[Mapping[str, Any] | str] | None:
        """Return the outputs of each row in an answer; None if each row must be sent in a separate request."""
        try:
            return [*split(outputs(self.target, reply), rows)]
        except RowError:
            self.sizes.limit(1)
            return None
        except (ValueError, KeyError, TypeError) as error:
            return [f"the answer can't be read: {error!r}"] * rows

    async def _is_repeated(self, reply: Reply, rows: Sequence[RowTensors], tries: _Tries) -> bool:
        """Wait as long as the failure of a request requires, and return whether the same request must be sent again."""
        if reply.outcome is Outcome.REJECTED or reply.outcome in _LOST:
            tries.failures = min(tries.failures + 1, 10)
            if reply.outcome is Outcome.REJECTED:
                self.window.rejected()
            elif not _NOT_READY.search(reply.message):
                tries.lost += 1
            await self._wait(reply, tries.failures)
            if len(rows) == 1:
                return tries.blamed < _MAX_BLAMED
            # Until a row is answered, no loss has a known cause. A part of the rows may be answered.
            return not tries.blamed and (bool(self._answered) or tries.lost <= _MIN_LOSSES)
        if match := _TOO_MANY_ROWS.search(reply.message):
            self.sizes.limit(int(match[1]))
        if len(rows) > 1:
            return False
        tries.errors += 1
        if tries.errors >= _MAX_ERRORS:
            return False
        await self.sleep(_ERROR_WAIT_S)
        return True

    async def _halves(self, rows: Sequence[RowTensors], tries: _Tries) -> list[Mapping[str, Any] | str]:
        middle = len(rows) // 2
        halves = rows[:middle], rows[middle:]
        if not tries.is_suspected:
            return [outputs for half in halves for outputs in await self._outcomes(half, _Tries(lost=tries.lost))]
        # One half may be sent without an end until the other one is answered.
        first, second = await asyncio.gather(*(self._outcomes(half, _Tries(lost=tries.lost)) for half in halves))
        return [*first, *second]

    async def _send(self, rows: Sequence[RowTensors]) -> tuple[Reply, float]:
        self._number += 1
        if self._key is None:
            self._key = self.key_header()
        try:
            encoded = self.client.encode(payload(rows))
            request = replace(encoded, headers=((ROWS_HEADER, str(len(rows))), *self._key))
        except (MeasureError, ValueError, TypeError) as error:
            return Reply(Outcome.ERROR, f"it can't be sent: {error}", 0.0, b"", ""), 0.0
        began = self.clock()
        reply = await self.client.send(request, self._number)
        if reply.outcome is Outcome.ERROR and any(
            pattern.search(reply.message) for pattern in (_BROKEN, _NOT_READY, _DEAD_STUB)
        ):
            reply = reply._replace(outcome=Outcome.DISCONNECTED)
        if reply.outcome is Outcome.ERROR and _DENIED.search(reply.message):
            reply = reply._replace(outcome=Outcome.REJECTED)
            self._key = None
        return reply, self.clock() - began

    def _record_answer(self, rows: Sequence[RowTensors], latency_s: float) -> None:
        self._answered, self.waiting = rows[:1], ""
        self.window.answered(latency_s, len(rows))
        self.sizes.answered(len(rows), latency_s)

    async def _wait(self, reply: Reply, failures: int) -> None:
        """Wait after a temporary failure of a request.

        A rejection delays all requests of the batch, because the balancer lets the batch's whole priority class wait.
        """
        wait_s = retry_wait_s(reply.retry_after_s, failures)
        self.waiting = reply.message
        if reply.outcome is Outcome.REJECTED:
            self._not_before_s = max(self._not_before_s, self.clock() + wait_s)
        else:
            await self.sleep(wait_s)

    async def _pause(self) -> None:
        while (left_s := self._not_before_s - self.clock()) > 0:
            await self.sleep(left_s)


def retry_wait_s(requested_s: float, failures: int) -> float:
    """Return the seconds to wait after `failures` successive failures, with jitter.

    The wait is at least `requested_s`, the time that the server requests, and at most `MAX_RETRY_AFTER_S`.
    """
    least_s = max(requested_s, min(_FIRST_WAIT_S * 2.0 ** min(failures - 1, _MAX_DOUBLINGS), _MAX_WAIT_S))
    return min(least_s * random.uniform(1.0, 1.25), MAX_RETRY_AFTER_S)  # noqa: S311  # jitter
