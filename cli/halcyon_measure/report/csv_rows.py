"""Results as CSV: one row per run and per point of a sweep. Columns have the field names of `bench.json`. Pure."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from typing import Any

from pydantic import BaseModel

from halcyon_measure.results.document_file import StoredDocument
from halcyon_measure.results.figure import Figure

_FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""First characters of a cell that a spreadsheet would evaluate as a formula."""


def text(documents: Sequence[StoredDocument]) -> str:
    """Return the documents as a CSV table.

    A figure has the columns `NAME [UNIT]`, `NAME.low` and `NAME.high`. Lists are omitted, except for the points of a
    sweep, which have one row each.
    """
    rows: list[dict[str, Any]] = []
    for stored in documents:
        rows.append({"file": _cell(stored.name), **dict(_cells(stored.document, ""))})
        if stored.document.sweep is not None:
            rows += [
                {"file": _cell(stored.name), **dict(_cells(point, "sweep.points"))}
                for point in stored.document.sweep.points
            ]
    columns = list(dict.fromkeys(name for row in rows for name in row))
    non_empty = [name for name in columns if any(row.get(name) not in {None, ""} for row in rows)]
    output = io.StringIO()
    writer = csv.DictWriter(output, non_empty, restval="", extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return output.getvalue()


def _cells(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Figure):
        yield f"{path} [{value.unit}]", value.value
        low, high = value.interval or (None, None)
        yield f"{path}.low", low
        yield f"{path}.high", high
    elif isinstance(value, BaseModel):
        for name, inner in value:
            yield from _cells(inner, f"{path}.{name}" if path else name)
    elif isinstance(value, tuple):
        if all(isinstance(item, str) for item in value):
            yield path, _cell("; ".join(value))
    else:
        yield path, _cell(value) if isinstance(value, str) else value


def _cell(text: str) -> str:
    """Return the text in a form that no spreadsheet evaluates as a formula."""
    return f"'{text}" if text.startswith(_FORMULA) else text
