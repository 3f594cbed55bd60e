"""What the commands of people share: options, their types, and how an answer is written.

Not here: what a command does with them.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

import click
import yaml
from typing_extensions import override

from halcyon.api.types import duration_s
from halcyon.cli.kube.client import TIMEOUT_S, Target
from halcyon.cli.kube.model_names import model_names

Command = TypeVar("Command", bound=Callable[..., Any])
OutputForm = Literal["table", "wide", "json", "yaml"]

NON_TERMINAL_WIDTH = 240
"""Columns where nobody can say how many there are: a line per object, for grep, awk and a page's width."""


class DurationParam(click.ParamType[float]):
    """A length of time such as 300ms; gives seconds."""

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
            self.fail(f"'{value}' is no time at all; write for example 300ms", param, ctx)
        return seconds


class ReplicasParam(click.ParamType[int]):
    """A number of replicas, 0 to 1000."""

    name = "n"

    @override
    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        text = str(value)
        if not (text.isascii() and text.isdigit() and int(text) <= 1000):
            self.fail(f"'{text}' is not a whole number from 0 to 1000; write for example 0", param, ctx)
        return int(text)


DURATION, REPLICAS = DurationParam(), ReplicasParam()
FILE = click.Path(path_type=Path)


def name_argument(*, required: bool = True) -> Callable[[Command], Command]:
    """NAME of a ModelDeployment, which the shell completes."""
    return click.argument("name", required=required, shell_complete=_complete_name)


def cluster_options(command: Command) -> Command:
    """The options that say which cluster and which namespace; the command is given them as `place`, a `Place`."""

    def wrapper(
        kubeconfig: Path | None, context: str | None, namespace: str | None, timeout: float, **others: Any
    ) -> Any:
        click_context = click.get_current_context()
        target = Target(click_context.info_name or "", kubeconfig, context, namespace, timeout)
        return command(target=target, **others)

    options = (
        click.option("-n", "--namespace", metavar="NAME", help="Its namespace; that of the kubeconfig's context where it is left out."),
        click.option("--context", metavar="NAME", help="Which context of the kubeconfig; the current one where it is left out."),
        click.option("--kubeconfig", type=FILE, metavar="FILE", help="Instead of $KUBECONFIG and ~/.kube/config."),
        click.option("--timeout", type=DURATION, default=TIMEOUT_S, metavar="TIME", help=f"Longest time for each request to the cluster; {TIMEOUT_S:.0f}s where it is left out."),
    )  # fmt: skip
    return _with_options(command, wrapper, options)


def output_options(*forms: OutputForm) -> Callable[[Command], Command]:
    """Options -o and --no-color; the command is given them as `output`, an `Output`. The first form is the default."""

    def decorate(command: Command) -> Command:
        def wrapper(form: OutputForm, no_color: bool, **others: Any) -> Any:
            return command(output=Output(form, color=_use_color(no_color)), **others)

        options = (
            click.option("-o", "--output", "form", type=click.Choice(forms), default=forms[0], help=f"{forms[0]} where it is left out."),
            click.option("--no-color", is_flag=True, help="Plain text on a terminal too; so does the variable NO_COLOR."),
        )  # fmt: skip
        return _with_options(command, wrapper, options)

    return decorate


def _with_options(command: Command, wrapper: Callable[..., Any], options: tuple[Callable[[Any], Any], ...]) -> Command:
    wrapper.__doc__, wrapper.__name__ = command.__doc__, command.__name__
    # What the decorators below have noted on the function.
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
    """How an answer is to look."""

    form: OutputForm
    color: bool = False

    @property
    def width(self) -> int:
        """Columns of the terminal."""
        return shutil.get_terminal_size((NON_TERMINAL_WIDTH, 24)).columns if sys.stdout.isatty() else NON_TERMINAL_WIDTH

    def data(self, value: Mapping[str, Any] | list[Any]) -> None:
        """Write a JSON value, in the form asked for."""
        if self.form == "json":
            emit(json.dumps(value, indent=2))
        else:
            emit(yaml.safe_dump(value, sort_keys=False, allow_unicode=True, width=120).rstrip())

    @property
    def is_data(self) -> bool:
        """Whether a program is to read it."""
        return self.form in {"json", "yaml"}


def emit(page: str) -> None:
    """Print to stdout, which may have been closed."""
    try:
        print(page, flush=True)
    except BrokenPipeError:
        # The reader has seen enough (`| head`). What is still buffered must not fail at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def warn(command: str, text: str) -> None:
    """One line on stderr."""
    print(f"halcyon {command}: {text}", file=sys.stderr)
