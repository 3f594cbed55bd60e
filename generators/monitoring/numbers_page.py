"""Generator of docs/reference/numbers.md, from the definitions in `numbers`."""

from __future__ import annotations

from generators.monitoring.numbers import GROUPS

_HEAD = """# Numbers

This page defines the numbers that the dashboard, `status`, the command line, the metrics and Grafana show. Numbers with
the same name have the same definition wherever they are shown. `make docs` writes this page from
`generators/monitoring/numbers.py`; do not edit it.

An unknown value is never shown as 0: a dash is shown, or the metric has no sample. The counters come from Triton
and HAProxy. Values that come from agents are at most 2 s old. Halcyon updates the status only if a number has changed
noticeably, because each update puts load on the API server. Halcyon updates the queue length in the status only if the
change exceeds both 20 % and 2 requests. Halcyon updates the GPU utilisation in the status only if the change exceeds
both 20 % and 5 percentage points. Between two updates of the status, `status`, `get`, `top` and `explain` show the last
written value.

The column *shown as* lists, for each place, the names under which a number appears. The dashboard shows a number as a
column in the list of models, or as a value or chart on a model's page. In `status`, the name is that of a field; in Grafana,
it is that of a panel."""


def page() -> str:
    """Return the text of the page."""
    parts = [_HEAD]
    for group in GROUPS:
        rows = [f"| {n.name} | {n.definition} | {n.source} | {'; '.join(n.places)} |" for n in group.numbers]
        table = ["| number | definition | computed from | shown as |", "| --- | --- | --- | --- |", *rows]
        parts += [f"## {group.title}", "\n".join(table)]
    return "\n\n".join(parts) + "\n"
