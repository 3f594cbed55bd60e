"""docs/benchmarks/size.md and its plot: what one operator costs by the number of models. Pure but for the files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure

from benchmarks.quality.rows import ROOT, commit, today

PAGE = ROOT / "docs" / "benchmarks" / "size.md"
PLOT = ROOT / "docs" / "benchmarks" / "size.svg"
ON_PAPER = (10_000, 50_000)


@dataclass(frozen=True)
class Measured:
    """Measurements with one number of models. None: not reached within the limit, or not known."""

    models: int
    served_s: float
    """Seconds from the creation of the models that were added until they were served."""
    rest_mib: float
    """The operator's resident memory without load, after all agents have connected."""
    busy_mib: float
    """The same after the load steps."""
    most_mib: float
    """The largest of all samples, those after the kill included."""
    rest_cores: float
    busy_cores: float
    step_p50_s: float | None
    step_p99_s: float | None
    steps: int
    not_raised: int
    """Steps without more replicas within 20 s."""
    decision_age_p99_s: float | None
    first_decisions_s: float | None
    """Seconds from the start of a killed operator until it had decided for every model."""
    agents_back_s: float | None
    """Seconds from its start until all agents and dashboards had a stream."""
    writes_at_rest: int
    """Writes of the operator to the API server in 30 s without load."""
    api_requests_per_s: float
    """Requests that the API server answered per second without load, from all clients."""
    etcd_mib: float
    dashboards: int
    counts_moved: int
    """Models whose replicas changed because of the kill."""
    generator_late_p99_s: float | None = None
    """99th percentile of the time by which the load generator's own polls were late during the steps."""


@dataclass(frozen=True)
class Line:
    """A line through points, by least squares."""

    constant: float
    slope: float

    def at(self, x: float) -> float:
        """Return its value at `x`."""
        return self.constant + self.slope * x


def fit(points: Sequence[tuple[float, float]]) -> Line | None:
    """Return the line with the least squares through points; None with fewer than two different x."""
    if len({x for x, _ in points}) < 2:
        return None
    mean_x = sum(x for x, _ in points) / len(points)
    mean_y = sum(y for _, y in points) / len(points)
    slope = sum((x - mean_x) * (y - mean_y) for x, y in points) / sum((x - mean_x) ** 2 for x, _ in points)
    return Line(mean_y - slope * mean_x, slope)


