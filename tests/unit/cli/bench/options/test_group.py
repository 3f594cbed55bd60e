"""Option groups of `halcyon bench`: the arguments that repeat a command."""

from __future__ import annotations

from typing import Any

import click

from halcyon_cli.bench.options.group import arguments, repeatable
from halcyon_cli.bench.options.inputs import InputOptions, input_options
from halcyon_cli.bench.options.load import LoadOptions, load_options
from halcyon_cli.bench.options.sampling import sampling_options
from halcyon_cli.bench.options.server import ServerOptions, server_options


@click.command()
@server_options
@load_options
@input_options
def command(**groups: Any) -> tuple[Any, ...]:
    """Return the values of the groups."""
    return groups["server"], groups["load"], groups["inputs"]


def values(*args: str) -> Any:
    return command.main(list(args), standalone_mode=False)


def test_arguments_parse_to_the_same_values() -> None:
    first = values(
        "--duration", "1500ms", "--rate", "20", "--shape", "x=3,4", "--shape", "y=2", "--decode", "--model", "m"
    )
    written = arguments(command, *first)
    assert written == [
        "--model", "m", "--duration", "1s500ms", "--rate", "20.0", "--shape", "x=3,4", "--shape", "y=2", "--decode"
    ]  # fmt: skip
    assert values(*written) == first


def test_defaults_are_no_arguments() -> None:
    assert values() == (ServerOptions(), LoadOptions(), InputOptions())
    assert arguments(command, *values()) == []


def test_arguments_of_one_group_leave_out_the_others() -> None:
    assert arguments(command, values("--url", "h:1", "--callers", "4")[1]) == ["--callers", "4"]


def test_repeatable_arguments_have_the_seed_and_no_value_of_a_header() -> None:
    written = repeatable(command, *values("--header", "Authorization:Bearer x"))
    assert written == ("--header", "Authorization:REDACTED", "--seed", "1")


def test_amounts_of_zero_are_arguments() -> None:
    @click.command()
    @sampling_options
    def sampled(**groups: Any) -> Any:
        return groups["sampling"]

    sampling = sampled.main(["--carbon-intensity", "0", "--price-per-hour", "0"], standalone_mode=False)
    assert arguments(sampled, sampling) == ["--carbon-intensity", "0.0", "--price-per-hour", "0.0"]
