"""All rows of the table `measure`: `python -m benchmarks.measure [ROW...]`, or `make bench-measure`.

Without names, it leaves out the rows that were recorded on this commit, so that an interrupted run can be resumed.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from benchmarks.measure import answer, cold_starts, live, load_engine, paper, phases, place, report, side_by_side
from benchmarks.measure.table import Measurements, measure
from benchmarks.quality.rows import commit, read

# The memory of children is that of the largest, so row 5.4 is first.
ROWS: Measurements = {"5.4": paper.ROWS["5.4"]} | {
    name: row
    for module in (load_engine, side_by_side, place, live, phases, cold_starts, answer, report, paper)
    for name, row in module.ROWS.items()
    if name != "5.4"
}


def main(arguments: Sequence[str]) -> int:
    """Measure these rows, or all that weren't recorded on this commit."""
    done = {str(row["id"]) for row in read("measure") if row["commit"] == commit()}
    return measure(ROWS, arguments or [name for name in ROWS if name not in done])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
