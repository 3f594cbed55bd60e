"""Document of a run as text: one sentence with the result, then its figures. Pure."""

from __future__ import annotations

import textwrap

from halcyon_measure.results.document import BenchDocument, Latencies
from halcyon_measure.results.figure import Figure
from halcyon_measure.results.number_text import count_text, number
from halcyon_measure.results.sections import answer_text, section_text
from halcyon_measure.results.sections.sweep import Sweep

_COLUMNS = ("mean", "p50", "p90", "p95", "p99", "p99_9", "max")
_NAMES = {"p99_9": "p99.9"}


def page(document: BenchDocument) -> str:
    """Return the document as text, at most 80 columns wide."""
    if document.sweep is not None:
        return "\n".join([*textwrap.wrap(answer(document), 80), "", *answer_text.sweep(document.sweep)])
    if document.comparison is not None:
        lines = [*textwrap.wrap(document.comparison.sentence, 80), "", *answer_text.comparison(document.comparison)]
        for reason in document.run.invalid_because:
            lines += _wrapped("NOT VALID ", reason)
        return "\n".join(lines)
    lines = [*textwrap.wrap(answer(document), 80, break_long_words=False, break_on_hyphens=False), ""]
    if document.capacity is not None:
        lines += [*answer_text.capacity(document.capacity), ""]
    lines += _table(document)
    lines += ["", *_counts(document), *_failures(document), *_client(document), *section_text.details(document)]
    if document.run.settled is None:
        warm = f"{document.run.warm_up_s:.1f} s of warm-up"
    else:
        warm = f"settled after {document.run.warm_up_s:.1f} s" if document.run.settled else "not settled"
    lines += _wrapped("run       ", f"{document.run.measured_s:.1f} s measured, {warm}; 95 % intervals in brackets")
    for reason in document.run.invalid_because:
        lines += _wrapped("NOT VALID ", reason)
    if document.phases is not None:
        lines += ["", *section_text.phases(document.phases)]
    if document.verdict is not None:
        lines += ["", *textwrap.wrap(document.verdict.sentence, 80)]
    if document.second_engine is not None:
        lines += ["", *section_text.second_engine(document.second_engine)]
    return "\n".join(lines)


def answer(document: BenchDocument) -> str:
    """Return the result in one sentence."""
    if document.capacity is not None:
        return document.capacity.sentence
    if document.sweep is not None:
        return _of_sweep(document, document.sweep)
    return of_run(document)


def _of_sweep(document: BenchDocument, sweep: Sweep) -> str:
    partial = ", interrupted" if sweep.partial else ""
    head = f"{document.target.model or document.target.url}: {count_text(len(sweep.points), 'point')}{partial}"
    points = [point for point in sweep.points if point.valid] or sweep.points
    best = max(points, key=lambda point: point.rows_per_second.value or 0.0, default=None)
    if best is None or not best.rows_per_second.value:
        return f"{head}; no request was answered."
    unit = "rows/s" if {point.rows for point in sweep.points} != {"1"} else "requests/s"
    return f"{head}; the most is {number(best.rows_per_second.value)} {unit}, with {best.load_text}."


def of_run(document: BenchDocument) -> str:
    """Return the rate, the latency and the failures of a single run in one sentence."""
    requests, latency = document.requests, document.latency
    target = document.target.model or document.target.url
    failed = requests.due - requests.answered
    share = f"{failed} of {requests.due} failed" if failed else f"none of {requests.due} failed"
    if not requests.answered:
        return f"{target}: no request was answered; {share}."
    good = ""
    if document.goodput.value is not None and requests.good is not None:
        good = f", {100 * requests.good / max(requests.due, 1):.1f} % within the objective"
    return (
        f"{target} answered {number(document.throughput.value)} requests/s: p50 {_ms(latency.p50)}, "
        f"p99 {_ms(latency.p99)}{good}; {share}."
    )


def _table(document: BenchDocument) -> list[str]:
    rows: list[tuple[str, Latencies]] = [("latency", document.latency), ("from send", document.from_send)]
    rows.append(("first byte", document.first_byte))
    if document.prepare.p50.value is not None:
        rows.append(("prepare", document.prepare))
    head = f"{'ms':<10}" + "".join(f"{_NAMES.get(name, name):>9}" for name in _COLUMNS)
    table = [head]
    for name, latencies in rows:
        cells = []
        for column in _COLUMNS:
            figure: Figure = getattr(latencies, column)
            cells.append(number(figure.value) + ("?" if figure.value is not None and figure.reason else " "))
        table.append(f"{name:<10}" + "".join(f"{cell:>9}" for cell in cells))
    intervals = [
        f"{_NAMES.get(name, name)} [{number(figure.interval[0])}, {number(figure.interval[1])}]"
        for name in ("p50", "p95", "p99")
        if (figure := getattr(document.latency, name)).interval is not None
    ]
    if intervals:
        table += _wrapped(f"{'':<12}", "  ".join(intervals))
    if any("?" in line for line in table[1:]):
        table.append(f"{'':<10}  ?: fewer than ten requests lie above it")
    return table


def _counts(document: BenchDocument) -> list[str]:
    requests = document.requests
    lines = _wrapped("rate      ", f"{_rate(document.offered)} due, {_rate(document.throughput)} answered")
    if document.goodput.value is not None:
        lines += _wrapped("goodput   ", f"{_rate(document.goodput)} {document.goodput.source.removeprefix('answers ')}")
    if document.target.rows != "1":
        lines.append(f"rows      {_rate(document.rows)}")
    counts = [
        (requests.answered, "answered"),
        (requests.rejected, "rejected"),
        (requests.timed_out, "timed out"),
        (requests.disconnected, "disconnected"),
        (requests.errors, "errors"),
        (requests.wrong, "wrong"),
        (requests.not_sent, "not sent"),
    ]
    text = ", ".join(f"{count} {name}" for count, name in counts if count or name == "answered")
    lines += _wrapped("requests  ", f"{requests.due} due: {text}")
    if document.run.histogram:
        lines.append("          too many to keep each: counted in a histogram, percentiles within 0.2 %")
    return lines


def _failures(document: BenchDocument) -> list[str]:
    lines: list[str] = []
    for kind in document.failures:
        lines += _wrapped("failure   ", f"{kind.count} x {kind.message} ({kind.first_s:g} s to {kind.last_s:g} s)")
    if document.failures and document.unlisted_failures > 0:
        lines += _wrapped("failure   ", f"{document.unlisted_failures} x other messages, which are too many to list")
    return lines


def _client(document: BenchDocument) -> list[str]:
    client = document.client
    limits = "doesn't limit" if client.limit == "none" else f"LIMITS ({client.limit}); {client.remedy}"
    processes = "1 process" if client.processes == 1 else f"{client.processes} processes"
    text = f"{processes}, {number(client.cpu_per_request.value)} us of CPU a request; {limits}"
    return _wrapped("client    ", text)


def _wrapped(head: str, text: str) -> list[str]:
    return textwrap.wrap(text, 80, initial_indent=head, subsequent_indent=" " * len(head)) or [head]


def _rate(figure: Figure) -> str:
    interval = f" [{number(figure.interval[0])}, {number(figure.interval[1])}]" if figure.interval else ""
    return f"{number(figure.value)} {figure.unit}{interval}"


def _ms(figure: Figure) -> str:
    return f"{number(figure.value)} ms"
