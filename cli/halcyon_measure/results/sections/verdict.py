"""Section `verdict`: the limit of the run, with its evidence. Pure."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from halcyon_measure.results.figure import Figure, Part

LimitName = Literal[
    "client",
    "preparing",
    "transmission",
    "balancer",
    "waiting for batches",
    "instances busy",
    "server CPU",
    "throttled",
    "GPU",
    "GPU memory",
    "another pod slower",
    "refusals by configuration",
    "nothing",
    "unknown",
]


class Evidence(Part):
    """A figure that supports the verdict."""

    what: str = Field(description="Sentence that explains the figure.")
    figure: Figure


class Verdict(Part):
    """Limit of the run, with evidence and a recommended change."""

    limit: LimitName = Field(
        description="client, preparing, transmission, balancer, waiting for batches, instances busy, server CPU, "
        "throttled, GPU, GPU memory, another pod slower, refusals by configuration, nothing (the load is too small), "
        "or unknown (too little was measured)."
    )
    unsure: bool = Field(description="True if another limit explains the run as well.")
    others: tuple[LimitName, ...] = Field(description="Limits that explain the run as well.")
    evidence: tuple[Evidence, ...] = Field(description="Figures that support the limit, at most two.")
    change: str = Field(description="Change that would remove the limit.")
    field: str = Field(description="Field of the ModelDeployment for this change; empty if there is none.")
    sentence: str = Field(description="The verdict as one sentence.")
