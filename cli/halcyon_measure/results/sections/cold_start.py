"""Section `cold_start`: times of new replicas from their creation until their answers are steady. Pure."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from halcyon_measure.results.figure import Figure, Part

StartPartName = Literal[
    "scheduling", "pulling", "fetching", "server_start", "loading", "warm_up", "first_answer", "steady"
]


class StartPart(Part):
    """One part of the start of a replica."""

    name: StartPartName = Field(
        description="scheduling, pulling, fetching, server_start, loading, warm_up, first_answer or steady."
    )
    mean: Figure = Field(description="Mean over the starts, in s.")
    least: Figure = Field(description="Shortest time over the starts, in s.")
    most: Figure = Field(description="Longest time over the starts, in s.")


class FirstExecution(Part):
    """First execution of a batch size, compared with the executions that follow."""

    rows: int = Field(description="Rows of the batch.")
    first: Figure = Field(description="Time of the first execution, in ms.")
    later: Figure = Field(description="Mean time of the later executions, in ms.")


class ColdStart(Part):
    """Observed starts of replicas."""

    starts: int = Field(description="Number of starts.")
    total: Figure = Field(
        description="Mean time from the pod's creation to its first answer, or until it was ready if that wasn't seen, in s."
    )
    parts: tuple[StartPart, ...] = Field(description="The parts in order; they add up to the whole.")
    first_executions: tuple[FirstExecution, ...] = Field(description="First executions by batch size.")
    notes: tuple[str, ...] = Field(description="Starts that failed, and boundaries that weren't seen.")
