"""Execution of a load in this process's event loop."""

import asyncio
import random
import time
from collections.abc import Callable

from e2e.load.clients import Caller, Connections, kind_of, numbers
from e2e.load.settings import Load, Report
from e2e.load.tally import Tally

NOT_SENT = "not sent: too many are under way"


async def run(load: Load, *, stop: asyncio.Event, sample: Callable[[Report], None] | None = None) -> Report:
    """Send requests until the load's duration or number is reached or `stop` is set, wait for responses, and report.

    `sample`, if given, is called with an empty report when the first request is about to be sent. Then it is called
    once a second with the results of that second.
    """
    async with Connections(load) as connections:
        call = connections.caller()
        if sample is not None:
            sample(Tally(time.monotonic()).report(time.monotonic(), final=False))
        work = _Work(load, call, stop)
        watch = asyncio.create_task(work.sample(sample)) if sample is not None else None
        try:
            await (work.closed() if load.rate_rps is None else work.open(load.rate_rps))
        finally:
            if watch is not None:
                watch.cancel()
        return work.all.report(time.monotonic(), final=True)


class _Work:
    """The requests of one load."""

    def __init__(self, load: Load, call: Caller, stop: asyncio.Event) -> None:
        self.all = self._second = Tally(time.monotonic())
        self._load, self._call, self._stop = load, call, stop
        self._number = numbers()
        self._end_s = time.monotonic() + load.duration_s

    def _is_running(self) -> bool:
        return not self._stop.is_set() and time.monotonic() < self._end_s

    async def _send(self, n: int) -> None:
        sent_s = time.monotonic()
        try:
            answer = await self._call(n)
        except Exception as error:  # noqa: BLE001  # every kind of failure is what is counted here
            self._failed(kind_of(error))
            return
        now = time.monotonic()
        self.all.answered(answer, sent_s=sent_s, now=now)
        if self._second is not self.all:
            self._second.answered(answer, sent_s=sent_s, now=now)

    def _failed(self, kind: str) -> None:
        now = time.monotonic()
        self.all.failed(kind, now=now)
        if self._second is not self.all:
            self._second.failed(kind, now=now)

    async def closed(self) -> None:
        async def client() -> None:
            while self._is_running():
                n = self._number()
                if n >= self._load.most_requests:
                    return
                failed = self.all.failures()
                await self._send(n)
                if self.all.failures() > failed:
                    # Otherwise a server that rejects requests immediately would receive thousands per second.
                    await self._wait(0.05)
                if self._load.pause_s:
                    await self._wait(self._load.pause_s)

        async with asyncio.TaskGroup() as group:
            for _ in range(self._load.clients):
                group.create_task(client())

    async def open(self, rate_rps: float) -> None:
        generator = random.Random(self._load.seed)
        slots = asyncio.Semaphore(self._load.clients)
        due_s = time.monotonic()

        async def send_and_release(n: int) -> None:
            try:
                await self._send(n)
            finally:
                slots.release()

        async with asyncio.TaskGroup() as group:
            while (n := self._number()) < self._load.most_requests:
                due_s += generator.expovariate(rate_rps)
                if due_s >= self._end_s:
                    return
                await self._wait(due_s - time.monotonic())
                if self._stop.is_set():
                    return
                if slots.locked():
                    self._failed(NOT_SENT)
                    continue
                await slots.acquire()
                group.create_task(send_and_release(n))

    async def _wait(self, seconds: float) -> None:
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        try:
            async with asyncio.timeout(seconds):
                await self._stop.wait()
        except TimeoutError:
            return

    async def sample(self, on_report: Callable[[Report], None]) -> None:
        while True:
            self._second = Tally(time.monotonic())
            await asyncio.sleep(1.0)
            on_report(self._second.report(time.monotonic(), final=False))
