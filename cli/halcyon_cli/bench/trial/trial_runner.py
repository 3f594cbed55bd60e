"""Measurement of points on a Triton with explicit model control: a change of the model's configuration, then a load.

Out of scope: choosing the next point (`halcyon_tune`), and the pod (`bench.place.trial_pod`).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from halcyon_cli.bench.trial import model_config
from halcyon_measure.breakdown import growth
from halcyon_measure.engine.pool import WarmUp
from halcyon_measure.errors import MeasureError, TargetError
from halcyon_measure.measurement import Measurement
from halcyon_measure.protocols.reply import Outcome
from halcyon_measure.protocols.repository import LoadError, Repository
from halcyon_measure.results import statistics
from halcyon_measure.results.observations import Observations
from halcyon_measure.results.run import Run
from halcyon_measure.results.settling import Block
from halcyon_measure.sampling import local_process
from halcyon_measure.sampling.sampler import SamplingSettings
from halcyon_measure.schedule.scenario import MAX_DURATION_S, Scenario
from halcyon_tune.errors import TuneError
from halcyon_tune.points import Configuration, FailureKind, Load, Point, Rate

MIN_S, MAX_S = 3.0, 30.0
"""Minimum and maximum duration of a point's load if it consists of callers, in seconds."""
MIN_ANSWERS = 200
"""Minimum number of answers to a load of callers. The load ends before `MAX_S` once it has these answers and `ROUNDS`
for each caller, and `MIN_S` has passed."""
ROUNDS = 12
RESTART_WITHIN_S = 120.0
"""Maximum time for a server that has ended to restart and to load the model, in seconds."""
_NEW_WARM_UP_S, _SAME_WARM_UP_S = 10.0, 1.0
_NEAR_LIMIT = 0.85
"""Share of the memory limit above which insufficient memory is considered the reason why a server ended."""
_POLL_S = 0.25
_ATTEMPTS = 8


