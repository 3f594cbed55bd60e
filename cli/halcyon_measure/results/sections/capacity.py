"""Section `capacity`: the maximum rate at which the objective is met, and the runs that determined it. Pure."""

from __future__ import annotations

from pydantic import Field

from halcyon_measure.results.figure import Figure, Part


class CapacityRun(Part):
    """One run of the search for the capacity."""

    purpose: str = Field(description="Purpose of the run: one caller, saturation, search, knee or confirmation.")
    rate_rps: float | None = Field(
        description="Rate of the random arrivals in requests per second; null for a run with callers."
    )
    callers: int | None = Field(description="Number of callers; null for random arrivals.")
    seconds: float = Field(description="Length of the measured part in seconds, without the warm-up.")
    requests: int = Field(description="Number of requests in the measured part.")
    throughput: Figure = Field(description="Responses per second.")
    latency: Figure = Field(description="Latency at the percentile of the objective, in ms.")
    late: Figure = Field(
        description="Share of requests that would fail or miss the objective in a long run. If the service times are known well "
        "enough, the share is corrected for the random arrival times of this run. The interval is computed over blocks of time."
    )
    blocks: int = Field(description="Number of blocks from which the interval is computed.")
    block_s: float | None = Field(description="Length of a block in seconds.")
    autocorrelation: float | None = Field(
        description="Correlation between consecutive blocks, which should be near 0; null if there are too few blocks."
    )
    kept: bool | None = Field(
        description="Whether the server meets the objective at this rate; null if the run could not decide it."
    )
    ended_early: bool = Field(
        description="True if the run ended before its planned time, because its result was already certain."
    )


class Capacity(Part):
    """Maximum number of requests per second that the server can answer within the objective."""

    sentence: str = Field(description="Result of the search in one sentence.")
    objective_ms: float | None = Field(description="Latency objective in ms; null if there is none.")
    percentile: float = Field(description="Share of requests that must meet the objective, for example 0.99.")
    rate: Figure = Field(
        description="Largest rate of random arrivals at which the server meets the objective. The interval is the range that the search could not narrow down further."
    )
    saturation: Figure = Field(
        description="Responses per second while more requests are waiting than the server can process at once."
    )
    knee: Figure = Field(
        description="Rate above which waiting times grow faster than throughput: the rate with the largest quotient of rate and mean latency."
    )
    single: Figure = Field(
        description="Mean latency with one caller. It consists of the time of one execution, S(1), and the time to transfer request and response."
    )
    confirmed: bool | None = Field(
        description="Whether the server met the objective in a final run at this rate; null if there was no final run."
    )
    law: str = Field(
        description="Service times that the search assumed, for example 80 + 6 b ms for a batch of b rows, at most 8 rows, 1 instance."
    )
    runs: tuple[CapacityRun, ...] = Field(description="Runs of the search in chronological order.")
    seconds: float = Field(description="Total time of all runs, including warm-up, in seconds.")
    seed: int = Field(description="Seed of the first run; the seed of each further run is larger by one.")
