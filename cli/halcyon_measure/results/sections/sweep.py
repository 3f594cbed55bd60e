"""Section `sweep`: results by rows, callers or rate, protocol, encoding and replicas. Pure."""

from __future__ import annotations

from pydantic import Field

from halcyon_measure.results.figure import Figure, Part
from halcyon_measure.results.number_text import count_text, number
from halcyon_measure.results.sections.second_engine import SecondEngine


class SweepPoint(Part):
    """Results of one load with a certain protocol and encoding."""

    rows: str = Field(description="Number of rows in a request.")
    protocol: str = Field(description="Protocol of the requests: http or grpc.")
    encoding: str = Field(description="Encoding of the tensors: binary, json, raw or typed.")
    shared_memory: str = Field(
        default="none",
        description="Memory that the client and the server share for the tensors: system, or none if requests contain the tensors.",
    )
    callers: int | None = Field(description="Number of callers; null for random arrivals.")
    rate_rps: float | None = Field(description="Rate of the random arrivals in requests per second; null for callers.")
    replicas: int | None = Field(description="Number of replicas of the server; null if it is unknown.")
    throughput: Figure = Field(description="Responses per second.")
    rows_per_second: Figure = Field(description="Rows of answered requests per second.")
    p50: Figure = Field(description="Median latency from the due time, in ms.")
    p99: Figure = Field(description="99th percentile of the latency from the due time, in ms.")
    cpu_per_request: Figure = Field(description="CPU time of the client per request.")
    failed: int = Field(description="Number of requests without a successful response.")
    valid: bool = Field(description="Whether the figures can be relied on.")
    invalid_because: tuple[str, ...] = Field(
        description="Reasons why the figures can't be relied on; empty if they can."
    )
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

    form: str = Field(description="Format: binary, json, raw, typed, .npy or Arrow.")
    rows: str = Field(description="Number of rows in the request.")
    size: Figure = Field(description="Size of the payload.")
    write: Figure = Field(description="CPU time to write the payload.")
    read: Figure = Field(description="CPU time to read the payload.")


class Sweep(Part):
    """Figures of all points of a grid or a list of loads."""

    grid: str = Field(description="Value of --sweep; several values are separated by semicolons.")
    points: tuple[SweepPoint, ...] = Field(description="Points in chronological order.")
    payloads: tuple[PayloadCost, ...] = Field(description="Costs of the payload in each format.")
    partial: bool = Field(description="True if the sweep was interrupted.")
