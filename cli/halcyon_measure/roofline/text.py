"""Sections `alone` and `roofline` as text, at most 80 columns wide. Pure."""

from __future__ import annotations

import textwrap

from halcyon_measure.results.document import BenchDocument
from halcyon_measure.results.figure import Figure
from halcyon_measure.results.number_text import number
from halcyon_measure.results.sections.alone import Alone
from halcyon_measure.results.sections.roofline import Peak, Roofline
from halcyon_measure.roofline.build import percent

_WIDTH = 80


def sections(document: BenchDocument) -> list[str]:
    """Return the lines of the sections that are based on the model's file; empty if the document has none."""
    lines: list[str] = []
    if (static := document.static) is not None:
        size = static.sizes[0]
        least = "" if static.complete else "at least "
        figures = f"{least}{_count(size.flops / size.batch)}FLOPs a row"
        if static.parameters is not None:
            figures += f", {_count(static.parameters)}parameters ({static.datatype})"
        lines += ["", *_wrapped("model     ", figures)]
    if document.alone is not None:
        lines += alone_lines(document.alone)
    if document.roofline is not None:
        lines += roofline_lines(document.roofline)
    return lines


def alone_lines(alone: Alone) -> list[str]:
    """Return the lines on a model measured without a server."""
    threads = f"{alone.threads} thread{'s' if alone.threads > 1 else ''}"
    memory = f"{number((alone.memory.value or 0) / 2**20)} MiB"
    lines = [f"alone     {alone.library}, {threads}: loads in {number(alone.load.value)} ms, takes {memory}"]
    lines.append(f"{'batch':>5}{'mean ms':>10}{'p50':>9}{'p99':>9}{'rows/s':>11}   95 % interval of rows/s")
    for point in alone.points:
        p99 = number(point.p99.value) + ("?" if point.p99.reason else "")
        lines.append(
            f"{point.batch:>5}{number(point.mean.value):>10}{number(point.p50.value):>9}{p99:>9}{number(point.rate.value):>11}"
            f"   {_interval(point.rate)}"
        )
    if any(point.p99.reason for point in alone.points):
        lines.append("      ?: fewer than ten executions lie above it")
    if alone.server_cost.value is not None:
        lines.append(f"server    costs {number(alone.server_cost.value)} ms: {alone.server_cost.source}")
    return lines


def roofline_lines(roofline: Roofline) -> list[str]:
    """Return the lines on a roofline and its points."""
    lines = _wrapped("roofline  ", roofline.answer)
    lines += _wrapped("compute   ", f"{roofline.datatype}: {_peak(roofline.compute, 'FLOP/s')}")
    lines += _wrapped("memory    ", _peak(roofline.memory, "B/s"))
    if roofline.points:
        lines.append(f"{'batch':>5}{'FLOP/byte':>11}{'GFLOP/s':>10}{'roof':>10}{'share':>9}  limit")
    for point in roofline.points:
        lines.append(
            f"{point.batch:>5}{number(point.intensity):>11}{number((point.rate.value or 0) / 1e9):>10}{number(point.roof / 1e9):>10}"
            f"{percent(point.share.value):>9}  {point.bound}{'  ABOVE THE ROOF' if point.batch in roofline.above else ''}"
        )
    return lines


def _count(value: float) -> str:
    for prefix, unit in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if value >= unit:
            return f"{value / unit:.3g} {prefix} "
    return f"{value:.0f} "


def _peak(peak: Peak, unit: str) -> str:
    value = f"{number((peak.rate.value or 0) / 1e9)} G{unit}"
    if peak.kind == "published":
        return f"{value}, published: {peak.rate.source} ({peak.how})"
    cv = f", CV {100 * peak.cv:.1f} %" if peak.cv is not None else ""
    unsure = f"; NOT SURE: {peak.rate.reason}" if peak.rate.reason else ""
    return f"{value}, measured: {peak.how}; {peak.rate.n} samples{cv}{unsure}"


def _interval(figure: Figure) -> str:
    return f"[{number(figure.interval[0])}, {number(figure.interval[1])}]" if figure.interval else ""


def _wrapped(head: str, text: str) -> list[str]:
    return textwrap.wrap(text, _WIDTH, initial_indent=head, subsequent_indent=" " * len(head)) or [head]
