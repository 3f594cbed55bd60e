"""Executions by batch size, the line S(b) = a + c b fitted to their durations, and the busy share of the instances."""

from __future__ import annotations

import numpy as np

from halcyon_measure.results.figure import Figure, Unit, unmeasured
from halcyon_measure.results.observations import ServerConfig, Statistics
from halcyon_measure.results.sections.batches import Batches, BatchSize

_FEW_EXECUTIONS = 5
_SOURCE = "Triton's statistics, after minus before"
_CONFIG = "configuration of the model"


def line(sizes: Statistics) -> tuple[float, float, float] | None:
    """Return a, c and the largest relative deviation of the line S(b) = a + c b, in seconds.

    The result is None with fewer than two sizes.

    Each size is weighted by its number of executions, because a mean of few executions is uncertain.
    """
    rows = np.array(sorted(sizes.sizes), dtype=np.float64)
    if len(rows) < 2:  # a line has two points
        return None
    counts = np.array([sizes.sizes[int(b)].executions for b in rows])
    times = np.array([sizes.sizes[int(b)].model_s for b in rows]) / counts
    center = float(np.average(rows, weights=counts))
    middle = float(np.average(times, weights=counts))
    spread = float(np.sum(counts * (rows - center) ** 2))
    slope = float(np.sum(counts * (rows - center) * (times - middle)) / spread)
    constant = middle - slope * center
    many = counts >= _FEW_EXECUTIONS
    off = np.abs(constant + slope * rows - times)[many] / np.maximum(times[many], 1e-9)
    return constant, slope, float(off.max()) if len(off) else float("nan")


def build(grown: Statistics | None, config: ServerConfig, *, wall_s: float, replicas: int, reason: str) -> Batches:
    """Return the section `batches` of a run. If there are no batches, it has the reason.

    The run took `wall_s` seconds on `replicas` replicas.
    """
    instances = None if config.instances is None else config.instances * max(replicas, 1)
    described = "the model's configuration couldn't be read"
    delay = _figure(
        None if config.largest_batch is None else 1000 * config.max_queue_delay_s, "ms", 1, _CONFIG, described
    )
    counted = _figure(instances, "executions", replicas, _CONFIG, described)
    largest = _figure(config.largest_batch, "rows", 1, _CONFIG, described)
    if grown is None or grown.counters.executions <= 0:
        reason = reason or "the server's statistics have no execution"
        none = unmeasured("ms", reason)
        return Batches(
            sizes=(),
            executions=unmeasured("executions", reason),
            mean_rows=unmeasured("rows", reason),
            largest=largest,
            fill=unmeasured("ratio", reason),
            constant=none,
            per_row=none,
            line_error=unmeasured("ratio", reason),
            busy=unmeasured("ratio", reason),
            instances=counted,
            delay=delay,
        )
    executions = int(grown.counters.executions)
    mean_rows = grown.counters.rows / grown.counters.executions
    fitted = line(grown)
    one = f"all executions had {next(iter(grown.sizes))} rows; a line needs two sizes" if grown.sizes else (
        "the server's statistics have no batch sizes"
    )  # fmt: skip
    busy_s = sum(size.input_s + size.model_s + size.output_s for size in grown.sizes.values())
    return Batches(
        sizes=tuple(_size(rows, grown) for rows in sorted(grown.sizes)),
        executions=Figure(value=executions, unit="executions", n=executions, source=_SOURCE),
        mean_rows=Figure(value=mean_rows, unit="rows", n=executions, source=_SOURCE),
        largest=largest,
        fill=_figure(
            None if not config.largest_batch else mean_rows / config.largest_batch,
            "ratio",
            executions,
            _SOURCE,
            described,
        ),
        constant=_figure(None if fitted is None else 1000 * fitted[0], "ms", executions, "weighted least squares", one),
        per_row=_figure(None if fitted is None else 1000 * fitted[1], "ms", executions, "weighted least squares", one),
        line_error=_figure(
            None if fitted is None or np.isnan(fitted[2]) else fitted[2],
            "ratio",
            executions,
            "weighted least squares",
            one if fitted is None else f"no size has {_FEW_EXECUTIONS} executions",
        ),
        busy=_figure(
            None if not instances or not grown.sizes else min(busy_s / (wall_s * instances), 1.0),
            "ratio",
            executions,
            f"{_SOURCE}, over {wall_s:.1f} s",
            described if grown.sizes else one,
        ),
        instances=counted,
        delay=delay,
    )


def _size(rows: int, grown: Statistics) -> BatchSize:
    size = grown.sizes[rows]
    count = int(size.executions)

    def each(seconds: float) -> Figure:
        return Figure(value=1000 * seconds / size.executions, unit="ms", n=count, source=_SOURCE)

    return BatchSize(
        rows=rows, executions=count, input=each(size.input_s), model=each(size.model_s), output=each(size.output_s)
    )


def _figure(value: float | None, unit: Unit, n: int, source: str, reason: str) -> Figure:
    return Figure(
        value=value,
        unit=unit,
        n=n if value is not None else 0,
        source=source,
        reason="" if value is not None else reason,
    )
