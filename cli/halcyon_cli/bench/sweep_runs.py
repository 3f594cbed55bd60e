"""Runs of a sweep, one after another, and the cost of each payload format on the client.

Out of scope: the points of a grid (`halcyon_measure.sweep.grid`).
"""

from __future__ import annotations

import io
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import numpy as np

from halcyon_measure.engine.pool import WarmUp
from halcyon_measure.errors import TensorError
from halcyon_measure.inputs.payloads import Payload, Rows
from halcyon_measure.protocols import http_client
from halcyon_measure.results.figure import Figure, Unit, unmeasured
from halcyon_measure.results.sections.sweep import PayloadCost, Sweep
from halcyon_measure.schedule.scenario import Scenario
from halcyon_measure.sweep import grid, section
from halcyon_measure.sweep.grid import Point

if TYPE_CHECKING:
    from halcyon_cli.bench.options.answer import AnswerOptions
    from halcyon_cli.bench.second_engine import Judge
    from halcyon_measure.measurement import Measurement
    from halcyon_measure.protocols.reply import Prepared
    from halcyon_measure.protocols.target import Encoding, Target
    from halcyon_measure.results.document import BenchDocument
    from halcyon_measure.results.run import Run
    from halcyon_measure.results.settling import Block

_WARM_UP = WarmUp(1.0, fixed=True)
_COST_S = 0.05
_BY_GRPC = ("raw", "typed")
_FORMS: tuple[Encoding, ...] = ("binary", "json", "raw", "typed")


def run(
    prepared: Measurement,
    answer: AnswerOptions,
    *,
    duration_s: float | None,
    show: Callable[[str], None],
    judge: Judge | None = None,
) -> tuple[Run, BenchDocument]:
    """Measure all points, and return the last run, and its document with the section `sweep`.

    `judge` is called with each point, and adds the result of a second engine.
    Ctrl-C ends the sweep after the current point.

    Raises:
        MeasureError: a grid is invalid, the sweep is large and --yes isn't given, or a process of the load failed.
    """
    points, length = grid.points(answer.sweep), duration_s or grid.POINT_S
    point_s = grid.planned_s(answer.sweep, duration_s, is_confirmed=answer.yes) / len(points)
    results: list[BenchDocument] = []
    last: Run | None = None
    costs: dict[int, tuple[PayloadCost, ...]] = {}
    # All of them first: an error of the last point must not cost the results of the others.
    measurements = [_measurement(prepared, point, length) for point in points]
    for number, (point, measurement) in enumerate(zip(points, measurements, strict=True)):
        rows = measurement.payload.rows.least
        if rows not in costs and prepared.target.api == "kserve":
            costs[rows] = tuple(_costs(measurement))
        label = (
            f"point {number + 1} of {len(points)}, {_text(point)}, {(len(points) - number) * point_s / 60:.0f} min left"
        )
        try:
            last = measurement.run(_progress(label, show))
        except KeyboardInterrupt:  # before the load began
            if last is None:
                raise
            break
        document = measurement.document(last, made_by=f"halcyon {version('halcyon-cli')}")
        results.append(document if judge is None else judge(measurement, document))
        if last.partial:
            break
    assert last is not None  # noqa: S101  # a grid has a point
    sweep = Sweep(
        grid="; ".join(answer.sweep),
        points=tuple(map(section.point, results)),
        payloads=tuple(cost for row_costs in costs.values() for cost in row_costs),
        partial=len(results) < len(points) or last.partial,
    )
    return last, results[-1].model_copy(update={"sweep": sweep, "run": section.facts(results[-1].run, sweep)})


def _progress(label: str, show: Callable[[str], None]) -> Callable[[str, float, Block], None]:
    def progress(phase: str, _: float, block: Block) -> None:
        show(f"{label}: {phase}, {block.answered}/s")

    return progress


def _measurement(prepared: Measurement, point: Point, length_s: float) -> Measurement:
    scenario = point_scenario(prepared.scenario, point, length_s)
    payload = prepared.payload
    if point.rows is not None:
        payload = replace(payload, rows=Rows(point.rows, point.rows), has_chosen_rows=True)
    sampling = None if prepared.sampling is None else replace(prepared.sampling, idle_s=0.0)
    target = _target(prepared.target, point)
    measurement = replace(
        prepared, scenario=scenario.check(), payload=payload, target=target, sampling=sampling, preset=""
    )
    return replace(measurement, warm_up=_WARM_UP).prepare()


def point_scenario(base: Scenario, point: Point, length_s: float) -> Scenario:
    """Return the load of a point: the load of the options, but with the point's number of callers or rate.

    The think time of callers and the bursts of a rate stay as they are in the options.
    """
    base = replace(base, duration_s=length_s, requests=None)
    if point.rate_rps is not None:
        if base.kind == "burst":
            return replace(base, rate_rps=point.rate_rps)
        return Scenario(
            kind="sustained",
            rate_rps=point.rate_rps,
            duration_s=length_s,
            max_in_flight=base.max_in_flight,
            seed=base.seed,
        )
    if point.callers is None:
        return base
    think_s = base.think_s if base.kind == "blocking" else 0.0
    return Scenario(callers=point.callers, think_s=think_s, duration_s=length_s, seed=base.seed)


