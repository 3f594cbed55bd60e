"""Runs of a comparison, either of two servers in turns or of one server with an earlier result.

Out of scope: differences and their intervals (`halcyon_measure.compare`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from halcyon_cli.arguments.options import warn
from halcyon_cli.bench.options.load import LoadOptions
from halcyon_cli.errors import InputError
from halcyon_measure.compare import difference, likeness, section
from halcyon_measure.compare.bound import Condition
from halcyon_measure.engine.pool import WarmUp
from halcyon_measure.errors import ScenarioError, SettingError
from halcyon_measure.results import document_file
from halcyon_measure.schedule.scenario import KINDS, Scenario

if TYPE_CHECKING:
    from halcyon_cli.bench.options.answer import AnswerOptions
    from halcyon_measure.measurement import Measurement
    from halcyon_measure.results.document import BenchDocument
    from halcyon_measure.results.run import Run
    from halcyon_measure.results.settling import Block

_LOAD = 0.6
"""Rate of the default load, as a share of the saturation rate of the slower server."""
_ROUND_S, _SATURATION_S, _CALLERS = 6.0, 3.0, 32
_WARM_UP = WarmUp(1.5, fixed=True)
_TOO_EARLY = "the comparison was interrupted before its first round had ended"


def is_url(text: str) -> bool:
    """Return whether the value of --against is the URL of a server."""
    return "://" in text


def is_file(text: str) -> bool:
    """Return whether the value of --against is the file of an earlier result."""
    return not is_url(text) and (text.endswith((".json", ".html")) or Path(text).is_file())


def read_result(path: str) -> BenchDocument:
    """Return the single result in a file.

    Raises:
        MeasureError: the file isn't a result.
        InputError: the file has several results.
    """
    documents = document_file.read(Path(path))
    if len(documents) != 1:
        raise InputError(f"{path}: it has {len(documents)} results; give one bench.json")
    return documents[0].document


def conditions(answer: AnswerOptions) -> tuple[Condition, ...]:
    """Return the conditions of --fail-if.

    Raises:
        MeasureError: a condition is invalid.
    """
    return tuple(map(Condition.parse, answer.fail_if))


def load_of(load: LoadOptions, stored: BenchDocument) -> LoadOptions:
    """Return the load options, with the load of an earlier result in place of those that describe none.

    The objective of the result also applies, unless another one is given: results with different objectives can't be
    compared. If the result is of a search for the capacity, or a load is given, the options are returned unchanged.

    Raises:
        InputError: the earlier load was a trace, whose arrivals a result doesn't contain.
    """
    if load.has_load or stored.capacity is not None:
        return load
    scenario = stored.scenario
    if scenario.kind == "trace":
        raise InputError("the earlier result is of a trace, whose arrivals it doesn't have; add --trace FILE")
    return replace(
        load,
        scenario=next(kind for kind in KINDS if kind == scenario.kind),
        duration=scenario.duration_s,
        requests=scenario.requests,
        callers=scenario.callers,
        think=scenario.think_s or None,
        rate=scenario.rate_rps,
        to_rps=scenario.to_rps,
        cv=scenario.cv,
        on_s=scenario.on_s,
        off_s=scenario.off_s,
        seed=scenario.seed,
        objective=load.objective if load.objective is not None else likeness.objective_s(stored),
    )


def with_load_of(prepared: Measurement, stored: BenchDocument) -> Measurement:
    """Return the measurement, with its load replaced by that of an earlier result that isn't of a search.

    Raises:
        InputError: the earlier load was a trace.
    """
    load = load_of(LoadOptions(max_in_flight=prepared.scenario.max_in_flight, objective=prepared.objective_s), stored)
    return replace(prepared, scenario=load.build_scenario(), objective_s=load.objective)


def with_result(
    stored: tuple[str, BenchDocument], current: tuple[str, BenchDocument], answer: AnswerOptions
) -> BenchDocument:
    """Return the document with a comparison to an earlier result.

    If the results can't be compared, the document is returned without a comparison, and the reason is printed to
    stderr.
    """
    try:
        comparison = section.build(
            (stored[0], [stored[1]]),
            (current[0], [current[1]]),
            in_turns=False,
            conditions=conditions(answer),
            anyway=answer.anyway,
        )
    except SettingError as error:
        warn("bench", str(error))
        return current[1]
    return current[1].model_copy(update={"comparison": comparison})


def in_turns(
    baseline: Measurement,
    candidate: Measurement,
    answer: AnswerOptions,
    *,
    has_load: bool,
    show: Callable[[str], None],
    named: tuple[str, str] | None = None,
) -> tuple[Run, BenchDocument]:
    """Measure two prepared servers in turns, and return the last run and the document of the second server.

    `named` contains the names of the servers. By default, these are the names of their models, or their URLs.

    Raises:
        MeasureError: a process of the load failed, the results can't be compared, or a condition is invalid.
    """
    fail_conditions = conditions(answer)
    names = _names(baseline, candidate) if named is None else {"A": named[0], "B": named[1]}
    scenario = candidate.scenario if has_load else _default_load((baseline, candidate), names, show)
    results: dict[str, list[BenchDocument]] = {"A": [], "B": []}
    last_run: Run | None = None
    turns = difference.order(answer.rounds)
    for number, side in enumerate(turns):
        measurement = baseline if side == "A" else candidate
        # Both sides of a round have the same arrivals.
        load = replace(scenario, seed=scenario.seed + number // 2)
        label = f"round {number // 2 + 1} of {answer.rounds}, {names[side]}"
        left = (len(turns) - number) * (scenario.duration_s + _WARM_UP.limit_s + 1)
        try:
            run, document = _measure(measurement, load, label, show, left_s=left)
        except KeyboardInterrupt:  # before the load began
            break
        if run.partial:
            break
        results[side].append(document)
        if side == "B":
            last_run = run
        if number == 1:
            # Later rounds differ in nothing else, so they would be measured in vain.
            section.differing((names["A"], results["A"][0]), (names["B"], results["B"][0]), anyway=answer.anyway)
    rounds = min(map(len, results.values()))
    if last_run is None or not rounds:
        raise ScenarioError(_TOO_EARLY)
    comparison = section.build(
        (names["A"], results["A"][:rounds]),
        (names["B"], results["B"][:rounds]),
        in_turns=True,
        conditions=fail_conditions,
        anyway=answer.anyway,
    )
    compared = results["B"][-1].model_copy(update={"comparison": comparison})
    return last_run, compared if rounds == answer.rounds else _interrupted(compared, rounds, answer.rounds)


def _interrupted(document: BenchDocument, completed: int, rounds: int) -> BenchDocument:
    """Return the document, marked as interrupted. The incomplete round isn't part of the comparison."""
    reasons = (*document.run.invalid_because, f"the comparison was interrupted after {completed} of {rounds} rounds")
    facts = document.run.model_copy(update={"partial": True, "valid": False, "invalid_because": reasons})
    return document.model_copy(update={"run": facts})


