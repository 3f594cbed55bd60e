"""Plots of runs: one run over time, and violations against GPU time.

The plots need no display, and equal input gives identical files.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from halcyon_simulator.benchmark import statistics
from halcyon_simulator.benchmark.statistics import PolicyPoint
from halcyon_simulator.engine.case import Case
from halcyon_simulator.engine.run import Trajectory
from halcyon_simulator.policies.registry import OWN

_POINTS = 1200
"""Maximum number of points of a line over time. More points wouldn't be visible, and would make the file larger."""
_MIN_PCT = 0.01
"""Lower end of the logarithmic axis of violations, in percent. Smaller values, and the differences between them, don't
matter."""
_PER_ROW = 3
_SETTINGS: dict[Any, Any] = {
    "svg.hashsalt": "halcyon",
    "svg.fonttype": "none",
    "font.size": 9,
    "axes.grid": True,
    "grid.alpha": 0.3,
}
"""Matplotlib settings with a fixed salt, so that the ids of the elements in an SVG never change."""


def timeline(case: Case, runs: Mapping[str, Trajectory], path: Path) -> None:
    """Plot the load, replicas, queue and latency of one case over time, under one or several policies."""
    with mpl.rc_context(_SETTINGS):
        figure = Figure(figsize=(9, 9), layout="constrained")
        load, count, queue, latency = figure.subplots(4, 1, sharex=True)
        step_s = max(1, math.ceil(case.duration_s / _POINTS))
        edges = np.arange(0, case.duration_s + step_s, step_s, dtype=np.float64)
        arrived = np.histogram(case.arrivals, edges)[0] / step_s
        load.plot(edges[:-1] / 60, arrived, color="black", linewidth=0.8)
        load.set(ylabel="requests/s", title=f"{case.name}, start {case.start_s:g} s, seed {case.seed}")
        for policy, run in runs.items():
            minutes = np.arange(len(run.written)) / 60
            count.plot(minutes[::step_s], run.written[::step_s], linewidth=1.2, drawstyle="steps-post", label=policy)
            queue.plot(minutes[::step_s], run.waiting[::step_s], linewidth=0.9)
            latency.plot(edges[:-1] / 60, _late(run, edges), linewidth=0.9)
        count.set(ylabel="replicas")
        count.legend(loc="upper right", fontsize=8)
        queue.set(ylabel="waiting")
        queue.set_yscale("symlog", linthresh=10)
        latency.axhline(case.slo_s, color="black", linewidth=0.8, linestyle=":")
        latency.set(ylabel="slowest answer, s", xlabel="minutes", yscale="log")
        _save(figure, path)


def fronts(cells: Mapping[str, Sequence[PolicyPoint]], path: Path) -> None:
    """Plot violations against GPU time, with one panel per cell (scenario, service law, start delay).

    A panel shows every point, the peers' Pareto front as a line, and Halcyon as a star.
    """
    with mpl.rc_context(_SETTINGS):
        rows = math.ceil(len(cells) / _PER_ROW)
        across = min(len(cells), _PER_ROW)
        figure = Figure(figsize=(max(4.0 * across, 6.0), 3.4 * rows), layout="constrained")
        fields = figure.subplots(rows, across, squeeze=False).flatten().tolist()
        for field, (title, points) in zip(fields, cells.items(), strict=False):
            _front(field, title, points)
        for field in fields[len(cells) :]:
            field.set_visible(False)
        _save(figure, path)


def _front(field: Axes, title: str, points: Sequence[PolicyPoint]) -> None:
    kinds = sorted({_kind(point) for point in points})
    colours = mpl.colormaps["tab20"]
    for number, kind in enumerate(kinds):
        own = [point for point in points if _kind(point) == kind]
        star = kind in OWN
        field.scatter(
            [point.gpu_ratio for point in own],
            [max(point.violations_pct, _MIN_PCT) for point in own],
            s=90 if star else 14,
            marker="*" if star else "o",
            color="crimson" if star else colours(number % 20),
            zorder=3 if star else 2,
            label=kind,
        )
    line = statistics.front(point for point in points if _kind(point) not in OWN)
    field.plot(
        [point.gpu_ratio for point in line],
        [max(point.violations_pct, _MIN_PCT) for point in line],
        color="grey",
        linewidth=0.8,
        drawstyle="steps-post",
    )
    field.set(title=title, xlabel="GPU time / clairvoyant", ylabel="violations, %", yscale="log")
    field.legend(fontsize=6, ncols=2)


def _kind(point: PolicyPoint) -> str:
    """Return the name of a point's policy, without its knobs."""
    return point.policy.partition(":")[0]


def _late(run: Trajectory, edges: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the longest response time of the requests in each time span.

    The result for a span is NaN if no request in it got a response.
    """
    slowest = np.full(len(edges) - 1, np.nan)
    answered = np.isfinite(run.latency_s)
    span = np.searchsorted(edges, run.arrivals[answered], side="right") - 1
    # fmax ignores NaN, so the first response time in a span replaces the initial NaN.
    np.fmax.at(slowest, np.minimum(span, len(slowest) - 1), run.latency_s[answered].astype(np.float64))
    return slowest


def _save(figure: Figure, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    # Omit the date from the file, so that the same runs give the same file.
    figure.savefig(path, dpi=130, metadata={"Date": None} if path.suffix == ".svg" else {"Software": None})
