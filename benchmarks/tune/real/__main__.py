"""Rows 6.1, 6.3, 6.4 and 6.5 on a real Triton: `python -m benchmarks.tune.real [--minutes N] [--law N] [--processes N] [--senders N]`.

Results are recorded after each load or tuning, so a run goes on where an earlier one has ended. The models sleep and need
little CPU, so several processes measure at once, each with a Triton of its own. A load whose client or model was disturbed
is repeated.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence

from benchmarks.quality.rows import holds, record
from benchmarks.tune.real.laws import LAWS
from benchmarks.tune.real.processes import measure
from benchmarks.tune.real.rows import rows
from benchmarks.tune.real.store import states
from e2e.cluster.progress import say


def main(arguments: Sequence[str]) -> int:
    """Measure, and record the rows."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tune.real", description="Rows 6.1 and 6.3 to 6.5.")
    parser.add_argument("--minutes", type=float, default=600.0, help="end after about this time; the next run goes on")
    parser.add_argument("--law", type=int, choices=range(1, len(LAWS) + 1), help="measure this law alone")
    parser.add_argument("--processes", type=int, default=4, help="number of processes, each with a Triton of its own")
    parser.add_argument("--senders", type=int, default=1, help="processes that send each load; more on a busy machine")
    options = parser.parse_args(arguments)
    end = time.monotonic() + 60 * options.minutes
    laws = LAWS if options.law is None else LAWS[options.law - 1 : options.law]
    measure(laws, options.processes, options.senders, end)
    measured_rows = rows(states())
    record("tune", measured_rows)
    for row in measured_rows:
        say(f"tune: row {row.id} {'holds' if holds(row) else 'falls short'}: {row.value}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
