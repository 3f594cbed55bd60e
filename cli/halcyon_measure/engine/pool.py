"""Pool of the worker processes of a load.

It starts the processes, begins the load at the same moment in all of them, ends them, and merges their requests.
"""

from __future__ import annotations

import contextlib
import json
import math
import queue
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

import numpy as np

from halcyon_measure import errors
from halcyon_measure.engine.job import Job
from halcyon_measure.results.columns import Columns
from halcyon_measure.results.folded import Folded
from halcyon_measure.results.run import Run
from halcyon_measure.results.settling import Block, has_settled, together
from halcyon_measure.schedule.scenario import Scenario

RPS_PER_PROCESS = 1500.0
CALLERS_PER_PROCESS = 256
MAX_PROCESSES = 64
_LEAD_S = 0.25
"""Time in seconds between sending a command and the moment at which it takes effect, so that all processes have
received it by then."""
_READY_S = 60.0
_END_S = 120.0
"""Maximum time in seconds for a process to write its requests at the end. `FOLD_ABOVE` requests take half a minute."""
_ERROR_LINES = 6


@dataclass(frozen=True)
class WarmUp:
    """Warm-up before the measured part of a run."""

    limit_s: float = 30.0
    """Maximum duration of the warm-up in seconds. It ends earlier if the load settles, unless it is `fixed`."""
    fixed: bool = False


class SilenceError(errors.MeasureError):
    """A worker process has sent no event in time."""


class Observer(Protocol):
    """Interface of an observer that samples servers and machines during the load."""

    def begin(self, start_s: float) -> None:
        """Schedule the sampling from `start_s` on, in seconds of the monotonic clock, and return at once."""

    def end(self) -> None:
        """Take the last samples. This is called when all answers have arrived."""


Progress = Callable[[str, float, Block], bool | None]
"""Function called once a second with the phase (`warm-up` or `measuring`), the seconds since its start, and the counts
of the last second. If it returns True while measuring, the run ends early and keeps its results so far."""


