"""Measurement by the second engine of --engine, after a run of Halcyon's own engine.

Out of scope: the second engine itself (`halcyon_measure.perf_analyzer`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from halcyon_cli.bench.options.answer import AnswerOptions

if TYPE_CHECKING:
    from halcyon_measure.measurement import Measurement
    from halcyon_measure.results.document import BenchDocument

Judge = Callable[["Measurement", "BenchDocument"], "BenchDocument"]
"""Function that adds the result of the second engine to the document of a run. The measurement has the run's load."""


def judge(answer: AnswerOptions, prepared: Measurement, show: Callable[[str], None]) -> Judge | None:
    """Return the function that measures with the second engine; None if there is no second engine.

    Raises:
        MeasureError: the second engine isn't installed, or can't generate the load.
    """
    if answer.engine == "halcyon":
        return None
    from halcyon_measure.perf_analyzer.engine import Engine  # noqa: PLC0415  # NumPy takes a while to import

    engine = Engine.checked(prepared, answer.perf_analyzer_options)
    return lambda measurement, document: engine.measure(measurement, document, show)


def at_chosen_rate(prepared: Measurement, document: BenchDocument) -> Measurement:
    """Return the measurement with the load of the run that a search has chosen."""
    from halcyon_measure.schedule.scenario import Scenario  # noqa: PLC0415

    run = document.scenario
    duration_s = min(run.duration_s, document.run.measured_s)
    scenario = Scenario(
        kind="sustained" if run.rate_rps is not None else "blocking",
        rate_rps=run.rate_rps,
        callers=run.callers or 1,
        duration_s=duration_s,
        seed=run.seed,
        max_in_flight=prepared.scenario.max_in_flight,
    )
    return replace(prepared, scenario=scenario)


def has_result(document: BenchDocument) -> bool:
    """Return False if the second engine was used and has no result for a run or a point of a sweep."""
    sections = [document.second_engine]
    if document.sweep is not None:
        sections += [point.second_engine for point in document.sweep.points]
    return all(section is None or not section.reason for section in sections)
