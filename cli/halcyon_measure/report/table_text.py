"""Results as text for a terminal: the details of one run, or a table of several. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from halcyon_measure.report.labels import labelled
from halcyon_measure.results import text
from halcyon_measure.results.document_file import StoredDocument
from halcyon_measure.results.figure import Figure
from halcyon_measure.results.number_text import interval, number

_HEAD = ("requests/s", "", "p50 ms", "p99 ms", "", "p99.9 ms", "failed", "valid")


def page(documents: Sequence[StoredDocument]) -> str:
    """Return the details of a single run, or a table with one line for each run."""
    if len(documents) == 1:
        return text.page(documents[0].document)
    rows = [("run", *_HEAD)]
    for run in labelled(documents):
        document = run.document
        latency, requests = document.latency, document.requests
        rows.append((
            _printable(run.label),
            number(document.throughput.value),
            interval(document.throughput),
            _marked(latency.p50),
            _marked(latency.p99),
            interval(latency.p99),
            _marked(latency.p99_9),
            f"{requests.due - requests.answered} of {requests.due}",
            "yes" if document.run.valid else "NO",
        ))  # fmt: skip
    widths = [max(len(row[n]) for row in rows) for n in range(len(rows[0]))]
    lines = [
        "  ".join(
            cell.rjust(width) if n else cell.ljust(width)
            for n, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
    return "\n".join([*lines, "", "95 % intervals in brackets; ?: fewer than ten requests lie above it"])


def _marked(figure: Figure) -> str:
    return number(figure.value) + ("?" if figure.value is not None and figure.reason else "")


def _printable(label: str) -> str:
    return "".join(char if char.isprintable() else f"\\u{ord(char):04x}" for char in label)
