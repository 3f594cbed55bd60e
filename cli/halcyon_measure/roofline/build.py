"""Construction of the section `roofline` from a model's counts, the machine's peaks and measured executions. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from halcyon_measure.errors import ModelError
from halcyon_measure.results.figure import Figure, Unit
from halcyon_measure.results.sections.roofline import Peak, Roofline, RooflinePoint
from halcyon_measure.results.sections.static import Static

MAX_BATCH = 4096
MAX_CV = 0.05
"""Maximum coefficient of variation for which a measured peak counts as reliable."""


@dataclass(frozen=True)
class Execution:
    """Measured mean time of executions with one batch size."""

    batch: int
    seconds: float
    interval: tuple[float, float] | None
    """95 % interval of the mean time, in seconds; None if there is none."""
    n: int


def measured_peak(samples: Sequence[float], unit: Unit, how: str) -> Peak:
    """Return the maximum of the samples as a peak, with their range and coefficient of variation."""
    cv = statistics.stdev(samples) / statistics.mean(samples) if len(samples) > 1 else None
    figure = Figure(
        value=max(samples),
        unit=unit,
        n=len(samples),
        interval=(min(samples), max(samples)),
        source=how,
        reason=f"its samples vary by more than {MAX_CV:.0%}: the machine was busy, and the peak may be higher"
        if cv is not None and cv > MAX_CV
        else "",
    )
    return Peak(kind="measured", rate=figure, cv=cv, how=how)


def roofline(
    static: Static, compute: Peak, memory: Peak, executions: Sequence[Execution], *, datatype: str, source: str
) -> Roofline:
    """Return the roofline of a model with the executions as points; `source` says how they were measured.

    Raises:
        ModelError: the operations or the bytes of the model are unknown.
    """
    line = _Line(static)
    top, bandwidth = compute.rate.value, memory.rate.value
    if not top or not bandwidth:
        raise ModelError(f"{static.file}: a roofline needs the machine's peaks of compute and memory")
    points = tuple(
        _point(line, execution, top, bandwidth, source)
        for execution in sorted(executions, key=lambda execution: execution.batch)
    )
    above = tuple(point.batch for point in points if (point.share.value or 0) > 1)
    ridge = top / bandwidth
    crossing = line.crossing(ridge)
    return Roofline(
        datatype=datatype,
        compute=compute,
        memory=memory,
        ridge=ridge,
        points=points,
        bandwidth_bound_below=crossing,
        above=above,
        answer=_answer(points, above, crossing),
    )


class _Line:
    """Operations and minimum bytes as functions of the batch size. Both are linear in the number of rows."""

    def __init__(self, static: Static) -> None:
        first, last = static.sizes[0], static.sizes[-1]
        if not first.flops:
            raise ModelError(f"{static.file}: none of its operations is counted, so it has no place below a roof")
        if first.least_bytes is None or last.least_bytes is None:
            raise ModelError(
                f"{static.file}: its bytes aren't known, so it has no place below a roof; an ONNX file has them"
            )
        self._flops = first.flops / first.batch
        rows = last.batch - first.batch
        fixed = (first.input_bytes or 0) + (first.output_bytes or 0)
        self._bytes = (last.least_bytes - first.least_bytes) / rows if rows else fixed / first.batch
        self._weights = first.least_bytes - first.batch * self._bytes

    def flops(self, batch: int) -> float:
        return batch * self._flops

    def intensity(self, batch: int) -> float:
        return self.flops(batch) / (self._weights + batch * self._bytes)

    def crossing(self, ridge: float) -> int | None:
        """Return the smallest batch size whose arithmetic intensity reaches the ridge of the roofline.

        The result is None if there is none up to `MAX_BATCH`.
        """
        return next((batch for batch in range(1, MAX_BATCH + 1) if self.intensity(batch) >= ridge), None)


def _point(line: _Line, execution: Execution, top: float, bandwidth: float, source: str) -> RooflinePoint:
    intensity = line.intensity(execution.batch)
    roof = min(top, intensity * bandwidth)
    flops = line.flops(execution.batch)
    # The longest time gives the lowest rate.
    rates = (flops / execution.interval[1], flops / execution.interval[0]) if execution.interval else None
    how = f"operations of {execution.batch} rows over the mean time of an execution"
    return RooflinePoint(
        batch=execution.batch,
        intensity=intensity,
        rate=Figure(value=flops / execution.seconds, unit="FLOP/s", n=execution.n, interval=rates, source=how),
        roof=roof,
        share=Figure(
            value=flops / execution.seconds / roof,
            unit="ratio",
            n=execution.n,
            interval=(rates[0] / roof, rates[1] / roof) if rates else None,
            source="rate over the roof",
        ),
        bound="compute" if intensity * bandwidth >= top else "bandwidth",
        source=source,
    )


def _answer(points: Sequence[RooflinePoint], above: Sequence[int], crossing: int | None) -> str:
    if crossing is None:
        bound = f"bandwidth-bound up to batch {MAX_BATCH}"
    else:
        bound = f"bandwidth-bound below batch {crossing}" if crossing > 1 else "compute-bound at every batch size"
    if not points:
        return f"{bound[0].upper()}{bound[1:]}; nothing was measured."
    if above:
        return f"The roof is wrong: batch {', '.join(map(str, above))} is above it, so the peaks are measured too low."
    best = max(points, key=lambda point: point.share.value or 0)
    return f"{percent(best.share.value)} of the roof at batch {best.batch}, {bound}."


def percent(share: float | None) -> str:
    """Format a share in percent, with two significant digits if it is small."""
    value = 100 * (share or 0)
    return f"{value:.0f} %" if value >= 10 or not value else f"{value:.2g} %"
