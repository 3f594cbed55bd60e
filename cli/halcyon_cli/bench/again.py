"""`halcyon bench --again FILE`: the arguments of an earlier measurement, without those that can't be repeated.

Out of scope: which arguments a document has (`bench.options.group.repeatable`).
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from dataclasses import fields
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from typing_extensions import override

from halcyon_cli.bench.options.inputs import InputOptions, parse_input
from halcyon_cli.bench.options.load import LoadOptions
from halcyon_cli.bench.options.place import PlaceOptions
from halcyon_cli.bench.options.pod import PodOptions
from halcyon_cli.errors import InputError

if TYPE_CHECKING:
    from halcyon_measure.results.document import BenchDocument
    from halcyon_measure.results.used_files import UsedFile

_REDACTED = ":REDACTED"
_KEYS = ("--api-key-file", "--cert", "--key")
_FUNCTIONS = ("--prepare", "--finish")
_FILES = ("--input", "--expect", "--trace", *_FUNCTIONS)
_SCENARIO = (
    ("callers", "--callers", ""),
    ("rate_rps", "--rate", ""),
    ("to_rps", "--to", ""),
    ("cv", "--cv", ""),
    ("think_s", "--think", "s"),
    ("on_s", "--on", "s"),
    ("off_s", "--off", "s"),
    ("requests", "--requests", ""),
)


class RepeatingCommand(click.Command):
    """Command with the option --again.

    The arguments recorded in the option's file are inserted before the arguments on the command line.
    """

    @override
    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, args if ctx.resilient_parsing else expanded(self, args))


def again_option(command: Any) -> Any:
    """Add the option --again. `RepeatingCommand` replaces it with the recorded arguments."""
    option = click.option(
        "--again",
        metavar="FILE",
        expose_value=False,
        help="Measure again what a bench.json recorded. Further options replace those recorded.",
    )
    return option(command)


def expanded(command: click.Command, args: Sequence[str]) -> list[str]:
    """Return the arguments with --again replaced by the arguments that are recorded in its file.

    Notes on differences are printed to stderr.

    Raises:
        MeasureError: the file isn't a result.
        InputError: the file has several results, or a file that the measurement used has changed.
    """
    current, path = _split_again(args)
    if path is None:
        return current
    from halcyon_measure.results import document_file  # noqa: PLC0415  # the models of the document take a while to build

    documents = document_file.read(Path(path))
    if len(documents) != 1:
        names = ", ".join(entry.name for entry in documents[:5])
        raise InputError(f"{path}: it has {len(documents)} results ({names}); give one bench.json")
    document = documents[0].document
    recorded = list(document.place.arguments) if document.place is not None else []
    notes = (
        [] if recorded else [f"{path} has no arguments; they follow from its target and scenario, inputs are random"]
    )
    recorded = _without_replaced(command, _separated(command, recorded) or reconstructed(document), current)
    recorded, secret_notes = _without_secrets(recorded, current)
    _check_files(document, recorded)
    notes += [*secret_notes, *_changes(document)]
    print(f"halcyon bench: again: {shlex.join([*recorded, *current])}", file=sys.stderr)
    for note in notes:
        print(f"halcyon bench: not the same: {note}", file=sys.stderr)
    return [*recorded, *current]


def files(load: LoadOptions, inputs: InputOptions) -> tuple[UsedFile, ...]:
    """Return the files that the load of these options uses, except files with secrets."""
    from halcyon_measure.results.used_files import used  # noqa: PLC0415

    paths = [parse_input(argument)[1] for argument in inputs.inputs]
    paths += [hook.rpartition(":")[0] for hook in (inputs.prepare, inputs.finish) if hook]
    return used([*paths, *filter(None, (inputs.expect, str(load.trace or "")))])


def reconstructed(document: BenchDocument) -> list[str]:
    """Return arguments for the target and the scenario of a document that has no recorded arguments.

    Raises:
        InputError: the load was a trace, whose arrivals the document doesn't contain.
    """
    target, scenario = document.target, document.scenario
    if scenario.kind == "trace":
        raise InputError("the result is of a trace, whose file isn't recorded; give --url, --model and --trace FILE")
    arguments = ["--url", target.url, "--api", target.api]
    arguments += ["--model", target.model] if target.model else []
    arguments += ["--version", target.version] if target.version else []
    arguments += ["--encoding", target.encoding] if target.api == "kserve" else []
    arguments += ["--shared-memory", target.shared_memory] if target.shared_memory != "none" else []
    arguments += ["--scenario", scenario.kind, "--rows", target.rows, "--duration", _plain(scenario.duration_s, "s")]
    for field, option, unit in _SCENARIO:
        value = getattr(scenario, field)
        if value:
            arguments += [option, _plain(value, unit)]
    return [*arguments, "--seed", str(scenario.seed)]


def _plain(value: float, unit: str) -> str:
    """Return a number as text with all its digits and without an exponent, which some options would reject."""
    return format(Decimal(repr(value)), "f").removesuffix(".0") + unit


def _split_again(args: Sequence[str]) -> tuple[list[str], str | None]:
    """Return the arguments without --again, and the value of --again."""
    others: list[str] = []
    path = None
    remaining = iter(args)
    for argument in remaining:
        if argument == "--again":
            path = next(remaining, None)
            if path is None:
                raise click.UsageError("Option '--again' requires an argument.")
        elif argument.startswith("--again="):
            path = argument.partition("=")[2]
        else:
            others.append(argument)
    return others, path


def _separated(command: click.Command, recorded: Sequence[str]) -> list[str]:
    """Return the recorded arguments, with each option separate from its value. Check that all options may be repeated.

    Raises:
        InputError: an option is unknown, or can't be part of a result, such as --save.
    """
    own_names = {"save", "form", "no_color", "kubeconfig", "context", "namespace", "timeout"}
    own_names |= {field.name for field in fields(PodOptions)}
    names = {
        name
        for param in command.params
        if isinstance(param, click.Option) and param.name not in own_names
        for name in param.opts
    }
    arguments: list[str] = []
    for argument in recorded:
        option, sign, value = argument.partition("=")
        arguments += [option, value] if sign and option.startswith("-") else [argument]
    options = [
        argument
        for argument in arguments
        if argument.startswith("-") and not argument[1:].replace(".", "", 1).isdigit()
    ]
    if unknown := [option for option in options if option not in names]:
        raise InputError(
            f"the result has the argument {unknown[0]}, which isn't one of a measurement; measure without --again"
        )
    return arguments


def _without_replaced(command: click.Command, recorded: Sequence[str], current: Sequence[str]) -> list[str]:
    """Return the recorded arguments without the options in `current`, which replace all their recorded values."""
    names = {argument.partition("=")[0] for argument in current if argument.startswith("-")}
    flags = {
        name for param in command.params if isinstance(param, click.Option) and param.is_flag for name in param.opts
    }
    # A given ModelDeployment or URL replaces the recorded one.
    values_by_param = command.make_parser(click.Context(command)).parse_args(list(current))[0]
    model_names = values_by_param.get("names")
    has_name = isinstance(model_names, tuple) and bool(model_names)  # click has a sentinel for no names
    if has_name:
        names |= {"--url", "--model"}
    elif "--url" in names:  # a server has none of the options for the place of a copy
        place_names = {field.name for field in fields(PlaceOptions)}
        names |= {name for param in command.params if param.name in place_names for name in param.opts}
    if (has_name or "--url" in names) and recorded and not recorded[0].startswith("-"):
        recorded = recorded[1:]
    arguments: list[str] = []
    remaining = iter(recorded)
    for argument in remaining:
        values = [argument] if not argument.startswith("-") or argument in flags else [argument, next(remaining, "")]
        if argument not in names:
            arguments += values
    return arguments


def _without_secrets(recorded: Sequence[str], current: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the recorded arguments without the secret ones, and a note on each argument that was removed.

    Values of headers aren't recorded. Paths of key files are recorded but not used. Otherwise a result from another
    person could name a key file of this user, and send the key to that person's server.
    """
    arguments: list[str] = []
    notes: list[str] = []
    for argument in recorded:
        option = arguments[-1] if arguments else ""
        if option in _KEYS or (option == "--header" and argument.endswith(_REDACTED)):
            arguments.pop()
            if option in current:
                continue
            name = argument.removesuffix(_REDACTED)
            notes.append(
                f"the value of header {name} isn't recorded; for example --header {name}:VALUE"
                if option == "--header"
                else f"{option} isn't repeated; to use the file again, add {option} {argument}"
            )
        else:
            arguments.append(argument)
    return arguments, notes