def limit_mib(models: int) -> int:
    """Return the memory limit of the chart with `expectedModels` set to this number."""
    return 3 * (130 + (8 * models + 9) // 10) // 2


def write(measurements: Sequence[Measured], *, page: Path = PAGE, plot: Path = PLOT) -> None:
    """Write the page and its plot."""
    page.write_text(text(measurements))
    _draw(measurements, plot)


def text(measurements: Sequence[Measured]) -> str:
    """Return the page."""
    lines = [
        "# Size: one operator and many models",
        "",
        f"`make bench-size` writes this page. The figures on this page were measured on {today()} at commit {commit()}. Each model",
        "in this benchmark has two balancers and at least two servers. The operator has one core; the API server, etcd, KWOK",
        "and the load generator share the machine's cores. In the tables, `-` means that a value was not measured, or was not",
        "reached within the time limit.",
        "",
        _table(
            ["models", "served after, s", "memory at rest, MiB", "under load, MiB", "largest, MiB", "cores at rest", "cores under load"],
            [[m.models, m.served_s, m.rest_mib, m.busy_mib, m.most_mib, m.rest_cores, m.busy_cores] for m in measurements],
        ),
        "",
        _table(
            ["models", "step to /scale p50, s", "p99, s", "steps", "not raised", "decision age p99, s", "load generator late p99, s"],
            [[m.models, m.step_p50_s, m.step_p99_s, m.steps, m.not_raised, m.decision_age_p99_s, m.generator_late_p99_s] for m in measurements],
        ),
        "",
        "For the next table, the operator was killed (SIGKILL) and restarted. Its times are measured from the restart.",
        "",
        _table(
            ["models", "first decision of every model, s", "all agents and dashboards back, s", "agents", "dashboards", "replicas changed by it"],
            [[m.models, m.first_decisions_s, m.agents_back_s, 2 * m.models, m.dashboards, m.counts_moved] for m in measurements],
        ),
        "",
        _table(
            ["models", "writes in 30 s at rest", "requests to the API server per s at rest, all clients", "etcd, MiB"],
            [[m.models, m.writes_at_rest, m.api_requests_per_s, m.etcd_mib] for m in measurements],
        ),
        "",
        *_on_paper(measurements),
        "![Memory, CPU and times by the number of models](size.svg)",
        "",
        "In this benchmark, KWOK simulates the pods, so no container runs and each pod is Ready immediately. A load generator",
        "creates the agents' reports and sends them over TLS, using the agents' own client code. One operator runs in",
        "place of two. Each agent has an address of its own, as each pod has one. Agents of models without load poll every",
        "two seconds, so that one process can run thousands of them; they send as many reports as other agents. If the load",
        "generator's polls are late, the machine is short of CPU, and the times include the generator's delays.",
        "",
    ]  # fmt: skip
    return "\n".join(lines)


def _on_paper(measurements: Sequence[Measured]) -> list[str]:
    lines = {
        "memory under load, MiB": fit([(m.models, m.busy_mib) for m in measurements]),
        "cores at rest": fit([(m.models, m.rest_cores) for m in measurements]),
        "etcd, MiB": fit([(m.models, m.etcd_mib) for m in measurements]),
    }
    fitted = {name: line for name, line in lines.items() if line is not None}
    if not fitted:
        return []
    rows = [
        [name, round(line.constant, 2), f"{1000 * line.slope:.4g}", *(round(line.at(models), 1) for models in ON_PAPER)]
        for name, line in fitted.items()
    ]
    return [
        "## On paper",
        "",
        "The following figures are extrapolated from the measured figures by linear regression. Nothing of this size was run.",
        "",
        _table(["figure", "constant", "per 1,000 models", *(f"at {models:,} models" for models in ON_PAPER)], rows),
        "",
        _first_to_bend(fitted),
        "",
    ]


def _first_to_bend(lines: dict[str, Line]) -> str:
    cores = lines["cores at rest"]
    full = (1 - cores.constant) / cores.slope if cores.slope > 0 else float("inf")
    return (
        f"By linear extrapolation, about {full:,.0f} idle models saturate the operator's single CPU core. The same CPU core "
        "is also used for scaling decisions and for the agents' report streams. The operator therefore reaches its CPU limit before its memory limit."
        if full < ON_PAPER[1]
        else "By these lines, memory grows without a bend up to 50,000 models."
    )


def _table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    cells = [" | ".join(map(_cell, row)) for row in rows]
    return "\n".join([f"| {' | '.join(head)} |", "|" + "---|" * len(head), *(f"| {cell} |" for cell in cells)])


def _cell(value: object) -> str:
    if value is None:
        return "-"
    return f"{round(value, 3):g}" if isinstance(value, float) else f"{value}"


def _draw(measurements: Sequence[Measured], path: Path) -> None:
    models = [m.models for m in measurements]
    with mpl.rc_context({"svg.hashsalt": "halcyon", "svg.fonttype": "none", "font.size": 9, "axes.grid": True}):
        figure = Figure(figsize=(9, 3), layout="constrained")
        memory, cores, times = figure.subplots(1, 3)
        memory.plot(models, [m.rest_mib for m in measurements], marker="o", label="at rest")
        memory.plot(models, [m.busy_mib for m in measurements], marker="o", label="under load")
        memory.set(xlabel="models", ylabel="MiB", ylim=(0, None))
        cores.plot(models, [m.rest_cores for m in measurements], marker="o", label="at rest")
        cores.plot(models, [m.busy_cores for m in measurements], marker="o", label="under load")
        cores.set(xlabel="models", ylabel="cores", ylim=(0, None))
        for label, values in (
            ("step to /scale p99", [m.step_p99_s for m in measurements]),
            ("first decisions", [m.first_decisions_s for m in measurements]),
            ("streams back", [m.agents_back_s for m in measurements]),
        ):
            points = [(x, y) for x, y in zip(models, values, strict=True) if y is not None]
            times.plot([x for x, _ in points], [y for _, y in points], marker="o", label=label)
        times.set(xlabel="models", ylabel="s", ylim=(0, None))
        for field in (memory, cores, times):
            field.legend(fontsize=7)
        figure.savefig(path, format="svg", metadata={"Date": None})
