"""Rows of the table `tune`: `python -m benchmarks.tune [ROW...]`, or `make bench-tune`.

A run goes on where an earlier one on the same commit has ended. `LAWS=N` measures the first N laws of row 6.2.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence

from benchmarks.quality.rows import Row, holds, record
from benchmarks.tune import advice, simulated, teach
from e2e.cluster.progress import say

SWEEPS = "the sweeps on a real Triton, an hour for each law, are not built yet"
UNMEASURED: Mapping[str, tuple[str, str, str]] = {
    "6.1": (
        "goodput of the winner against that of a full sweep's winner, on a real Triton",
        ">= 97 % with <= 10 % of its measured points and <= 10 minutes, 4 laws",
        SWEEPS,
    ),
    "6.3": ("the recommended configuration keeps its objective in >= 5,000 other requests", "20 of 20", SWEEPS),
    "6.4": ("the gain's interval has the true gain", ">= 18 of 20", SWEEPS),
    "6.5": ("settings that are the best already: nothing to change", "5 of 5", SWEEPS),
}
"""Rows without a measurement: what, target and reason."""


def _advice() -> Row:
    advice.measure()
    return advice.row()


ROWS: Mapping[str, Callable[[], Row]] = {
    "6.2": lambda: simulated.row(int(os.environ.get("LAWS") or simulated.LAWS)),
    **{
        name: lambda name=name, what=what, target=target, why=why: Row(  # type: ignore[misc]
            name, what, {"measured": None}, target, [("measured", 1, ">=")], "make bench-tune", why=why
        )
        for name, (what, target, why) in UNMEASURED.items()
    },
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
