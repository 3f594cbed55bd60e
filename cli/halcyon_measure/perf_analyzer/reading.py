"""Figures in the output of perf_analyzer. Pure."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Mapping
from dataclasses import dataclass

_COUNT = re.compile(r"^\s*Request count: (\d+)", re.MULTILINE)
_DELAYED = re.compile(r"^\s*Delayed Request Count: (\d+)", re.MULTILINE | re.IGNORECASE)
_COLUMNS = {
    "mean": "Avg latency",
    "p50": "p50 latency",
    "p90": "p90 latency",
    "p95": "p95 latency",
    "p99": "p99 latency",
}


@dataclass(frozen=True)
class Reading:
    """Result of one execution."""

    rate_rps: float
    latencies_ms: Mapping[str, float]
    """Latencies by the names of the document, for example `p50`. Some may be missing."""
    requests: int
    delayed: int


def parse(table: str, output: str, *, rows: int) -> Reading | None:
    """Return the result in the table and the output, for requests of `rows` rows; None if there is no result."""
    lines = list(csv.DictReader(io.StringIO(table)))
    count = _COUNT.search(output)
    if len(lines) != 1 or count is None:
        return None
    try:
        rate_rps = float(lines[0]["Inferences/Second"]) / rows
        latencies_ms = {name: float(lines[0][column]) / 1000 for name, column in _COLUMNS.items() if column in lines[0]}
    except (KeyError, ValueError, TypeError):  # another format, or a table that is cut off
        return None
    delayed = _DELAYED.search(output)
    return Reading(rate_rps, latencies_ms, int(count[1]), int(delayed[1]) if delayed else 0)
