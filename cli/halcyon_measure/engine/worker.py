"""Entry point of a worker process: `python -m halcyon_measure.engine.worker`.

The worker reads a job from the first line of its standard input, then commands of the pool. For each event it writes a
line of JSON: `ready`, one `second` each second, and `done` with its use of the machine, or `error`. If the pool ends,
the worker ends too.

| command | effect |
| --- | --- |
| {"begin": T} | send from T on, as warm-up |
| {"measure": T, "end": T} | count requests that are due from the first time on; callers begin none after the second |
| {"stop": true} | send no further requests |
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import math
import resource
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import IO, Any

from halcyon_measure.engine.event_loop import new_event_loop
from halcyon_measure.engine.hooks import Hooks
from halcyon_measure.engine.job import Job
from halcyon_measure.engine.recorder import Recorder
from halcyon_measure.engine.sender import Check, Sender, expected
from halcyon_measure.errors import MeasureError
from halcyon_measure.inputs import array_file
from halcyon_measure.protocols import connect
from halcyon_measure.protocols.reply import Reply
from halcyon_measure.protocols.shared_memory import SharedRegion
from halcyon_measure.schedule.arrivals import share
from halcyon_measure.schedule.scenario import MAX_CALLERS

_GRACE_S = 1.0
_MAX_FILES = 2 * MAX_CALLERS


class Usage:
    """CPU time, waiting time and garbage collection of this process since `reset`."""

    def __init__(self) -> None:
        self._gc_began = self._gc_s = self._gc_longest_s = 0.0
        gc.callbacks.append(self._collecting)
        self.reset()

    def reset(self) -> None:
        """Set all values to 0 and start to count."""
        self._began, self._cpu_s, self._waited_s = time.monotonic(), _cpu_s(), _waited_s()
        self._gc_s = self._gc_longest_s = 0.0

    def to_dict(self) -> dict[str, float]:
        """Return wall time, CPU time, time waiting for a core, and garbage collection time, in seconds."""
        return {
            "wall_s": time.monotonic() - self._began,
            "cpu_s": _cpu_s() - self._cpu_s,
            "core_wait_s": _waited_s() - self._waited_s,
            "gc_s": self._gc_s,
            "gc_longest_s": self._gc_longest_s,
        }

    def _collecting(self, phase: str, _: dict[str, int]) -> None:
        now = time.monotonic()
        if phase == "start":
            self._gc_began = now
        else:
            self._gc_s += now - self._gc_began
            self._gc_longest_s = max(self._gc_longest_s, now - self._gc_began)


class Worker:
    """Executor of one job in this process."""

    def __init__(self, job: Job, usage: Usage) -> None:
        self._job, self._usage = job, usage
        late_after_s = math.inf if job.late_after_s is None else job.late_after_s
        self._recorder = Recorder(
            late_after_s=late_after_s, good_within_s=late_after_s, fold_above=job.fold_above / job.workers
        )
        self._stop, self._begun, self._measured = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._begin = self._end = math.inf
        self._hooks: Hooks | None = None
        self._due_requests = 0
        """Number of measured requests of the schedule that have become due."""

    def command(self, document: dict[str, Any]) -> None:
        """Execute a command of the pool."""
        if "begin" in document:
            self._begin = document["begin"]
            self._begun.set()
        if "measure" in document:
            self._recorder.measured_from, self._end = document["measure"], document["end"]
            asyncio.get_running_loop().call_at(document["measure"], self._usage.reset)
            if self._hooks is not None:
                self._hooks.measured_from = document["measure"]
            self._measured.set()
        if "stop" in document:
            for event in (self._stop, self._begun, self._measured):
                event.set()

    async def run(self) -> dict[str, Any]:
        """Run the job, and return the data of the event `done`.

        Raises:
            MeasureError: a payload doesn't fit the model, or a user function failed.
        """
        job = self._job
        client = connect.client(job.target, pod_header=job.pod_header)
        hooks = self._hooks = Hooks(job.hooks, job.target) if job.hooks.prepare or job.hooks.finish else None
        seconds: asyncio.Task[None] | None = None
        region: SharedRegion | None = None
        try:
            prepares = hooks is not None and hooks.prepares
            payloads = [] if prepares else job.payload.payloads(job.target)
            began = time.monotonic()
            if job.target.shared_memory != "none":
                region = SharedRegion(job.target, payloads)
            requests = region.requests if region is not None else [client.encode(payload) for payload in payloads]
            encoded = {"encode_each_s": (time.monotonic() - began) / len(requests)} if requests else {}
            check = _check(job, partial(connect.outputs, job.target) if region is None else region.outputs)
            sender = Sender(client, requests, self._recorder, stop=self._stop, hooks=hooks, check=check)
            if hooks is not None:
                await hooks.start()
            emit({"event": "ready"})
            gc.collect()
            gc.freeze()
            await self._begun.wait()
            seconds = asyncio.create_task(self._seconds())
            await self._load(sender)
            usage = self._usage.to_dict()
            if hooks is not None:
                hooks.measured_until = time.monotonic()
            await sender.drain(job.target.timeout_s + _GRACE_S)
            if job.scenario.kind == "offline":
                # All requests are due at once, so the run lasts until the last answer.
                usage = self._usage.to_dict()
        finally:
            if seconds is not None:
                seconds.cancel()
            await client.close()
            if region is not None:
                region.close()
            if hooks is not None:
                hooks.close()
        if sender.error is not None:
            raise sender.error
        self._recorder.result().save(Path(job.result), messages=self._recorder.messages, pods=self._recorder.pods)
        busy = {} if hooks is None else {"hook_busy_s": hooks.busy_s, "hook_processes": job.hooks.processes}
        return {"event": "done", "warm_up_requests": self._recorder.warm_up} | usage | busy | encoded

    async def _load(self, sender: Sender) -> None:
        job, scenario = self._job, self._job.scenario
        if not scenario.is_open:
            sender.limit(None if scenario.requests is None else job.part(scenario.requests))
            await self._until(self._begin)
            give_up_s = job.target.timeout_s + _GRACE_S
            callers = job.part(scenario.callers)
            await sender.run_blocking(scenario, callers=callers, end=lambda: self._end, give_up_s=give_up_s)
            return
        in_flight = max(job.part(scenario.max_in_flight), 1)
        warm_up = asyncio.create_task(self._warm_up(sender, in_flight))
        # An error of a user function ends the warm-up, and then no measured part is awaited.
        warm_up.add_done_callback(lambda _: self._measured.set() if self._stop.is_set() else None)
        await self._measured.wait()
        start = self._recorder.measured_from
        await self._until(start)
        warm_up.cancel()
        if self._stop.is_set():
            return
        if scenario.kind == "offline":
            max_in_flight = max(job.part(scenario.callers), 1)
            await sender.run_offline(self._due(), begin=start, in_flight=max_in_flight, end=self._end)
        else:
            due = self._due()
            await sender.run_open(due, begin=start, max_in_flight=in_flight, give_up_s=job.target.timeout_s)
            # The time after the last request of a schedule belongs to the run, unless a number of requests ends it.
            if scenario.requests is None or self._due_requests < job.part(scenario.requests):
                await self._until(self._end)

    async def _warm_up(self, sender: Sender, in_flight: int) -> None:
        """Run the warm-up load. If it is cancelled, the requests in flight are still completed."""
        job, warm = self._job, self._job.scenario.warm_up()
        await self._until(self._begin)
        if warm.is_open:
            due = share(warm, index=job.index, workers=job.workers)
            await sender.run_open(due, begin=self._begin, max_in_flight=in_flight)
        else:
            until = lambda: min(self._recorder.measured_from, self._end)  # noqa: E731  # one expression
            await asyncio.shield(sender.run_blocking(warm, callers=max(job.part(warm.callers), 1), end=until))

    def _due(self) -> Iterator[float]:
        for due in share(self._job.scenario, index=self._job.index, workers=self._job.workers):
            self._due_requests += 1
            yield due

    async def _until(self, time_s: float) -> None:
        delay = time_s - time.monotonic()
        if delay > 0:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(delay):
                    await self._stop.wait()

    async def _seconds(self) -> None:
        next_s = max(self._begin, time.monotonic())
        while True:
            next_s += 1.0
            await asyncio.sleep(max(next_s - time.monotonic(), 0))
            emit({"event": "second"} | self._recorder.next_second().to_dict())


def _check(job: Job, outputs: Callable[[Reply], dict[str, Any]]) -> Check | None:
    if not job.expect:
        return None
    return expected(array_file.arrays(Path(job.expect)), outputs)


def emit(event: dict[str, Any]) -> None:
    """Print an event as one line of JSON."""
    print(json.dumps(event), flush=True)


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _waited_s() -> float:
    """Return the time in seconds that the main thread has waited for a core; 0 if the kernel doesn't report it."""
    try:
        return int(Path("/proc/self/schedstat").read_text("ascii").split()[1]) / 1e9
    except (OSError, IndexError, ValueError):
        return 0.0


async def _run(job: Job, usage: Usage, commands: IO[str]) -> dict[str, Any]:
    worker = Worker(job, usage)
    loop = asyncio.get_running_loop()

    def read() -> None:
        for line in commands:
            loop.call_soon_threadsafe(worker.command, json.loads(line))
        # The pool has ended.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(worker.command, {"stop": True})

    threading.Thread(target=read, daemon=True).start()
    return await worker.run()


def raise_file_limit() -> None:
    """Raise this process's limit on open files to the hard limit, because each request in flight has a connection.

    Most shells set a limit of 1024. Above it, requests would fail as if the server had refused their connections.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = _MAX_FILES if hard == resource.RLIM_INFINITY else min(hard, _MAX_FILES)
    if soft != resource.RLIM_INFINITY and soft < limit:
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))


def main() -> int:
    """Run the job given on standard input, and return the exit status."""
    raise_file_limit()
    usage = Usage()
    job = Job.from_json(sys.stdin.readline())
    try:
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            emit(runner.run(_run(job, usage, sys.stdin)))
    except MeasureError as error:
        emit({"event": "error", "error": type(error).__name__, "message": str(error)})
        return 1
    except BrokenPipeError:
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
