"""`halcyon bench --url URL --model NAME`: puts a load on a server, and shows what it answered, how fast, and why not.

Out of scope: the options, each group in a module of `bench.options`, and the measurement (`bench.from_here`).
"""

from __future__ import annotations

import sys
from pathlib import Path

import click

from halcyon_cli.arguments.options import Output, emit, name_argument, output_options
from halcyon_cli.bench import from_here
from halcyon_cli.bench.options.group import repeatable
from halcyon_cli.bench.options.inputs import InputOptions, input_options
from halcyon_cli.bench.options.load import LoadOptions, load_options
from halcyon_cli.bench.options.sampling import SamplingOptions, sampling_options
from halcyon_cli.bench.options.server import ServerOptions, server_options
from halcyon_cli.errors import InputError

_EPILOG = """\
\b
examples:
  halcyon bench --url http://localhost:8000 --model digits
  halcyon bench --url grpc://localhost:8001 --model digits --callers 32
  halcyon bench --url localhost:8000 --model m --rate 200 --objective 500ms
  halcyon bench --url localhost:8000 --model m --trace times.csv --scale 2
  halcyon bench --url localhost:5000/predict --api post --input cat.jpg

\b
scenarios:
  blocking   --callers N: each sends when it has its answer, and after --think
  sustained  --rate R: random arrivals (Poisson)
  burst      --rate R --cv C: gaps with this coefficient of variation;
             or --on T --off T: phases with and without arrivals
  ramp       --rate R --to R: random arrivals whose rate changes evenly
  trace      --trace FILE: arrival times in the column t_s of a CSV file
  offline    --requests N: all are due at once, --callers N in flight

The scenario follows from these options; without any, it is blocking with one
caller. Latency runs from the time when a request was due, so waiting within
the client counts. Failures are results.

\b
presets, in the manner of MLPerf's scenarios, but no MLPerf results:
  singlestream  one caller
  multistream   one caller, 8 rows a request
  server        --rate R
  offline       24,576 requests at once

\b
exit status:
  0  the run is valid
  1  the run isn't valid, or was interrupted: the reasons are shown
  2  nothing was measured: usage error, invalid file, no such server or model
"""


@click.command("bench", epilog=_EPILOG)
@name_argument(required=False)
@server_options
@load_options
@input_options
@sampling_options
@click.option(
    "--save",
    type=click.Path(path_type=Path),
    metavar="FOLDER",
    help="Folder for bench.json and requests.npz, which has every request.",
)
@output_options("table", "json", "yaml")
def main(
    *,
    name: str | None,
    server: ServerOptions,
    load: LoadOptions,
    inputs: InputOptions,
    sampling: SamplingOptions,
    save: Path | None,
    output: Output,
) -> int:
    """Measure a server: put a load on it, and show rates, latencies, failures, and whether the client limited it."""
    from halcyon_measure.measurement import save as save_run  # noqa: PLC0415  # NumPy and the clients take a second to import
    from halcyon_measure.results import text  # noqa: PLC0415
    from halcyon_measure.results.place import Place  # noqa: PLC0415

    if name is not None:
        raise InputError(f"{name}: a ModelDeployment can't be measured yet; measure its address with --url and --model")
    run, document = from_here.run(from_here.measurement(server, load, inputs, sampling).prepare())
    arguments = repeatable(click.get_current_context(), ServerOptions, LoadOptions, InputOptions, SamplingOptions)
    document = document.model_copy(update={"place": Place(kind="url", arguments=arguments)})
    if output.is_data:
        output.data(document.model_dump(mode="json"))
    else:
        emit(text.page(document))
    if save is not None:
        written = " and ".join(map(str, save_run(save, document, run)))
        print(f"halcyon bench: wrote {written}", file=sys.stderr)
    return 0 if document.run.valid else 1
