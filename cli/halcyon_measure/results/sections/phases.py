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
        description="Phase: prepare, serialise, late, send, balancer_held, balancer_queued, queue, input, model, output, "
        "receive, decode, finish or rest."
    )
    side: Side = Field(description="Source of the figures: client, balancer or server; remainder for the phase rest.")
    mean: Figure = Field(description="Mean time per answered request, in ms.")
    p99: Figure = Field(description="99th percentile of the time, in ms. Only phases of the client have one.")


class Phases(Part):
    """Phases of the latency of answered requests."""

    end_to_end: Figure = Field(
        description="Mean latency, from the due time of a request until its response is processed, in ms."
    )
    parts: tuple[Phase, ...] = Field(description="Phases in the order in which a request passes through them.")
    total: Figure = Field(description="Sum of the measured phases, in ms.")
    adds_up: bool = Field(description="True if the sum differs from the mean latency by at most 2 %.")
    reason: str = Field(
        description="Reason why phases of the server are missing, or why the phases don't add up; otherwise empty."
    )
