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
from halcyon_cli.kube.client import TIMEOUT_S, Place
from halcyon_cli.kube.model_names import names

Run = TypeVar("Run", bound=Callable[..., Any])
Form = Literal["table", "wide", "json", "yaml"]

_NOT_A_TERMINAL = 240
"""Columns where nobody can say how many there are: a line per object, for grep, awk and a page's width."""


class Duration(click.ParamType[float]):
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


class Count(click.ParamType[int]):
    """A number of replicas, 0 to 1000."""

    name = "n"

    @override
    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        text = str(value)
        if not (text.isascii() and text.isdigit() and int(text) <= 1000):
            self.fail(f"'{text}' is not a whole number from 0 to 1000; write for example 0", param, ctx)
        return int(text)


DURATION, COUNT = Duration(), Count()
FILE = click.Path(path_type=Path)


def named(*, required: bool = True) -> Callable[[Run], Run]:
    """NAME of a ModelDeployment, which the shell completes."""
    return click.argument("name", required=required, shell_complete=_names)


def clustered(run: Run) -> Run:
    """The options that say which cluster and which namespace; the command is given them as `place`, a `Place`."""

    def given(
        kubeconfig: Path | None, context: str | None, namespace: str | None, timeout: float, **others: Any
    ) -> Any:
        here = click.get_current_context()
        place = Place(here.info_name or "", kubeconfig, context, namespace, timeout)
        return run(place=place, **others)

    options = (
        click.option("-n", "--namespace", metavar="NAME", help="Its namespace; that of the kubeconfig's context where it is left out."),
        click.option("--context", metavar="NAME", help="Which context of the kubeconfig; the current one where it is left out."),
        click.option("--kubeconfig", type=FILE, metavar="FILE", help="Instead of $KUBECONFIG and ~/.kube/config."),
        click.option("--timeout", type=DURATION, default=TIMEOUT_S, metavar="TIME", help=f"Longest time for each request to the cluster; {TIMEOUT_S:.0f}s where it is left out."),
    )  # fmt: skip
    return _with(run, given, options)


def formatted(*forms: Form) -> Callable[[Run], Run]:
    """Options -o and --no-color; the command is given them as `output`, an `Output`. The first form is the default."""

    def decorate(run: Run) -> Run:
        def given(form: Form, no_color: bool, **others: Any) -> Any:
            return run(output=Output(form, color=_color(no_color)), **others)

        options = (
            click.option("-o", "--output", "form", type=click.Choice(forms), default=forms[0], help=f"{forms[0]} where it is left out."),
            click.option("--no-color", is_flag=True, help="Plain text on a terminal too; so does the variable NO_COLOR."),
        )  # fmt: skip
        return _with(run, given, options)

    return decorate


def _with(run: Run, given: Callable[..., Any], options: tuple[Callable[[Any], Any], ...]) -> Run:
    given.__doc__, given.__name__ = run.__doc__, run.__name__
    # What the decorators below have noted on the function.
    given.__click_params__ = getattr(run, "__click_params__", [])  # type: ignore[attr-defined]
    decorated: Any = given
    for option in reversed(options):
        decorated = option(decorated)
    return decorated  # type: ignore[no-any-return]  # a function as before, with more options


def _names(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    return names(ctx.params, incomplete)


def _color(no_color: bool) -> bool:
    return not no_color and not os.environ.get("NO_COLOR") and sys.stdout.isatty()


@dataclass(frozen=True)
class Output:
    """How an answer is to look."""

    form: Form
    color: bool = False

    @property
    def width(self) -> int:
        """Columns of the terminal."""
        return shutil.get_terminal_size((_NOT_A_TERMINAL, 24)).columns if sys.stdout.isatty() else _NOT_A_TERMINAL

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
