"""docs/benchmarks/measure.md: each target of `halcyon bench` with its figure, its judge, and its stand-ins.

python -m benchmarks.measure.page    writes the page from docs/quality/data/measure.json, for example after a merge
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.quality.rows import ROOT, plain, read, replace

PAGE = ROOT / "docs" / "benchmarks" / "measure.md"
_HEAD = """\
# `halcyon bench` against known truths

`make bench-measure` writes this page from the rows of [the table of measurements](../quality/measure.md). The table of
measurements also contains the commit, load and command of each row. The targets for `halcyon bench` were chosen by
Halcyon's developers and are not a standard. The column *judge* names the tool or the calculation with which a figure
was compared. If a target isn't met or wasn't measured, the column *figure* contains the reason.
"""
_NOT_RECORDED = "it isn't recorded yet"


@dataclass(frozen=True)
class Line:
    """A target and its judge."""

    id: str
    target: str
    judge: str


SECTIONS: tuple[tuple[str, tuple[Line, ...]], ...] = (
    (
        "An honest load engine",
        (
            Line(
                "1.1",
                "percentiles of an open loop within 3 % + 0.5 ms",
                "Lindley's recursion over the due times and the recorded executions",
            ),
            Line(
                "1.2",
                "P99 within 5 % of the truth when a model stops for 2 s in 60 s",
                "the arrivals, requests timed from their sending, and perf_analyzer",
            ),
            Line(
                "1.3",
                "a closed loop within 2 to 3 % of perf_analyzer and of MLPerf's LoadGen",
                "perf_analyzer, LoadGen",
            ),
            Line("1.4", "requests, rows and executions equal the server's, to the last one", "Triton's counters"),
            Line(
                "1.5",
                "at most 300 us of CPU a gRPC request, 450 us an HTTP request; P99 of late at most 2 ms",
                "getrusage",
            ),
            Line("1.6", "10 of 10 staged cases: the client limits, or the server", "the stage"),
            Line(
                "1.7", "3x overload: each rejection counted, goodput within 3 % of the balancer's", "HAProxy's counters"
            ),
        ),
    ),
    (
        "Beside the model, without a trace",
        (
            Line("2.1", "an answer within 150 s, a warm one within 90 s", "the clock"),
            Line(
                "2.2",
                "live P99 at most 10 % more while a copy is at its limit, no failure, no change",
                "clients of the model",
            ),
            Line("2.3", "20 kills: nothing is left after 5 min", "the API server"),
            Line("2.4", "`--live` ends within 5 s of the crossing, 10 of 10", "the clients' own latency"),
        ),
    ),
    (
        "Where time and energy go",
        (
            Line("3.1", "parts sum up within 2 %; five staged delays of 10 ms each within 1 ms", "the stage"),
            Line("3.2", "13 of 14 staged bottlenecks named, none wrongly without *unsure*", "the stage"),
            Line("3.3", "energy by a published law within 2 %, five kinds of absence with their reasons", "the law"),
            Line("3.4", "NVML's counter within 5 % of integrated power", "a GPU"),
            Line(
                "3.5",
                "cold start: parts within 5 % of the whole, boundaries within 0.15 s",
                "a watch, events of the scheduler and of containerd, Triton's log",
            ),
            Line("3.6", "sampling: at most 1 % of a core, P50 at most 1 % more", "runs in turns without it"),
        ),
    ),
    (
        "One answer, compared, in one file",
        (
            Line(
                "4.1",
                "capacity within 4 %, 8 runs, 6 min; 4 of 200 called kept at 5 % above it",
                "long runs; a simulated server",
            ),
            Line("4.2", "40 equal pairs: 5 called different; 38 of 40 slower by 5 % found", "equal servers in turns"),
            Line("4.3", "a report of 200 runs: 1.5 MiB, first paint 1 s, no fault of axe, no request", "Chromium, axe"),
            Line("4.4", "the same seed, the same arrivals, bit for bit", "equality"),
        ),
    ),
    (
        "The model on paper",
        (
            Line("5.1", "operations within 1 % of published figures, closed forms equal", "papers; counts by hand"),
            Line("5.2", "peaks with a CV of 5 %, no point above its roof", "executions of known operations"),
            Line("5.3", "variants: accuracy equal, files load, INT8 30 % of the size", "an independent count"),
            Line("5.4", "500 MB analysed in 10 s, in twice its size", "the clock, the kernel"),
        ),
    ),
)


def page(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the page in Markdown. Pure."""
    by_id = {str(row["id"]): row for row in rows}
    met = sum(bool(row["holds"]) for row in rows)
    lines = sum(len(section) for _, section in SECTIONS)
    missing = lines - len(by_id)
    parts = [
        _HEAD,
        f"Of the {lines} targets for `halcyon bench`, {met} are met, and {missing} {'has' if missing == 1 else 'have'} no figure yet.",
        "",
    ]
    for title, section in SECTIONS:
        parts += [
            f"## {title}",
            "",
            "| | target | figure | met | judge | stand-in |",
            "| --- | --- | --- | --- | --- | --- |",
        ]
        parts += [_line(target, by_id.get(target.id)) for target in section]
        parts.append("")
    return "\n".join(parts).rstrip() + "\n"


def _line(target: Line, row: Mapping[str, Any] | None) -> str:
    if row is None:
        cells = [target.id, target.target, f"none: {_NOT_RECORDED}", "no", target.judge, "-"]
    else:
        figure = "; ".join(f"{name.replace('_', ' ')} {_short(value)}" for name, value in row["value"].items())
        why = f" ({row['why']})" if row["why"] else ""
        stand_in = "-" if row["stand_ins"] == "none" else str(row["stand_ins"])
        cells = [
            target.id,
            target.target,
            f"{figure}{why}; n = {row['n']}",
            "yes" if row["holds"] else "no",
            target.judge,
            stand_in,
        ]
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _short(value: Any) -> str:
    """Return a measurement in words, with four digits at most."""
    return f"{value:.4g}" if isinstance(value, float) else plain(value)


def write() -> None:
    """Write the page."""
    replace(PAGE, page(read("measure")))


def main() -> int:
    """Write the page, and return the exit status."""
    write()
    return 0


if __name__ == "__main__":
    sys.exit(main())
