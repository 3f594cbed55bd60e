"""`halcyon bench NAME`, or `--url URL --model NAME`: puts a load on a server, and shows its throughput and latency.

Out of scope: the options, each group in a module of `bench.options`, the measurement from the user's machine
(`bench.from_here`), and the measurement in the cluster (`bench.place`).
"""

from __future__ import annotations

import signal
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from halcyon_cli.arguments.options import Output, cluster_options, emit, names_argument, output_options
from halcyon_cli.bench import again, from_here, result_folder, second_engine, several_results
from halcyon_cli.bench.again import RepeatingCommand, again_option
from halcyon_cli.bench.model_file import check_file, with_model
from halcyon_cli.bench.options import consistency
from halcyon_cli.bench.options.answer import AnswerOptions, answer_options
from halcyon_cli.bench.options.group import repeatable
from halcyon_cli.bench.options.inputs import InputOptions, input_options
from halcyon_cli.bench.options.load import LoadOptions, load_options
from halcyon_cli.bench.options.model_file import ModelFileOptions, model_file_options
from halcyon_cli.bench.options.place import PlaceOptions, place_options
from halcyon_cli.bench.options.pod import PodOptions, pod_options
from halcyon_cli.bench.options.sampling import SamplingOptions, sampling_options
from halcyon_cli.bench.options.server import ServerOptions, server_options
from halcyon_cli.bench.place import in_cluster, manifest
from halcyon_cli.bench.place.bench_request import BenchRequest
from halcyon_cli.bench.place.site import read_site
from halcyon_cli.bench.records import past_results, teach
from halcyon_cli.bench.turns import copies, sides
from halcyon_cli.errors import ClusterError, InputError
from halcyon_cli.kube.client import Target
from halcyon_cli.kube.object_writer import ObjectWriter

if TYPE_CHECKING:
    from halcyon_measure.results.document import BenchDocument

_EPILOG = """\
\b
examples:
  halcyon bench digits
  halcyon bench digits --objective 500ms --percentile 95
  halcyon bench digits --objective 500ms --teach
  halcyon bench digits --rate 200 --objective 500ms --replicas 2
  halcyon bench digits --trial --callers 8 --shared-memory system
  halcyon bench digits --rate 50 -o yaml > job.yaml
  halcyon bench history digits
  halcyon bench --url http://localhost:8000 --model digits
  halcyon bench --url grpc://localhost:8001 --model digits --callers 32
  halcyon bench --url localhost:8000 --model m --rate 200 --objective 500ms
  halcyon bench --url localhost:8000 --model m --trace times.csv --scale 2
  halcyon bench --url localhost:5000/predict --api post --input cat.jpg
  halcyon bench --url http://new:8000 --model m --against http://old:8000
  halcyon bench digits --sweep 'rows=1,8 x callers=1..32'
  halcyon bench digits --against last --fail-if 'capacity < -5%'
  halcyon bench --url localhost:8000 --model m --engine perf_analyzer

\b
a served model:
  A copy with one replica gets the load, from a pod beside it, and the served
  model stays as it is. Kubernetes removes both when the command ends, also
  when it is killed. -o json prints the result, -o yaml a Job that runs the
  command itself.

\b
scenarios:
  blocking   --callers N: each sends when it has its answer, and after --think
  sustained  --rate R: random arrivals (Poisson)
  burst      --rate R --cv C: gaps with this coefficient of variation;
             or --on T --off T: phases with and without arrivals
  ramp       --rate R --to R: random arrivals whose rate changes evenly
  trace      --trace FILE: arrival times in the column t_s of a CSV file
  offline    --requests N: all are due at once, --callers N in flight

The scenario follows from these options. Without any, the command searches for
the largest rate of random arrivals that keeps --objective: the answer is one
sentence, after at most 8 runs and 6 minutes. Latency runs from the time when a request was due, so waiting within
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
  1  the run isn't valid, or was interrupted: the reasons are shown; or it
     can't be compared, a condition of --fail-if is met or has no interval,
     --engine perf_analyzer has no result, --teach had nothing to write, or
     --save failed
  2  nothing was measured: usage error, invalid file, no such server or model,
     no room or no rights for a copy
"""


