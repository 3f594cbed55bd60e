"""A group of options that a command receives as one value."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields
from typing import Any

import click
from click.core import ParameterSource

from halcyon_cli.arguments.options import Command, with_options


def option_group(name: str, kind: type[Any], *options: Any) -> Callable[[Command], Command]:
    """Return a decorator that adds options to a command, which receives them as `name`, a value of the dataclass `kind`.

    `options` are click's decorators, one for each field of `kind`, in the order of the help page.
    """
    own = [field.name for field in fields(kind)]

    def decorate(command: Command) -> Command:
        def wrapper(**values: Any) -> Any:
            made = kind(**{field: values.pop(field) for field in own})
            return command(**values, **{name: made})

        return with_options(command, wrapper, options)

    return decorate


def given(context: click.Context, *kinds: type[Any]) -> list[str]:
    """Return the arguments of the command line that are options of these dataclasses, to start a process with them."""
    own = {field.name for kind in kinds for field in fields(kind)}
    return [
        argument
        for parameter in context.command.params
        if isinstance(parameter, click.Option)
        and parameter.name in own
        and context.get_parameter_source(parameter.name) is ParameterSource.COMMANDLINE
        for argument in _arguments(parameter, context.params[parameter.name])
    ]


def repeatable(context: click.Context, *kinds: type[Any]) -> tuple[str, ...]:
    """Return `given` for the document of a run: with the seed, and without the values of headers, which may be secrets."""
    arguments = given(context, *kinds)
    for index, argument in enumerate(arguments):
        if argument == "--header":
            arguments[index + 1] = arguments[index + 1].partition(":")[0] + ":REDACTED"
    return (*arguments, *([] if "--seed" in arguments else ["--seed", str(context.params["seed"])]))


def _arguments(option: click.Option, value: Any) -> Iterator[str]:
    values: Sequence[Any] = value if option.multiple else (value,)
    for one in values:
        yield option.opts[0]
        if not option.is_flag:
            yield _duration(one) if option.type.name == "time" else str(one)


def _duration(seconds: float) -> str:
    whole, rest = divmod(round(seconds * 1e6), 1_000_000)
    return f"{whole}s" + (f"{rest}us" if rest else "")
