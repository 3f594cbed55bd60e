"""Results of several models, servers and files: a comparison with a baseline, and a leaderboard.

Out of scope: measuring a model in the cluster (`bench.place`) or a server (`bench.from_here`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from halcyon.kube import kinds
from halcyon_cli.arguments.options import warn
from halcyon_cli.bench.options.answer import AnswerOptions
from halcyon_cli.bench.records import history
from halcyon_cli.errors import InputError
from halcyon_cli.kube.object_writer import ObjectWriter
from halcyon_measure.errors import SettingError

if TYPE_CHECKING:
    from halcyon_cli.bench.place.bench_request import BenchRequest
    from halcyon_measure.results.document import BenchDocument

LAST = "last"


def is_model(name: str | None) -> bool:
    """Return whether a name, or a value of --against, is the name of a ModelDeployment."""
    if not name or name == LAST or "://" in name:
        return False
    from halcyon_cli.bench import comparison_runs  # noqa: PLC0415  # NumPy takes a while to import

    return not comparison_runs.is_file(name)


def baseline(
    cluster: ObjectWriter, name: str, answer: AnswerOptions, measure: Callable[[str], BenchDocument]
) -> tuple[str, BenchDocument]:
    """Return the name and the result of the baseline in --against, with which `name` is compared.

    `measure` is called to measure the baseline if it is another ModelDeployment.

    Raises:
        InputError: the baseline doesn't exist.
        MeasureError: a file isn't a result, or a condition is invalid.
    """
    from halcyon_cli.bench import comparison_runs  # noqa: PLC0415  # NumPy takes a while to import
    from halcyon_measure.results import document_file  # noqa: PLC0415

    comparison_runs.conditions(answer)
    against = str(answer.against)
    if against == LAST:
        results = history.entries(cluster.find(kinds.CONFIG_MAP, history.name(name)))
        if not results:
            raise InputError(f"{name} has no results yet; halcyon bench {name} makes the first")
        return f"{name} of {results[0].get('made_at')}", document_file.parse(results[0], f"the history of {name}")
    if comparison_runs.is_file(against):
        return against, comparison_runs.read_result(against)
    if comparison_runs.is_url(against):
        raise InputError(
            f"--against {against}: {name} is a ModelDeployment, which is measured in the cluster; give the name of another one, or "
            "measure both by --url"
        )
    return against, measure(against)


def repeating(request: BenchRequest, stored: BenchDocument) -> BenchRequest:
    """Return the request, with the load of an earlier result unless it describes another one.

    With --live, the rates of an earlier result that ended because clients were affected aren't repeated. The steps rise
    until clients are affected again, so that a larger rate is seen, too.

    Raises:
        InputError, MeasureError: the load can't be repeated.
    """
    from halcyon_cli.bench import comparison_runs  # noqa: PLC0415

    if request.place.live and stored.capacity is not None and not request.answer.anyway:
        raise InputError(
            f"--against {request.answer.against}: the result is of a search on a copy, and --live raises the rate in steps; compare "
            "with a result of --live, or leave --live out"
        )
    if request.place.live and stored.is_limited_by_clients and not request.load.has_load:
        from halcyon_measure.compare import likeness  # noqa: PLC0415

        objective = request.load.objective
        objective = likeness.objective_s(stored) if objective is None else objective
        return replace(request, load=replace(request.load, objective=objective)).check()
    load = comparison_runs.load_of(request.load, stored)
    return request if load is request.load or request.answer.sweep else replace(request, load=load).check()


def compared(
    stored: tuple[str, BenchDocument], name: str, document: BenchDocument, answer: AnswerOptions
) -> BenchDocument:
    """Return the document with a comparison to the baseline; without one if they can't be compared."""
    from halcyon_cli.bench import comparison_runs  # noqa: PLC0415

    return comparison_runs.with_result(stored, (name, document), answer)


def leaderboard(
    names: tuple[str, ...],
    answer: AnswerOptions,
    measure: Callable[[str], BenchDocument],
    in_turns: Callable[[Sequence[str]], Sequence[BenchDocument] | None],
) -> BenchDocument:
    """Return the document of the best result, with the leaderboard of all results.

    A name is that of a ModelDeployment, a URL followed by # and the model, or a file. `measure` measures a
    ModelDeployment or a URL. Several ModelDeployments are measured by `in_turns`, unless it returns None.

    If the objectives differ, the capacity of each measured one is printed to stderr before the error is raised.

    Raises:
        MeasureError: a file isn't a result, or the objectives differ.
    """
    from halcyon_cli.bench import comparison_runs  # noqa: PLC0415
    from halcyon_measure.compare import section  # noqa: PLC0415

    stored = {name: comparison_runs.read_result(name) for name in names if comparison_runs.is_file(name)}
    if len(stored) > 1:
        section.leaderboard(list(stored.items()), anyway=answer.anyway)
    models = [name for name in names if not comparison_runs.is_file(name) and not comparison_runs.is_url(name)]
    documents = in_turns(models) if len(models) > 1 else None
    by_model = dict(zip(models, documents or (), strict=False))
    results = [(name, stored.get(name) or by_model.get(name) or measure(name)) for name in names]
    try:
        board = section.leaderboard(results, anyway=answer.anyway, in_turns=len(by_model) == len(names))
    except SettingError:
        for name, document in results:
            if name not in stored and document.capacity is not None:
                warn("bench", f"{name}: {document.capacity.sentence}")
        raise
    best = next(document for name, document in results if name == board.leaderboard[0].name)
    return best.model_copy(update={"comparison": board})
