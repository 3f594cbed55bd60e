"""Section `comparison`: differences between two servers over several rounds, or a leaderboard of several. Pure."""

from __future__ import annotations

import re

from pydantic import Field

from halcyon_measure.results.figure import Figure, Part


class ComparedSide(Part):
    """One side of a comparison: a server, or an earlier result."""

    name: str = Field(description="Name of the side in the comparison.")
    url: str = Field(description="URL of the server.")
    model: str = Field(description="Name of the model.")
    made_at: str | None = Field(description="Time of the measurement if the side is an earlier result; otherwise null.")


class Difference(Part):
    """Difference of one figure between the two sides."""

    figure: str = Field(description="Name of the compared figure: capacity, throughput, mean, p50, p95, p99 or cpu.")
    baseline: Figure = Field(description="Value of the first side: the mean over the rounds.")
    candidate: Figure = Field(description="Value of the second side: the mean over the rounds.")
    change: Figure = Field(
        description="Relative change from the first to the second side; 0.05 means 5 % more. The interval is computed over the rounds."
    )
    result: str = Field(description="Result for the second side: higher, lower, no difference shown, or not known.")


class Bound(Part):
    """Result of a condition of `--fail-if`."""

    text: str = Field(description="Condition as in --fail-if, for example p99 > +5%.")
    failed: bool = Field(description="True if the whole interval of the change meets the condition.")
    evidence: str = Field(description="Change with its interval, on which the result is based.")


class LeaderboardRow(Part):
    """Result of one server or model, at the same objective as all others."""

    name: str = Field(description="Name of the server or model in the leaderboard.")
    url: str = Field(description="URL of the server.")
    model: str = Field(description="Name of the model.")
    rate: Figure = Field(description="Largest rate at which the objective is met.")
    p99: Figure = Field(description="99th percentile of the latency at this rate.")
    cost_per_thousand: Figure = Field(description="Cost of 1,000 inferences.")
    energy_per_inference: Figure = Field(description="Energy per inference.")
    carbon_per_inference: Figure = Field(description="Carbon dioxide emissions per inference.")
    accuracy: Figure = Field(description="Share of the responses that match the expected outputs.")


class Comparison(Part):
    """Differences between two sides, with 95 % intervals over rounds."""

    sentence: str = Field(description="Result of the comparison in one sentence.")
    baseline: ComparedSide | None = Field(description="First side; null for a leaderboard.")
    candidate: ComparedSide | None = Field(description="Second side; null for a leaderboard.")
    rounds: int = Field(description="Number of rounds of each side.")
    order: str = Field(
        description="Order in which the sides were measured, for example ABBAAB; for a leaderboard, the order of the searches. Empty if the sides weren't measured alternately."
    )
    differences: tuple[Difference, ...] = Field(description="Compared figures with their differences.")
    unlike: tuple[str, ...] = Field(
        description="Differences between the sides other than the server, which --anyway allowed."
    )
    bounds: tuple[Bound, ...] = Field(description="Conditions of --fail-if with their results.")
    leaderboard: tuple[LeaderboardRow, ...] = Field(description="Servers and models, sorted by rate, highest first.")

    @property
    def undecided(self) -> tuple[Bound, ...]:
        """Conditions that can't be decided, because the change of their figure has no interval."""
        decided = {difference.figure for difference in self.differences if difference.change.interval is not None}
        return tuple(bound for bound in self.bounds if re.split(r"[<>]", bound.text)[0].strip() not in decided)
