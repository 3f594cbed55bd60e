"""A steady load over HTTP keep-alive and gRPC, in its own process. It records every failure and who responded when.

Requests are due at constant intervals. Each protocol has a fixed number of callers, and a late request is sent
immediately. So a slow data plane receives fewer requests but doesn't reject any, and every failure is a lost request.
gRPC channels and HTTP connections stay open for the whole load.
"""

import argparse
import asyncio
import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import asdict, dataclass, field
from typing import IO, Any, Literal, Self

import aiohttp
import grpc.aio  # type: ignore[import-untyped]  # grpcio has no types

from benchmarks.begun import load_process
from benchmarks.dataplane.tritons import METHOD
from benchmarks.errors import BenchError
from e2e.load.clients import Connections, kind_of
from e2e.load.settings import Load

_GRACE_S = 10.0
Protocol = Literal["http", "grpc"]
Call = Callable[[int], Awaitable[str | None]]
"""Function that sends the request with this number, and returns the name of the responding pod if it is known."""


@dataclass(frozen=True, kw_only=True)
class Steady:
    """The load to send. `addresses` has host:port by protocol; each protocol gets half of `rate_rps`."""

    addresses: Mapping[Protocol, str]
    model: str
    rate_rps: float
    most_s: float
    """Maximum duration of the load in seconds."""
    most_requests: int = 10_000_000
    callers: int = 16
    """Number of callers per protocol, the maximum number of requests in flight."""
    timeout_s: float = 30.0
    channels: int = 4
    stand_ins: bool = False
    """True if the servers are the tests' stand-ins, which respond to any bytes with their address. Otherwise they are
    Triton servers with the input `input`."""
    input: str = "pixels"
    columns: int = 64
    names_pod: bool = True
    together: bool = False
    """True to send all requests at once, for tests of the limit on waiting requests."""


@dataclass(frozen=True)
class Failure:
    """A request that failed. `at_s` is from the machine's monotonic clock, which all its processes share."""

    at_s: float
    sent_s: float
    protocol: Protocol
    kind: str


@dataclass
class Sent:
    """The results of a load. Times are of the monotonic clock."""

    began_s: float
    ended_s: float = 0.0
    answered: dict[str, int] = field(default_factory=lambda: {"http": 0, "grpc": 0})
    failures: list[Failure] = field(default_factory=list)
    first_answer_s: dict[str, float] = field(default_factory=dict)
    """Time of the first response, by responding pod."""
    first_sent_s: dict[str, float] = field(default_factory=dict)
    """Time at which the first request that the pod answered was sent, by pod."""
    last_sent_s: dict[str, float] = field(default_factory=dict)
    """Time at which the last request that the pod answered was sent, by pod."""
    by_second: dict[int, int] = field(default_factory=dict)
    """Number of requests that ended in each second since `began_s`."""
    longest_s: float = 0.0

    @property
    def requests(self) -> int:
        """Return the number of requests, including failed ones."""
        return sum(self.answered.values()) + len(self.failures)

    def to_json(self) -> str:
        """Return the results as one line of JSON."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Parse the output of `to_json`."""
        content = json.loads(text)
        content["failures"] = [Failure(**failure) for failure in content["failures"]]
        content["by_second"] = {int(second): count for second, count in content["by_second"].items()}
        return cls(**content)


class Running:
    """A load in progress."""

    def __init__(self, process: subprocess.Popen[str], began_s: float, limit_s: float) -> None:
        self.began_s = began_s
        self.requests = 0
        """Number of requests that have ended, reported once a second."""
        self._process, self._limit_s = process, limit_s
        self._last = ""
        self._changed = threading.Condition()
        assert process.stdout is not None
        self._reader = threading.Thread(target=self._read, args=(process.stdout,), daemon=True)
        self._reader.start()

    def until(self, count: int, until_s: float) -> None:
        """Wait until `count` requests have ended, until the time `until_s`, or until the end of the load."""
        with self._changed:
            self._changed.wait_for(
                lambda: self.requests >= count or bool(self._last), timeout=max(until_s - time.monotonic(), 0.0)
            )

    def stop(self) -> Sent:
        """Stop sending, and return the results.

        Raises:
            BenchError: the load's process failed.
        """
        self._process.send_signal(signal.SIGTERM)
        return self.result()

    def result(self) -> Sent:
        """Wait for the end of the load, and return the results.

        Raises:
            BenchError: the load's process failed, or did not end in time.
        """
        try:
            status = self._process.wait(self._limit_s)
        except subprocess.TimeoutExpired:
            raise BenchError(f"the load did not end within {self._limit_s:.0f} s") from None
        self._reader.join(_GRACE_S)
        if status or not self._last.startswith("{"):
            raise BenchError(f"the load ended with status {status} and without a result; its error is above")
        return Sent.from_json(self._last)

    def _read(self, lines: IO[str]) -> None:
        for line in lines:
            with self._changed:
                if line.strip().isdigit():
                    self.requests = int(line)
                else:
                    self._last = line
                self._changed.notify_all()


@contextmanager
def running(load: Steady) -> Iterator[Running]:
    """Start a load, whose first request is sent right after the context is entered.

    It is ended when the context is left.

    Raises:
        BenchError: the load doesn't begin.
    """
    with load_process("benchmarks.dataplane.sender", json.dumps(asdict(load)), subject=load.model) as (
        process,
        began_s,
    ):
        yield Running(process, began_s, load.most_s + load.timeout_s + _GRACE_S)


