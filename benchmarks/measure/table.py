"""Rows of the table `measure`, measured one after the other."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence

from benchmarks.measure import page
from benchmarks.quality.rows import Row, holds, record
from e2e.cluster.progress import say

Measurements = Mapping[str, Callable[[], Row]]
"""Functions that measure a row, by its id."""


def names_or_none(names: Sequence[str]) -> list[str] | str:
    """Return names as the value of a row, or the word `none`: a page shows a value of None as unknown."""
    return list(names) or "none"


def measure(rows: Measurements, names: Iterable[str]) -> int:
    """Measure and record these rows. Return 0, or 2 if there is no such row; nothing is measured then."""
    chosen = list(names)
    if unknown := [name for name in chosen if name not in rows]:
        say(f"measure: there is no row {', '.join(unknown)}; the rows are {', '.join(rows)}")
        return 2
    for name in chosen:
        began = time.monotonic()
        row = rows[name]()
        record("measure", [row])
        page.write()
        verdict = "holds" if holds(row) else "falls short"
        say(f"measure: row {name} {verdict}: {row.value} in {time.monotonic() - began:.0f} s")
    return 0
