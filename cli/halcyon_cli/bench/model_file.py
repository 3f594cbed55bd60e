"""Sections of a result from the model's file: operation counts, speed without a server, and the roofline.

Out of scope: the counts and the roofline themselves (`halcyon_measure`).
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from halcyon_cli.arguments.model_sizes import parse_dims
from halcyon_cli.bench.options.model_file import ModelFileOptions
from halcyon_measure.errors import MeasureError

if TYPE_CHECKING:
    from halcyon_measure.results.document import BenchDocument
    from halcyon_measure.results.figure import Figure
    from halcyon_measure.results.sections.alone import Alone
    from halcyon_measure.roofline.build import Execution


def check_file(options: ModelFileOptions) -> None:
    """Check the options and the file before anything is measured.

    Raises:
        MeasureError, InputError: the operations in the file can't be counted, or an option is invalid.
    """
    options.check()
    if options.onnx is None:
        return
    from halcyon_measure.onnx_count import analysis  # noqa: PLC0415
    from halcyon_measure.roofline import published  # noqa: PLC0415

    static = analysis.analyse(options.onnx, sizes=parse_dims(options.dims))
    if options.gpu:
        published.peaks(options.gpu, static.datatype or "FP32")


def with_model(document: BenchDocument, options: ModelFileOptions) -> BenchDocument:
    """Return the document with the sections from the model's file; unchanged if no file is given.

    If the model can't be counted or run, these sections are missing, and the reason is printed to stderr.
    """
    if options.onnx is None:
        return document
    try:
        return document.model_copy(update=_sections(document, options, options.onnx))
    except MeasureError as error:
        print(f"halcyon bench: {error}", file=sys.stderr)
        return document


def _sections(document: BenchDocument, options: ModelFileOptions, file: Path) -> dict[str, object]:
    from halcyon_measure.cores import usable_cores  # noqa: PLC0415
    from halcyon_measure.in_process import alone as in_process  # noqa: PLC0415
    from halcyon_measure.onnx_count import analysis, reader  # noqa: PLC0415
    from halcyon_measure.roofline import build, published  # noqa: PLC0415

    sizes = parse_dims(options.dims)
    served = executions(document)
    has_open_batch = any(not tensor.shape[0].isdigit() for tensor in reader.read(file).inputs() if tensor.shape)
    static = analysis.analyse(
        file, batches=[execution.batch for execution in served] if has_open_batch else (), sizes=sizes
    )
    update: dict[str, object] = {"static": static}
    cores = usable_cores()
    if options.is_alone:
        batches = [size.batch for size in static.sizes]
        alone = in_process.alone(reader.model_file(file), batches=batches, sizes=sizes, threads=cores)
        update["alone"] = alone.model_copy(update={"server_cost": server_cost(document, alone)})
    if options.has_roofline or options.gpu:
        datatype = static.datatype or "FP32"
        if options.gpu:
            compute, memory = published.peaks(options.gpu, datatype)
        else:
            compute, memory = in_process.peaks(datatype, threads=cores, working_set=static.sizes[0].least_bytes or 0)
        update["roofline"] = build.roofline(
            static, compute, memory, served, datatype=datatype, source="the served model"
        )
    return update


def executions(document: BenchDocument) -> list[Execution]:
    """Return the executions of the served model: one for each batch size, or else one derived from the row rate."""
    from halcyon_measure.roofline.build import Execution  # noqa: PLC0415

    if document.batches is not None:
        by_size = [
            Execution(size.rows, size.model.value / 1000, None, size.executions)
            for size in document.batches.sizes
            if size.rows and size.model.value
        ]
        if by_size:
            return by_size
    rate, rows = document.rows, _rows(document)
    if not rate.value or rows is None:
        return []
    interval = (rows / rate.interval[1], rows / rate.interval[0]) if rate.interval and rate.interval[0] else None
    return [Execution(rows, rows / rate.value, interval, rate.n)]


def server_cost(document: BenchDocument, alone: Alone) -> Figure:
    """Return the median latency through the server minus that of the model alone, for the same number of rows."""
    from halcyon_measure.results.figure import Figure, unmeasured  # noqa: PLC0415

    rows = _rows(document)
    if rows is None:
        return unmeasured("ms", "its requests have different numbers of rows")
    alone_p50 = next((point.p50 for point in alone.points if point.batch == rows), None)
    served = document.latency.p50
    if alone_p50 is None or alone_p50.value is None or served.value is None:
        return unmeasured("ms", f"there is no median of {rows} rows of both")
    have_intervals = served.interval and alone_p50.interval
    return Figure(
        value=served.value - alone_p50.value,
        unit="ms",
        n=served.n,
        interval=(served.interval[0] - alone_p50.interval[1], served.interval[1] - alone_p50.interval[0])
        if have_intervals and served.interval and alone_p50.interval
        else None,
        source=f"median latency of {rows} row{'s' if rows > 1 else ''} minus the median alone",
    )


def _rows(document: BenchDocument) -> int | None:
    """Return the number of rows per request; None if requests have different numbers of rows."""
    return int(document.target.rows) if document.target.rows.isdigit() else None
