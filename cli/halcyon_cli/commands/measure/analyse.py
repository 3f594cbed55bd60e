"""`halcyon analyse model.onnx`: shows a model's operations, parameters and bytes, and its roofline.

Out of scope: the counts and the measurements (`halcyon_measure`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from halcyon_cli.arguments.model_sizes import parse_batches, parse_dims
from halcyon_cli.arguments.options import FILE, Output, emit, output_options
from halcyon_cli.errors import InputError

if TYPE_CHECKING:
    from halcyon_measure.results.sections.alone import Alone
    from halcyon_measure.results.sections.roofline import Roofline
    from halcyon_measure.results.sections.static import Static

_EPILOG = """\
\b
examples:
  halcyon analyse model.onnx
  halcyon analyse repository/resnet --batch 1,8,32
  halcyon analyse bert.onnx --dim sequence=128 -o json
  halcyon analyse model.onnx --roofline
  halcyon analyse model.onnx --gpu NVIDIA-L4

The counts come from the graph: the model isn't run, and its external data
isn't read. A folder is one of a model repository, such as digits with
digits/1/model.onnx. A MAC is one multiplication and one addition, so two FLOPs.

--alone runs the model on this machine's CPU, without a server. --roofline
also measures what this machine could compute and read at most. --gpu takes
these peaks from the data sheet of a GPU, by its label nvidia.com/gpu.product.

It needs the packages of the extra models: pip install './cli[models]', in a
clone.

\b
exit status:
  0  the model is counted; NOT COUNTED names operators that aren't known
  2  nothing was counted: usage error, or a file that isn't such a model
"""


@click.command("analyse", epilog=_EPILOG)
@click.argument("file", type=FILE)
@click.option(
    "--batch", "batches", default="", metavar="N,N", help="Batch sizes. Default: 1,8,32 if the model's batch is open."
)
@click.option("--dim", "dims", multiple=True, metavar="NAME=N", help="Size of a symbolic dimension. Repeatable.")
@click.option("--flops", type=float, metavar="N", help="Operations of one row, for a file that isn't ONNX.")
@click.option("--alone", "is_alone", is_flag=True, help="Run the model here, without a server, and show its times.")
@click.option(
    "--roofline", "has_roofline", is_flag=True, help="Measure this machine's peaks, and the model below them."
)
@click.option("--gpu", metavar="PRODUCT", help="Show the model below the published peaks of a GPU.")
@click.option(
    "--threads", type=click.IntRange(1, 256), metavar="N", help="Threads of an execution. Default: the usable cores."
)
@output_options("table", "json", "yaml")
def main(
    *,
    file: Path,
    batches: str,
    dims: Sequence[str],
    flops: float | None,
    is_alone: bool,
    has_roofline: bool,
    gpu: str | None,
    threads: int | None,
    output: Output,
) -> int:
    """Count a model's operations, parameters and bytes from its graph, by operator and batch size."""
    from datetime import UTC, datetime  # noqa: PLC0415
    from importlib.metadata import version  # noqa: PLC0415

    from halcyon_measure.onnx_count import analysis, text  # noqa: PLC0415
    from halcyon_measure.results.sections.analysis import AnalysisDocument  # noqa: PLC0415
    from halcyon_measure.roofline.text import alone_lines, roofline_lines  # noqa: PLC0415

    if flops is not None and (batches or dims or is_alone or has_roofline or gpu or threads):
        raise InputError("--flops is of one row of a model that isn't read; no other option has an effect with it")
    if gpu and (is_alone or has_roofline):
        option = "--roofline" if has_roofline else "--alone"
        raise InputError(f"--gpu has published peaks, and {option} measures on this machine; leave one of them out")
    if threads and not (is_alone or has_roofline):
        raise InputError(
            "--threads is for --alone and --roofline, which run the model; add one of them, or leave it out"
        )
    sizes = parse_dims(dims)
    if flops is not None:
        static = analysis.static_from_flops(file, flops)
    else:
        static = analysis.analyse(file, batches=parse_batches(batches), sizes=sizes)
    alone, roofline = _measure(
        file, static, sizes, is_alone=is_alone or has_roofline, has_roofline=has_roofline, gpu=gpu, threads=threads
    )
    document = AnalysisDocument(
        made_by=f"halcyon {version('halcyon-cli')}",
        made_at=datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
        static=static,
        alone=alone,
        roofline=roofline,
    )
    if output.is_data:
        output.data(document.model_dump(mode="json"))
        return 0
    lines = [text.page(static)]
    lines += ["", *alone_lines(alone)] if alone is not None else []
    lines += ["", *roofline_lines(roofline)] if roofline is not None else []
    emit("\n".join(lines))
    return 0


def _measure(
    file: Path,
    static: Static,
    sizes: Mapping[str, int],
    *,
    is_alone: bool,
    has_roofline: bool,
    gpu: str | None,
    threads: int | None,
) -> tuple[Alone | None, Roofline | None]:
    """Return the measurement of the model without a server, and its roofline; None for each that wasn't requested."""
    from halcyon_measure.roofline import build, published  # noqa: PLC0415

    if gpu:
        compute, memory = published.peaks(gpu, static.datatype)
        return None, build.roofline(static, compute, memory, (), datatype=static.datatype, source="")
    if not is_alone:
        return None, None
    from halcyon_measure.cores import usable_cores  # noqa: PLC0415
    from halcyon_measure.in_process import alone as in_process  # noqa: PLC0415
    from halcyon_measure.onnx_count import reader  # noqa: PLC0415

    count = threads or usable_cores()
    path = reader.model_file(file)
    alone = in_process.alone(path, batches=[size.batch for size in static.sizes], sizes=sizes, threads=count)
    if not has_roofline:
        return alone, None
    datatype = static.datatype or "FP32"
    compute, memory = in_process.peaks(datatype, threads=count, working_set=static.sizes[0].least_bytes or 0)
    return alone, build.roofline(
        static, compute, memory, in_process.executions(alone), datatype=datatype, source="the model alone"
    )
