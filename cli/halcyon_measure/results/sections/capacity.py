"""Section `capacity`: the maximum rate at which the objective is met, and the runs that determined it. Pure."""

from __future__ import annotations

from pydantic import Field

from halcyon_measure.results.figure import Figure, Part


class CapacityRun(Part):
    """One run of the search for the capacity."""

    purpose: str = Field(description="one caller, saturation, search, knee or confirmation.")
    rate_rps: float | None = Field(description="Requests per second of random arrivals; null if callers made the rate.")
    callers: int | None = Field(description="Callers; null for random arrivals.")
    seconds: float = Field(description="Measured time in seconds, without warm-up.")
    requests: int = Field(description="Requests of the measured part.")
    throughput: Figure = Field(description="Answers per second.")
    latency: Figure = Field(description="The percentile of the objective, in ms.")
    late: Figure = Field(
        description="Share of requests that fail or miss the objective in the long run. The chance of this run's random "
        "arrivals is removed if the service times are known well enough. Its interval is over blocks of time."
    )
    blocks: int = Field(description="Number of blocks from which the interval is computed.")
    block_s: float | None = Field(description="Length of a block in seconds.")
    autocorrelation: float | None = Field(
        description="Correlation of a block with the next one, which should be near 0; null if there are too few."
    )
    kept: bool | None = Field(description="Whether the objective is kept at this rate; null if it wasn't decided.")
    ended_early: bool = Field(description="True if the run ended before its time, because it was decided.")


class Capacity(Part):
    """Maximum number of requests per second that the server can answer within the objective."""

    sentence: str = Field(description="The answer in one sentence.")
    objective_ms: float | None = Field(description="Latency objective; null if none was given.")
    percentile: float = Field(description="Share of requests that must keep the objective, for example 0.99.")
    rate: Figure = Field(
        description="Largest rate of random arrivals that keeps the objective; its interval is that of the search."
    )
    saturation: Figure = Field(
        description="Answers per second while more requests wait than the server can process at once."
    )
    knee: Figure = Field(
        description="Rate above which waiting grows faster than throughput: the one with the largest rate / mean latency."
    )
    single: Figure = Field(
        description="Mean latency of one caller: the time of one execution, S(1), and of the transfer to and from the server."
    )
    confirmed: bool | None = Field(
        description="Whether a last run at the rate kept the objective; null if there was none."
    )
    law: str = Field(description="Service times that the search assumed, for example 80 + 6 b ms, batch 8, 1 instance.")
    runs: tuple[CapacityRun, ...] = Field(description="Runs of the search, in their order.")
    seconds: float = Field(description="Time of all runs together, with warm-up, in seconds.")
    seed: int = Field(description="Seed of the first run; the seed of each further run is larger by one.")
