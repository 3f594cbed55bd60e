"""`halcyon bench --url URL --model NAME`: puts a load on a server, and shows what it answered, how fast, and why not.

Out of scope: the load itself and its statistics (`halcyon_measure`).
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from halcyon_cli.arguments.options import DURATION, Output, emit, output_options
from halcyon_cli.errors import InputError

if TYPE_CHECKING:
    from halcyon_measure.measurement import Measurement
    from halcyon_measure.results.settling import Block
    from halcyon_measure.schedule.scenario import Kind

_KINDS = ("blocking", "sustained", "burst", "ramp", "trace", "offline")
_PRESETS = ("singlestream", "multistream", "server")
_ENCODINGS = ("binary", "json", "raw", "typed")
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
@click.option(
    "--url", required=True, metavar="URL", help="Server: http://, https://, grpc:// or grpcs://, host and port."
)
@click.option("--model", default="", metavar="NAME", help="Name of the model on the server.")
@click.option(
    "--version", "version", default="", metavar="N", help="Version of the model. Default: chosen by the server."
)
@click.option(
    "--api",
    type=click.Choice(("kserve", "tfserving", "post")),
    default="kserve",
    help="KServe v2, TensorFlow Serving's REST, or a plain POST. Default: kserve.",
)
@click.option(
    "--encoding",
    type=click.Choice(_ENCODINGS),
    help="Form of the tensors: binary or json over HTTP, raw or typed over gRPC. Default: binary, raw.",
)
@click.option("--scenario", type=click.Choice(_KINDS), help="Kind of load.")
@click.option("--preset", type=click.Choice((*_PRESETS, "offline")), help="A common load.")
@click.option("--duration", type=DURATION, metavar="TIME", help="Measured time, after warm-up. Default: 10s.")
@click.option("--requests", type=int, metavar="N", help="Largest number of measured requests.")
@click.option("--callers", type=int, metavar="N", help="Callers at a time. Default: 1.")
@click.option("--think", type=DURATION, metavar="TIME", help="Pause of a caller after its answer.")
@click.option("--rate", type=float, metavar="R", help="Requests per second.")
@click.option("--to", "to_rps", type=float, metavar="R", help="Requests per second at the end of a ramp.")
@click.option("--cv", type=float, metavar="C", help="Coefficient of variation of the gaps of a burst; 1 is Poisson.")
@click.option("--on", "on_s", type=DURATION, metavar="TIME", help="Length of the busy phases of a burst.")
@click.option("--off", "off_s", type=DURATION, metavar="TIME", help="Length of its idle phases.")
@click.option(
    "--trace", "trace", type=click.Path(path_type=Path), metavar="FILE", help="Arrival times: .csv or .csv.gz."
)
@click.option("--scale", type=float, default=1.0, metavar="N", help="Play a trace N times as fast. Default: 1.")
@click.option(
    "--max-in-flight",
    type=int,
    default=4096,
    metavar="N",
    help="Requests in flight above which a due one counts as not sent. Default: 4096.",
)
@click.option("--seed", type=int, default=1, metavar="N", help="Seed of arrivals and values. Default: 1.")
@click.option("--objective", type=DURATION, metavar="TIME", help="Latency up to which an answer is good.")
@click.option(
    "--input",
    "inputs",
    multiple=True,
    metavar="[INPUT=]PATH",
    help="File, or folder of files, to send in turn. Default: random values that fit the model's metadata.",
)
@click.option("--rows", default="", metavar="N", help="Rows of a request: 8, or 1..8. Default: 1.")
@click.option(
    "--shape",
    "shapes",
    multiple=True,
    metavar="INPUT=N,N",
    help="Sizes of an input's open dimensions, without the rows.",
)
@click.option(
    "--pixel-scale",
    type=click.FloatRange(min=0, min_open=True),
    metavar="N",
    help="Value of a white pixel, if an input is an image.",
)
@click.option(
    "--decode", is_flag=True, help="Read and convert each file when its request is due, in processes of their own."
)
@click.option(
    "--prepare",
    default="",
    metavar="FILE.py:FUNCTION",
    help="Function that makes the tensors of a request, timed apart.",
)
@click.option("--finish", default="", metavar="FILE.py:FUNCTION", help="Function that takes the outputs of an answer.")
@click.option(
    "--hook-processes",
    type=int,
    default=1,
    metavar="N",
    help="Processes for these functions, for each process that sends. Default: 1.",
)
@click.option(
    "--expect", default="", metavar="FILE.npz", help="Outputs that every answer must have; others count as wrong."
)
@click.option(
    "--content-type", default="application/octet-stream", metavar="TYPE", help="Type of the body with --api post."
)
@click.option(
    "--header", "headers", multiple=True, metavar="NAME:VALUE", help="Header of every request, over gRPC its metadata."
)
@click.option(
    "--api-key-file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="File with an API key, sent as Authorization: Bearer.",
)
@click.option("--ca", metavar="FILE", help="Certificates of the authorities to trust. Default: the system's.")
@click.option("--server-name", metavar="NAME", help="Name in the server's certificate. Default: the host of the URL.")
@click.option("--cert", metavar="FILE", help="Certificate of the client.")
@click.option("--key", metavar="FILE", help="Key of the client's certificate.")
@click.option(
    "--request-timeout", type=DURATION, default=30.0, metavar="TIME", help="Time-out of a request. Default: 30s."
)
@click.option(
    "--channels", type=click.IntRange(1, 256), default=4, metavar="N", help="Connections of gRPC. Default: 4."
)
@click.option(
    "--warm-up",
    "warm_up",
    type=str,
    default="",
    metavar="TIME",
    help="Fixed warm-up; 0 for none. Default: until rate and median have settled, at most 30s.",
)
@click.option(
    "--processes",
    type=int,
    metavar="N",
    help="Processes that send. Default: as many as the load needs, at most one for each core.",
)
@click.option("--pod-header", default="", metavar="NAME", help="Header of an answer that names the replica.")
@click.option(
    "--save",
    type=click.Path(path_type=Path),
    metavar="FOLDER",
    help="Folder for bench.json and requests.npz, which has every request.",
)
@output_options("table", "json", "yaml")
def main(output: Output, save: Path | None, **options: Any) -> int:
    """Measure a server: put a load on it, and show rates, latencies, failures, and whether the client limited it."""
    from importlib.metadata import version  # noqa: PLC0415

    from halcyon_measure.measurement import save as save_run  # noqa: PLC0415  # NumPy and the clients take a second to import
    from halcyon_measure.results import text  # noqa: PLC0415

    measurement = _measurement(**options).prepare()
    # A Job's end, like Ctrl-C, gives the result so far.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    run = measurement.run(_Progress() if sys.stderr.isatty() else None)
    if sys.stderr.isatty():
        print("\r\033[K", end="", file=sys.stderr, flush=True)
    document = measurement.document(run, made_by=f"halcyon {version('halcyon-cli')}")
    if output.is_data:
        output.data(document.model_dump(mode="json"))
    else:
        emit(text.page(document))
    if save is not None:
        written = " and ".join(map(str, save_run(save, document, run)))
        print(f"halcyon bench: wrote {written}", file=sys.stderr)
    return 0 if document.run.valid else 1


class _Progress:
    """One line on stderr that is written anew each second."""

    def __call__(self, phase: str, seconds: float, block: Block) -> None:
        middle = f", median {1000 * block.median_s:.1f} ms" if block.median_s is not None else ""
        failed = f", {block.failed} failed" if block.failed else ""
        print(
            f"\r\033[K{phase} {seconds:.0f} s: {block.answered}/s{failed}{middle}", end="", file=sys.stderr, flush=True
        )


def _measurement(**options: Any) -> Measurement:
    """Return the measurement of the command's options.

    Raises:
        MeasureError, InputError: an option is invalid, or two don't fit each other.
    """
    from halcyon_measure.engine.hooks import DECODE, HookSettings, sample_paths  # noqa: PLC0415
    from halcyon_measure.engine.job import PayloadSettings  # noqa: PLC0415
    from halcyon_measure.inputs.payloads import Rows  # noqa: PLC0415
    from halcyon_measure.measurement import Measurement  # noqa: PLC0415
    from halcyon_measure.protocols import target  # noqa: PLC0415
    from halcyon_measure.protocols.target import Tls  # noqa: PLC0415
    from halcyon_measure.schedule.scenario import PRESET_ROWS  # noqa: PLC0415

    if options["decode"] and options["prepare"]:
        raise InputError("--decode and --prepare both prepare a request; leave one of them out")
    if options["api"] != "post" and not options["model"]:
        raise InputError("--model is needed with this API; for example --model digits")
    preset = options["preset"] or ""
    timed = bool(options["decode"] or options["prepare"])
    paths = sample_paths([path for _, path in map(_named, options["inputs"])]) if timed else ()
    payload = PayloadSettings(
        samples=() if timed else _samples(options["inputs"]),
        rows=Rows.parse(options["rows"] or str(PRESET_ROWS.get(preset, 1))),
        shapes=tuple(map(_shape, options["shapes"])),
        pixel_scale=options["pixel_scale"],
        seed=options["seed"],
    )
    return Measurement(
        target=target.parse(
            options["url"],
            api=options["api"],
            transport=None,
            encoding=options["encoding"],
            model=options["model"],
            version=options["version"],
            tls=Tls(
                ca=options["ca"],
                certificate=options["cert"],
                key=options["key"],
                server_name=options["server_name"],
            ),
            headers=_headers(options["headers"], options["api_key_file"]),
            timeout_s=options["request_timeout"],
            channels=options["channels"],
            content_type=options["content_type"],
        ),
        scenario=_scenario(options, preset),
        preset=preset,
        payload=payload,
        hooks=HookSettings(
            prepare=DECODE if options["decode"] else options["prepare"],
            finish=options["finish"],
            samples=paths,
            pixel_scale=options["pixel_scale"],
            processes=options["hook_processes"],
        ),
        warm_up=_warm_up(options["warm_up"]),
        processes=options["processes"],
        objective_s=options["objective"],
        expect=options["expect"],
        pod_header=options["pod_header"].lower(),
    )


def _scenario(options: dict[str, Any], preset: str) -> Any:
    from halcyon_measure.schedule import trace_file  # noqa: PLC0415
    from halcyon_measure.schedule.scenario import PRESETS, Scenario  # noqa: PLC0415

    given = {
        "duration_s": options["duration"],
        "requests": options["requests"],
        "callers": options["callers"],
        "think_s": options["think"],
        "rate_rps": options["rate"],
        "to_rps": options["to_rps"],
        "cv": options["cv"],
        "on_s": options["on_s"],
        "off_s": options["off_s"],
    }
    given = {name: value for name, value in given.items() if value is not None}
    if preset:
        base = Scenario(**PRESETS[preset][1])
        if options["scenario"] not in {None, base.kind}:
            raise InputError(
                f"preset {preset} is scenario {base.kind}, not {options['scenario']}; leave one of them out"
            )
    else:
        base = Scenario(kind=options["scenario"] or _kind(options))
        if base.kind == "offline":
            base = replace(base, callers=256, duration_s=600.0)
    if options["trace"] is not None:
        given["trace"] = trace_file.read(options["trace"], scale=options["scale"])
    made = replace(base, **given, max_in_flight=options["max_in_flight"], seed=options["seed"])
    return made.check()


def _kind(options: dict[str, Any]) -> Kind:
    """Return the scenario that the options imply."""
    if options["trace"] is not None:
        return "trace"
    if options["to_rps"] is not None:
        return "ramp"
    if options["cv"] is not None or options["on_s"] is not None or options["off_s"] is not None:
        return "burst"
    return "sustained" if options["rate"] is not None else "blocking"


def _warm_up(text: str) -> Any:
    from halcyon.api.types import duration_s  # noqa: PLC0415
    from halcyon_measure.engine.pool import WarmUp  # noqa: PLC0415

    if not text:
        return WarmUp()
    if text == "0":
        return WarmUp(0.0, fixed=True)
    try:
        return WarmUp(duration_s(text), fixed=True)
    except ValueError as error:
        raise InputError(f"--warm-up: {error}") from None


def _named(argument: str) -> tuple[str, str]:
    """Parse [INPUT=]PATH into (input, path). An existing path whose name contains = is read as PATH alone."""
    name, sign, path = argument.partition("=")
    return (name, path) if sign and not Path(argument).exists() else ("", argument)


def _samples(arguments: Sequence[str]) -> tuple[tuple[tuple[str, str], ...], ...]:
    """Return the files of each request: one for each file of a folder, or one with all the given files."""
    from halcyon_measure.engine.hooks import sample_paths  # noqa: PLC0415

    named = [_named(argument) for argument in arguments]
    if not named:
        return ()
    if len(named) == 1:
        name, path = named[0]
        return tuple(((name, one),) for one in sample_paths([path]))
    if folders := [path for _, path in named if Path(path).is_dir()]:
        raise InputError(f"--input {folders[0]} is a folder; it can't be combined with other inputs")
    return (tuple(named),)


def _shape(argument: str) -> tuple[str, tuple[int, ...]]:
    name, _, sizes = argument.rpartition("=")
    try:
        shape = tuple(int(size) for size in sizes.split(","))
    except ValueError:
        shape = ()
    if not name or not shape or min(shape) < 1:
        raise InputError(f"--shape {argument}: it must be INPUT=SIZES, for example --shape image=3,224,224")
    return name, shape


def _headers(arguments: Sequence[str], key_file: Path | None) -> tuple[tuple[str, str], ...]:
    headers: list[tuple[str, str]] = []
    for argument in arguments:
        name, sign, value = argument.partition(":")
        if not sign or not name.strip() or not name.isascii():
            raise InputError(f"--header {argument}: it must be NAME:VALUE, for example --header x-team:vision")
        headers.append((name.strip(), value.strip()))
    if key_file is not None:
        try:
            headers.append(("Authorization", f"Bearer {key_file.read_text('ascii').strip()}"))
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"{key_file}: can't read an API key: {error}") from None
    return tuple(headers)
