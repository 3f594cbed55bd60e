"""Click group of the user commands: the list of commands, lazy loading, and exit statuses.

A command's module is imported only if the command is run or its help is shown, because some modules import packages
that take a second to load. Out of scope: the processes of an installation (`halcyon.main`), which import none of these
modules.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from importlib import import_module
from importlib.metadata import version
from typing import Any

import click
from click.shell_completion import CompletionItem
from typing_extensions import override

from halcyon_cli.arguments.options import program, usable_streams
from halcyon_cli.errors import Failure
from halcyon_measure.errors import MeasureError

COMMANDS: Mapping[str, Mapping[str, tuple[str, str]]] = {
    "Inspect": {
        "get": ("halcyon_cli.commands.get", "List models, or show one as a tree of states and reasons"),
        "top": ("halcyon_cli.commands.top", "Rank models by queue, GPUs or cost"),
        "status": ("halcyon_cli.commands.rollouts.status", "Show whether the current spec is served, or wait for it"),
        "history": ("halcyon_cli.commands.rollouts.revisions:history", "List revisions and the results of their rollouts"),
        "logs": ("halcyon_cli.commands.logs", "Print the logs of a model's pods"),
        "explain": ("halcyon_cli.commands.explain", "Explain a model's replica count"),
        "diagnose": ("halcyon_cli.commands.diagnose", "Find likely causes of a problem, and write a redacted bundle"),
    },
    "Change": {
        "scale": ("halcyon_cli.commands.scale:scale", "Set the replicas of a model without active scaling"),
        "pause": ("halcyon_cli.commands.scale:pause", "Pause scaling and record a reason"),
        "resume": ("halcyon_cli.commands.scale:resume", "Resume scaling"),
        "promote": ("halcyon_cli.commands.canary:promote", "Send all requests to the canary"),
        "abort": ("halcyon_cli.commands.canary:abort", "Roll back the canary"),
        "undo": ("halcyon_cli.commands.rollouts.revisions:undo", "Write the spec of an earlier revision"),
        "restart": ("halcyon_cli.commands.rollouts.revisions:restart", "Replace all pods without a change of the spec"),
        "refresh": ("halcyon_cli.commands.refresh", "Roll models to the current pod template of the operator"),
        "batch": ("halcyon_cli.commands.inference.batch", "Run a data set through a model beside its users"),
        "infer": ("halcyon_cli.commands.infer", "Send one request to a model, timed by phase"),
    },
    "Measure": {
        "bench": ("halcyon_cli.commands.bench", "Measure a model or a server: rates, latencies, failures under a load"),
        "tune": ("halcyon_cli.commands.measure.tune", "Find the batches and instances that serve most within the objective"),
        "report": ("halcyon_cli.commands.measure.report", "Make a page, a table or CSV of results of bench"),
        "analyse": ("halcyon_cli.commands.measure.analyse", "Count a model's operations, parameters and bytes from its graph"),
        "variants": ("halcyon_cli.commands.measure.variants", "Make a model in FP16 and INT8, and compare the variants"),
    },
    "Installation": {
        "dashboard": ("halcyon_cli.commands.installation.dashboard", "Open the dashboard through a port-forward"),
        "images": ("halcyon_cli.commands.installation.images", "List all images of an installation"),
        "version": ("halcyon_cli.commands.installation.version", "Show the versions of halcyon and of the operator"),
    },
    "Offline": {
        "lint": ("halcyon_cli.commands.lint", "Validate files against the rules of the API server and the operator"),
        "plan": ("halcyon_cli.commands.plan", "Preview a change, or replay recorded observations through the planner"),
        "simulate": ("halcyon_simulator.command.main", "Compare Halcyon's planner and its peers on simulated replicas"),
        "completion": ("halcyon_cli.commands.completion", "Generate a completion script for bash, zsh or fish"),
    },
}  # fmt: skip
"""Commands by name, as (module or module:function, help text), by group. The order is that of the help page."""
_ENTRIES = {name: entry for group in COMMANDS.values() for name, entry in group.items()}
_SETTINGS: Any = {"help_option_names": ["-h", "--help"], "max_content_width": 120}
_HELP = """\
Manage autoscaled models on Kubernetes. Also available as kubectl halcyon.
"""
_EXTRAS = {
    "bench": {"PIL", "aiohttp", "geventhttpclient", "google", "grpc", "numpy", "tritonclient"},
    "models": {"onnx", "onnxruntime"},
    "simulate": {"halcyon_simulator", "matplotlib", "numba"},
}
"""Modules that are installed by the extras of the package halcyon-cli, by the name of the extra."""
NEGATIVE_RESULTS: Mapping[str, str] = {
    "batch": "the batch has failed",
    "bench": "the run isn't valid",
    "diagnose": "likely causes were found",
    "infer": "the response is an error, or late",
    "lint": "there are errors",
    "pause": "the operator doesn't confirm the pause, or a model couldn't be changed",
    "plan": "the operator would reject the spec",
    "refresh": "a model did not reach its new template",
    "resume": "a model couldn't be changed",
    "scale": "the operator doesn't confirm the pause",
    "status": "the current spec is not served",
    "tune": "no better settings are shown, and none are ruled out",
    "variants": "a variant couldn't be made",
}
"""Meanings of exit status 1, by command. Commands that aren't listed never exit with 1."""
EXIT_STATUSES = (
    ("0", "success"),
    ("1", f"the command ran, with a negative result: {', '.join(NEGATIVE_RESULTS)}"),
    ("2", "nothing done: usage error, invalid file, no such name, no access, no cluster"),
    ("130", "interrupted"),
)
"""Exit statuses that are the same for all commands, as (status, meaning)."""
_EPILOG = (
    "\b\nexit status:\n"
    + "".join(f"  {status:<4} {text}\n" for status, text in EXIT_STATUSES)
    + "\nhalcyon operator, agent and fetch are the processes of an installation; they run in its pods. All options: "
    "docs/reference/cli.md.\n"
)