@click.command("bench", cls=RepeatingCommand, epilog=_EPILOG)
@names_argument()
@server_options
@load_options
@answer_options
@input_options
@sampling_options
@place_options
@pod_options
@model_file_options
@again_option
@click.option(
    "--save",
    type=click.Path(path_type=Path),
    metavar="FOLDER",
    help="Folder for bench.json and requests.npz, which has every request.",
)
@cluster_options
@output_options("table", "json", "yaml")
def main(
    *,
    names: tuple[str, ...],
    server: ServerOptions,
    load: LoadOptions,
    answer: AnswerOptions,
    inputs: InputOptions,
    sampling: SamplingOptions,
    place: PlaceOptions,
    pod: PodOptions,
    model_file: ModelFileOptions,
    save: Path | None,
    target: Target,
    output: Output,
) -> int:
    """Measure a served model, by a copy of it that Kubernetes removes afterwards, or any server.

    NAME is a ModelDeployment. Without it, --url names a server. Several names make a leaderboard; each is a ModelDeployment,
    a URL with the model after #, or a bench.json. `halcyon bench history NAME` lists earlier results.
    """
    if len(names) == 2 and names[0] == "history":
        return past_results.show(ObjectWriter(target), names[1], output)
    consistency.check(names, server=server, place=place, pod=pod, model_file=model_file, target=target)
    if len(names) > 1:
        return _measure_several(
            names,
            server=server,
            load=load,
            answer=answer,
            inputs=inputs,
            sampling=sampling,
            place=place,
            save=save,
            target=target,
            output=output,
        )
    check_file(model_file)
    if pod.sides:
        return sides.run(server=server, load=load, answer=answer, inputs=inputs, sampling=sampling, pod=pod)
    if not names:
        return _measure_url(
            server=server,
            load=load,
            answer=answer,
            inputs=inputs,
            sampling=sampling,
            pod=pod,
            model_file=model_file,
            save=save,
            output=output,
        )
    request = BenchRequest(
        name=names[0], server=server, load=load, answer=answer, inputs=inputs, sampling=sampling, place=place
    ).check()
    if output.form == "yaml":
        cluster = ObjectWriter(target)
        site = read_site(cluster, request.name, image=place.bench_image)
        emit(manifest.text(request, click.get_current_context().command, site, cluster.namespace))
        return 0
    return _measure_model(request, ObjectWriter(target), model_file, save, output)


def _measure_url(
    *,
    server: ServerOptions,
    load: LoadOptions,
    answer: AnswerOptions,
    inputs: InputOptions,
    sampling: SamplingOptions,
    pod: PodOptions,
    model_file: ModelFileOptions,
    save: Path | None,
    output: Output,
) -> int:
    from halcyon_measure.measurement import save as save_run  # noqa: PLC0415  # NumPy and the clients take a second to import
    from halcyon_measure.results.place import Place  # noqa: PLC0415

    answer.check()
    measurement = from_here.measurement(server, load, inputs, sampling)
    if pod.points:
        from halcyon_cli.bench.trial import point_server  # noqa: PLC0415  # only in a trial pod

        signal.signal(signal.SIGTERM, signal.default_int_handler)
        wait_s = pod.wait or 0.0
        return point_server.serve(
            lambda: from_here.prepared_within(measurement, wait_s), from_here.line_of_progress(to_log=True)
        )
    prepared = measurement.prepare() if pod.wait is None else from_here.prepared_within(measurement, pod.wait)
    result_folder.check(save)
    files = again.files(load, inputs)
    judge = second_engine.judge(answer, prepared, from_here.line_of_progress(to_log=pod.to_log))
    if pod.guard:
        run, document = from_here.run_within_guard(prepared, pod.guard_latency, to_log=pod.to_log)
    else:
        if answer.against:
            run, document = from_here.run_comparison(
                prepared,
                server,
                load,
                answer,
                lambda other: from_here.measurement(other, load, inputs, sampling),
                files=files,
            )
        elif answer.sweep:
            run, document = from_here.run_sweep(prepared, load, answer, judge=judge, to_log=pod.to_log)
        elif load.has_load:
            run, document = from_here.run(prepared, to_log=pod.to_log)
            document = document if judge is None else judge(prepared, document)
        else:
            run, document = from_here.run_search(prepared, answer, to_log=pod.to_log)
            if judge is not None:
                document = judge(second_engine.at_chosen_rate(prepared, document), document)
        repeated = repeatable(click.get_current_context().command, server, load, answer, inputs, sampling)
        document = document.model_copy(update={"place": Place(kind="url", arguments=repeated), "files": files})
    if pod.to_log:
        from_here.write_log(document, run)
        return _status(document, answer)
    document = with_model(document, model_file)
    try:
        _show(document, output)
    finally:  # stdout may be a full disk
        is_saved = result_folder.write(save, lambda folder: " and ".join(map(str, save_run(folder, document, run))))
    return _status(document, answer) if is_saved else 1


def _status(document: BenchDocument, answer: AnswerOptions) -> int:
    """Return the exit status: 1 if the run is invalid or not compared, or if a condition of --fail-if is violated."""
    from halcyon_measure.compare import bound  # noqa: PLC0415

    if document.comparison is None:
        return 0 if document.run.valid and not answer.against and second_engine.has_result(document) else 1
    return 0 if document.run.valid and bound.is_passed(document.comparison) else 1


