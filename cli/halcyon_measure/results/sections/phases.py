"""Section `phases`: the parts of a request's latency, from its due time to its decoding. Their means add up. Pure."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from halcyon_measure.results.figure import Figure, Part

PhaseName = Literal[
    "prepare",
    "serialise",
    "late",
    "send",
    "balancer_held",
    "balancer_queued",
    "queue",
    "input",
    "model",
    "output",
    "receive",
    "decode",
    "finish",
    "rest",
]
Side = Literal["client", "balancer", "server", "remainder"]


class Phase(Part):
    """One phase of a request's latency."""

    name: PhaseName = Field(
        description="prepare, serialise, late, send, balancer_held, balancer_queued, queue, input, model, output, "
        "receive, decode, finish or rest."
    )
    side: Side = Field(description="Source of the figures: client, balancer or server; remainder for the phase rest.")
    mean: Figure = Field(description="Mean time of an answered request, in ms.")
    p99: Figure = Field(description="99th percentile in ms; only the client's parts have one.")


class Phases(Part):
    """Phases of the latency of answered requests."""

    end_to_end: Figure = Field(description="Mean latency, from due to finished, in ms.")
    parts: tuple[Phase, ...] = Field(description="The parts in the order in which a request passes them.")
    total: Figure = Field(description="Sum of the parts that were measured, in ms.")
    adds_up: bool = Field(description="True if the sum is within 2 % of the mean latency.")
    reason: str = Field(
        description="Reason why the server's parts are missing, or why the parts don't add up; otherwise empty."
    )