class TrialRunner:
    """Implementation of `halcyon_tune.points.Measuring` that measures one point at a time."""

    def __init__(
        self,
        prepared: Measurement,
        config: Mapping[str, Any],
        *,
        threads_parameter: str = "",
        show: Callable[[str], None] = lambda _: None,
        restart_within_s: float = RESTART_WITHIN_S,
        is_paired: bool = False,
    ) -> None:
        """Store the settings.

        Args:
            prepared: the measurement, whose load each point replaces.
            config: the configuration with which the server started, and to which each change is applied
                (`Repository.config`).
            threads_parameter: key in `model.parameters` for the number of threads of an instance; empty if that number
                stays unchanged.
            show: function that shows progress.
            restart_within_s: maximum time for a server that has ended to restart, in seconds.
            is_paired: whether all loads have the same arrival pattern, scaled to their rate. This makes comparisons
                more exact, but intervals of repeated measurements too narrow.
        """
        sampling = SamplingSettings() if prepared.sampling is None else prepared.sampling
        self._prepared = replace(prepared, sampling=replace(sampling, idle_s=0.0))
        self._repository = Repository(prepared.target)
        self._base = dict(config)
        self._threads_parameter, self._show, self._restart_within_s = threads_parameter, show, restart_within_s
        self._current: Configuration | None = None
        self._is_paired, self._loads = is_paired, 0
        self._memory: tuple[float, float] | None = None
        """Last reading of the server's memory usage and its memory limit, in bytes."""

    def measure(self, configuration: Configuration, load: Load) -> Point:
        """Change to the configuration, put the load on it, and return the measured point.

        Raises:
            TuneError: the server has ended and didn't restart in time, so no further points can be measured.
            KeyboardInterrupt: the user ends the tuning.
        """
        began = time.monotonic()
        is_new = configuration != self._current

        def failed(kind: FailureKind, why: str) -> Point:
            seconds = time.monotonic() - began
            return Point(configuration=configuration, load=load, seconds=seconds, failure=kind, why=why)

        if is_new:
            self._current = None
            self._show(f"{configuration.text()}: loading")
            config = model_config.changed(self._base, configuration, threads_parameter=self._threads_parameter)
            try:
                self._repository.load(config)
            except LoadError as error:
                return failed("Memory" if model_config.is_about_memory(str(error)) else "Load", str(error))
            except TargetError as error:
                return failed(*self._wait_for_restart(str(error)))
            self._current = configuration
        process = self._process()
        try:
            run = self._run(load, is_new=is_new, label=f"{configuration.text()}, {load.text()}")
        except TargetError as error:
            return failed(*self._wait_for_restart(str(error)))
        except MeasureError as error:
            raise TuneError(f"{configuration.text()}, {load.text()}: the load can't be sent: {error}") from error
        self._note_memory(run.observations)
        why = _messages(run)
        if self._process() != process or not self._answers():
            return failed(*self._wait_for_restart(why))
        if model_config.is_about_memory(why):
            return failed("Memory", why)
        if not np.any(run.columns.outcome == Outcome.ANSWERED):
            return failed("Load", why or "no request was answered")
        return point(configuration, load, run, seconds=time.monotonic() - began)

    def _run(self, load: Load, *, is_new: bool, label: str) -> Run:
        warm_up = WarmUp(_NEW_WARM_UP_S) if is_new else WarmUp(_SAME_WARM_UP_S, fixed=True)
        # The noise of the same arrivals would be in all loads.
        seed = self._prepared.scenario.seed + (0 if self._is_paired else self._loads)
        self._loads += 1
        enough = math.inf
        if isinstance(load, Rate):
            length = rate_s(load)
            scenario = Scenario(kind="sustained", rate_rps=load.rate_rps, duration_s=length, seed=seed)
        else:
            scenario = Scenario(kind="blocking", callers=load.callers, duration_s=MAX_S, seed=seed)
            enough = max(MIN_ANSWERS, ROUNDS * load.callers)
        answered, has_enough = 0, False

        def progress(phase: str, seconds: float, block: Block) -> bool:
            nonlocal answered, has_enough
            self._show(f"{label}: {phase}, {block.answered}/s")
            if phase == "measuring":
                answered += block.answered + block.failed
                has_enough = seconds >= MIN_S and answered >= enough
            return has_enough

        run = replace(self._prepared, scenario=scenario.check(), warm_up=warm_up, preset="").run(progress)
        if run.partial and not has_enough:
            raise KeyboardInterrupt
        return run

    def _answers(self) -> bool:
        """Return whether the server is ready. After a load, it may take a moment to respond."""
        for _ in range(_ATTEMPTS):
            if self._repository.is_ready():
                return True
            time.sleep(_POLL_S)
        return False

    def _process(self) -> int | None:
        """Return the server's process, with which a restart is detected; None if it isn't visible."""
        target = self._prepared.target
        return local_process.listener(target.host, target.port) if local_process.is_local(target.host) else None

    def _note_memory(self, observations: Observations | None) -> None:
        samples = [
            sample for process in (() if observations is None else observations.processes) for sample in process.samples
        ]
        for sample in samples:
            if sample.memory is not None and sample.memory_limit is not None:
                self._memory = sample.memory, sample.memory_limit

    def _wait_for_restart(self, message: str) -> tuple[FailureKind, str]:
        """Wait until a server that has ended has restarted; return the kind and the description of the failure.

        Raises:
            TuneError: the server doesn't restart in time.
        """
        self._current = None
        self._show("the server has ended; waiting until it is started again")
        end = time.monotonic() + self._restart_within_s
        while not self._repository.is_ready():
            if time.monotonic() > end:
                raise TuneError(
                    f"the server has ended ({message}) and hasn't loaded the model again within {self._restart_within_s:.0f} s; "
                    "the log of its container has the reason"
                )
            time.sleep(_POLL_S)
        return ending(message, self._memory)


