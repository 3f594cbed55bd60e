"""`halcyon`: one command for every process of an installation, and for people.

Each loads what it needs and no more: the operator, the agent and the fetcher nothing of people's commands, nor of each other.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib import import_module

_PROCESSES = {
    "operator": "halcyon.control.runtime.app",
    "agent": "halcyon.balancer.agent.main",
    "fetch": "halcyon.fetch.main",
}
"""What runs in the pods of an installation."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run a process, or a command of people; returns the exit status."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if arguments and arguments[0] in _PROCESSES:
        run: Callable[[Sequence[str]], int] = import_module(_PROCESSES[arguments[0]]).main
        return run(arguments[1:])
    from halcyon.cli.commands import app  # noqa: PLC0415  # click and what comes with it: not for processes

    return app.run(arguments)


if __name__ == "__main__":
    sys.exit(main())
