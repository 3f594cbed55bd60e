"""Options for the changes that a tuning run makes: the canary of the served model, and the measured capacity."""

from __future__ import annotations

from dataclasses import dataclass

import click

from halcyon_cli.arguments.options import DURATION
from halcyon_cli.bench.options.group import option_group
from halcyon_cli.errors import InputError

_CANARY_S = 3600.0


@dataclass(frozen=True, kw_only=True)
class ApplyOptions:
    """Values of the options for changes."""

    apply: bool = False
    yes: bool = False
    canary_timeout: float = _CANARY_S
    teach: bool = False

    def check(self, *, from_traffic: bool, is_terminal: bool) -> ApplyOptions:
        """Return these options after checking them.

        Raises:
            InputError: a change would not be based on a measurement, or can't be confirmed.
        """
        if from_traffic and (self.apply or self.teach):
            option = "--apply" if self.apply else "--teach"
            raise InputError(f"{option} needs measurements, and --from-traffic only predicts; leave one of them out")
        if self.apply and not self.yes and not is_terminal:
            raise InputError("--apply asks before it changes the model, and there is no terminal; add --yes")
        if self.yes and not self.apply:
            raise InputError("--yes confirms --apply, which is missing; leave --yes out, or add --apply")
        return self


apply_options = option_group(
    "apply",
    ApplyOptions,
    click.option("--apply", is_flag=True, help="Make a gain that was shown as a canary, and keep it if it is as good."),
    click.option("--yes", is_flag=True, help="Apply without a question."),
    click.option(
        "--canary-timeout",
        type=DURATION,
        default=ApplyOptions.canary_timeout,
        metavar="TIME",
        help="Longest canary of --apply, after which the change is taken back. Default: 1h.",
    ),
    click.option(
        "--teach",
        is_flag=True,
        help="Write the measured batch times to the ConfigMap NAME-capacity, from which the planner starts.",
    ),
)