def processes_for(scenario: Scenario, cores: int) -> int:
    """Return the number of processes that a load needs, at most one per core."""
    if scenario.is_open:
        # The rate of a ramp, or of the phases of a burst, is at times higher than the mean.
        rates = (scenario.mean_rps, scenario.rate_rps, scenario.to_rps)
        need = max((rate for rate in rates if rate), default=RPS_PER_PROCESS) / RPS_PER_PROCESS
    else:
        need = scenario.callers / CALLERS_PER_PROCESS
    return max(1, min(-int(-need // 1), cores, MAX_PROCESSES))


class Pool:
    """Pool of the processes of one load. As a context manager, it ends them on exit."""

    def __init__(self, job: Job, processes: int) -> None:
        self._job = job
        self._events: queue.Queue[tuple[int, dict[str, Any]]] = queue.Queue()
        self._folder = tempfile.TemporaryDirectory(prefix="halcyon-bench-")
        self._results = [Path(self._folder.name) / f"{index}.npz" for index in range(processes)]
        self._workers: list[subprocess.Popen[str]] = []
        self._readers: list[threading.Thread] = []
        self._error_lines: deque[str] = deque(maxlen=_ERROR_LINES)
        """Last lines of the workers' standard error, to which user functions may also print."""
        self._stopped_at: float | None = None
        """Monotonic time at which the load was ended early, in seconds; None if it wasn't ended early."""

    def __enter__(self) -> Self:
        count = len(self._results)
        for index, result in enumerate(self._results):
            # The workers have their own session, so Ctrl-C reaches only this process, which then ends the load.
            worker = subprocess.Popen(
                [sys.executable, "-m", "halcyon_measure.engine.worker"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                start_new_session=True,
            )
            self._workers.append(worker)
            for target in (self._read_events, self._read_errors):
                reader = threading.Thread(target=target, args=(index, worker), daemon=True)
                self._readers.append(reader)
                reader.start()
            self._write(worker, self._job.of_worker(index, count, str(result)).to_json())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for worker in self._workers:
            if worker.poll() is None:
                worker.kill()
            worker.wait()
        for reader in self._readers:
            reader.join()
        for worker in self._workers:
            for stream in (worker.stdin, worker.stdout, worker.stderr):
                if stream is not None:
                    with contextlib.suppress(BrokenPipeError):
                        stream.close()
        self._folder.cleanup()

    def run(self, *, warm_up: WarmUp, progress: Progress | None = None, observer: Observer | None = None) -> Run:
        """Run the load from warm-up to the last answer. Ctrl-C ends the run early; the results so far are kept.

        Raises:
            MeasureError: a worker can't send the load.
        """
        self._gather("ready", _READY_S)
        begin = time.monotonic() + _LEAD_S
        if warm_up.limit_s == 0:
            settled: bool | None = None
            self._command({"begin": begin} | self._measure(begin))
            start, partial = begin, False
        else:
            self._command({"begin": begin})
            settled, partial = self._warm(begin, warm_up, progress)
            start = time.monotonic() + _LEAD_S
            self._command(self._measure(start))
        if observer is not None:
            observer.begin(start)
        try:
            done, partial = self._measured(start, partial=partial, progress=progress)
        finally:
            if observer is not None:
                observer.end()
        columns, folded, messages, pods = _merged(self._results, self._job.late_after_s)
        stopped_s = None if self._stopped_at is None else max(self._stopped_at - start, 1e-9)
        return Run(
            columns=columns,
            messages=tuple(messages),
            pods=tuple(pods),
            warm_up_s=start - begin,
            settled=settled if not warm_up.fixed else None,
            measured_s=measured_s(
                self._job.scenario, columns, folded, stopped_s=stopped_s, has_warm_up=warm_up.limit_s > 0
            ),
            partial=partial,
            usage=tuple({key: value for key, value in event.items() if key != "event"} for event in done),
            folded=folded,
        )

    def _measure(self, start: float) -> dict[str, float]:
        scenario = self._job.scenario
        length = scenario.trace[-1] if scenario.kind == "trace" else scenario.duration_s
        return {"measure": start, "end": start + length}

    def _warm(self, begin: float, warm_up: WarmUp, progress: Progress | None) -> tuple[bool, bool]:
        """Run the warm-up.

        Return whether the load has settled (or the warm-up has a fixed length), and whether Ctrl-C interrupted it.
        """
        blocks: list[Block] = []
        try:
            while time.monotonic() - begin < warm_up.limit_s:
                left = warm_up.limit_s - (time.monotonic() - begin)
                block = self._second(left + 1.0)
                if block is None:
                    break
                blocks.append(block)
                if progress is not None:
                    progress("warm-up", time.monotonic() - begin, block)
                if not warm_up.fixed and has_settled(blocks):
                    return True, False
        except KeyboardInterrupt:
            return False, True
        return warm_up.fixed, False

    def _measured(self, start: float, *, partial: bool, progress: Progress | None) -> tuple[list[dict[str, Any]], bool]:
        """Wait for the end of the measured part.

        Return the last event of each worker, and whether the run was ended early.
        """
        done: dict[int, dict[str, Any]] = {}
        # A request may be sent late by the timeout, and be answered after another one.
        limit = self._measure(start)["end"] + 2 * self._job.target.timeout_s + _END_S
        if partial:
            self._stop()
        seconds: dict[int, Block] = {}
        while len(done) < len(self._workers):
            try:
                index, event = self._next(max(limit - time.monotonic(), 0.1))
            except KeyboardInterrupt:
                if partial:
                    raise
                partial = True
                self._stop()
                continue
            if event["event"] == "done":
                done[index] = event
            elif event["event"] == "second":
                if index in seconds and progress is not None:
                    ends = progress("measuring", time.monotonic() - start, together(list(seconds.values())))
                    seconds = {}
                    if ends and not partial:
                        partial = True
                        self._stop()
                seconds[index] = Block.of(event)
        return [done[index] for index in range(len(self._workers))], partial

    def _second(self, timeout_s: float) -> Block | None:
        """Return the next second's counts, merged over all workers; None if an event doesn't arrive in time."""
        parts: dict[int, Block] = {}
        while len(parts) < len(self._workers):
            try:
                index, event = self._next(timeout_s)
            except SilenceError:
                return None
            if event["event"] == "second":
                parts[index] = Block.of(event)
        return together(list(parts.values()))

    def _gather(self, name: str, timeout_s: float) -> None:
        workers: set[int] = set()
        while len(workers) < len(self._workers):
            index, event = self._next(timeout_s)
            if event["event"] == name:
                workers.add(index)

    def _next(self, timeout_s: float) -> tuple[int, dict[str, Any]]:
        try:
            index, event = self._events.get(timeout=timeout_s)
        except queue.Empty:
            raise SilenceError(f"a process that sends the load has not responded for {timeout_s:.0f} s") from None
        if event["event"] == "error":
            kind = getattr(errors, str(event["error"]), errors.MeasureError)
            raise kind(event["message"])
        if event["event"] == "ended":
            reason = "\n".join(self._error_lines) or f"exit status {event['status']}"
            raise errors.MeasureError(f"a process of the load ended: {reason}")
        return index, event

    def _stop(self) -> None:
        """End the load early: send no more requests, and wait for the answers to those that were sent."""
        self._stopped_at = time.monotonic()
        self._command({"stop": True})

    def _command(self, document: dict[str, Any]) -> None:
        for worker in self._workers:
            self._write(worker, json.dumps(document))

    @staticmethod
    def _write(worker: subprocess.Popen[str], line: str) -> None:
        with contextlib.suppress(BrokenPipeError):
            assert worker.stdin is not None  # noqa: S101  # opened as a pipe
            worker.stdin.write(line + "\n")
            worker.stdin.flush()

    def _read_events(self, index: int, worker: subprocess.Popen[str]) -> None:
        assert worker.stdout is not None  # noqa: S101  # opened as a pipe
        last = ""
        for line in worker.stdout:
            event = json.loads(line)
            last = event["event"]
            self._events.put((index, event))
        if last not in {"done", "error"}:
            self._events.put((index, {"event": "ended", "status": worker.wait()}))

    def _read_errors(self, _: int, worker: subprocess.Popen[str]) -> None:
        assert worker.stderr is not None  # noqa: S101  # opened as a pipe
        self._error_lines.extend(line.rstrip() for line in worker.stderr)


def measured_s(
    scenario: Scenario,
    columns: Columns,
    folded: Folded | None,
    *,
    stopped_s: float | None,
    has_warm_up: bool = True,
) -> float:
    """Return the length of the measured part, in which requests became due, in seconds.

    `stopped_s` is the time at which the load was ended early, or None. With a schedule, the wait for the last answers isn't
    part of the length, because slow answers would lower the rate.

    In `offline`, and if all callers begin at the start (no warm-up), no answers of earlier requests arrive in the run.
    Divided by the length of the scenario alone, the answers after its end would make the rate too high. So the length
    is that to the last answer, or the mean time for which a caller waited for answers.
    """
    length = scenario.duration_s if scenario.kind != "trace" else scenario.trace[-1]
    count, last_due, last_done = 0, 0.0, 0.0
    if folded is not None:
        count, last_due, last_done = len(folded), folded.last_due_s, folded.last_done_s
    elif len(columns):
        count, last_due, last_done = len(columns), float(columns.due[-1]), float(np.nanmax(columns.done))
    if scenario.kind == "offline":
        return max(last_done, 1e-9)
    if scenario.kind == "blocking":
        has_all = scenario.requests is not None and count >= scenario.requests
        if stopped_s is None and not has_all:
            waited_s = float(np.nansum(columns.done - columns.due)) / scenario.callers
            return length if has_warm_up else max(length, waited_s)
        return max(min(length, last_done) if has_warm_up else last_done, 1e-9)
    if stopped_s is not None:
        length = min(length, stopped_s)
    if scenario.requests is not None and count >= max(scenario.requests, 2):
        length = min(length, last_due)
    return max(length, 1e-9)


def _merged(paths: Sequence[Path], good_within_s: float | None) -> tuple[Columns, Folded | None, list[str], list[str]]:
    """Return the requests of all processes, as rows or as counts, with common lists of messages and pods.

    If at least one process has counted its requests in a histogram, all requests are returned as counts.
    """
    messages: list[str] = []
    pods: list[str] = []
    renumbered: list[Columns] = []
    counted: list[tuple[Folded, list[int], list[int]]] = []
    for path in paths:
        if (loaded := Folded.load(path)) is not None:
            folded, own_messages, own_pods = loaded
            counted.append((folded, _indices(own_messages, messages), _indices(own_pods, pods)))
            continue
        columns, own_messages, own_pods = Columns.load(path)
        kinds = _renumber(columns.kind, own_messages, messages)
        pod = _renumber(columns.pod, own_pods, pods)
        renumbered.append(Columns(**{**columns.__dict__, "kind": kinds, "pod": pod}))
    if not counted:
        return Columns.merged(renumbered), None, messages, pods
    total = Folded(math.inf if good_within_s is None else good_within_s)
    for folded, kind_indices, pod_indices in counted:
        total.merged(folded, kind_indices, pod_indices)
    for columns in renumbered:
        total.add(columns)
    return Columns.merged([]), total, messages, pods


def _indices(texts: Sequence[str], common: list[str]) -> list[int]:
    """Add the texts that are missing in `common` to it, and return the index in `common` of each text."""
    common += [text for text in dict.fromkeys(texts) if text not in common]
    return [common.index(text) for text in texts]


def _renumber(indices: Any, texts: Sequence[str], common: list[str]) -> Any:
    table = np.array([*_indices(texts, common), -1], dtype=np.int64)
    return table[indices]
