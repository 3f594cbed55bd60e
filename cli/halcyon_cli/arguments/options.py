"""Options that several user commands share, with their value types and the output of results.

Out of scope: how a command uses its options.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from io import TextIOWrapper
from pathlib import Path, PurePath
from typing import Any, Literal, TypeVar

import click
import yaml
from click.core import ParameterSource
from typing_extensions import override

from halcyon.api.types import duration_s
from halcyon_cli.arguments.model_names import model_names
from halcyon_cli.errors import Failure, InputError
from halcyon_cli.kube.client import TIMEOUT_S, Target
from halcyon_cli.output.plain_yaml import PlainDumper

Command = TypeVar("Command", bound=Callable[..., Any])
OutputForm = Literal["table", "wide", "name", "json", "yaml", "report", "sarif", "github", "html"]

NON_TERMINAL_WIDTH = 240
"""Line width in columns if the output isn't a terminal. It is so large that each object takes one line, for grep and
awk."""


class DurationParam(click.ParamType[float]):
    """Option type for a duration such as 300ms, which is converted to seconds."""

    name = "time"

    @override
    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if isinstance(value, float):
            return value
        try:
            seconds = duration_s(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)
        if seconds <= 0:
            self.fail(f"'{value}' must be more than zero; for example 300ms", param, ctx)
        return seconds


class AmountParam(click.FloatRange):
    """Option type for a finite number in a range. Unlike `click.FloatRange`, it rejects NaN."""

    @override
    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        number: float = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"'{value}' is not a finite number; for example 2.5", param, ctx)
        return number


class ReplicasParam(click.ParamType[int]):
    """Option type for a number of replicas, from 0 to 1000."""

    name = "n"

    @override
    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        text = str(value)
        if not (text.isascii() and text.isdigit() and int(text) <= 1000):
            self.fail(f"'{text}' is not a whole number from 0 to 1000; for example 0", param, ctx)
        return int(text)


DURATION, REPLICAS = DurationParam(), ReplicasParam()
FILE = click.Path(path_type=Path)


def name_argument(*, required: bool = True) -> Callable[[Command], Command]:
    """Add the argument NAME, the name of a ModelDeployment. Shell completion reads the names from the cluster."""
    return click.argument("name", required=required, shell_complete=_complete_name)


def names_argument() -> Callable[[Command], Command]:
    """Add an argument for any number of ModelDeployment names, received by the command as `names`.

    Shell completion reads the names from the cluster.
    """
    return click.argument("names", nargs=-1, metavar="[NAME]", shell_complete=_complete_name)


def selector_option(command: Command) -> Command:
    """Add the option -l for a label selector, received by the command as `selector`."""
    option = click.option("-l", "--selector", metavar="LABELS", default="", help="Only models with these labels, for example team=vision,tier!=test.")  # fmt: skip
    return option(command)


def cluster_options(command: Command) -> Command:
    """Add the options for the cluster and the namespace. The command receives them as `target`, a `Target`."""

    def wrapper(
        kubeconfig: Path | None, context: str | None, namespace: str | None, timeout: float, **others: Any
    ) -> Any:
        click_context = click.get_current_context()
        target = Target(click_context.info_name or "", kubeconfig, context, namespace, timeout)
        return command(target=target, **others)

    options = (
        click.option("-n", "--namespace", metavar="NAME", help="Namespace. Default: that of the kubeconfig context."),
        click.option("--context", metavar="NAME", help="Context of the kubeconfig. Default: the current one."),
        click.option("--kubeconfig", type=FILE, metavar="FILE", help="File to use instead of $KUBECONFIG and ~/.kube/config. In a pod with neither, its service account is used."),
        click.option("--timeout", type=DURATION, default=TIMEOUT_S, metavar="TIME", help=f"Timeout of each request to the cluster. Default: {TIMEOUT_S:.0f}s."),
    )  # fmt: skip
    return with_options(command, wrapper, options)


def output_options(*forms: OutputForm) -> Callable[[Command], Command]:
    """Add -o and --no-color, received by the command as `output`, an `Output`. The first of `forms` is the default."""

    def decorate(command: Command) -> Command:
        def wrapper(form: OutputForm, no_color: bool, **others: Any) -> Any:
            return command(output=Output(form, color=_use_color(no_color)), **others)

        options = (
            click.option("-o", "--output", "form", type=click.Choice(forms), default=forms[0], help=f"Output format. Default: {forms[0]}."),
            click.option("--no-color", is_flag=True, help="Plain text on terminals too, as with the variable NO_COLOR. Pipes and files always get plain text."),
        )  # fmt: skip
        return with_options(command, wrapper, options)

    return decorate


def with_options(command: Command, wrapper: Callable[..., Any], options: tuple[Callable[[Any], Any], ...]) -> Command:
    """Return `wrapper` with these options, and with the name, help text and options of `command`, which it calls."""
    wrapper.__doc__, wrapper.__name__ = command.__doc__, command.__name__
    # Parameters that decorators applied earlier have recorded on the function.
    wrapper.__click_params__ = getattr(command, "__click_params__", [])  # type: ignore[attr-defined]
    result: Any = wrapper
    for option in reversed(options):
        result = option(result)
    return result  # type: ignore[no-any-return]  # a function as before, with more options


def _complete_name(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    return model_names(ctx.params, incomplete)


def _use_color(no_color: bool) -> bool:
    return not no_color and not os.environ.get("NO_COLOR") and sys.stdout.isatty()


@dataclass(frozen=True)
class Output:
    """Format and color of a command's output."""

    form: OutputForm
    color: bool = False

    @property
    def width(self) -> int:
        """Width of the terminal in columns. If the output isn't a terminal, it is `NON_TERMINAL_WIDTH`."""
        return shutil.get_terminal_size((NON_TERMINAL_WIDTH, 24)).columns if sys.stdout.isatty() else NON_TERMINAL_WIDTH

    def data(self, value: Mapping[str, Any] | list[Any]) -> None:
        """Print a JSON value in the requested format."""
        if self.form in {"json", "report"}:
            emit(json.dumps(value, indent=2))
        else:
            emit(yaml.dump(value, Dumper=PlainDumper, sort_keys=False, allow_unicode=True, width=120).rstrip())

    def changed(self, value: Mapping[str, Any], change: str, next_command: str = "") -> None:
        """Print the result of a change as kubectl does, for example `modeldeployment.serving.halcyon.dev/x scaled`.

        `change` describes the change, and `next_command` is a command for the next step. With -o, the changed object is
        printed instead.
        """
        if self.is_data:
            self.data(value)
        elif self.form == "name":
            emit(object_name(value))
        else:
            emit(f"{object_name(value)} {change}" + (f"\n  next: {next_command}" if next_command else ""))

    def objects(self, values: Sequence[Mapping[str, Any]], *, single: bool = False) -> None:
        """Print objects as kubectl does: only their names, one object if `single` is true, or a JSON or YAML List."""
        if self.form == "name":
            for value in values:
                emit(object_name(value))
        elif single:
            self.data(values[0])
        else:
            self.data({"apiVersion": "v1", "kind": "List", "metadata": {"resourceVersion": ""}, "items": list(values)})

    @property
    def is_data(self) -> bool:
        """Return True if the output format is a JSON or YAML document."""
        return self.form in {"json", "yaml", "report"}

    @property
    def is_objects(self) -> bool:
        """Return True if the output format shows objects of the API server."""
        return self.form in {"name", "json", "yaml"}


