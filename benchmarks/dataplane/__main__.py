"""`python -m benchmarks.dataplane [PART ...]`: run the parts, and write build/bench/dataplane.json and its page.

part        what                                                             takes about   on
throughput  share, CPU and latency of each way to two Tritons                3 min         loopback
unequal     p99 with one of three servers three times slower                 2.5 min       loopback
exits       2,000 pods replaced at 800 req/s through the agent               1.5 min       loopback
service     a plain ClusterIP Service and the balancers', against a pod      1.5 min       cluster
loss        100,000 requests through scaling, rollouts, evictions, restarts  5 min         cluster
single      the same with one replica, in small                              1.5 min       cluster
zero        100 requests for a model with no replica                         3 min         cluster
overload    three times the capacity                                         2.5 min       cluster
rest        memory and idle CPU of a balancer pod                            2 min         cluster

A run ends after 25 minutes at the latest, all parts together.
"""

import argparse
import signal
import sys
import time
from collections.abc import Callable, Sequence
from types import FrameType

from benchmarks.dataplane import (
    exits,
    leftovers,
    loss,
    overload,
    page,
    rest,
    results,
    service,
    throughput,
    unequal,
    zero,
)
from benchmarks.dataplane.results import PARTS, PartResults
from benchmarks.dataplane.stage import Stage
from benchmarks.errors import BenchError
from demo.errors import DemoError
from demo.kube import Kube
from e2e import interrupts
from e2e.cluster.errors import ClusterError
from e2e.cluster.progress import say
from e2e.load.process import LoadFailedError

_ON_LOOPBACK: dict[str, Callable[..., PartResults]] = {
    "throughput": throughput.run,
    "unequal": unequal.run,
    "exits": exits.run,
}
_ON_CLUSTER: dict[str, Callable[..., PartResults]] = {
    "service": service.run,
    "loss": loss.run,
    "single": loss.run_single,
    "zero": zero.run,
    "overload": overload.run,
    "rest": rest.run,
}


_MAX_RUN_S = 25 * 60.0
_MIN_ALARM_S = 1.0


def _too_long(_signal: int, _frame: FrameType | None) -> None:
    raise BenchError(f"the run has taken {_MAX_RUN_S / 60:g} minutes, which is all it may; run this part by its name")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the parts. Return 0, 1 if a part failed (the others still run), or 130 if interrupted."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.dataplane", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)}; all if none is named")
    parser.add_argument("--short", action="store_true", help="about a tenth of the requests, to try a part")
    parser.add_argument("--beside", action="store_true", help="measure although another cluster is up")
    parser.add_argument("--page", action="store_true", help="run nothing; write the page from the JSON")
    options = parser.parse_args(arguments)
    unknown = [part for part in options.parts if part not in PARTS]
    if unknown:
        parser.error(f"no part is named {', '.join(unknown)}; there are: {', '.join(PARTS)}")
    # Child processes such as clusters, proxies, servers and loads must end with this process, including on SIGTERM.
    interrupts.heed()
    signal.signal(signal.SIGALRM, _too_long)
    failed = []
    try:
        if not options.page:
            failed = _run(options.parts or PARTS, short=options.short, beside=options.beside)
    except KeyboardInterrupt:
        print("stopped; parts that were done are in the file", file=sys.stderr)
        return 130
    page.write(results.read())
    say(f"{results.FILE.name} and {page.PAGE.name} are written{f'; failed: {failed}' if failed else ''}")
    return 1 if failed else 0


def _run(parts: Sequence[str], *, short: bool, beside: bool) -> list[str]:
    """Run the parts in order, and return those that failed."""
    failed = []
    deadline_s = time.monotonic() + _MAX_RUN_S
    with leftovers.ended(), Stage(beside=beside) as stage:
        for part in (name for name in PARTS if name in parts):
            began_s = time.monotonic()
            say(f"part {part}")
            try:
                signal.setitimer(signal.ITIMER_REAL, max(deadline_s - began_s, _MIN_ALARM_S))
                try:
                    part_results = _measure(part, stage.kube, short=short)
                finally:
                    signal.setitimer(signal.ITIMER_REAL, 0.0)
            except (
                BenchError,
                ClusterError,
                DemoError,
                LoadFailedError,
                OSError,
                TimeoutError,
                AssertionError,
            ) as error:
                # The tests' balancer raises an AssertionError if it doesn't start.
                failed.append(part)
                print(f"part {part}: {type(error).__name__}: {error}", file=sys.stderr)
                continue
            seconds = time.monotonic() - began_s
            results.write(results.merged(results.read(), part, part_results, short=short, seconds=seconds))
            say(f"part {part}: {seconds:.0f} s: {part_results.figures}")
    return failed


def _measure(part: str, kube: Callable[[], Kube], *, short: bool) -> PartResults:
    if part in _ON_LOOPBACK:
        return _ON_LOOPBACK[part](short=short)
    return _ON_CLUSTER[part](kube(), short=short)


if __name__ == "__main__":
    sys.exit(main())
