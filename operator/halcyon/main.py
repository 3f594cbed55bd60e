"""Entry point of the command `halcyon`, which runs every process of an installation and the commands for users.

The commands `operator`, `agent` and `fetch` run in pods. Each of them imports only the modules that it needs. All other
commands belong to the distribution halcyon-cli, which need not be installed and is imported only if it is needed.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.metadata import version

_PROCESSES = {
    "operator": "halcyon.control.runtime.app",
    "agent": "halcyon.balancer.agent.main",
    "fetch": "halcyon.fetch.main",
}
"""Modules of the commands that run in the pods of an installation, by command."""
_DISTRIBUTIONS = {
    "halcyon.control.runtime": ("halcyon-operator", "."),
    "halcyon.balancer": ("halcyon-sidecars", "./sidecars"),
    "halcyon.fetch": ("halcyon-sidecars", "./sidecars"),
}
"""Distribution that contains each package, and the distribution's folder in a clone. The distributions need not be
installed."""
_COMMANDS = "halcyon_cli.commands.app"
_INTERRUPTED = 130
_INSTALL = "the distribution halcyon-cli, which isn't installed: pip install ./cli, in a clone"
_HELP = f"""\
Usage: halcyon COMMAND ...

  operator  the controller
  agent     the agent beside each balancer
  fetch     downloads models in their pods

Other commands, such as get and explain, come with {_INSTALL}.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run a process of an installation or a command for users, and return the exit status."""
    args = list(sys.argv[1:] if argv is None else argv)
    if args and args[0] in _PROCESSES:
        try:
            run: Callable[[Sequence[str]], int] = import_module(_PROCESSES[args[0]]).main
        except ModuleNotFoundError as error:
            if error.name not in _DISTRIBUTIONS:
                raise
            name, folder = _DISTRIBUTIONS[error.name]
            sys.stderr.write(f"halcyon {args[0]}: needs the distribution {name}: pip install {folder}, in a clone\n")
            return 2
        return run(args[1:])
    try:
        status: int = import_module(_COMMANDS).run(args)
    except ModuleNotFoundError as error:
        if error.name != _COMMANDS.partition(".")[0]:
            raise
        return _without_commands(args)
    except KeyboardInterrupt:  # while modules are imported; the commands handle later ones
        return _INTERRUPTED
    return status


def _without_commands(args: Sequence[str]) -> int:
    """Print the version, the help or an error, if the distribution halcyon-cli is not installed.

    Return the exit status.
    """
    if "--version" in args[:1]:
        sys.stdout.write(f"halcyon {version('halcyon-core')}\n")
        return 0
    if not args or args[0] in {"-h", "--help"}:
        sys.stdout.write(_HELP)
        return 0 if args else 2
    sys.stderr.write(f"halcyon {args[0]}: needs {_INSTALL}\n")
    return 2


if __name__ == "__main__":
    sys.exit(main())
