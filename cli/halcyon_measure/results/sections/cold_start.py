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
        description="Part of the start: scheduling, pulling, fetching, server_start, loading, warm_up, first_answer or steady."
    )
    mean: Figure = Field(description="Mean time over all starts, in s.")
    least: Figure = Field(description="Shortest time of all starts, in s.")
    most: Figure = Field(description="Longest time of all starts, in s.")


class FirstExecution(Part):
    """First execution of a batch size, compared with the executions that follow."""

    rows: int = Field(description="Number of rows in the batch.")
    first: Figure = Field(description="Time of the first execution with this batch size, in ms.")
    later: Figure = Field(description="Mean time of later executions with this batch size, in ms.")


class ColdStart(Part):
    """Observed starts of replicas."""

    starts: int = Field(description="Number of observed starts.")
    total: Figure = Field(
        description="Mean time from the pod's creation to its first response, in s. If the first response was not observed, the time until the pod was ready."
    )
    parts: tuple[StartPart, ...] = Field(
        description="Parts of the start in chronological order. Their times add up to the total."
    )
    first_executions: tuple[FirstExecution, ...] = Field(description="First execution of each batch size.")
    notes: tuple[str, ...] = Field(
        description="Notes on failed starts, and on parts whose beginning or end was not observed."
    )