def _default_load(sides: Sequence[Measurement], names: dict[str, str], show: Callable[[str], None]) -> Scenario:
    """Return a load with random arrivals whose rate is a share of the slower server's saturation rate."""
    rates = []
    for name, side in zip(names.values(), sides, strict=True):
        load = Scenario(kind="blocking", callers=_CALLERS, duration_s=_SATURATION_S, seed=side.scenario.seed)
        run, document = _measure(side, load, f"saturation, {name}", show)
        if run.partial:
            raise ScenarioError(_TOO_EARLY)
        if not document.throughput.value:
            raise ScenarioError(f"{name} answered no request; compare servers that answer")
        rates.append(document.throughput.value)
    rate = float(f"{_LOAD * min(rates):.3g}")
    return Scenario(
        kind="sustained",
        rate_rps=rate,
        duration_s=_ROUND_S,
        max_in_flight=sides[0].scenario.max_in_flight,
        seed=sides[0].scenario.seed,
    )


def _measure(
    side: Measurement, scenario: Scenario, label: str, show: Callable[[str], None], *, left_s: float | None = None
) -> tuple[Run, BenchDocument]:
    sampling = None if side.sampling is None else replace(side.sampling, idle_s=0.0)
    measurement = replace(side, scenario=scenario, warm_up=_WARM_UP, sampling=sampling, preset="")

    def progress(phase: str, seconds: float, block: Block) -> None:
        end = "" if left_s is None else f", {max(left_s - seconds, 0):.0f} s left"
        show(f"{label}: {phase} {seconds:.0f} s, {block.answered}/s{end}")

    run = measurement.run(progress)
    return run, measurement.document(run, made_by=f"halcyon {version('halcyon-cli')}")


def _names(baseline: Measurement, candidate: Measurement) -> dict[str, str]:
    """Return two names that distinguish the servers.

    They are the names of the models if these differ, and the URLs otherwise.
    """
    first, second = baseline.target, candidate.target
    if first.model and second.model and first.model != second.model:
        return {"A": first.model, "B": second.model}
    if first.url != second.url:
        return {"A": first.url, "B": second.url}
    name = first.model or first.url
    return {"A": f"{name} (A)", "B": f"{name} (B)"}
