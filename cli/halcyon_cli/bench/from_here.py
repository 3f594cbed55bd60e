"""Measurement that runs on the user's machine, from the command's options to the run and its document.

Out of scope: the load itself and its statistics (`halcyon_measure`).
"""

from __future__ import annotations

import signal
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from halcyon_cli.arguments.options import has_escapes
from halcyon_cli.bench.options.answer import AnswerOptions
from halcyon_cli.bench.options.inputs import InputOptions
from halcyon_cli.bench.options.load import LoadOptions
from halcyon_cli.bench.options.sampling import SamplingOptions
from halcyon_cli.bench.options.server import ServerOptions
from halcyon_cli.bench.place import log_result
from halcyon_cli.bench.second_engine import Judge
from halcyon_cli.errors import InputError

if TYPE_CHECKING:
    from halcyon_measure.measurement import Measurement
    from halcyon_measure.results.document import BenchDocument
    from halcyon_measure.results.run import Run
    from halcyon_measure.results.settling import Block
    from halcyon_measure.results.used_files import UsedFile


def measurement(
    server: ServerOptions, load: LoadOptions, inputs: InputOptions, sampling: SamplingOptions
) -> Measurement:
    """Return the measurement that the command's options describe.

    Raises:
        MeasureError, InputError: an option is invalid, or two options contradict each other.
    """
    from halcyon_measure.measurement import Measurement  # noqa: PLC0415  # NumPy and the clients take a second to import

    preset = load.preset or ""
    target = server.target()
    payload = inputs.payload(preset=preset, seed=load.seed)
    return Measurement(
        target=target,
        scenario=load.build_scenario(),
        preset=preset,
        payload=payload,
        hooks=inputs.hooks(),
        warm_up=load.build_warm_up(),
        processes=load.processes,
        objective_s=load.objective,
        expect=inputs.expect,
        pod_header=server.pod_header.lower(),
        sampling=sampling.settings(),
        prices=sampling.prices(),
    )


def prepared_within(measurement: Measurement, seconds: float) -> Measurement:
    """Return the prepared measurement once the server has loaded the model.

    Raises:
        MeasureError: the server doesn't load the model within the time limit, or the measurement can't be prepared.
    """
    from halcyon_measure.errors import TargetError  # noqa: PLC0415
    from halcyon_measure.protocols.repository import Repository  # noqa: PLC0415

    repository = Repository(measurement.target, load_within_s=5.0)
    end = time.monotonic() + seconds
    while True:
        try:
            return measurement.prepare()
        except TargetError:
            if measurement.target.api == "kserve" and (why := repository.failure()):
                raise TargetError(f"{measurement.target.model} doesn't load: {why}") from None
            if time.monotonic() > end:
                raise
        time.sleep(0.5)


def run(prepared: Measurement, *, to_log: bool = False) -> tuple[Run, BenchDocument]:
    """Run a prepared measurement, and show its progress on stderr.

    Progress is shown only if stderr is a terminal or a log that is being followed.

    Raises:
        MeasureError: a process of the load failed.
    """
    # The end of a Job (SIGTERM) gives the result so far, as Ctrl-C does.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    show = line_of_progress(to_log=to_log)

    def progress(phase: str, seconds: float, block: Block) -> None:
        middle = f", median {1000 * block.median_s:.1f} ms" if block.median_s is not None else ""
        failed = f", {block.failed} failed" if block.failed else ""
        show(f"{phase} {seconds:.0f} s: {block.answered}/s{failed}{middle}")

    finished_run = prepared.run(progress)
    show("")
    return finished_run, prepared.document(finished_run, made_by=f"halcyon {version('halcyon-cli')}")


def run_search(prepared: Measurement, answer: AnswerOptions, *, to_log: bool = False) -> tuple[Run, BenchDocument]:
    """Search for the highest rate within the objective, and return the run at this rate.

    Progress is shown as in `run`.

    Raises:
        MeasureError: a process of the load failed.
    """
    from halcyon_cli.bench import capacity_runs  # noqa: PLC0415

    signal.signal(signal.SIGTERM, signal.default_int_handler)
    show = line_of_progress(to_log=to_log)
    run_at_rate, document = capacity_runs.run(prepared, answer.percentile, show)
    show("")
    return run_at_rate, document


