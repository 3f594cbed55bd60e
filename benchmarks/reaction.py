"""`python -m benchmarks.reaction [--only PART ...]`: run the parts, and write build/bench/reaction.json and its page.

part     what                                                            takes about   needs root
one      load step to /scale, one model on real Triton, ten times        5 min         yes
fleet    the same among 200 and 1,000 models, and the operator's cost    8 min
loop     10,000 models in the decision loop alone                        1 min
step     a step and bursts on pods that take 20 s to load                70 min        yes
peers    the same by a fixed count, an HPA on the queue, and KEDA        39 min        yes
parity   the counts of HPA and Direct, 1 to 40 and back                  10 min
"""

import argparse
import subprocess
import sys
import time
from collections.abc import Callable, Sequence

from benchmarks import fleet, loop, one, page, parity, rows, step
from benchmarks.errors import BenchError
from benchmarks.plane import alone
from benchmarks.rows import PARTS, Row
from demo.errors import DemoError
from e2e import interrupts
from e2e.cluster.errors import ClusterError
from e2e.cluster.progress import say

_RUNS: dict[str, Callable[[], list[Row]]] = {
    "one": one.run,
    "fleet": fleet.run,
    "loop": loop.run,
    "step": step.run,
    "peers": step.run_peers,
    "parity": parity.run,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the parts. Return 0, 1 if a part failed (the others still run), or 130 if interrupted."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.reaction", description="How quickly Halcyon reacts.")
    parser.add_argument("--only", action="append", choices=PARTS, help="this part alone; may be given more than once")
    parser.add_argument("--beside", action="store_true", help="measure although another cluster is up")
    parser.add_argument("--page", action="store_true", help="run nothing; write the page from the JSON")
    options = parser.parse_args(arguments)
    # Child processes such as clusters, operators and loads must end with this process, including on SIGTERM.
    interrupts.heed()
    parts = () if options.page else options.only or PARTS
    measure = _measure_apart if len(parts) > 1 else _measure
    try:
        done = [measure(part, beside=options.beside) for part in parts]
    except KeyboardInterrupt:
        print("stopped; parts that were done are in the file", file=sys.stderr)
        return 130
    page.write(rows.read())
    say(f"{rows.FILE.name} and {page.PAGE.name}: {len(rows.read())} runs")
    return 0 if all(done) else 1


def _measure_apart(part: str, *, beside: bool) -> bool:
    """Measure a part with `_measure` in a separate process.

    Objects that one part leaves in memory (10,000 models, the responses of an hour) slow down each garbage collection
    in the next part, whose load generator is then late. In one process, 1,000 models were scaled after 4.5 s in the
    median. In separate processes on the same machine, it was 2.7 s.
    """
    command = [sys.executable, "-m", "benchmarks.reaction", "--only", part, *(["--beside"] if beside else [])]
    # A separate session, so that Ctrl-C reaches it only once, through this process. A second signal would interrupt its
    # cleanup.
    with subprocess.Popen(command, start_new_session=True) as process:
        try:
            return process.wait() == 0
        except KeyboardInterrupt:
            process.terminate()
            process.wait()
            raise


def _measure(part: str, *, beside: bool) -> bool:
    """Measure a part and write its rows. Return True if this succeeded."""
    began_s = time.monotonic()
    say(f"part {part}")
    try:
        with alone(beside=beside):
            part_rows = _RUNS[part]()
    except (BenchError, ClusterError, DemoError, AssertionError) as error:
        # The helper that starts the operator raises an AssertionError if it doesn't start.
        print(f"part {part}: {error}", file=sys.stderr)
        return False
    rows.write(part, part_rows)
    say(f"part {part}: {time.monotonic() - began_s:.0f} s")
    return True


if __name__ == "__main__":
    sys.exit(main())
