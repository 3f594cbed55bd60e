"""The commands of people as one click group: which there are, how they are found, and how they end.

A command's module is imported when the command is run or its help is asked for, for some load packages that take a second. Not
here: the processes of an installation (`halcyon.main`), which load nothing of this.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from importlib.metadata import version
from pathlib import PurePath
from typing import Any

import click
from click.shell_completion import CompletionItem
from typing_extensions import override

from halcyon_cli.errors import Failure

COMMANDS: Mapping[str, Mapping[str, tuple[str, str]]] = {
    "see": {
        "get": ("halcyon_cli.commands.get", "models, or one of them as a tree with states and reasons"),
        "top": ("halcyon_cli.commands.top", "models by queue, GPUs or cost"),
        "explain": ("halcyon_cli.commands.explain", "why a model has as many replicas as it has"),
        "diagnose": ("halcyon_cli.commands.diagnose", "what is likely wrong with a model, and a bundle without secrets"),
    },
    "act": {
        "scale": ("halcyon_cli.commands.scale:scale", "set the count of a model that is fixed or paused"),
        "pause": ("halcyon_cli.commands.scale:pause", "keep a model's count as it is, and say why"),
        "resume": ("halcyon_cli.commands.scale:resume", "let scaling write the count again"),
        "promote": ("halcyon_cli.commands.canary:promote", "give a canary all requests"),
        "abort": ("halcyon_cli.commands.canary:abort", "go back from a canary"),
        "refresh": ("halcyon_cli.commands.refresh", "roll models over to what the operator renders now"),
        "infer": ("halcyon_cli.commands.infer", "one request to a model, timed by phase"),
    },
    "off line": {
        "lint": ("halcyon_cli.commands.lint", "check files by the rules that the API server and the operator hold"),
        "plan": ("halcyon_cli.commands.plan", "what a model would become, or the planner decide on recorded observations"),
        "simulate": ("halcyon_simulator.command.main", "what a scaler would have done: Halcyon and its peers on simulated replicas"),
        "completion": ("halcyon_cli.commands.completion", "completion for bash, zsh and fish"),
    },
}  # fmt: skip
"""(module, or module:function; help) by name, in the order of the help page."""
_FOUND = {name: entry for group in COMMANDS.values() for name, entry in group.items()}
_SETTINGS: Any = {"help_option_names": ["-h", "--help"], "max_content_width": 120}
_HELP = """\
Autoscaled model serving on Kubernetes, for people. Runs as halcyon and as kubectl halcyon.
"""
_DEPENDENCIES = {"rich", "numpy", "PIL", "tritonclient", "geventhttpclient"}
"""Packages that halcyon-cli depends on and halcyon-operator doesn't."""
_SIMULATOR = "halcyon_simulator"
EXITS = (
    ("0", "done"),
    ("1", "done, and what was found is not good: `lint`, `diagnose`; or the model's answer is an error: `infer`"),
    ("2", "nothing done: wrong usage, a file that can't be used, no such name, no access, no cluster"),
    ("130", "interrupted"),
)
"""Exit statuses of all commands."""
_EPILOG = (
    "\b\nexit status:\n"
    + "".join(f"  {status:<4} {text.replace('`', '')}\n" for status, text in EXITS)
    + "\nhalcyon operator, agent and fetch are the processes of an installation, and are run in their pods. All options: "
    "docs/reference/cli.md.\n"
)


class _Commands(click.Group):
    """Commands that are imported when they are needed."""

    @override
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_FOUND)

    @override
    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        entry = _FOUND.get(cmd_name)
        if entry is None:
            return None
        module, _, function = entry[0].partition(":")
        found = getattr(import_module(module), function or "main")
        return found if isinstance(found, click.Command) else _foreign(cmd_name, entry[1], found)

    @override
    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        found = [CompletionItem(name, help=text) for name, (_, text) in _FOUND.items() if name.startswith(incomplete)]
        return found + click.Command.shell_complete(self, ctx, incomplete)

    @override
    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for title, group in COMMANDS.items():
            with formatter.section(title):
                formatter.write_dl([(name, text) for name, (_, text) in group.items()])


def _foreign(name: str, text: str, run: Any) -> click.Command:
    """A command that reads its arguments itself."""

    @click.command(name, short_help=text, add_help_option=False, context_settings={"ignore_unknown_options": True})
    @click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
    def command(arguments: tuple[str, ...]) -> int:
        status: int = run(list(arguments))
        return status

    return command


@click.command(cls=_Commands, help=_HELP, epilog=_EPILOG, context_settings=_SETTINGS)
@click.version_option(version("halcyon-operator"), prog_name="halcyon", message="%(prog)s %(version)s")
def group() -> None:
    """Every command."""


def run(argv: Sequence[str] | None = None) -> int:
    """Run a command with these arguments, or those of the process; gives the exit status."""
    argv = sys.argv[1:] if argv is None else argv
    plugin = PurePath(sys.argv[0]).name.startswith("kubectl-")
    program = "kubectl halcyon" if plugin else "halcyon"
    try:
        status = group.main(list(argv), prog_name=program, complete_var="_HALCYON_COMPLETE", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except click.Abort:
        return 130
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package == _SIMULATOR:
            lacks = "the distribution halcyon-simulator is needed for this: pip install . ./cli ./simulator, in a clone"
        elif package in _DEPENDENCIES:
            lacks = f"the package {error.name} is needed for this: pip install . ./cli, in a clone"
        else:
            raise
        print(f"halcyon {argv[0]}: {lacks}", file=sys.stderr)
        return 2
    except Failure as error:
        print(f"halcyon {argv[0]}: {error}", file=sys.stderr)
        return 2
    return int(status or 0)
