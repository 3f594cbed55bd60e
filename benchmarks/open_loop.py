"""An open-loop load with a changing rate on one model, in its own process, with the latency of every request.

`e2e.load` supports only one mean rate and reports percentiles. The benchmark of a step needs one run over all rates,
and the share of late requests.
"""

import argparse
import asyncio
import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

from benchmarks.begun import load_process
from benchmarks.errors import BenchError
from benchmarks.profile import Phase, Profile
from e2e.load.clients import Caller, Connections, kind_of
from e2e.load.settings import Load

MAX_IN_FLIGHT = 4000
NOT_SENT = "not sent: too many are under way"
_CHANNELS = 8
_GRACE_S = 20.0


@dataclass(frozen=True)
class Sent:
    """The results of a load. Times are of the machine's monotonic clock, which all its processes share."""

    began_s: float
    at_s: tuple[float, ...]
    """Time at which each request was sent, in seconds since `began_s`."""
    latency_s: tuple[float | None, ...]
    """Latency of each request in seconds; None if it failed."""
    failures: dict[str, int]
    late_sending_s: float
    """Largest delay of a request behind its due time in seconds, which is the generator's fault."""
    failed_s: tuple[float, ...] = ()
    """Time from the due time of each failed request to its failure in seconds, in the order of the failures."""


class Running:
    """A load in progress."""

    def __init__(self, process: subprocess.Popen[str], began_s: float, limit_s: float) -> None:
        self.began_s = began_s
        self._process, self._limit_s = process, limit_s

    def result(self) -> Sent:
        """Wait for the end of the load, and return the results.

        Raises:
            BenchError: the load failed, or did not end in time.
        """
        try:
            out, _ = self._process.communicate(timeout=self._limit_s)
        except subprocess.TimeoutExpired:
            raise BenchError(f"the load did not end within {self._limit_s:.0f} s") from None
        lines = out.strip().splitlines()
        if self._process.returncode or not lines:
            raise BenchError(f"the load ended with status {self._process.returncode} and without a result")
        return Sent(**json.loads(lines[-1]))


@contextmanager
def running(
    address: str,
    model: str,
    profile: Profile,
    *,
    deadline_s: float,
    seed: int,
    protocol: str = "grpc",
    channels: int = _CHANNELS,
    variation: float = 1.0,
    begin_s: float = 0.0,
    repeats: int = 0,
    connections: str = "library",
) -> Iterator[Running]:
    """Start a load, which has begun when the context is entered, and is ended when it is left.

    `channels` is the number of gRPC connections, and `variation` that of the arrivals (`Profile.arrivals`).
    The load does not begin before `begin_s`, on the monotonic clock, so that several loads can begin together.
    For `repeats` and `connections`, see `e2e.load.settings.Load`.

    Raises:
        BenchError: the load doesn't begin.
    """
    settings = {
        "address": address,
        "model": model,
        "phases": [asdict(phase) for phase in profile.phases],
        "until_s": profile.until_s,
        "deadline_s": deadline_s,
        "seed": seed,
        "protocol": protocol,
        "channels": channels,
        "variation": variation,
        "begin_s": begin_s,
        "repeats": repeats,
        "connections": connections,
    }
    with load_process("benchmarks.open_loop", json.dumps(settings), subject=f"{model} at {address}") as (
        process,
        began_s,
    ):
        try:
            yield Running(process, began_s, profile.until_s + deadline_s + _GRACE_S)
        finally:
            if process.stdout is not None:
                process.stdout.close()


async def _send(settings: dict[str, Any]) -> Sent:
    profile = Profile(tuple(Phase(**phase) for phase in settings["phases"]), settings["until_s"])
    load = Load(
        address=settings["address"],
        model=settings["model"],
        timeout_s=settings["deadline_s"],
        protocol=settings["protocol"],
        channels=settings["channels"],
        clients=MAX_IN_FLIGHT,
        repeats=settings["repeats"],
        connections=settings["connections"],
        input="x",
        shape=(1, 1),
        batch_output=None,
        who_output=None,
    )
    async with Connections(load) as connections:
        work = _Work(connections.caller())
        await asyncio.sleep(settings["begin_s"] - time.monotonic())
        began_s = time.monotonic()
        print(began_s, flush=True)  # the parent process waits for this line
        await work.send(profile.arrivals(settings["seed"], variation=settings["variation"]), began_s)
    return Sent(began_s, tuple(work.at_s), tuple(work.latency_s), work.failures, work.late_s, tuple(work.failed_s))


class _Work:
    def __init__(self, call: Caller) -> None:
        self.at_s: list[float] = []
        self.latency_s: list[float | None] = []
        self.failures: dict[str, int] = {}
        self.failed_s: list[float] = []
        self.late_s = 0.0
        self._call = call
        self._in_flight = 0

    async def send(self, times: Iterator[float], began_s: float) -> None:
        async with asyncio.TaskGroup() as group:
            for number, due_s in enumerate(times):
                await asyncio.sleep(max(began_s + due_s - time.monotonic(), 0.0))
                self.late_s = max(self.late_s, time.monotonic() - began_s - due_s)
                self.at_s.append(round(due_s, 4))
                self.latency_s.append(None)
                if self._in_flight >= MAX_IN_FLIGHT:
                    self._count_failure(NOT_SENT)
                else:
                    self._in_flight += 1
                    group.create_task(self._send_request(number, began_s + due_s))

    async def _send_request(self, number: int, due_s: float) -> None:
        try:
            await self._call(number)
            # Measure from the due time, so that a slow generator doesn't make latencies look shorter.
            self.latency_s[number] = round(time.monotonic() - due_s, 4)
        except Exception as error:  # noqa: BLE001  # every kind of failure is what is counted here
            self.failed_s.append(round(time.monotonic() - due_s, 4))
            self._count_failure(kind_of(error))
        finally:
            self._in_flight -= 1

    def _count_failure(self, kind: str) -> None:
        self.failures[kind] = self.failures.get(kind, 0) + 1


def main(arguments: Sequence[str] | None = None) -> int:
    """Send the load given as JSON, and print the results."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.open_loop", description=__doc__)
    parser.add_argument("load", help="as `running` writes it")
    settings = json.loads(parser.parse_args(arguments).load)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    print(json.dumps(asdict(asyncio.run(_send(settings)))), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
