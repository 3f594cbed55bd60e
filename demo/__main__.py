"""`python -m demo up|down`: the demo's command line."""

import argparse
import sys
from collections.abc import Sequence

from demo.errors import DemoError
from demo.run import Options, up
from demo.setup import EXISTING, remove
from e2e import interrupts


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m demo", description=__doc__)
    named = argparse.ArgumentParser(add_help=False)
    named.add_argument(
        "--cluster",
        default="halcyon",
        metavar="NAME|existing",
        help=f"an embedded cluster's name, or `{EXISTING}` for the one in KUBECONFIG (default: %(default)s)",
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    up_parser = commands.add_parser("up", parents=[named], help="bring everything up, measure, and leave it up")
    up_parser.add_argument(
        "--quick",
        action="store_true",
        help="leave out the long parts (batching, channel, GPU step, planned step, rest)",
    )
    up_parser.add_argument(
        "--rest",
        type=float,
        default=60,
        metavar="SECONDS",
        help="count writes at rest for so long (default: %(default)s)",
    )
    up_parser.add_argument(
        "--hpa-sync",
        default="15s",
        metavar="DURATION",
        help="of the embedded cluster; figures are for the default, %(default)s",
    )
    commands.add_parser("down", parents=[named], help="end what `up` has started")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command. Return 0 on success, 1 if a budget was missed or a step failed, and 130 if interrupted."""
    options = _parser().parse_args(arguments)
    # Child processes such as a load generator or a port-forward must end with this process, including on SIGTERM.
    interrupts.heed()
    try:
        if options.command == "down":
            was_up = remove(options.cluster, step=lambda title: print(f"demo: {title}", flush=True))
            print(f"demo: {options.cluster} is down" if was_up else f"demo: {options.cluster} is not up")
            return 0
        up_options = Options(
            cluster=options.cluster, quick=options.quick, rest_s=options.rest, hpa_sync=options.hpa_sync
        )
        return up(up_options)
    except DemoError as error:
        print(f"demo: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        cluster_argument = "" if options.cluster == "halcyon" else f" CLUSTER={options.cluster}"
        print(
            f"\ndemo: stopped; what is up stays up. Go on with: make demo{cluster_argument}; end it with: make demo-down{cluster_argument}",
            file=sys.stderr,
        )
        return 130


if __name__ == "__main__":
    sys.exit(main())
