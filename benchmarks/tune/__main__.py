"""Rows of the table `tune`: `python -m benchmarks.tune [ROW...]`, or `make bench-tune`.

A run goes on where an earlier one on the same commit has ended. `LAWS=N` measures the first N laws of row 6.2.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence

from benchmarks.quality.rows import Row, holds, record
from benchmarks.tune import simulated
from e2e.cluster.progress import say

ROWS: Mapping[str, Callable[[], Row]] = {
    "6.2": lambda: simulated.row(int(os.environ.get("LAWS") or simulated.LAWS)),
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
