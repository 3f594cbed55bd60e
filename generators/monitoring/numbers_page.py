"""The page docs/reference/numbers.md, made from the definitions in `numbers`."""

from __future__ import annotations

from generators.monitoring.numbers import GROUPS

_HEAD = """# Numbers

This page defines the numbers that the dashboard, `status`, the command line, the metrics and Grafana show. A number with the same name
has the same definition wherever it is shown. `make docs` writes this page from `generators/monitoring/numbers.py`; do not edit it.

An unknown value is shown as a dash, or has no sample; it is never shown as 0. Counters are Triton's and HAProxy's own. Values from
agents are at most 2 s old. Halcyon writes the status only if a number has changed noticeably, because each write costs the API server.
The queue must change by more than 20 % and 2 requests, GPU utilisation by more than 20 % and 5 points. Between two writes, `status`,
`get`, `top` and `explain` show the last written value.

The column *shown as* contains the name of a number in each place. The dashboard shows a number in a column
of the list of models, or as a value or chart on a model's page. `status` shows a number in a field, and Grafana in a panel."""


def page() -> str:
    """Return the text of the page."""
    parts = [_HEAD]
    for group in GROUPS:
        rows = [f"| {n.name} | {n.definition} | {n.source} | {'; '.join(n.shown)} |" for n in group.numbers]
        table = ["| number | definition | computed from | shown as |", "| --- | --- | --- | --- |", *rows]
        parts += [f"## {group.title}", "\n".join(table)]
    return "\n\n".join(parts) + "\n"
