"""`halcyon`: one command for every process of an installation.

Each sub-command imports what it needs when it is called: the agent and the fetcher never load the operator.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.metadata import version

_COMMANDS = {
    "operator": ("halcyon.control.app", "run the operator (in its pod)"),
    "agent": ("halcyon.balancer.main", "run the agent beside HAProxy (in a balancer pod)"),
    "fetch": ("halcyon.fetch.main", "bring a model into a Triton pod and merge its configuration (an init container)"),
    "plan": ("halcyon.cli.plan", "what the planner decides on recorded observations of a ModelDeployment, and why"),
    "simulate": ("halcyon.simulate.main", "what a scaler would have done: Halcyon and its peers on simulated replicas"),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run a sub-command; returns the exit status."""
    given = list(sys.argv[1:] if argv is None else argv)
    if given and given[0] in _COMMANDS:
        module, _ = _COMMANDS[given[0]]
        run: Callable[[Sequence[str]], int] = import_module(module).main
        return run(given[1:])
    parser = argparse.ArgumentParser(prog="halcyon", description="Autoscaled model serving on Kubernetes.")
    parser.add_argument("--version", action="version", version=f"halcyon {version('halcyon-operator')}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for name, (_, text) in _COMMANDS.items():
        commands.add_parser(name, help=text)
    parser.parse_args(given)
    return 0


if __name__ == "__main__":
    sys.exit(main())
