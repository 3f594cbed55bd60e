"""Sender of one process's requests: sends each request when it is due, and records it when it ends."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import math
import time
from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence
from typing import Any, TypeVar

import numpy as np

from halcyon_measure.engine.due_times import DueTimes
from halcyon_measure.engine.hooks import Hooks
from halcyon_measure.engine.recorder import Recorder
from halcyon_measure.errors import HookError
from halcyon_measure.protocols.reply import Client, Outcome, Prepared, Reply
from halcyon_measure.schedule.scenario import Scenario

Result = TypeVar("Result")

AFTER_FAILURE_S = 0.05
"""Pause in seconds of a caller after a failure. Without it, a server that rejects requests at once would get thousands
of requests per second."""

_POLL_S = 0.5

Check = Callable[[Reply], str]
"""Function that returns a description of the difference between an answer and the expected one; empty if they are
equal."""


class Sender:
    """Sender of one process's share of the requests.

    In `blocking`, each caller waits for its answer; in other scenarios, a schedule determines the times.

    The event `stop` ends the sending early. All times are of `clock`, which is the same in all processes of a machine.
    """

    def __init__(
        self,
        client: Client,
        requests: Sequence[Prepared],
        recorder: Recorder,
        *,
        stop: asyncio.Event,
        hooks: Hooks | None = None,
        check: Check | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client, self._requests, self._recorder = client, requests, recorder
        self._stop, self._hooks, self._check, self._clock = stop, hooks, check, clock
        self._number = itertools.count().__next__
        self._measured_left = math.inf
        self._in_flight: set[asyncio.Task[None]] = set()
        self._wait_s = 0.0
        """Time in seconds that requests in flight got after the load before they were cancelled, for messages."""
        self.error: HookError | None = None
        """Error of a user function, which ends the load; None if there was none."""

    async def run_open(
        self, due_times: Iterator[float], *, begin: float, max_in_flight: int, give_up_s: float = math.inf
    ) -> None:
        """Send each request at `begin` plus its due time.

        A request that can't be sent within `give_up_s` seconds after its due time counts as not sent. Return once the
        last request is sent, without waiting for answers.
        """
        full_message = f"not sent: {max_in_flight} requests were in flight"
        late_message = f"not sent: the client was more than {give_up_s:g} s late"
        async with DueTimes(self._stop, self._clock) as timer:
            for offset in due_times:
                due = begin + offset
                await timer.wait(due)
                if self._stop.is_set():
                    return
                if self._clock() - due > give_up_s:
                    self._record_not_sent(due, late_message)
                elif len(self._in_flight) >= max_in_flight:
                    self._record_not_sent(due, full_message)
                else:
                    self._start(due)

    async def run_offline(self, due_times: Iterator[float], *, begin: float, in_flight: int, end: float) -> None:
        """Send all requests, with at most `in_flight` in flight. Requests not sent by `end` count as not sent."""
        for offset in due_times:
            while len(self._in_flight) >= in_flight and self._clock() < end and not self._stop.is_set():
                await asyncio.wait(
                    self._in_flight, timeout=max(end - self._clock(), 0), return_when=asyncio.FIRST_COMPLETED
                )
            if self._stop.is_set():
                return
            if self._clock() >= end:
                self._record_not_sent(begin + offset, "not sent: the run ended before")
            else:
                self._start(begin + offset)

    async def run_blocking(
        self, scenario: Scenario, *, callers: int, end: Callable[[], float], give_up_s: float = math.inf
    ) -> None:
        """Run callers until `end()`, and return after the last answer, or `give_up_s` seconds later.

        A caller sends its next request when it has received an answer. Requests that are still in flight then are
        counted as in `drain`.
        """

        async def caller() -> None:
            while not self._stop.is_set() and self._clock() < end() and self._may_begin():
                try:
                    outcome = await self._perform(self._number(), self._clock())
                except HookError:
                    return
                pause = scenario.think_s or (0.0 if outcome is Outcome.ANSWERED else AFTER_FAILURE_S)
                if pause:
                    await self._wait(pause)

        running = {asyncio.create_task(caller()) for _ in range(callers)}
        ended_at = math.inf
        while running:
            done, running = await asyncio.wait(running, timeout=_POLL_S)
            for task in done:
                task.result()
            now = self._clock()
            if self._stop.is_set() or now >= end():
                ended_at = min(ended_at, now)
            if running and now >= ended_at + give_up_s:
                await self._give_up(running, give_up_s)
                return

    def limit(self, measured: int | None) -> None:
        """Set the maximum number of requests that callers may begin in the measured part; None for no maximum."""
        self._measured_left = math.inf if measured is None else measured

    async def drain(self, timeout_s: float) -> None:
        """Wait at most `timeout_s` seconds for the requests in flight, and cancel those that remain.

        A cancelled request counts as not sent if the user function `prepare` was still running, otherwise as timed out.
        """
        if self._in_flight:
            await asyncio.wait(self._in_flight, timeout=timeout_s)
        if self._in_flight:
            await self._give_up(self._in_flight, timeout_s)

    async def _give_up(self, tasks: Collection[asyncio.Task[None]], waited_s: float) -> None:
        """Cancel these tasks. Their requests are then recorded."""
        self._wait_s = waited_s
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)

    def _may_begin(self) -> bool:
        if self._clock() < self._recorder.measured_from:
            return True
        if self._measured_left <= 0:
            return False
        self._measured_left -= 1
        return True

    def _start(self, due: float) -> None:
        task = asyncio.create_task(self._perform_scheduled(self._number(), due))
        self._in_flight.add(task)
        task.add_done_callback(self._in_flight.discard)

    async def _perform_scheduled(self, number: int, due: float) -> None:
        with contextlib.suppress(HookError):
            await self._perform(number, due)

    def _record_not_sent(self, due: float, message: str) -> None:
        self._record_unanswered(due, Outcome.NOT_SENT, message)

    def _record_unanswered(self, due: float, outcome: Outcome, message: str, *, sent: float = math.nan) -> None:
        reply = Reply(outcome, message, math.nan, b"", "")
        now = self._clock()
        self._recorder.add(
            reply,
            due=due,
            prepared=sent,
            sent=sent,
            done=now,
            finished=now,
            encode=0.0,
            decode=0.0,
            rows=0,
            sent_bytes=0,
        )

    async def _perform(self, number: int, due: float) -> Outcome:
        request = self._requests[number % len(self._requests)] if self._requests else None
        prepared = due
        if self._hooks is not None and self._hooks.prepares:
            try:
                request = await self._run_hook(self._hooks.prepare(number))
            except asyncio.CancelledError:
                self._record_not_sent(due, f"not sent: prepare had not ended {self._wait_s:g} s after the load")
                raise
            prepared = self._clock()
        assert request is not None, "a load without requests needs a function that prepares them"  # noqa: S101
        sent = self._clock()
        try:
            return await self._send(request, number, due=due, prepared=prepared, sent=sent)
        except asyncio.CancelledError:
            message = f"its answer or finish had not ended {self._wait_s:g} s after the load"
            self._record_unanswered(due, Outcome.TIMED_OUT, message, sent=sent)
            raise

    async def _send(self, request: Prepared, number: int, *, due: float, prepared: float, sent: float) -> Outcome:
        """Send a prepared request, and record it once it is finished."""
        reply = await self._client.send(request, number)
        done = finished = self._clock()
        decode = 0.0
        if reply.outcome is Outcome.ANSWERED:
            if self._check is not None and (wrong := self._check(reply)):
                reply = reply._replace(outcome=Outcome.WRONG, message=wrong)
            if self._hooks is not None and self._hooks.finishes:
                decode = await self._run_hook(self._hooks.finish(reply, number))
                finished = self._clock()
        self._recorder.add(
            reply,
            due=due,
            prepared=prepared,
            sent=sent,
            done=done,
            finished=finished,
            encode=request.encode_s,
            decode=decode,
            rows=request.rows,
            sent_bytes=len(request.body),
        )
        return reply.outcome

    async def _run_hook(self, call: Awaitable[Result]) -> Result:
        try:
            return await call
        except HookError as error:
            self.error = self.error or error
            self._stop.set()
            raise

    async def _wait(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._stop.wait()
        except TimeoutError:
            return


def expected(values: dict[str, Any], outputs: Callable[[Reply], dict[str, Any]]) -> Check:
    """Return a check that compares the outputs of an answer with `values`. Floats may differ by one part in 10,000."""
    # The texts of an answer are bytes.
    values = {
        name: np.char.encode(array, "utf-8") if array.dtype.kind == "U" else array for name, array in values.items()
    }

    def check(reply: Reply) -> str:
        try:
            actual = outputs(reply)
        except Exception as error:  # noqa: BLE001  # whatever the server sent, it isn't the expected answer
            return f"wrong answer: not one of the protocol: {type(error).__name__}: {error}"[:160]
        for name, value in values.items():
            if name not in actual:
                return f"wrong answer: no output {name}"
            array = np.asarray(actual[name])
            if array.shape != value.shape:
                return f"wrong answer: {name} has the shape {list(array.shape)}, expected {list(value.shape)}"
            exact = array.dtype.kind not in "fc" or value.dtype.kind not in "biufc"
            if not (np.array_equal(array, value) if exact else np.allclose(array, value, rtol=1e-4, equal_nan=True)):
                return f"wrong answer: {name} differs from the expected values"
        return ""

    return check
