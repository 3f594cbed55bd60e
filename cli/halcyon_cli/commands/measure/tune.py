"""`halcyon tune NAME`: finds the batch sizes, instances and threads with the highest throughput within an objective.

Out of scope: the search (`halcyon_tune`), the measurement (`halcyon_cli.bench.tune_run`), and the canary of --apply
(`halcyon_cli.bench.canary`).
"""

from __future__ import annotations

import math
import signal
import sys
import time
from dataclasses import fields, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from halcyon_cli.arguments.options import (
    DURATION,
    Output,
    check_unused,
    cluster_options,
    emit,
    name_argument,
    output_options,
    warn,
)
from halcyon_cli.bench.canary import canary_change, canary_session
from halcyon_cli.bench.canary.canary_session import CanarySession
from halcyon_cli.bench.options.apply import ApplyOptions, apply_options
from halcyon_cli.bench.options.inputs import InputOptions, input_options
from halcyon_cli.bench.options.place import PlaceOptions
from halcyon_cli.bench.records import teach
from halcyon_cli.commands.measure.report import chart_library
from halcyon_cli.errors import ClusterError, Failure
from halcyon_cli.kube.client import Target
from halcyon_cli.kube.object_writer import ObjectWriter
from halcyon_measure.errors import MeasureError

if TYPE_CHECKING:
    from collections.abc import Callable

    from halcyon_cli.bench.tune_run import MeasuredTune
    from halcyon_tune.criterion import Minimise
    from halcyon_tune.results.tune_result import TuneResult

_LOG_INTERVAL_S = 30.0
_POD_OPTIONS = frozenset({"budget", "bench_image", "start_timeout", *(field.name for field in fields(InputOptions))})
"""Options of the measurement in a pod, which have no effect with --from-traffic."""
_EPILOG = """\
\b
examples:
  halcyon tune digits
  halcyon tune digits --objective 60ms --rate 2000
  halcyon tune digits --budget 20m -o json
  halcyon tune digits -o html > tune.html
  halcyon tune digits --from-traffic
  halcyon tune digits --apply
  kubectl patch modeldeployment digits --type merge \\
    -p "$(halcyon tune digits -o json | jq -c .patch)"

A pod with a copy of the model and a client is measured. The served model stays as it is, and nothing is written to it
without --apply or --teach.

\b
steps:
  1  one instance, callers rising: the time of a batch by its rows, memory
  2  more instances, while they gain: what sharing a device costs
  3  all configurations, predicted by Halcyon's simulator
  4  those that could be best, measured; errors correct the predictions
  5  the best and today's settings in turns: the gain with its interval
  6  replicas for --rate, by the planner's sizing

It ends when no other configuration can beat the best by more than its error, at --budget, or at Ctrl-C with the best so far.
It needs the packages of the extras bench and simulate: pip install './cli[bench,simulate]', in a clone.

\b
--apply:
  A gain that was shown is made as a canary of the served model, with the
  steps of spec.rollout.canary. It stays if the analysis finds the canary as
  good as the previous settings. Else the change is taken back: if it is
  worse, without a decision within --canary-timeout, without capacity, at an
  error and at Ctrl-C. The command asks before the change; --yes answers.

\b
exit status:
  0  there is a better configuration, or nothing to change; with --apply: the
     better one serves
  1  it isn't decided: no configuration works, the noise is too large, the
     budget ended before one was measured at a rate, or the tuning was
     interrupted; --apply or --teach changed nothing
  2  nothing was measured: usage error, no such model, nothing to tune, an
     objective below one row, no room or no rights for the pod, no canary
     could be started
"""


