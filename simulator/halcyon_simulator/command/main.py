"""Entry point of `halcyon simulate`: its options and their syntax.

It imports neither numpy nor numba, because `--help` and usage errors don't need them. Out of scope: the meaning of the
options (`command`).
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path

_DEPENDENCIES = frozenset({"numpy", "numba", "matplotlib"})
_EPILOG = """\
scenarios: S1 step, S2 ramp, S3 repeating and S3r random spikes, S4 flash crowd, S5 two weeks of days, S6 recorded loads, S7 to
zero, S8 slow, failing and missing pods, S9 bad signals, S11 twenty models on one budget, S12 increasing service time. S6 to S9 and
S11 have members (S6-azure); a family's name stands for all of them. An unknown name lists the valid ones.

policies: halcyon, static, rate and the peers (hpa, keda, kpa, kubeai, ray, ...); an unknown knob lists the valid ones.

examples:
  halcyon simulate --scenario S1 --policy halcyon --policy kpa --policy 'hpa:behavior={}'
  halcyon simulate --scenario S2 --service L2 --start-delay 180 --seeds 10 --policy kpa --sweep --plot front.svg
  halcyon simulate --trace arrivals.csv --superpose 20 --service t0_ms=80,a_ms=6,max_batch=8,instances=1 --slo-ms 500 --json
"""


def main(argv: Sequence[str]) -> int:
    """Run with the arguments after `simulate`, and return the exit status: 0, or 2 if an argument is invalid."""
    parser = _parser()
    options = parser.parse_args(argv)
    if not options.scenario and options.trace is None:
        parser.error("there is nothing to simulate: set --scenario or --trace, for example --scenario S1")
    if options.scenario and options.superpose != 1:
        parser.error("--superpose makes copies of a --trace; a scenario has its own size")
    if options.scenario == [] and options.cv != 1:
        parser.error("--cv is for the loads of scenarios; a --trace has its own bursts")
    if options.plot is not None and options.plot.suffix not in {".svg", ".png"}:
        parser.error(f"--plot {options.plot}: the name has to end in .svg or .png, for example out.svg")
    if options.plot is not None and (problem := _unwritable(options.plot)):
        parser.error(f"--plot {options.plot}: can't be written: {problem}; for example --plot /tmp/out.svg")
    try:
        run: Callable[[argparse.Namespace], int] = import_module("halcyon_simulator.command.command").run
        return run(options)
    except ModuleNotFoundError as error:
        if error.name not in _DEPENDENCIES:
            raise
        print(  # noqa: T201  # a command line prints
            f"halcyon simulate needs {error.name}, which isn't installed: pip install './cli[simulate]', in a clone",
            file=sys.stderr,
        )
        return 2
    except ValueError as error:
        parser.error(str(error))


def _unwritable(path: Path) -> str:
    """Create a file's folder, and return the reason why the file can't be written; empty if it can.

    This check avoids minutes of simulation whose result can't be saved.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path.parent):
            return "it is a folder" if path.is_dir() else ""
    except OSError as error:
        return error.strerror or str(error)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="halcyon simulate",
        description="Simulate a load on Triton replicas that Halcyon's planner or another autoscaler scales.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    load = parser.add_mutually_exclusive_group()
    load.add_argument(
        "--scenario", action="append", default=[], metavar="S1", help="a scenario; may be given more than once"
    )
    load.add_argument(
        "--trace", type=Path, metavar="FILE.csv", help="arrival times: a CSV (or .csv.gz) with a column t_s, in seconds"
    )
    parser.add_argument(
        "--superpose", type=_count, default=1, metavar="N", help="copies of the trace at once, shifted by up to 60 s"
    )
    parser.add_argument(
        "--policy",
        action="append",
        metavar="NAME[:key=value,...]",
        help="autoscaler; may be given more than once; default halcyon",
    )
    parser.add_argument(
        "--service",
        default="L1",
        metavar="t0_ms=..,a_ms=..,max_batch=..,instances=..",
        help="a batch of b requests takes t0 + a x b on one instance; delay_ms= is Triton's queue delay; or L1 (t0_ms=400,a_ms=0,"
        "max_batch=4, the default) or L2 (t0_ms=80,a_ms=8,max_batch=16)",
    )
    parser.add_argument("--slo-ms", type=_positive, metavar="MS", help="latency objective; default 2400, with L2 500")
    parser.add_argument(
        "--start-delay", type=_natural, default=60.0, metavar="S", help="from a pod's creation to ready; default 60"
    )
    parser.add_argument(
        "--min", type=_non_negative_integer, dest="low", metavar="N", help="minimum replicas; default 1, in S7 0"
    )
    parser.add_argument("--max", type=_count, dest="high", metavar="N", help="maximum replicas; default 100")
    parser.add_argument(
        "--queue-limit",
        type=_non_negative_integer,
        metavar="N",
        help="number of waiting requests above which more are rejected; default none",
    )
    parser.add_argument(
        "--refuse-late", action="store_true", help="reject requests on arrival that are expected to miss the objective"
    )
    parser.add_argument(
        "--observation-lag",
        type=_natural,
        default=0.0,
        metavar="S",
        help="delay of the signals that policies see; default 0",
    )
    parser.add_argument(
        "--cv",
        type=_positive,
        default=1.0,
        metavar="X",
        help="burstiness of generated loads; 1 (Poisson) is the default, 3 is bursty",
    )
    parser.add_argument("--seeds", type=_count, default=1, metavar="N", help="runs with seeds 1 to N; default 1")
    parser.add_argument(
        "--sweep", action="store_true", help="run each policy's grid of knobs, and show its Pareto front"
    )
    parser.add_argument("--json", action="store_true", help="every run as JSON on stdout, instead of a table")
    parser.add_argument(
        "--plot", type=Path, metavar="out.svg|png", help="draw load, replicas, queue, latency; with --sweep the front"
    )
    return parser


def _number(text: str, *, least: float, above: bool, example: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not (least < value < float("inf") if above else least <= value < float("inf")):
        raise argparse.ArgumentTypeError(
            f"{text!r} has to be a number {'above' if above else 'of at least'} {least:g}; for example {example}"
        )
    return value


def _positive(text: str) -> float:
    return _number(text, least=0, above=True, example="500")


def _natural(text: str) -> float:
    return _number(text, least=0, above=False, example="60")


def _integer(text: str, least: int) -> int:
    if not (text.isascii() and text.isdigit() and int(text) >= least):
        raise argparse.ArgumentTypeError(f"{text!r} has to be a whole number of at least {least}; for example 3")
    return int(text)


def _non_negative_integer(text: str) -> int:
    return _integer(text, 0)


def _count(text: str) -> int:
    return _integer(text, 1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
