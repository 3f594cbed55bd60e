"""Option groups of `halcyon bench`: the arguments that repeat a command."""

from __future__ import annotations

import click

from halcyon_cli.bench.options.group import given, repeatable
from halcyon_cli.bench.options.inputs import InputOptions, input_options
from halcyon_cli.bench.options.load import LoadOptions, load_options
from halcyon_cli.bench.options.server import ServerOptions, server_options


@click.command()
@server_options
@load_options
@input_options
def command(*, server: ServerOptions, load: LoadOptions, inputs: InputOptions) -> None:
    """Have the groups."""


def context(*arguments: str) -> click.Context:
    return command.make_context("bench", list(arguments))


def test_given_arguments_parse_to_the_same_values() -> None:
    first = context(
        "--duration", "1500ms", "--rate", "20", "--shape", "x=3,4", "--shape", "y=2", "--decode", "--model", "m"
    )
    arguments = given(first, ServerOptions, LoadOptions, InputOptions)
    assert arguments == [
        "--model",
        "m",
        "--duration",
        "1s500000us",
        "--rate",
        "20.0",
        "--shape",
        "x=3,4",
        "--shape",
        "y=2",
        "--decode",
    ]
    assert context(*arguments).params == first.params


def test_given_arguments_of_one_group_leave_out_the_others() -> None:
    assert given(context("--url", "h:1", "--callers", "4"), LoadOptions) == ["--callers", "4"]


def test_repeatable_arguments_have_the_seed_and_no_value_of_a_header() -> None:
    made = repeatable(context("--header", "Authorization:Bearer x"), ServerOptions, LoadOptions)
    assert made == ("--header", "Authorization:REDACTED", "--seed", "1")
