"""`halcyon variants model.onnx`: converts a model to other precisions, and compares speed and accuracy.

Out of scope: the conversions and the comparison (`halcyon_measure.variants`).
"""

from __future__ import annotations

import sys
from pathlib import Path

import click

from halcyon_cli.arguments.options import FILE, Output, emit, output_options
from halcyon_cli.errors import InputError

_NAMES = ("fp16", "int8-dynamic", "int8-static")
_EPILOG = """\
\b
examples:
  halcyon variants model.onnx --data val.npz --out variants
  halcyon variants digits/ --data val.npz --out v --only int8-dynamic
  halcyon variants m.onnx --data v.npz --calibration train.npz --out v
  halcyon variants m.onnx --data v.npz --score score.py:right --out v

The data is an .npz file with an array for each input of the model and, for
accuracy, an array labels with the number of each row's label. A quarter of its
rows, at most 256, calibrates int8-static and isn't compared, unless
--calibration names others.

--score is a function of the outputs and the data, both by name, that returns a
number from 0 to 1 for each row.

Each variant is a folder of a Triton model repository. Nothing is published or
deployed. Times are of this machine's CPU, in one process, without a server.

It needs the packages of the extra models: pip install './cli[models]', in a
clone.

\b
exit status:
  0  all variants were made
  1  a variant couldn't be made: the reason is shown
  2  nothing was made: usage error, or a file that can't be used
"""


@click.command("variants", epilog=_EPILOG)
@click.argument("file", type=FILE)
@click.option("--data", type=FILE, required=True, metavar="FILE.npz", help="Rows to compare on, and their labels.")
@click.option("--out", type=FILE, required=True, metavar="FOLDER", help="New folder for the model repository.")
@click.option("--only", type=click.Choice(_NAMES), multiple=True, help="Make these variants alone. Repeatable.")
@click.option("--calibration", type=FILE, metavar="FILE.npz", help="Rows that calibrate int8-static.")
@click.option("--labels", default="", metavar="NAME", help="Array with the labels. Default: labels.")
@click.option(
    "--score", default="", metavar="FILE.py:FUNCTION", help="Function that scores each row, in place of labels."
)
@click.option(
    "--batch", type=click.IntRange(1, 4096), default=8, metavar="N", help="Rows of a timed execution. Default: 8."
)
@click.option(
    "--threads", type=click.IntRange(1, 256), metavar="N", help="Threads of an execution. Default: the usable cores."
)
@output_options("table", "json", "yaml")
def main(
    *,
    file: Path,
    data: Path,
    out: Path,
    only: tuple[str, ...],
    calibration: Path | None,
    labels: str,
    score: str,
    batch: int,
    threads: int | None,
    output: Output,
) -> int:
    """Make a model in FP16 and INT8, and compare accuracy, size, memory, rate and latency on your own data."""
    from datetime import UTC, datetime  # noqa: PLC0415
    from importlib.metadata import version  # noqa: PLC0415

    from halcyon_measure.cores import usable_cores  # noqa: PLC0415
    from halcyon_measure.variants import text  # noqa: PLC0415
    from halcyon_measure.variants.make import VariantsRequest, make  # noqa: PLC0415

    if labels and score:
        raise InputError("--labels and --score both decide what is right; leave one of them out")
    request = VariantsRequest(
        model=file,
        data=data,
        out=out,
        calibration=calibration,
        labels=labels,
        score=score,
        only=[name for name in _NAMES if name in only] or _NAMES,
        batch=batch,
        threads=threads or usable_cores(),
    )
    document = make(
        request,
        program=f"halcyon {version('halcyon-cli')}",
        timestamp=datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
        progress=lambda name: print(f"halcyon variants: {name}", file=sys.stderr) if sys.stderr.isatty() else None,
    )
    if output.is_data:
        output.data(document.model_dump(mode="json"))
    else:
        emit(text.page(document))
    return 1 if any(variant.failure for variant in document.variants) else 0