@asynccontextmanager
async def _calls(load: Steady) -> AsyncIterator[dict[Protocol, Call]]:
    """Return the function that sends a request, by protocol."""
    if load.stand_ins:
        async with _stand_in_calls(load) as calls:
            yield calls
        return
    loads: dict[Protocol, Load] = {
        protocol: Load(
            address=address,
            model=load.model,
            protocol=protocol,
            clients=load.callers,
            timeout_s=load.timeout_s,
            channels=load.channels,
            input=load.input,
            shape=(1, load.columns),
            batch_output=None,
            who_output="WHO" if load.names_pod else None,
        )
        for protocol, address in load.addresses.items()
    }

    def call_over(connections: Connections) -> Call:
        caller = connections.caller()

        async def call(n: int) -> str | None:
            return (await caller(n)).who

        return call

    opened = {protocol: Connections(settings) for protocol, settings in loads.items()}
    try:
        yield {protocol: call_over(connections) for protocol, connections in opened.items()}
    finally:
        for connections in opened.values():
            await connections.__aexit__(None, None, None)


@asynccontextmanager
async def _stand_in_calls(load: Steady) -> AsyncIterator[dict[Protocol, Call]]:
    options = [("grpc.use_local_subchannel_pool", 1)]
    channels = [grpc.aio.insecure_channel(load.addresses["grpc"], options=options) for _ in range(load.channels)]
    methods = [channel.unary_unary(METHOD) for channel in channels]
    url = f"http://{load.addresses['http']}/v2/models/{load.model}/infer"
    timeout = aiohttp.ClientTimeout(total=load.timeout_s)
    async with aiohttp.ClientSession(timeout=timeout, connector=aiohttp.TCPConnector(limit=0)) as session:

        async def by_http(_n: int) -> str:
            async with session.post(url, data=b"{}") as response:
                response.raise_for_status()
                return str((await response.json())["who"])

        async def by_grpc(n: int) -> str:
            return bytes(await methods[n % len(methods)](b"x", timeout=load.timeout_s)).decode()

        try:
            yield {"http": by_http, "grpc": by_grpc}
        finally:
            for channel in channels:
                await channel.close()


async def _send(load: Steady, stop: asyncio.Event) -> Sent:
    async with _calls(load) as calls:
        sent = Sent(time.monotonic())
        print(sent.began_s, flush=True)  # the parent process waits for this line
        work = [_Work(load, sent, protocol, call, stop) for protocol, call in calls.items()]
        reporting = asyncio.create_task(_print_progress(sent))
        await asyncio.gather(*(protocol_work.run() for protocol_work in work))
        reporting.cancel()
        sent.ended_s = time.monotonic()
        return sent


async def _print_progress(sent: Sent) -> None:
    while True:
        await asyncio.sleep(1.0)
        print(sent.requests, flush=True)


class _Work:
    """The load of one protocol."""

    def __init__(self, load: Steady, sent: Sent, protocol: Protocol, call: Call, stop: asyncio.Event) -> None:
        self._load, self._sent, self._protocol, self._call, self._stop = load, sent, protocol, call, stop
        self._count = 0
        self._interval_s = 0.0 if load.together else len(load.addresses) / load.rate_rps
        self._max_requests = load.most_requests // len(load.addresses)

    async def run(self) -> None:
        await asyncio.gather(*(self._caller() for _ in range(self._load.callers)))

    async def _caller(self) -> None:
        while not self._stop.is_set() and self._count < self._max_requests:
            number, self._count = self._count, self._count + 1
            due_s = self._sent.began_s + number * self._interval_s
            if due_s > self._sent.began_s + self._load.most_s:
                return
            await asyncio.sleep(max(due_s - time.monotonic(), 0.0))
            if not self._stop.is_set():
                await self._send_request(number)

    async def _send_request(self, number: int) -> None:
        sent, at_s = self._sent, time.monotonic()
        try:
            who = await self._call(number)
        except Exception as error:  # noqa: BLE001  # every kind of failure is what is counted here
            sent.failures.append(Failure(time.monotonic(), at_s, self._protocol, kind_of(error)))
            # Without this pause, immediate rejections would cause some thousand requests per second.
            await asyncio.sleep(0.05)
        else:
            now = time.monotonic()
            sent.answered[self._protocol] += 1
            sent.longest_s = max(sent.longest_s, now - at_s)
            if who is not None:
                sent.first_answer_s.setdefault(who, now)
                sent.first_sent_s[who] = min(sent.first_sent_s.get(who, at_s), at_s)
                sent.last_sent_s[who] = max(sent.last_sent_s.get(who, 0.0), at_s)
        second = int(time.monotonic() - sent.began_s)
        sent.by_second[second] = sent.by_second.get(second, 0) + 1


async def _run(load: Steady) -> Sent:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    return await _send(load, stop)


def main() -> int:
    """Send the load given as JSON in the only argument.

    The output is its start time, the progress once a second, and the results.
    """
    parser = argparse.ArgumentParser(prog="python -m benchmarks.dataplane.sender", description=__doc__)
    parser.add_argument("load", help="a Steady as JSON")
    load: dict[str, Any] = json.loads(parser.parse_args().load)
    try:
        print(asyncio.run(_run(Steady(**load))).to_json(), flush=True)
    except BrokenPipeError:  # the parent process is dead
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