@click.command("tune", epilog=_EPILOG)
@name_argument()
@click.option(
    "--objective", type=DURATION, metavar="TIME", help="Latency that the P99 must keep. Default: the model's target."
)
@click.option(
    "--rate", type=click.FloatRange(min=0, min_open=True), metavar="R", help="Requests per second of all replicas."
)
@click.option(
    "--minimise",
    type=click.Choice(("cost", "energy", "latency")),
    default="cost",
    help="What to find: the least cost or energy of a request, or the least P99 at --rate. Default: cost.",
)
@click.option(
    "--budget", type=DURATION, default=600.0, metavar="TIME", help="Longest time of all points. Default: 10m."
)
@click.option("--from-traffic", is_flag=True, help="Predict from what the planner has learnt, without a pod.")
@apply_options
@input_options
@click.option("--bench-image", default="", metavar="IMAGE", help="Image of the client. Default: the site's.")
@click.option(
    "--start-timeout",
    type=DURATION,
    default=PlaceOptions.start_timeout,
    metavar="TIME",
    help="Longest wait for the pod. Default: 10m.",
)
@cluster_options
@output_options("table", "json", "yaml", "html")
def main(
    *,
    name: str,
    objective: float | None,
    rate: float | None,
    minimise: Minimise,
    budget: float,
    from_traffic: bool,
    apply: ApplyOptions,
    inputs: InputOptions,
    bench_image: str,
    start_timeout: float,
    target: Target,
    output: Output,
) -> int:
    """Find the batches, instances and threads with which a model serves most within its objective.

    Prints a patch, the gain with its interval, and the measured points that no other one beats in rate and P99. With
    --apply, a gain that was shown is made as a canary.
    """
    # NumPy and the simulator take a second to import.
    from halcyon_cli.bench import from_here, tune_run  # noqa: PLC0415
    from halcyon_cli.commands.bench import main as bench  # noqa: PLC0415

    apply.check(from_traffic=from_traffic, is_terminal=sys.stdin.isatty())
    if not apply.apply:
        check_unused(("canary_timeout",), "limits the canary of --apply; add --apply, or leave it out")
    if from_traffic:
        check_unused(_POD_OPTIONS, "is for points in a pod, and --from-traffic measures none; leave one of them out")
    cluster = ObjectWriter(target)
    request = tune_run.TuneRequest(
        name=name, objective_s=objective, rate_rps=rate, minimise=minimise, budget_s=budget
    ).check()
    if from_traffic:
        result = tune_run.from_traffic(cluster.model(name), request)
        _show(result, cluster.namespace, output)
        return _status(result)
    if apply.apply:
        canary_session.check(cluster, name)
    show = from_here.line_of_progress()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    place = PlaceOptions(trial=True, bench_image=bench_image, start_timeout=start_timeout, teach=apply.teach)
    tuned = tune_run.measured(cluster, request, bench, show, inputs=inputs, place=place)
    show("")
    result = tuned.result
    is_page = output.form == "table"
    if is_page:
        _show(result, cluster.namespace, output)
    if apply.apply:
        result = _apply_as_canary(cluster, result, apply, start_timeout, show)
    if not is_page:
        _show(result, cluster.namespace, output)
    elif result.canary is not None:
        emit(f"canary    {result.canary['end']}: {result.canary['why']}")
    is_taught = _teach(cluster, tuned, result) if apply.teach else True
    return _status(result, apply=apply.apply) if is_taught else 1


def _apply_as_canary(
    cluster: ObjectWriter,
    result: TuneResult,
    apply: ApplyOptions,
    start_s: float,
    show: Callable[[str], None],
) -> TuneResult:
    """Return the result, with the result of the canary if one was started."""
    command = cluster.target.command
    if not result.is_shown:
        warn(command, f"nothing is applied: {result.why or result.end}")
        return result
    try:
        model = cluster.model(result.name)
    except ClusterError as error:  # the result isn't shown yet
        return replace(result, canary={"end": "failed", "why": str(error), "revision": None})
    for note in canary_change.notes(model):
        warn(command, note)
    question = (
        f"apply as a canary of {result.name} in namespace {cluster.namespace}: {canary_change.steps_text(model['spec'])}, "
        f"{canary_change.min_duration_s(model['spec']) / 60:.0f} min or longer?"
    )
    if not apply.yes and not _is_confirmed(question):
        return replace(result, canary={"end": "declined", "why": "nothing was changed", "revision": None})
    for signal_number in canary_session.SIGNALS:
        signal.signal(signal_number, signal.default_int_handler)
    show = show if sys.stderr.isatty() else _throttled_progress(command)
    session = CanarySession(cluster, result.name, limit_s=apply.canary_timeout, start_s=start_s, show=show)
    try:
        canary = session.run(result.change["spec"]).document()
    except Failure as error:
        canary = {"end": "failed", "why": str(error), "revision": None}
    show("")
    return replace(result, canary=canary)


def _throttled_progress(command: str) -> Callable[[str], None]:
    """Return a function that prints progress to stderr for a log, at most one line per `_LOG_INTERVAL_S`."""
    last = -math.inf

    def show(text: str) -> None:
        nonlocal last
        if text and time.monotonic() - last >= _LOG_INTERVAL_S:
            last = time.monotonic()
            warn(command, text)

    return show


def _is_confirmed(question: str) -> bool:
    try:
        return click.confirm(question, err=True)
    except click.Abort:
        return False


def _teach(cluster: ObjectWriter, tuned: MeasuredTune, result: TuneResult) -> bool:
    """Store the measured capacity of the serving revision, and return whether it was stored."""
    canary = result.canary or {}
    revision = str(canary.get("revision") or "") if canary.get("end") == "promoted" else ""
    command = cluster.target.command
    try:
        model, capacity = cluster.model(result.name), tuned.capacity(revision=revision)
        teach.write(cluster, model, capacity)
    except (Failure, MeasureError) as error:
        warn(command, str(error))
        return False
    warn(command, teach.sentence(model, capacity))
    return True


def _show(result: TuneResult, namespace: str, output: Output) -> None:
    if output.form == "html":
        from halcyon_tune.results.html_page import html_page  # noqa: PLC0415

        library, style = chart_library()
        created_at = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
        emit(html_page(result, namespace, created_at=created_at, library=library, library_style=style).rstrip("\n"))
    elif output.is_data:
        output.data(result.document())
    else:
        from halcyon_tune.results.text_page import page  # noqa: PLC0415

        emit(page(result, namespace))


def _status(result: TuneResult, *, apply: bool = False) -> int:
    """Return the exit status of the command."""
    if result.end in {"undecided", "interrupted", "failed"} or result.best is None:
        return 1
    is_done = not result.change or (result.canary or {}).get("end") == "promoted"
    return 0 if is_done or not apply else 1
