"""Section `sweep`: results by rows, callers or rate, protocol, encoding and replicas. Pure."""

from __future__ import annotations

from pydantic import Field

from halcyon_measure.results.figure import Figure, Part
from halcyon_measure.results.number_text import count_text, number
from halcyon_measure.results.sections.second_engine import SecondEngine


class SweepPoint(Part):
    """Results of one load with a certain protocol and encoding."""

    rows: str = Field(description="Rows of a request.")
    protocol: str = Field(description="http or grpc.")
    encoding: str = Field(description="Form of the tensors: binary, json, raw or typed.")
    shared_memory: str = Field(default="none", description="Memory that held the tensors: system, or none.")
    callers: int | None = Field(description="Callers; null for random arrivals.")
    rate_rps: float | None = Field(description="Requests per second of random arrivals; null for callers.")
    replicas: int | None = Field(description="Replicas of the server; null if they aren't known.")
    throughput: Figure = Field(description="Answers per second.")
    rows_per_second: Figure = Field(description="Answered rows per second.")
    p50: Figure = Field(description="Median latency from due, in ms.")
    p99: Figure = Field(description="99th percentile of the latency from due, in ms.")
    cpu_per_request: Figure = Field(description="CPU of the client for each request.")
    failed: int = Field(description="Requests that weren't answered.")
    valid: bool = Field(description="Whether the figures can be relied on.")
    invalid_because: tuple[str, ...] = Field(description="Reasons why they can't be relied on; empty if they can.")
    second_engine: SecondEngine | None = Field(
        default=None, description="The same load measured by the engine of --engine; null if the option is not set."
    )

    @property
    def form(self) -> str:
        """Protocol and encoding, or protocol and `shared` if tensors were in shared memory."""
        return request_form(self.protocol, self.encoding, self.shared_memory)

    @property
    def load_text(self) -> str:
        """Rows, protocol, encoding and load of the point as a phrase."""
        return load_name(self.rows, self.form, self.rate_rps, self.callers)


def load_name(rows: str, form: str, rate_rps: float | None, callers: int | None) -> str:
    """Return a phrase with the rows, the encoding and the load, for example `8 rows, grpc raw, 32 callers`."""
    rows_text = "1 row" if rows == "1" else f"{rows} rows"
    load = f"{number(rate_rps)}/s" if rate_rps is not None else count_text(callers, "caller")
    return f"{rows_text}, {form}, {load}"


def request_form(protocol: str, encoding: str, shared_memory: str) -> str:
    """Return a phrase with the protocol and encoding of requests, for example `grpc raw` or `grpc shared`."""
    return f"{protocol} {encoding if shared_memory == 'none' else 'shared'}".strip()


class PayloadCost(Part):
    """Cost of encoding the same tensors in a certain format, without a server."""

    form: str = Field(description="binary, json, raw, typed, .npy or Arrow.")
    rows: str = Field(description="Rows of the request.")
    size: Figure = Field(description="Size of the payload.")
    write: Figure = Field(description="CPU to make it.")
    read: Figure = Field(description="CPU to read it again.")


class Sweep(Part):
    """Figures of all points of a grid or a list of loads."""

    grid: str = Field(description="The sweep as it was given.")
    points: tuple[SweepPoint, ...] = Field(description="Points in the order in which they were measured.")
    payloads: tuple[PayloadCost, ...] = Field(description="Costs of the payload's forms.")
    partial: bool = Field(description="True if the sweep was interrupted.")
