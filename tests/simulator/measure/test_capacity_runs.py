"""Searches of several servers, a run of each in turn, on simulated servers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
from typing_extensions import override

from halcyon_cli.bench import capacity_runs
from halcyon_measure.engine.pool import Progress
from halcyon_measure.errors import ScenarioError
from halcyon_measure.measurement import Measurement
from halcyon_measure.protocols.reply import Outcome
from halcyon_measure.protocols.target import parse
from halcyon_measure.results.columns import Columns
from halcyon_measure.results.run import Run
from halcyon_measure.schedule.scenario import Scenario
from tests.simulator.measure.simulated_server import SimulatedServer, poisson


@dataclass(frozen=True, kw_only=True)
class Simulated(Measurement):
    """A measurement of a simulated server, which notes its runs."""

    name: str
    server: SimulatedServer
    log: list[str]
    interrupted_at: int = 0
    """Number of the run of all that Ctrl-C ends; 0 for none."""
    before_load: bool = False
    """Whether Ctrl-C comes before that run's load begins."""
    failure: str = ""
    """Message of the failure of all requests; empty if they are answered."""
    _: Any = field(default=None, repr=False)

    @override
    def run(self, progress: Progress | None = None) -> Run:
        self.log.append(self.name)
        interrupted = len(self.log) == self.interrupted_at
        if interrupted and self.before_load:
            raise KeyboardInterrupt
        scenario = self.scenario
        if scenario.kind == "sustained":
            assert scenario.rate_rps is not None
            due = poisson(scenario.rate_rps, scenario.duration_s, scenario.seed)
            latency = self.server.latencies(due, scenario.seed)
        else:
            # Callers that wait for their answers: one execution after the other, and what is beside it at the same time.
            beside = self.server.overhead_s if scenario.callers == 1 else 0.0
            cycle_s = self.server.constant_s + beside
            # The requests go on from the warm-up.
            begin = -self.warm_up.limit_s % cycle_s if cycle_s > 1 else 0.0
            due = np.arange(begin, scenario.duration_s, cycle_s)
            latency = np.full(len(due), scenario.callers * self.server.constant_s + self.server.overhead_s)
        end = due + latency
        outcome, kind = (Outcome.ERROR, 0) if self.failure else (Outcome.ANSWERED, -1)
        rows = [(at, at, at, at, done, done, done, 0, 0, outcome, kind, 1, 4, 4, -1) for at, done in zip(due, end, strict=True)]  # fmt: skip
        usage = {"wall_s": scenario.duration_s, "cpu_s": 0.1, "core_wait_s": 0.0, "gc_longest_s": 0.0}
        return Run(Columns.of(rows), (self.failure,), (), 1.0, None, scenario.duration_s, interrupted, (usage,))


def simulated(
    name: str,
    constant_s: float,
    log: list[str],
    *,
    interrupted_at: int = 0,
    before_load: bool = False,
    failure: str = "",
) -> tuple[str, Simulated]:
    return name, Simulated(
        target=parse(f"http://{name}:8000", api="kserve", transport=None, encoding=None, model=name),
        scenario=Scenario(requests=1),
        objective_s=0.2,
        sampling=None,
        name=name,
        server=SimulatedServer(constant_s=constant_s, per_request_s=0.0, noise=0.01),
        log=log,
        interrupted_at=interrupted_at,
        before_load=before_load,
        failure=failure,
    )


def silent() -> Callable[[str], None]:
    return lambda _: None


def test_runs_of_two_searches_alternate() -> None:
    log: list[str] = []
    fast, slow = simulated("fast", 0.01, log), simulated("slow", 0.02, log)
    first, second = capacity_runs.run_in_turns([fast, slow], 99.0, silent())
    shared = 2 * min(log.count("fast"), log.count("slow"))
    rounds = ["".join(name[0] for name in log[at : at + 2]) for at in range(0, shared, 2)]
    assert rounds[:4] == ["fs", "sf", "fs", "sf"]
    assert len(rounds) >= 3
    for (_, document), (_, simulation) in ((first, fast), (second, slow)):
        assert document.capacity is not None
        assert document.capacity.rate.value == pytest.approx(
            simulation.server.true_capacity(0.2, 0.01, requests=60_000), rel=0.06
        )
    # The other one in between changes nothing of a search.
    alone = capacity_runs.run(simulated("m", 0.02, [])[1], 99.0, silent())[1].capacity
    assert alone is not None
    assert second[1].capacity is not None
    assert [(run.purpose, run.rate_rps) for run in alone.runs] == [
        (run.purpose, run.rate_rps) for run in second[1].capacity.runs
    ]


def test_an_interruption_ends_all_searches_with_what_they_have() -> None:
    log: list[str] = []
    both = [simulated(name, 0.02, log, interrupted_at=4) for name in ("a", "b")]
    outcomes = capacity_runs.run_in_turns(both, 99.0, silent())
    assert log == ["a", "b", "b", "a"]
    assert outcomes[0][1].run.partial
    for _, document in outcomes:
        assert document.capacity is not None
        assert document.capacity.rate.value is None


def test_an_interruption_before_the_last_ones_first_run_is_an_error() -> None:
    log: list[str] = []
    both = [simulated(name, 0.02, log, interrupted_at=1) for name in ("a", "b")]
    with pytest.raises(ScenarioError, match="interrupted before b had a run"):
        capacity_runs.run_in_turns([both[0], both[1]], 99.0, silent())


def test_interruption_between_two_runs_keeps_the_search() -> None:
    log: list[str] = []
    _, document = capacity_runs.run(simulated("m", 0.02, log, interrupted_at=4, before_load=True)[1], 99.0, silent())
    assert len(log) == 4
    assert document.capacity is not None
    assert len(document.capacity.runs) == 3
    assert document.run.invalid_because[-1] == "the search was interrupted"
    both = [simulated(name, 0.02, log, interrupted_at=8, before_load=True) for name in ("a", "b")]
    outcomes = capacity_runs.run_in_turns(both, 99.0, silent())
    assert [len(document.capacity.runs) for _, document in outcomes if document.capacity is not None] == [1, 2]


def test_interruption_before_the_first_run_ends_the_command() -> None:
    with pytest.raises(KeyboardInterrupt):
        capacity_runs.run(simulated("m", 0.02, [], interrupted_at=1, before_load=True)[1], 99.0, silent())


def test_request_longer_than_the_warm_up_is_measured_without_one() -> None:
    log: list[str] = []
    _, slow = simulated("slow", 7.0, log)
    _, document = capacity_runs.run(replace(slow, objective_s=60.0), 99.0, silent())
    assert document.capacity is not None
    assert [(run.purpose, run.requests) for run in document.capacity.runs][:2] == [("one caller", 0), ("one caller", 1)]
    assert document.capacity.single.value == pytest.approx(7000, rel=0.01)


def test_search_without_answers_names_their_failure() -> None:
    _, document = capacity_runs.run(simulated("m", 0.02, [], failure="401: no API key")[1], 99.0, silent())
    assert document.capacity is not None
    assert (
        document.capacity.sentence == "m has no rate with P99 within 200 ms: one caller got no answer: 401: no API key."
    )
