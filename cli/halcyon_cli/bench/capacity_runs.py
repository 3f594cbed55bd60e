"""Runs of a search for the highest rate within an objective.

Out of scope: choosing the next run, and evaluating a run (`halcyon_measure.capacity`).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from importlib.metadata import version
from typing import TYPE_CHECKING

import numpy as np

from halcyon_measure.capacity import section
from halcyon_measure.capacity.search import MAX_RUNS, EarlyEnd, Goal, Observed, Search, Step
from halcyon_measure.capacity.section import Runs
from halcyon_measure.engine.pool import WarmUp
from halcyon_measure.errors import ScenarioError
from halcyon_measure.protocols.reply import Outcome
from halcyon_measure.schedule import arrivals
from halcyon_measure.schedule.scenario import MAX_CALLERS, Scenario

if TYPE_CHECKING:
    from halcyon_measure.measurement import Measurement
    from halcyon_measure.results.document import BenchDocument
    from halcyon_measure.results.run import Run
    from halcyon_measure.results.settling import Block

_SINGLE_S, _SINGLE_WARM_UP_S = 4.0, 8.0
_SATURATION_S = (5.0, 20.0)
_INTERRUPTED = "it was interrupted"
_CALLERS, _SLOW_CALLERS, _SLOW_S = 128, 48, 1.0
"""Numbers of concurrent callers that saturate a server whose batch size is unknown. The second number is for requests
that take `_SLOW_S` seconds or longer."""


def run(prepared: Measurement, percentile: float, show: Callable[[str], None]) -> tuple[Run, BenchDocument]:
    """Search for the capacity, and return the run at the result, and its document with the section `capacity`.

    If no run was at the result, the last run is returned. Ctrl-C ends the search, and the result so far is returned.

    Raises:
        MeasureError: a process of the load failed.
    """
    runner = _Runner(prepared, percentile, show)
    try:
        for _ in runner.runs():
            pass
    except KeyboardInterrupt:
        if not runner.has_run:
            raise
        runner.interrupt()
    return runner.result()


def run_in_turns(
    prepared: Sequence[tuple[str, Measurement]], percentile: float, show: Callable[[str], None]
) -> list[tuple[Run, BenchDocument]]:
    """Search for the capacities of several named servers in turns, and return the results in the same order.

    A round has one run of each unfinished search. Every second round is in reverse order, so that a drift of the
    machine affects all servers alike. Ctrl-C ends all searches, and the results so far are returned.

    Raises:
        MeasureError: a process of the load failed, or a server has no run yet.
    """
    runners = [_Runner(measurement, percentile, partial(_show_named, show, name)) for name, measurement in prepared]
    turns = [(runner, runner.runs()) for runner in runners]
    while turns:
        unfinished = []
        for runner, runs in turns:
            try:
                if next(runs, None) is not None:
                    unfinished.append((runner, runs))
            except KeyboardInterrupt:
                runner.interrupt()
            if runner.is_interrupted():
                unfinished = []
                break
        turns = unfinished[::-1]
    for runner, (name, _) in zip(runners, prepared, strict=True):
        if not runner.has_run:
            raise ScenarioError(f"the search was interrupted before {name} had a run")
    return [runner.result() for runner in runners]


def _show_named(show: Callable[[str], None], name: str, text: str) -> None:
    show(f"{name}, {text}" if text else "")


class _Runner:
    """Search for one capacity, whose runs are executed one by one."""

    def __init__(self, prepared: Measurement, percentile: float, show: Callable[[str], None]) -> None:
        self._base, self._show = prepared, show
        self._goal = Goal(prepared.objective_s, percentile / 100, prepared.scenario.seed)
        self._runs = Runs(self._goal)
        self._last: tuple[Run, BenchDocument] | None = None
        self._by_rate: dict[float, tuple[Run, BenchDocument]] = {}
        self._interrupts = 0
        self._state: Search | None = None
        self._reason = ""
        """Reason why the search has no result, if it ended before its first step."""

    def interrupt(self) -> None:
        """Record that Ctrl-C has ended the search between two runs."""
        self._interrupts += 1

    def is_interrupted(self) -> bool:
        """Return whether Ctrl-C has ended the search, in a run or between two runs."""
        return self._interrupts > 0

    @property
    def has_run(self) -> bool:
        """Whether at least one run has ended, so that there is a result."""
        return bool(self._runs.documents)

    def runs(self) -> Iterator[int]:
        """Execute the runs of the search; after each run except the last, yield the number of runs so far."""
        caller = Scenario(kind="blocking", duration_s=_SINGLE_S, seed=self._goal.seed)
        single = self._measure("one caller", caller, WarmUp(_SINGLE_WARM_UP_S))[1]
        if not single.requests.due and not self.is_interrupted():
            # One request took longer than this run, in which no other began. Without warm-up, one begins with the run.
            single = self._measure("one caller", caller, WarmUp(0.0, fixed=True))[1]
        mean = single.latency.mean.value
        if mean is None or self.is_interrupted():
            self._reason = _INTERRUPTED if self.is_interrupted() else f"one caller got no answer: {_cause(single)}"
            return
        if section.is_objective_below_execution(single, self._goal):
            self._reason = (
                f"the objective is below one execution: S(1), the mean latency of one caller, is {mean:.3g} ms"
            )
            return
        yield 1
        saturation = self._saturate(single, mean / 1000)
        facts = section.facts(single, saturation)
        if facts is None or self.is_interrupted():
            cause = f"no request was answered at saturation: {_cause(saturation)}"
            self._reason = _INTERRUPTED if self.is_interrupted() else cause
            return
        state = Search.begin(self._goal, facts, spent_s=self._runs.seconds, runs=len(self._runs.documents))
        while not self.is_interrupted():
            self._state = state
            if (step := state.next()) is None:
                return
            yield len(self._runs.documents)
            state = self._state = self._step(state, step)

    def _saturate(self, single: BenchDocument, mean_s: float) -> BenchDocument:
        """Measure at saturation, with more callers than the server can process at once."""
        callers = _CALLERS if mean_s < _SLOW_S else _SLOW_CALLERS
        batches = single.batches
        if batches is not None and batches.largest.value and batches.instances.value:
            rows = single.requests.rows / max(single.requests.answered, 1)
            callers = max(math.ceil(3 * batches.largest.value * batches.instances.value / max(rows, 1)), 8)
        low, high = _SATURATION_S
        scenario = Scenario(
            kind="blocking",
            callers=min(callers, MAX_CALLERS),
            duration_s=min(max(12 * mean_s, low), high),
            seed=self._goal.seed + 1,
        )
        return self._measure("saturation", scenario, WarmUp(min(max(4 * mean_s, 2.0), 8.0), fixed=True))[1]

    def _step(self, state: Search, step: Step) -> Search:
        scenario = Scenario(
            kind="sustained",
            rate_rps=step.rate_rps,
            duration_s=step.duration_s,
            seed=step.seed,
            max_in_flight=self._base.scenario.max_in_flight,
        )
        early = state.early_end(step)
        if early is not None:
            early.arrivals(np.concatenate([*arrivals.chunks(scenario), np.empty(0)]))
        run_count = len(self._runs.documents)
        run, document, seconds = self._timed(
            step.purpose, scenario, WarmUp(step.warm_up_s, fixed=True), early=early, rate_rps=step.rate_rps
        )
        self._by_rate[step.rate_rps] = run, document
        columns = run.columns
        latency = np.where(columns.outcome == Outcome.ANSWERED, columns.finished - columns.due, np.nan)
        observed = Observed(
            due=columns.due,
            latency=latency,
            length_s=run.measured_s,
            wall_s=seconds,
            ended_early=run.measured_s < step.duration_s - 0.5,
        )
        state = state.after(step, observed)
        judged = state.judged[-1]
        self._runs.add(step.purpose, document, seconds, judged)
        outcome = {True: "kept", False: "not kept", None: "not decided"}[judged.kept]
        p99 = document.latency.p99.value
        tail = "-" if p99 is None else f"{p99:.3g} ms"
        self._show(f"run {run_count + 1} of at most {MAX_RUNS}: {step.rate_rps:g} requests/s, P99 {tail}: {outcome}")
        return state

    def _measure(self, purpose: str, scenario: Scenario, warm_up: WarmUp) -> tuple[Run, BenchDocument]:
        run, document, seconds = self._timed(purpose, scenario, warm_up)
        self._runs.add(purpose, document, seconds)
        return run, document

    def _timed(
        self,
        purpose: str,
        scenario: Scenario,
        warm_up: WarmUp,
        *,
        early: EarlyEnd | None = None,
        rate_rps: float | None = None,
    ) -> tuple[Run, BenchDocument, float]:
        """Run a load, and return the run, its document, and its duration in seconds."""
        # Idle power is measured once, before the confirmation, whose energy counts.
        sampling = self._base.sampling
        if sampling is not None and purpose != "confirmation":
            sampling = replace(sampling, idle_s=0.0)
        measurement = replace(self._base, scenario=scenario, warm_up=warm_up, sampling=sampling, preset="")
        ended = False
        number = len(self._runs.documents) + 1
        load = f"{rate_rps:g} requests/s" if rate_rps is not None else f"{scenario.callers} callers"

        def progress(phase: str, seconds: float, block: Block) -> bool:
            nonlocal ended
            left = max(scenario.duration_s - seconds, 0.0) if phase == "measuring" else scenario.duration_s
            self._show(
                f"run {number} of at most {MAX_RUNS}, {purpose}: {load}, {phase} {seconds:.0f} s, at most {left:.0f} s left"
            )
            if phase == "measuring" and early is not None:
                ended = ended or early.second(block.answered + block.failed, block.late + block.failed)
            return ended

        began = time.monotonic()
        run = measurement.run(progress)
        seconds = time.monotonic() - began
        interrupted = run.partial and not ended
        self._interrupts += interrupted
        # A run that ended early because it was decided doesn't count as interrupted.
        run = replace(run, partial=interrupted)
        document = measurement.document(run, made_by=f"halcyon {version('halcyon-cli')}")
        self._last = run, document
        return run, document, seconds

    def result(self) -> tuple[Run, BenchDocument]:
        """Return the run at the search's result, or else the last run, and its document with the section `capacity`."""
        assert self._last is not None  # noqa: S101  # the first run is over
        rate = None if self._state is None else self._state.answer()[0]
        run, document = self._last if rate is None else self._by_rate.get(rate, self._last)
        reason = self._reason or ("" if self._state is not None else _INTERRUPTED)
        document = document.model_copy(update={"capacity": section.build(self._runs, self._state, reason=reason)})
        if self.is_interrupted() and not document.run.partial:
            reasons = (*document.run.invalid_because, "the search was interrupted")
            facts = {"partial": True, "valid": False, "invalid_because": reasons}
            document = document.model_copy(update={"run": document.run.model_copy(update=facts)})
        return run, document


def _cause(document: BenchDocument) -> str:
    """Return the reason why no request of a run was answered."""
    if document.failures:
        return document.failures[0].message
    return f"none began within {document.run.measured_s:.0f} s, because each takes longer"