def _measure_model(
    request: BenchRequest,
    cluster: ObjectWriter,
    model_file: ModelFileOptions,
    save: Path | None,
    output: Output,
) -> int:
    model = cluster.model(request.name)
    result_folder.check(save)
    show = from_here.line_of_progress()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    command = click.get_current_context().command
    stored, document, requests = None, None, None
    if several_results.is_model(request.answer.against):
        pair = [replace(request, name=str(request.answer.against)), request]
        documents = copies.run(cluster, pair, command, show)
        document = documents[0] if documents else None
    if request.answer.against and document is None:
        stored = several_results.baseline(
            cluster,
            request.name,
            request.answer,
            lambda name: in_cluster.run(cluster, replace(request, name=name), command, show)[0],
        )
        request = several_results.repeating(request, stored[1])
    if document is None:
        document, requests = in_cluster.run(cluster, request, command, show)
    show("")
    document = document.model_copy(update={"files": again.files(request.load, request.inputs)})
    document = with_model(document, model_file)
    if stored is not None:
        document = several_results.compared(stored, request.name, document, request.answer)
    measured = document
    try:
        _show(document, output)
    finally:
        is_saved = result_folder.write(save, lambda folder: result_folder.write_document(folder, measured, requests))
    try:
        in_cluster.remember(cluster, model, document)
    except ClusterError as error:
        print(f"halcyon bench: the result isn't kept in the history: {error}", file=sys.stderr)
    if request.place.teach:
        try:
            capacity = teach.measured(document)
            teach.write(cluster, model, capacity)
        except (InputError, ClusterError) as error:
            print(f"halcyon bench: {error}", file=sys.stderr)
            return 1
        print(f"halcyon bench: {teach.sentence(model, capacity)}", file=sys.stderr)
    return _status(document, request.answer) if is_saved else 1


def _measure_several(
    names: tuple[str, ...],
    *,
    server: ServerOptions,
    load: LoadOptions,
    answer: AnswerOptions,
    inputs: InputOptions,
    sampling: SamplingOptions,
    place: PlaceOptions,
    save: Path | None,
    target: Target,
    output: Output,
) -> int:
    """Search for the capacity of several models and servers, and show the results as a leaderboard.

    Results from files are included. If two ModelDeployments and a load are given, the second one is compared with the
    first instead.
    """
    if load.has_load and len(names) == 2 and all(map(several_results.is_model, names)) and not answer.against:
        request = BenchRequest(
            name=names[1],
            server=server,
            load=load,
            answer=replace(answer, against=names[0]),
            inputs=inputs,
            sampling=sampling,
            place=place,
        )
        return _measure_model(request.check(), ObjectWriter(target), ModelFileOptions(), save, output)
    if answer.engine != "halcyon":
        raise InputError(f"--engine {answer.engine} measures one model or server; for example halcyon bench {names[0]}")
    if load.has_load or answer.against:
        raise InputError(
            f"{' '.join(names)}: several are compared by the largest rate of each, so a load or --against has no effect; leave it out, "
            "or compare two ModelDeployments"
        )
    result_folder.check(save)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    show, command = from_here.line_of_progress(), click.get_current_context().command

    def request_of(name: str) -> BenchRequest:
        return BenchRequest(
            name=name, server=server, load=load, answer=answer, inputs=inputs, sampling=sampling, place=place
        ).check()

    def measure(name: str) -> BenchDocument:
        url, sign, model = name.partition("#")
        if "://" in url:
            if not sign and not server.model:
                raise InputError(f"{name}: it needs the model after #, for example {url}#digits")
            measurement = from_here.measurement(
                replace(server, url=url, model=model or server.model), load, inputs, sampling
            )
            document = from_here.run_search(measurement.prepare(), answer)[1]
            return document.model_copy(update={"files": again.files(load, inputs)})
        return in_cluster.run(ObjectWriter(target), request_of(name), command, show)[0]

    document = several_results.leaderboard(
        names,
        answer.check(),
        measure,
        lambda models: copies.run(ObjectWriter(target), list(map(request_of, models)), command, show),
    )
    show("")
    try:
        _show(document, output)
    finally:
        is_saved = result_folder.write(save, lambda folder: result_folder.write_document(folder, document, None))
    return _status(document, answer) if is_saved else 1


def _show(document: BenchDocument, output: Output) -> None:
    from halcyon_measure.results import text  # noqa: PLC0415
    from halcyon_measure.roofline.text import sections  # noqa: PLC0415

    if output.is_data:
        output.data(document.model_dump(mode="json"))
    else:
        emit("\n".join([text.page(document), *sections(document)]))
