"""Entry point of `python -m e2e.load ADDRESS MODEL`, which puts load on a model and prints the results."""

import argparse
import asyncio
import dataclasses
import json
import signal
import sys
from collections.abc import Sequence

from e2e.load.process import line
from e2e.load.run import run
from e2e.load.settings import Load, LoadError, Report


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m e2e.load", description=__doc__)
    parser.add_argument("address", nargs="?", help="host:port of the model's Service, e.g. 10.200.64.7:8001")
    parser.add_argument("model", nargs="?", help="the model's name in requests")
    parser.add_argument("--protocol", choices=("grpc", "http"), default="grpc", help="default: %(default)s")
    parser.add_argument("--clients", type=int, default=32, help="closed loop: callers (default: %(default)s)")
    parser.add_argument(
        "--rate", type=float, metavar="RPS", help="open loop: mean rate; --clients bounds what is under way"
    )
    parser.add_argument("--seconds", type=float, default=10, help="default: %(default)s")
    parser.add_argument("--requests", type=int, default=1_000_000, help="most requests (default: %(default)s)")
    parser.add_argument("--channels", type=int, default=4, help="gRPC connections (default: %(default)s)")
    parser.add_argument("--timeout", type=float, default=30, help="of one request, in seconds (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of inputs and arrivals (default: %(default)s)")
    parser.add_argument("--load", help=argparse.SUPPRESS)  # all settings as JSON, used by e2e.load.process
    parser.add_argument(
        "--json-lines", action="store_true", help="print a line of JSON each second, and one at the end"
    )
    return parser


def _load(options: argparse.Namespace) -> Load:
    if options.load:
        return Load.from_json(options.load)
    if not options.address or not options.model:
        raise LoadError("load: ADDRESS and MODEL are needed, for example 10.200.64.7:8001 digits")
    return Load(
        address=options.address,
        model=options.model,
        protocol=options.protocol,
        clients=options.clients,
        rate_rps=options.rate,
        duration_s=options.seconds,
        most_requests=options.requests,
        channels=options.channels,
        timeout_s=options.timeout,
        seed=options.seed,
    )


async def _run(load: Load, *, lines: bool) -> Report:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)

    def print_report(report: Report) -> None:
        try:
            print(line(report), flush=True)
        except BrokenPipeError:
            # The parent process was killed, so nothing else would end the load.
            stop.set()

    return await run(load, stop=stop, sample=print_report if lines else None)


def main(arguments: Sequence[str] | None = None) -> int:
    """Return the exit status: 0, 1 if a request failed, 2 if the settings are invalid."""
    options = _parser().parse_args(arguments)
    try:
        load = _load(options)
    except LoadError as error:
        print(error, file=sys.stderr)
        return 2
    report = asyncio.run(_run(load, lines=options.json_lines))
    if options.json_lines:
        print(line(report), flush=True)
    else:
        print(json.dumps(dataclasses.asdict(report), indent=2))
    return 1 if report.failed else 0


if __name__ == "__main__":
    sys.exit(main())
