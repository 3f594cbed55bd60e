"""Executions by batch size, the line S(b) = a + c b fitted to their times, and the busy share of the instances."""

from __future__ import annotations

import numpy as np

from halcyon_measure.results.figure import Figure, Unit, unmeasured
from halcyon_measure.results.observations import ServerConfig, Statistics
from halcyon_measure.results.sections.batches import Batches, BatchSize

_FEW_EXECUTIONS = 5
_SOURCE = "Triton's statistics, after minus before"
_CONFIG = "configuration of the model"


def line(sizes: Statistics) -> tuple[float, float, float] | None:
    """Return a, c and the largest relative deviation of the fitted line S(b) = a + c b; a and c are in seconds.

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
    is_frequent = counts >= _FEW_EXECUTIONS
    deviations = np.abs(constant + slope * rows - times)[is_frequent] / np.maximum(times[is_frequent], 1e-9)
    return constant, slope, float(deviations.max()) if len(deviations) else float("nan")


def build(growth: Statistics | None, config: ServerConfig, *, wall_s: float, replicas: int, reason: str) -> Batches:
    """Return the section `batches` of a run; if there are no batches, it contains the reason.

    The run took `wall_s` seconds on `replicas` replicas.
    """
    instances = None if config.instances is None else config.instances * max(replicas, 1)
    no_config = "the model's configuration couldn't be read"
    delay = _figure(
        None if config.largest_batch is None else 1000 * config.max_queue_delay_s, "ms", 1, _CONFIG, no_config
    )
    instance_figure = _figure(instances, "executions", replicas, _CONFIG, no_config)
    largest = _figure(config.largest_batch, "rows", 1, _CONFIG, no_config)
    if growth is None or growth.counters.executions <= 0:
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
            instances=instance_figure,
            delay=delay,
        )
    executions = int(growth.counters.executions)
    mean_rows = growth.counters.rows / growth.counters.executions
    fit = line(growth)
    no_line = f"all executions had {next(iter(growth.sizes))} rows; a line needs two sizes" if growth.sizes else (
        "the server's statistics have no batch sizes"
    )  # fmt: skip
    busy_s = sum(size.input_s + size.model_s + size.output_s for size in growth.sizes.values())
    return Batches(
        sizes=tuple(_size(rows, growth) for rows in sorted(growth.sizes)),
        executions=Figure(value=executions, unit="executions", n=executions, source=_SOURCE),
        mean_rows=Figure(value=mean_rows, unit="rows", n=executions, source=_SOURCE),
        largest=largest,
        fill=_figure(
            None if not config.largest_batch else mean_rows / config.largest_batch,
            "ratio",
            executions,
            _SOURCE,
            no_config,
        ),
        constant=_figure(None if fit is None else 1000 * fit[0], "ms", executions, "weighted least squares", no_line),
        per_row=_figure(None if fit is None else 1000 * fit[1], "ms", executions, "weighted least squares", no_line),
        line_error=_figure(
            None if fit is None or np.isnan(fit[2]) else fit[2],
            "ratio",
            executions,
            "weighted least squares",
            no_line if fit is None else f"no size has {_FEW_EXECUTIONS} executions",
        ),
        busy=_figure(
            None if not instances or not growth.sizes else min(busy_s / (wall_s * instances), 1.0),
            "ratio",
            executions,
            f"{_SOURCE}, over {wall_s:.1f} s",
            no_config if growth.sizes else no_line,
        ),
        instances=instance_figure,
        delay=delay,
    )


def _size(rows: int, growth: Statistics) -> BatchSize:
    size = growth.sizes[rows]
    count = int(size.executions)

    def per_execution(seconds: float) -> Figure:
        return Figure(value=1000 * seconds / size.executions, unit="ms", n=count, source=_SOURCE)

    return BatchSize(
        rows=rows,
        executions=count,
        input=per_execution(size.input_s),
        model=per_execution(size.model_s),
        output=per_execution(size.output_s),
    )


def _figure(value: float | None, unit: Unit, n: int, source: str, reason: str) -> Figure:
    return Figure(
        value=value,
        unit=unit,
        n=n if value is not None else 0,
        source=source,
        reason="" if value is not None else reason,
    )
