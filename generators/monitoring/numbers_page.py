"""The page docs/reference/numbers.md, made from the definitions in `numbers`."""

from __future__ import annotations

from generators.monitoring.numbers import GROUPS

_HEAD = """# Numbers

This page defines the numbers that the dashboard, `status`, the command line, the metrics and Grafana show. Numbers with the same
name have the same definition wherever they are shown. `make docs` writes this page from `generators/monitoring/numbers.py`; do not edit it.

An unknown value is shown as a dash, or has no sample; it is never shown as 0. Counters are Triton's and HAProxy's own. Values from
agents are at most 2 s old. Halcyon writes the status only if a number has changed noticeably, because each write is a load on the API
server. A change of the queue length causes a write of the status only if it exceeds both 20 % and 2 requests. A change of the GPU
utilisation causes a write of the status only if it exceeds both 20 % and 5 percentage points. Between two writes, `status`, `get`, `top` and `explain` show the last written value.

The column *shown as* lists the names under which the number appears in each place. The dashboard shows a number as a column in the list
of models, or as a value or chart on the page of a model. The object's `status` contains a number as a field, and Grafana shows it in a panel."""


def page() -> str:
    """Return the text of the page."""
    parts = [_HEAD]
    for group in GROUPS:
        rows = [f"| {n.name} | {n.definition} | {n.source} | {'; '.join(n.shown)} |" for n in group.numbers]
        table = ["| number | definition | computed from | shown as |", "| --- | --- | --- | --- |", *rows]
        parts += [f"## {group.title}", "\n".join(table)]
    return "\n\n".join(parts) + "\n"