def _check_files(document: BenchDocument, recorded: Sequence[str]) -> None:
    """Check that the files in the arguments are unchanged since the measurement.

    A changed file is neither sent nor executed, because it would change the result, and because the arguments may come
    from another person.

    Raises:
        InputError: a file has changed, has no digest, or doesn't exist any more.
    """
    from halcyon_measure.results.used_files import digest  # noqa: PLC0415

    digests = {file.path: file.sha256 for file in document.files}
    for option, value in pairwise(recorded):
        if option not in _FILES:
            continue
        path = (
            value.rpartition(":")[0]
            if option in _FUNCTIONS
            else parse_input(value)[1]
            if option == "--input"
            else value
        )
        hint = f"to use it as it is, add {option} {value}"
        if not Path(path).exists():
            raise InputError(f"{path}: the measurement used it, and it isn't there any more")
        if digests.get(path) is None:
            raise InputError(f"{path}: the result has no digest of it, so it may be another one; {hint}")
        if digest(Path(path)) != digests[path]:
            raise InputError(f"{path}: it has changed since the measurement; {hint}")


def _changes(document: BenchDocument) -> list[str]:
    """Return notes on differences in the cluster: another revision of the model, or another node."""
    place = document.place
    if place is None or place.kind == "url":
        return []
    earlier = [f"revision {place.revision}" if place.revision else "", place.image_id or place.image or ""]
    notes = [f"the model is measured as it is now; it was {', '.join(filter(None, earlier))}"] if any(earlier) else []
    return notes + ([f"the scheduler chooses the node; it was {place.node}"] if place.node else [])
