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
    own = [field.name for field in fields(kind)]

    def decorate(command: Command) -> Command:
        def wrapper(**values: Any) -> Any:
            made = kind(**{field: values.pop(field) for field in own})
            return command(**values, **{name: made})

        return with_options(command, wrapper, options)

    return decorate


def arguments(command: click.Command, *groups: Any) -> list[str]:
    """Return the command line arguments that give `command` these values, without arguments that equal the defaults."""
    found: list[str] = []
    for group in groups:
        defaults = type(group)()
        for parameter in command.params:
            value = getattr(group, parameter.name or "", None)
            if isinstance(parameter, click.Option) and hasattr(defaults, parameter.name or ""):
                known = getattr(defaults, parameter.name or "")
                if value != known and (value or known):
                    found += _arguments(parameter, value)
    return found


def repeatable(command: click.Command, *groups: Any) -> tuple[str, ...]:
    """Return the command line arguments for the document of a run.

    They include the seed, but not the values of headers, which may be secret.
    """
    hidden = [
        replace(group, headers=tuple(header.partition(":")[0] + ":REDACTED" for header in group.headers))
        if hasattr(group, "headers")
        else group
        for group in groups
    ]
    found = arguments(command, *hidden)
    seed = next(group.seed for group in groups if hasattr(group, "seed"))
    return (*found, *([] if "--seed" in found else ["--seed", str(seed)]))


def _arguments(option: click.Option, value: Any) -> Iterator[str]:
    values: Sequence[Any] = value if option.multiple else (value,)
    for one in values:
        yield option.opts[0]
        if not option.is_flag:
            yield _duration(one) if option.type.name == "time" else str(one)


def _duration(seconds: float) -> str:
    whole, rest = divmod(round(seconds * 1e6), 1_000_000)
    parts = f"{rest // 1000}ms" if rest and not rest % 1000 else f"{rest}us" if rest else ""
    return f"{whole}s{parts}" if whole or not parts else parts