def _target(target: Target, point: Point) -> Target:
    """Return the target with the point's encoding of tensors.

    If the encoding belongs to the other protocol (HTTP or gRPC), use its port: by default, Triton's gRPC port is the
    HTTP port plus one.
    """
    if point.shared_memory is not None:
        target = replace(target, shared_memory=point.shared_memory)
    if point.encoding is None or target.api != "kserve":
        return target
    by_grpc = point.encoding in _BY_GRPC
    if by_grpc == (target.transport == "grpc"):
        return replace(target, encoding=point.encoding)
    port = target.port + (1 if by_grpc else -1)
    return replace(target, encoding=point.encoding, port=port, transport="grpc" if by_grpc else "http")


def _text(point: Point) -> str:
    parts = [f"{point.rows} rows"] if point.rows is not None else []
    parts += [f"{point.callers} callers"] if point.callers is not None else []
    parts += [f"{point.rate_rps:g}/s"] if point.rate_rps is not None else []
    parts += [point.encoding] if point.encoding else []
    parts += ["shared memory"] if point.shared_memory == "system" else []
    return " ".join(parts) or "as given"


def _costs(measurement: Measurement) -> Iterator[PayloadCost]:
    """Yield the costs of the payload in each format: its size, and the CPU time to write and to read it."""
    target = measurement.target
    payload = measurement.payload.payloads(target)[0]
    rows = str(payload.rows)
    for encoding in _FORMS:
        yield _encoding_cost(
            replace(target, encoding=encoding, transport="grpc" if encoding in _BY_GRPC else "http"), payload
        )
    buffer = io.BytesIO()
    arrays = dict(payload.tensors)
    _write_npy(arrays, buffer)
    yield PayloadCost(
        form=".npy",
        rows=rows,
        size=_figure(buffer.tell(), "bytes"),
        write=_timed(lambda: _write_npy(arrays, io.BytesIO())),
        read=_timed(lambda: _read_npy(buffer.getvalue(), len(arrays))),
    )
    yield _arrow(payload, rows)


def _encoding_cost(target: Target, payload: Payload) -> PayloadCost:
    """Return the costs of a payload in the encoding of a target: its size, and the CPU time to write and to read it."""
    if target.transport == "grpc":
        from halcyon_measure.protocols import grpc_client  # noqa: PLC0415  # grpcio takes half a second

        encode: Callable[[Target, Payload], Prepared] = grpc_client.encode
    else:
        encode = http_client.encode
    read = unmeasured("us", "the server reads it; the client's reading of answers is the phase decode")
    try:
        size = _figure(len(encode(target, payload).body), "bytes")
    except TensorError as error:
        return PayloadCost(
            form=target.encoding,
            rows=str(payload.rows),
            size=unmeasured("bytes", str(error)),
            write=unmeasured("us", str(error)),
            read=read,
        )
    write = _timed(lambda: encode(target, payload))
    return PayloadCost(form=target.encoding, rows=str(payload.rows), size=size, write=write, read=read)


def _write_npy(arrays: dict[str, Any], stream: io.BytesIO) -> None:
    for array in arrays.values():
        np.save(stream, array, allow_pickle=True)  # tensors of strings are objects


def _read_npy(content: bytes, count: int) -> None:
    stream = io.BytesIO(content)
    for _ in range(count):
        np.load(stream, allow_pickle=True)  # our own bytes


def _arrow(payload: Payload, rows: str) -> PayloadCost:
    try:
        arrow: Any = import_module("pyarrow")
    except ImportError:
        reason = "pyarrow isn't installed; pip install pyarrow"
        not_measured = unmeasured("us", reason)
        return PayloadCost(
            form="Arrow", rows=rows, size=unmeasured("bytes", reason), write=not_measured, read=not_measured
        )

    def write() -> Any:
        columns = {name: arrow.array(array.reshape(-1)) for name, array in payload.tensors.items()}
        sink = arrow.BufferOutputStream()
        # Tensors of different sizes need separate record batches.
        for name, column in columns.items():
            batch = arrow.record_batch([column], names=[name])
            with arrow.ipc.new_stream(sink, batch.schema) as stream:
                stream.write_batch(batch)
        return sink.getvalue()

    buffer = write()
    return PayloadCost(
        form="Arrow",
        rows=rows,
        size=_figure(buffer.size, "bytes"),
        write=_timed(write),
        read=_timed(lambda: arrow.ipc.open_stream(buffer).read_all()),
    )


def _timed(action: Callable[[], Any]) -> Figure:
    """Return the mean CPU time of an action in seconds. The action is repeated for at least `_COST_S` seconds."""
    count, began = 0, time.process_time()
    while (spent := time.process_time() - began) < _COST_S:
        action()
        count += 1
    return _figure(1e6 * spent / count, "us", count)


def _figure(value: float, unit: Unit, n: int = 1) -> Figure:
    return Figure(value=value, unit=unit, n=n, source="the client's own CPU, without a server")
