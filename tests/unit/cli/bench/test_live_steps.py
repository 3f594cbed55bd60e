"""The steps of `halcyon bench --live`: Ctrl-C ends them, and a model that answers nothing gets no load."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from typing_extensions import override

from halcyon_cli.bench import live_steps
from halcyon_cli.bench.live_steps import GuardError
from halcyon_measure.engine.pool import Progress
from halcyon_measure.measurement import Measurement
from halcyon_measure.protocols.reply import Outcome
from halcyon_measure.protocols.target import parse
from halcyon_measure.results.columns import Columns
from halcyon_measure.results.run import Run
from halcyon_measure.schedule.scenario import Scenario


@dataclass(frozen=True, kw_only=True)
class Served(Measurement):
    """A served model that answers in 10 ms, or only with failures. Ctrl-C comes in the step with a number."""

    rates: list[float | None]
    interrupted_at: int = 0
    before_load: bool = False
    failure: str = ""

    @override
    def run(self, progress: Progress | None = None) -> Run:
        self.rates.append(self.scenario.rate_rps)
        is_interrupted = len(self.rates) == self.interrupted_at
        if is_interrupted and self.before_load:
            raise KeyboardInterrupt
        outcome, kind = (Outcome.ERROR, 0) if self.failure else (Outcome.ANSWERED, -1)
        rows = [(at, at, at, at, end, end, end, 0, 0, outcome, kind, 1, 4, 4, -1)
                for at in np.arange(0, 4, 0.1).tolist() for end in [at + 0.01]]  # fmt: skip
        return Run(Columns.of(rows), (self.failure,), (), 0.0, None, 4.0, is_interrupted, ())


def served(*, interrupted_at: int = 0, before_load: bool = False, failure: str = "") -> Served:
    return Served(
        target=parse("http://m:8000", api="kserve", transport=None, encoding=None, model="m"),
        scenario=Scenario(kind="sustained", rate_rps=40.0),
        rates=[],
        interrupted_at=interrupted_at,
        before_load=before_load,
        failure=failure,
    )


@pytest.mark.parametrize("before_load", [False, True])
def test_interrupted_step_is_the_last_one(*, before_load: bool) -> None:
    model = served(interrupted_at=3, before_load=before_load)
    measurement, run, why = live_steps.run(model, 0.5, lambda _: None)
    assert model.rates == [None, 5.0, 10.0]
    assert (measurement.scenario.rate_rps, run.partial, why) == (5.0, True, "it was interrupted")


def test_interrupted_first_step_raises_no_rate() -> None:
    model = served(interrupted_at=1)
    _, run, why = live_steps.run(model, 0.5, lambda _: None)
    assert (model.rates, run.partial, why) == ([None], True, "it was interrupted")


def test_steps_end_at_the_highest_rate() -> None:
    model = served()
    _, run, why = live_steps.run(model, 0.5, lambda _: None)
    assert model.rates == [None, 5.0, 10.0, 20.0, 40.0]
    assert (run.partial, why) == (False, "")


def test_guard_names_why_no_request_was_answered() -> None:
    with pytest.raises(GuardError, match=r"no request of one caller was answered.*: 401: no API key"):
        live_steps.run(served(failure="401: no API key"), 0.5, lambda _: None)
