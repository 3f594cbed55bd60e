"""Rows of the table `tune`: `python -m benchmarks.tune [ROW...]`, or `make bench-tune`.

A run goes on where an earlier one on the same commit has ended. `LAWS=N` measures the first N laws of row 6.2.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence

from benchmarks.quality.rows import Row, holds, record
from benchmarks.tune import advice, simulated, teach
from benchmarks.tune.real import rows as real_rows
from benchmarks.tune.real.store import states
from e2e.cluster.progress import say

REAL = ("6.1", "6.3", "6.4", "6.5")
"""Rows of `benchmarks.tune.real`, which takes hours. This command writes them from the results so far."""


def _advice() -> Row:
    advice.measure()
    return advice.row()


def _real(name: str) -> Row:
    return next(row for row in real_rows.rows(states()) if row.id == name)


ROWS: Mapping[str, Callable[[], Row]] = {
    "6.2": lambda: simulated.row(int(os.environ.get("LAWS") or simulated.LAWS)),
    **{name: lambda name=name: _real(name) for name in REAL},  # type: ignore[misc]  # of this name
    **teach.ROWS,
    "7.3": _advice,
}


def main(arguments: Sequence[str]) -> int:
    """Measure and record these rows, or all of them. Return 2 if there is no such row."""
    chosen = list(arguments) or list(ROWS)
    if unknown := [name for name in chosen if name not in ROWS]:
        say(f"tune: there is no row {', '.join(unknown)}; the rows are {', '.join(ROWS)}")
        return 2
    for name in chosen:
        row = ROWS[name]()
        record("tune", [row])
        say(f"tune: row {name} {'holds' if holds(row) else 'falls short'}: {row.value}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
