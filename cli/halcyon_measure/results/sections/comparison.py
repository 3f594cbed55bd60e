"""Section `comparison`: differences between two servers over several rounds, or a leaderboard of several. Pure."""

from __future__ import annotations

import re

from pydantic import Field

from halcyon_measure.results.figure import Figure, Part


class ComparedSide(Part):
    """One side of a comparison: a server, or an earlier result."""

    name: str = Field(description="Name that the comparison shows.")
    url: str = Field(description="URL of the server.")
    model: str = Field(description="Name of the model.")
    made_at: str | None = Field(description="When it was measured, if that was earlier; else null.")


class Difference(Part):
    """Difference of one figure between the two sides."""

    figure: str = Field(description="capacity, throughput, mean, p50, p95, p99 or cpu.")
    baseline: Figure = Field(description="Its mean over the rounds, of the first side.")
    candidate: Figure = Field(description="Its mean over the rounds, of the second side.")
    change: Figure = Field(
        description="Change from the first to the second side as a ratio: 0.05 is 5 % more. Its interval is over rounds."
    )
    result: str = Field(description="higher, lower, no difference shown or not known.")


class Bound(Part):
    """Result of a condition of `--fail-if`."""

    text: str = Field(description="The condition as it was given, for example p99 > +5%.")
    failed: bool = Field(description="Whether the interval shows that the condition holds.")
    evidence: str = Field(description="Figures for it.")


class LeaderboardRow(Part):
    """Result of one server or model, at the same objective as all others."""

    name: str = Field(description="Name that the leaderboard shows.")
    url: str = Field(description="URL of the server.")
    model: str = Field(description="Name of the model.")
    rate: Figure = Field(description="Largest rate that keeps the objective.")
    p99: Figure = Field(description="99th percentile of the latency at this rate.")
    cost_per_thousand: Figure = Field(description="Price of a thousand inferences.")
    energy_per_inference: Figure = Field(description="Energy of an inference.")
    carbon_per_inference: Figure = Field(description="Carbon dioxide of an inference.")
    accuracy: Figure = Field(description="Share of the answers that are the expected ones.")


class Comparison(Part):
    """Differences between two sides, with 95 % intervals over rounds."""

    sentence: str = Field(description="The answer in one sentence.")
    baseline: ComparedSide | None = Field(description="First side; null for a leaderboard.")
    candidate: ComparedSide | None = Field(description="Second side; null for a leaderboard.")
    rounds: int = Field(description="Rounds of each side.")
    order: str = Field(
        description="Order of the rounds, for example ABBAAB, or of a leaderboard's searches; empty if they weren't in turns."
    )
    differences: tuple[Difference, ...] = Field(description="Figures of both sides.")
    unlike: tuple[str, ...] = Field(description="What differs between the sides beside the server, with --anyway.")
    bounds: tuple[Bound, ...] = Field(description="Conditions of --fail-if.")
    leaderboard: tuple[LeaderboardRow, ...] = Field(description="Servers by their rate, the largest first.")

    @property
    def undecided(self) -> tuple[Bound, ...]:
        """Conditions that can't be decided, because the change of their figure has no interval."""
        decided = {difference.figure for difference in self.differences if difference.change.interval is not None}
        return tuple(bound for bound in self.bounds if re.split(r"[<>]", bound.text)[0].strip() not in decided)