def rate_s(load: Rate) -> float:
    """Return the duration of a load with a given rate, in seconds. Pure."""
    length = max(MIN_S, load.min_s, max(load.min_requests, MIN_ANSWERS) / load.rate_rps)
    return min(length, MAX_DURATION_S if load.min_requests else MAX_S)


def ending(message: str, memory: tuple[float, float] | None) -> tuple[FailureKind, str]:
    """Return the kind and the description of the failure that ended a server. Pure.

    `memory` is the last reading of its memory usage and its limit, in bytes. The cgroup is removed with the process, so
    the cause can't be read there. If the server was near its limit, insufficient memory is assumed.
    """
    used, limit = memory or (0.0, 0.0)
    lacks_memory = model_config.is_about_memory(message) or (limit > 0 and used >= _NEAR_LIMIT * limit)
    why = f"the server has ended: {message}" if message else "the server has ended"
    if limit:
        why += f"; it had {used / 2**20:.0f} of {limit / 2**20:.0f} MiB of memory"
    return "Memory" if lacks_memory else "Ended", why


def point(configuration: Configuration, load: Load, run: Run, *, seconds: float) -> Point:
    """Return the point that a run measured. Pure."""
    columns = run.columns
    answered = columns.outcome == Outcome.ANSWERED
    latency = np.where(answered, columns.finished - columns.due, np.inf)
    late = (columns.sent - columns.prepared)[np.isfinite(columns.sent)]
    ended = columns.select(answered)
    length_s = run.measured_s
    if isinstance(load, Rate):
        length_s = statistics.answering_s(ended.due, ended.finished - ended.due, length_s)
    observations = run.observations
    batches: dict[int, tuple[int, float]] = {}
    if observations is not None and observations.before is not None and observations.after is not None:
        grown, _ = growth.of_statistics(observations.before, observations.after)
        if grown is not None:
            # Inputs and outputs occupy an instance too, so the planner counts them as well.
            batches = {
                rows: (int(size.executions), size.input_s + size.model_s + size.output_s)
                for rows, size in grown.sizes.items()
            }
    return Point(
        configuration=configuration,
        load=load,
        seconds=seconds,
        throughput_rps=float(len(ended)) / length_s,
        mean_s=float(np.mean(ended.finished - ended.due)),
        p99_s=float(np.sort(latency)[math.ceil(0.99 * len(latency)) - 1]),
        requests=len(columns),
        offered_rps=float(len(columns)) / run.measured_s,
        late_p99_s=float(np.quantile(late, 0.99)) if len(late) else 0.0,
        batches=batches,
        rows_per_request=float(np.mean(ended.rows)),
        memory_bytes=_memory(observations),
        power_w=_power(observations),
    )


def _memory(observations: Observations | None) -> int | None:
    """Return the peak memory of the GPUs in bytes, or else the peak memory of the server; None if neither is known."""
    if observations is None:
        return None
    pages = [page for server in observations.servers for page in server.samples]
    gpus = [sum(gpu.memory or 0.0 for gpu in page.gpus.values()) for page in pages if page.gpus]
    used = [
        sample.memory for process in observations.processes for sample in process.samples if sample.memory is not None
    ]
    peak = max(gpus, default=0.0) or max(used, default=0.0)
    return int(peak) or None


def _power(observations: Observations | None) -> float | None:
    powers = [
        sum(readings)
        for server in (() if observations is None else observations.servers)
        for page in server.samples
        if (readings := [gpu.power_w for gpu in page.gpus.values() if gpu.power_w is not None])
    ]
    return float(np.mean(powers)) if powers else None


def _messages(run: Run) -> str:
    """Return the most frequent error message among a run's failures, except rejections; empty if there is none."""
    columns = run.columns
    failed = ~np.isin(columns.outcome, (Outcome.ANSWERED, Outcome.REJECTED, Outcome.NOT_SENT)) & (columns.kind >= 0)
    if not np.any(failed):
        return ""
    kinds, counts = np.unique(columns.kind[failed], return_counts=True)
    return run.messages[int(kinds[np.argmax(counts)])]
