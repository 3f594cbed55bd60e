"""`halcyon`: one program for every process of an installation and for all user commands.

Each loads only what it needs: the operator, the agent and the fetcher load neither user commands nor each other.
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
"""Processes that run in the pods of an installation."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run a process or a user command, and return its exit status."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if arguments and arguments[0] in _PROCESSES:
        run: Callable[[Sequence[str]], int] = import_module(_PROCESSES[arguments[0]]).main
        return run(arguments[1:])
    from halcyon.cli.commands import app  # noqa: PLC0415  # click and its imports: not for processes

    return app.run(arguments)


if __name__ == "__main__":
    sys.exit(main())
