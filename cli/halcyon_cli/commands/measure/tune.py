"""`halcyon tune NAME`: finds the batch sizes, instances and threads that serve most within an objective.

Out of scope: the search (`halcyon_tune`), and the measurement (`halcyon_cli.bench.tune_run`).
"""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import click

from halcyon_cli.arguments.options import DURATION, Output, cluster_options, emit, name_argument, output_options
from halcyon_cli.bench.options.inputs import InputOptions, input_options
from halcyon_cli.bench.options.place import PlaceOptions
from halcyon_cli.kube.client import Target
from halcyon_cli.kube.object_writer import ObjectWriter

if TYPE_CHECKING:
    from halcyon_tune.criterion import Minimise

_EPILOG = """\
\b
examples:
  halcyon tune digits
  halcyon tune digits --objective 60ms --rate 2000
  halcyon tune digits --budget 20m -o json
  halcyon tune digits --from-traffic
  kubectl patch modeldeployment digits --type merge \\
    -p "$(halcyon tune digits -o json | jq -c .patch)"

A pod with a copy of the model and a client is measured. The served model stays as it is, and nothing is written to it.

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
exit status:
  0  there is a better configuration, or nothing to change
  1  it isn't decided: no configuration works, the noise is too large, the
     budget was too short, or the tuning was interrupted
  2  nothing was measured: usage error, no such model, nothing to tune, an
     objective below one row, no room or no rights for the pod
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
@output_options("table", "json", "yaml")
def main(
    *,
    name: str,
    objective: float | None,
    rate: float | None,
    minimise: Minimise,
    budget: float,
    from_traffic: bool,
    inputs: InputOptions,
    bench_image: str,
    start_timeout: float,
    target: Target,
    output: Output,
) -> int:
    """Find the batches, instances and threads with which a model serves most within its objective.

    Prints a patch, the gain with its interval, and the measured points that no other one beats in rate and P99.
    """
    # NumPy and the simulator take a second to import.
    from halcyon_cli.bench import from_here, tune_run  # noqa: PLC0415
    from halcyon_cli.commands.bench import main as bench  # noqa: PLC0415
    from halcyon_tune.page import page  # noqa: PLC0415

    cluster = ObjectWriter(target)
    request = tune_run.TuneRequest(name=name, objective_s=objective, rate_rps=rate, minimise=minimise, budget_s=budget)
    if from_traffic:
        found = tune_run.from_traffic(cluster.model(name), request)
    else:
        shown = from_here.line_of_progress()
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        place = PlaceOptions(trial=True, bench_image=bench_image, start_timeout=start_timeout)
        found = tune_run.measured(cluster, request, bench, shown, inputs=inputs, place=place)
        shown("")
    if output.is_data:
        output.data(found.document())
    else:
        emit(page(found, cluster.namespace))
    is_open = found.end in {"undecided", "interrupted", "failed"} or found.best is None
    return 1 if is_open else 0