class _Commands(click.Group):
    """Click group that imports the module of a command on first use."""

    @override
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_ENTRIES)

    @override
    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        entry = _ENTRIES.get(cmd_name)
        if entry is None:
            return None
        module, _, function = entry[0].partition(":")
        command = getattr(import_module(module), function or "main")
        return command if isinstance(command, click.Command) else _passthrough_command(cmd_name, entry[1], command)

    @override
    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in _ENTRIES and not args[0].startswith("-"):
            close_matches = get_close_matches(args[0], _ENTRIES, 1)
            ctx.fail(f"No such command '{args[0]}'." + (f" Did you mean {close_matches[0]}?" if close_matches else ""))
        return super().resolve_command(ctx, args)

    @override
    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        items = [CompletionItem(name, help=text) for name, (_, text) in _ENTRIES.items() if name.startswith(incomplete)]
        return items + click.Command.shell_complete(self, ctx, incomplete)

    @override
    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for title, group in COMMANDS.items():
            with formatter.section(title):
                formatter.write_dl([(name, text) for name, (_, text) in group.items()])


def _passthrough_command(name: str, text: str, run: Any) -> click.Command:
    """Return a click command that passes all arguments to `run`, which parses them itself."""

    @click.command(name, short_help=text, add_help_option=False, context_settings={"ignore_unknown_options": True})
    @click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
    def command(arguments: tuple[str, ...]) -> int:
        status: int = run(list(arguments))
        return status

    return command


@click.command(cls=_Commands, help=_HELP, epilog=_EPILOG, context_settings=_SETTINGS, invoke_without_command=True)
@click.version_option(version("halcyon-cli"), prog_name="halcyon", message="%(prog)s %(version)s")
@click.pass_context
def group(ctx: click.Context) -> None:
    """Group of all user commands."""
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


def run(argv: Sequence[str] | None = None) -> int:
    """Run the command line `argv` (default: the arguments of this process), and return its exit status."""
    argv = sys.argv[1:] if argv is None else argv
    usable_streams()
    try:
        status = group.main(list(argv), prog_name=program(), complete_var="_HALCYON_COMPLETE", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except click.Abort:
        return 130
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        extra = next((name for name, modules in _EXTRAS.items() if package in modules), None)
        if extra is None:
            raise
        print(
            f"{program()} {argv[0]}: needs {package}, which the extra {extra} of the distribution halcyon-cli installs: "
            f"pip install './cli[{extra}]', in a clone",
            file=sys.stderr,
        )
        return 2
    except (Failure, MeasureError) as error:
        print(f"{program()} {argv[0]}: {error}", file=sys.stderr)
        return 2
    return int(status or 0)
