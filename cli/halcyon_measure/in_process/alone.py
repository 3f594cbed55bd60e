"""Section `alone` of a document, and the machine's peak rates, each measured in a child process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from halcyon_measure.in_process.process import call
from halcyon_measure.results import statistics
from halcyon_measure.results.figure import Figure, Unit, unmeasured
from halcyon_measure.results.sections.alone import Alone, AlonePoint
from halcyon_measure.results.sections.roofline import Peak
from halcyon_measure.roofline.build import Execution, measured_peak

SAMPLES = 5
MIN_WORKING_SET = 2**20
"""Minimum working set of the triad (a = b + 3 c), in bytes. With less, the time of the calls would be measured instead
of the memory."""
MAX_WORKING_SET = 2**28
_BLOCKS, _DRAWS = 20, 200
_SOURCE = "executions in one process, one after the other"


def alone(
    model: Path, *, batches: Sequence[int], sizes: Mapping[str, int], threads: int, seconds: float = 3.0, seed: int = 1
) -> Alone:
    """Run a model with each batch size for some seconds, with random inputs, and return the section with its times.

    Raises:
        ModelError: the model doesn't load or run.
    """
    result = call(
        {
            "kind": "run",
            "model": str(model),
            "threads": threads,
            "batches": list(batches),
            "sizes": dict(sizes),
            "seconds": seconds,
            "seed": seed,
        },
        str(model),
    )
    return Alone(
        library=f"onnxruntime {result['version']}",
        threads=threads,
        load=Figure(value=1000 * result["load_s"], unit="ms", n=1, source="one load in a new process"),
        memory=memory_figure(result),
        points=tuple(point(int(batch), times) for batch, times in result["runs"].items()),
        server_cost=unmeasured("ms", "no server was measured beside it; halcyon bench --onnx FILE --alone does"),
    )


def executions(measured: Alone) -> list[Execution]:
    """Return the mean execution time of the model for each batch size, for the roofline."""
    return [
        Execution(
            point.batch,
            point.mean.value / 1000,
            (point.mean.interval[0] / 1000, point.mean.interval[1] / 1000) if point.mean.interval else None,
            point.mean.n,
        )
        for point in measured.points
        if point.mean.value
    ]


def peaks(datatype: str, *, threads: int, working_set: int) -> tuple[Peak, Peak]:
    """Measure the machine's peak rates of compute, for this data type, and of memory.

    `working_set` is the size of the arrays in bytes.

    The memory rate is the larger of the rates of the triad and of reading, because models mostly read.
    """
    size = min(max(working_set, MIN_WORKING_SET), MAX_WORKING_SET)
    job = {"kind": "peaks", "datatype": datatype, "threads": threads, "working_set": size, "samples": SAMPLES}
    result: dict[str, Any] = call(job, "the machine's peaks")
    cores = f"{threads} core{'s' if threads > 1 else ''}"
    kind = "triad" if max(result["triad"]) >= max(result["read"]) else "read"
    name = {"triad": "triad a = b + 3 c", "read": "reading"}[kind]
    return (
        measured_peak(result["compute"], "FLOP/s", f"matrix product of 1024 x 1024 by onnxruntime, {cores}"),
        measured_peak(result[kind], "bytes/s", f"{name} over {result['working_set'] / 2**20:.0f} MiB, {cores}"),
    )


def memory_figure(result: Mapping[str, Any]) -> Figure:
    """Return the growth of the memory of the measured process, as a figure."""
    return Figure(value=result["memory_bytes"], unit="bytes", n=1, source="most memory minus that before the load")


def point(batch: int, times: Sequence[float]) -> AlonePoint:
    """Return the figures for one batch size, from its times in seconds, with 95 % intervals from a block bootstrap."""
    values = np.array(times)
    low, high = _interval(values, None)
    return AlonePoint(
        batch=batch,
        mean=_figure(1000 * float(values.mean()), "ms", values, None),
        p50=_figure(1000 * (statistics.percentile(values, 0.5) or 0), "ms", values, 0.5),
        p99=_figure(1000 * (statistics.percentile(values, 0.99) or 0), "ms", values, 0.99),
        rate=Figure(
            value=batch / float(values.mean()),
            unit="rows/s",
            n=len(values),
            interval=(batch / high, batch / low),
            source=_SOURCE,
        ),
    )


def _figure(value: float, unit: Unit, values: np.ndarray[Any, Any], share: float | None) -> Figure:
    low, high = _interval(values, share)
    few = share is not None and not statistics.supports(len(values), share)
    reason = "fewer than ten executions lie above it" if few else ""
    return Figure(
        value=value, unit=unit, n=len(values), interval=(1000 * low, 1000 * high), source=_SOURCE, reason=reason
    )


def _interval(values: np.ndarray[Any, Any], share: float | None) -> tuple[float, float]:
    """Return the 95 % interval of the mean, or of the percentile `share`.

    The bootstrap draws blocks, because successive times are correlated.
    """
    size = -(-len(values) // _BLOCKS)
    count = len(values) // size
    blocks = values[: count * size].reshape(count, size)
    draws = np.random.default_rng(1).integers(0, count, (_DRAWS, count))
    drawn = blocks[draws].reshape(_DRAWS, -1)
    estimates = drawn.mean(axis=1) if share is None else np.quantile(drawn, share, axis=1, method="inverted_cdf")
    low, high = np.quantile(estimates, (0.025, 0.975))
    return float(low), float(high)
