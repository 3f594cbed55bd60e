"""Options for the kind of result: the highest rate within an objective, a sweep, or a comparison."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import click

from halcyon_cli.bench.options.group import option_group
from halcyon_cli.errors import InputError

_INTERVAL_ROUNDS = 3
"""Minimum number of rounds for a confidence interval, equal to `halcyon_measure.stats.student.MIN_VALUES`."""
_PERCENTILES = (50.0, 90.0, 95.0, 99.0, 99.9)


@dataclass(frozen=True, kw_only=True)
class AnswerOptions:
    """Values of the options for the kind of result."""

    percentile: float = 99.0
    against: str | None = None
    against_model: str = ""
    rounds: int = 6
    fail_if: Sequence[str] = ()
    anyway: bool = False
    sweep: Sequence[str] = ()
    yes: bool = False
    engine: Literal["halcyon", "perf_analyzer"] = "halcyon"
    perf_analyzer_options: Sequence[str] = ()

    @property
    def _is_against_earlier(self) -> bool:
        """Whether --against is an earlier result. Rounds don't apply to such a comparison."""
        against = str(self.against)
        return against == "last" or against.endswith((".json", ".html")) or Path(against).is_file()

    def for_client(self) -> AnswerOptions:
        """Return the options for the client in the cluster, without comparison options, which it doesn't need."""
        return AnswerOptions(
            percentile=self.percentile,
            sweep=self.sweep,
            yes=self.yes,
            engine=self.engine,
            perf_analyzer_options=self.perf_analyzer_options,
        )

    def for_turns(self) -> AnswerOptions:
        """Return the options for the client in the cluster that measures several models in turns."""
        return AnswerOptions(
            percentile=self.percentile,
            rounds=self.rounds,
            fail_if=self.fail_if,
            against=self.against,
            anyway=self.anyway,
        )

    def check(self) -> AnswerOptions:
        """Return these options after checking them.

        Raises:
            InputError: results don't contain the percentile.
        """
        if self.percentile not in _PERCENTILES:
            percentiles = ", ".join(f"{percentile:g}" for percentile in _PERCENTILES)
            raise InputError(
                f"--percentile is {self.percentile:g}; it must be one of {percentiles}, for example --percentile 95"
            )
        if self.fail_if and not self.against:
            raise InputError("--fail-if is about a comparison; for example --against bench.json --fail-if 'p99 > +5%'")
        if self.against_model and not self.against:
            raise InputError(
                f"--against-model {self.against_model} is of a comparison; for the same server, for example --against with the "
                "URL of --url"
            )
        if self.fail_if and self.rounds < _INTERVAL_ROUNDS and not self._is_against_earlier:
            raise InputError(
                f"--fail-if needs an interval, and --rounds {self.rounds} gives none; for example --rounds {_INTERVAL_ROUNDS}"
            )
        if self.sweep and self.against:
            raise InputError("--sweep and --against are two questions; leave one of them out")
        if self.engine != "halcyon" and self.against:
            raise InputError(
                f"--engine {self.engine} measures one server with two engines, and --against compares two servers; leave one of "
                "them out"
            )
        if self.perf_analyzer_options and self.engine != "perf_analyzer":
            raise InputError(
                f"--perf-analyzer-option {self.perf_analyzer_options[0]} has no effect without --engine perf_analyzer; add it, or "
                "leave the option out"
            )
        return self


answer_options = option_group(
    "answer",
    AnswerOptions,
    click.option(
        "--percentile",
        type=float,
        default=AnswerOptions.percentile,
        metavar="P",
        help="Percentile of the latency that must keep --objective: 50, 90, 95, 99 or 99.9. Default: 99.",
    ),
    click.option(
        "--against",
        metavar="FILE|last|NAME|URL",
        help="Compare with an earlier bench.json, the last result of NAME, another ModelDeployment, or another server.",
    ),
    click.option(
        "--against-model",
        default="",
        metavar="NAME",
        help="Name of the model on the other server. Default: that of --model.",
    ),
    click.option(
        "--rounds",
        type=click.IntRange(1, 100),
        default=AnswerOptions.rounds,
        metavar="N",
        help="Rounds of two servers in turns; an interval needs 3. Default: 6.",
    ),
    click.option(
        "--fail-if",
        "fail_if",
        multiple=True,
        metavar="CONDITION",
        help="Exit with 1 if the interval of a change leaves no doubt, for example 'p99 > +5%' or 'capacity < -3%'.",
    ),
    click.option("--anyway", is_flag=True, help="Compare results that differ in more than the server."),
    click.option(
        "--sweep",
        multiple=True,
        metavar="GRID",
        help="Measure each point of a grid, for example 'rows=1,2,4 x callers=1..32 x encoding=raw,binary'.",
    ),
    click.option("--yes", is_flag=True, help="Run also a sweep of over 500 points or 2 h."),
    click.option(
        "--engine",
        type=click.Choice(("halcyon", "perf_analyzer")),
        default=AnswerOptions.engine,
        help="With perf_analyzer, measure the same load also with NVIDIA's program, and show both. It must be installed on the "
        "client. Default: halcyon.",
    ),
    click.option(
        "--perf-analyzer-option",
        "perf_analyzer_options",
        multiple=True,
        metavar="NAME[=VALUE]",
        help="Option of perf_analyzer, for example stability-percentage=5 or streaming.",
    ),
)