def run_sweep(
    prepared: Measurement, load: LoadOptions, answer: AnswerOptions, *, judge: Judge | None, to_log: bool = False
) -> tuple[Run, BenchDocument]:
    """Measure the points of --sweep. The progress is shown as in `run`. `judge` is called for each point.

    Raises:
        MeasureError, InputError: a grid is invalid or too large, or a process of the load failed.
    """
    from halcyon_cli.bench import sweep_runs  # noqa: PLC0415

    signal.signal(signal.SIGTERM, signal.default_int_handler)
    show = line_of_progress(to_log=to_log)
    result = sweep_runs.run(prepared, answer, duration_s=load.duration, show=show, judge=judge)
    show("")
    return result


def run_comparison(
    prepared: Measurement,
    server: ServerOptions,
    load: LoadOptions,
    answer: AnswerOptions,
    measurement_of: Callable[[ServerOptions], Measurement],
    *,
    files: Sequence[UsedFile],
) -> tuple[Run, BenchDocument]:
    """Compare the server with the server or the file of --against. Progress is shown as in `run`.

    `measurement_of` returns the measurement for other server options, and `files` are the files of the load.

    Raises:
        MeasureError: a process of the load failed, or the results can't be compared.
        InputError: --against is neither a URL nor a file.
    """
    from halcyon_cli.bench import capacity_runs, comparison_runs  # noqa: PLC0415

    signal.signal(signal.SIGTERM, signal.default_int_handler)
    show, against = line_of_progress(), str(answer.against)
    comparison_runs.conditions(answer)
    if comparison_runs.is_url(against):
        other = replace(server, url=against, model=answer.against_model or server.model)
        result = comparison_runs.in_turns(
            measurement_of(other).prepare(), prepared, answer, has_load=load.has_load, show=show
        )
        show("")
        return result
    if not comparison_runs.is_file(against):
        raise InputError(
            f"--against {against}: with --url it must be a URL or a bench.json, for example --against http://other:8000"
        )
    stored = comparison_runs.read_result(against)
    if not load.has_load and stored.capacity is not None:
        limit = stored.capacity.objective_ms
        objective_s = prepared.objective_s if prepared.objective_s is not None or limit is None else limit / 1000
        percentile = 100 * stored.capacity.percentile
        last_run, document = capacity_runs.run(replace(prepared, objective_s=objective_s), percentile, show)
    else:
        last_run, document = run(prepared if load.has_load else comparison_runs.with_load_of(prepared, stored))
    show("")
    document = document.model_copy(update={"files": tuple(files)})
    name = document.target.model or document.target.url
    return last_run, comparison_runs.with_result((against, stored), (name, document), answer)


def run_within_guard(
    prepared: Measurement, latency_s: float | None, *, to_log: bool = False
) -> tuple[Run, BenchDocument]:
    """Measure a served model in steps with rising rates, and return the last step within the bounds.

    Raises:
        GuardError: no request of the first step was answered.
        MeasureError: a process of the load failed.
    """
    from halcyon_cli.bench import live_steps  # noqa: PLC0415
    from halcyon_measure.results.place import Place  # noqa: PLC0415

    signal.signal(signal.SIGTERM, signal.default_int_handler)
    if prepared.sampling is not None:
        # A served model isn't idle before a step.
        prepared = replace(prepared, sampling=replace(prepared.sampling, idle_s=0.0))
    last_step, last_run, why = live_steps.run(prepared, latency_s, line_of_progress(to_log=to_log))
    document = last_step.document(last_run, made_by=f"halcyon {version('halcyon-cli')}")
    return last_run, document.model_copy(update={"place": Place(kind="live", ended=why or None)})


def line_of_progress(*, to_log: bool = False) -> Callable[[str], None]:
    """Return a function that shows progress.

    On a terminal, the function overwrites one line of stderr. In a log, it writes a line per call. Otherwise, it shows
    nothing.
    """

    def in_place(text: str) -> None:
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)

    def in_log(text: str) -> None:
        # Progress goes to the stream of the result, so that the lines of both don't mix.
        if text:
            print(text, flush=True)

    if to_log:
        return in_log
    return in_place if has_escapes(sys.stderr) else lambda _: None


def write_log(document: BenchDocument, run: Run) -> None:
    """Write the result to stdout as lines that `bench.place.log_result` reads from the pod's log."""
    for line in log_result.lines(log_result.DOCUMENT, document.model_dump_json().encode()):
        print(line)
    with tempfile.TemporaryDirectory(prefix="halcyon-bench-") as folder:
        path = run.save(Path(folder))
        if path.name == log_result.REQUESTS and path.stat().st_size <= log_result.MAX_REQUESTS_BYTES:
            for line in log_result.lines(log_result.REQUESTS, path.read_bytes()):
                print(line)
    sys.stdout.flush()
