"""Options for the process that sends the load. Most are hidden and set only in the arguments of a Job's pod."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import click

from halcyon_cli.arguments.options import DURATION
from halcyon_cli.bench.options.group import option_group


@dataclass(frozen=True, kw_only=True)
class PodOptions:
    """Values of the options for the process that sends the load."""

    wait: float | None = None
    to_log: bool = False
    guard: bool = False
    guard_latency: float | None = None
    sides: Sequence[str] = ()
    points: bool = False


pod_options = option_group(
    "pod",
    PodOptions,
    click.option(
        "--wait", type=DURATION, metavar="TIME", help="Wait until the server has the model, at most this time."
    ),
    click.option("--to-log", is_flag=True, hidden=True, help="Write the result for a reader of the log."),
    click.option("--guard", is_flag=True, hidden=True, help="Raise the rate in steps, and end when clients suffer."),
    click.option("--guard-latency", type=DURATION, hidden=True, help="The model's latency objective, as the bound."),
    click.option(
        "--side",
        "sides",
        multiple=True,
        hidden=True,
        metavar="JSON",
        help="One of several models that are measured in turns.",
    ),
    click.option("--points", is_flag=True, hidden=True, help="Serve points of a tuning on localhost."),
)