def object_name(value: Mapping[str, Any]) -> str:
    """Return the name of an object as `kubectl get -o name` prints it.

    An example is `modeldeployment.serving.halcyon.dev/x`.
    """
    group, kind = str(value.get("apiVersion", "")).rpartition("/")[0], str(value.get("kind", "")).lower()
    return f"{kind}{'.' if group else ''}{group}/{(value.get('metadata') or {}).get('name')}"


def check_limit(limit_s: float | None, *, watch: bool) -> None:
    """Check that the time limit of a watch (--for) is used only together with -w.

    Raises:
        InputError: --for is given without -w.
    """
    if limit_s is not None and not watch:
        raise InputError("--for limits -w; add -w, or omit --for")


def check_unused(names: Collection[str], why: str) -> None:
    """Check that none of these parameters is on the command line, because they would have no effect.

    `why` is the end of the error message, after the name of the option, and gives the reason.

    Raises:
        InputError: one of the parameters is on the command line.
    """
    context = click.get_current_context()
    for parameter in context.command.params:
        if parameter.name in names and context.get_parameter_source(parameter.name) is ParameterSource.COMMANDLINE:
            raise InputError(f"{parameter.opts[0]} {why}")


def emit(page: str) -> bool:
    """Print a page to stdout. Return False if the reader has closed the pipe, which isn't an error; otherwise True.

    Raises:
        Failure: stdout can't be written, for example because a disk is full.
    """
    try:
        print(page, flush=True)
    except OSError as error:
        # Flushing the buffered output at exit must not fail as well.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):  # the reader has closed the pipe (`| head`)
            return False
        raise Failure(f"stdout can't be written: {error.strerror or error}; the output is incomplete") from None
    return True


def usable_streams() -> None:
    """Make stdin, stdout and stderr usable even if they are closed, or if their encoding lacks a character.

    Services and cron jobs may start the command with closed streams. In a locale such as ISO-8859-1, characters that
    the encoding lacks are escaped.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, Path(os.devnull).open(mode, encoding="utf-8"))  # noqa: SIM115  # until the process ends
        elif isinstance(stream, TextIOWrapper) and mode == "w":
            stream.reconfigure(errors="backslashreplace")


def warn(command: str, text: str) -> None:
    """Print a warning of this command on stderr, as one line."""
    print(f"{program()} {command}: {text}", file=sys.stderr)


def program() -> str:
    """Return the name of this program as the user called it: `halcyon`, or `kubectl halcyon` for a kubectl plugin."""
    return "kubectl halcyon" if PurePath(sys.argv[0]).name.startswith("kubectl-") else "halcyon"
