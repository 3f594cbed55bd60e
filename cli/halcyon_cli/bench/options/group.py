"""Group of command line options that a command receives as one value."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, replace
from typing import Any

import click

from halcyon_cli.arguments.options import Command, with_options


def option_group(name: str, kind: type[Any], *options: Any) -> Callable[[Command], Command]:
    """Return a decorator that adds a group of options to a command.

    The command receives the group as the argument `name`, an instance of the dataclass `kind`. `options` has one click
    decorator for each field of `kind`, in the order of the help page. The default of each field is the default of its
    option.
    """
    field_names = [field.name for field in fields(kind)]

    def decorate(command: Command) -> Command:
        def wrapper(**values: Any) -> Any:
            group = kind(**{field: values.pop(field) for field in field_names})
            return command(**values, **{name: group})

        return with_options(command, wrapper, options)

    return decorate


def arguments(command: click.Command, *groups: Any) -> list[str]:
    """Return the command line arguments of `command` for these values. Arguments for default values are left out."""
    words: list[str] = []
    for group in groups:
        defaults = type(group)()
        for parameter in command.params:
            value = getattr(group, parameter.name or "", None)
            if isinstance(parameter, click.Option) and hasattr(defaults, parameter.name or ""):
                default = getattr(defaults, parameter.name or "")
                if value != default and (value or default or value == 0):
                    words += _arguments(parameter, value)
    return words


def repeatable(command: click.Command, *groups: Any) -> tuple[str, ...]:
    """Return the command line arguments that are recorded in the document of a run.

    They include the seed, but not the values of headers, which may be secret.
    """
    hidden = [
        replace(group, headers=tuple(header.partition(":")[0] + ":REDACTED" for header in group.headers))
        if hasattr(group, "headers")
        else group
        for group in groups
    ]
    recorded = arguments(command, *hidden)
    seed = next(group.seed for group in groups if hasattr(group, "seed"))
    return (*recorded, *([] if "--seed" in recorded else ["--seed", str(seed)]))


def _arguments(option: click.Option, value: Any) -> Iterator[str]:
    values: Sequence[Any] = value if option.multiple else (value,)
    for element in values:
        yield option.opts[0]
        if not option.is_flag:
            yield _duration(element) if option.type.name == "time" else str(element)


def _duration(seconds: float) -> str:
    full_s, micros = divmod(round(seconds * 1e6), 1_000_000)
    fraction = f"{micros // 1000}ms" if micros and not micros % 1000 else f"{micros}us" if micros else ""
    return f"{full_s}s{fraction}" if full_s or not fraction else fraction
