"""`halcyon analyse model.onnx`: operations, parameters and bytes of a model, and how close to the machine's limit it runs.

Out of scope: the counts and the measurements (`halcyon_measure`).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from halcyon_cli.arguments.options import FILE, Output, emit, output_options
from halcyon_cli.errors import InputError

_EPILOG = """\
\b
examples:
  halcyon analyse model.onnx
  halcyon analyse repository/resnet --batch 1,8,32
  halcyon analyse bert.onnx --dim sequence=128 -o json

The file isn't run, and its external data isn't read. A folder is one of a
model repository, such as digits with digits/1/model.onnx. A FLOP is a
floating-point operation; a MAC is one multiplication and one addition, so two.

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
@output_options("table", "json", "yaml")
def main(*, file: Path, batches: str, dims: Sequence[str], flops: float | None, output: Output) -> int:
    """Count a model's operations, parameters and bytes from its graph, by operator and batch size."""
    from datetime import UTC, datetime  # noqa: PLC0415
    from importlib.metadata import version  # noqa: PLC0415

    from halcyon_measure.onnx_count import analysis, text  # noqa: PLC0415
    from halcyon_measure.results.analysis import AnalysisDocument  # noqa: PLC0415

    if flops is not None and (batches or dims):
        raise InputError("--flops is of one row of a model that isn't read; --batch and --dim have no effect with it")
    if flops is not None:
        static = analysis.given_flops(file, flops)
    else:
        static = analysis.analyse(file, batches=parse_batches(batches), sizes=parse_dims(dims))
    document = AnalysisDocument(
        made_by=f"halcyon {version('halcyon-operator')}",
        made_at=datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
        static=static,
    )
    if output.is_data:
        output.data(document.model_dump(mode="json"))
    else:
        emit(text.page(static))
    return 0


def parse_batches(argument: str) -> tuple[int, ...]:
    """Parse batch sizes such as 1,8,32.

    Raises:
        InputError: one isn't a positive whole number.
    """
    sizes = [part.strip() for part in argument.split(",")] if argument else []
    for size in sizes:
        if not (size.isascii() and size.isdigit() and int(size)):
            raise InputError(f"--batch {argument}: '{size}' isn't a positive whole number; for example --batch 1,8,32")
    return tuple(sorted(set(map(int, sizes))))


def parse_dims(arguments: Sequence[str]) -> dict[str, int]:
    """Parse sizes of dimensions such as sequence=128.

    Raises:
        InputError: one isn't NAME=N, or a name has two sizes.
    """
    sizes: dict[str, int] = {}
    for argument in arguments:
        name, _, size = argument.rpartition("=")
        if not name or not (size.isascii() and size.isdigit()):
            raise InputError(f"--dim {argument}: it must be NAME=N, for example --dim sequence=128")
        if sizes.setdefault(name, int(size)) != int(size):
            raise InputError(f"--dim {argument}: {name} has the size {sizes[name]} already; leave one of them out")
    return sizes
