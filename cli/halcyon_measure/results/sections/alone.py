"""Section `alone`: times of the ONNX model run in one process, without a server. Pure."""

from __future__ import annotations

from pydantic import Field

from halcyon_measure.results.figure import Figure, Part


class AlonePoint(Part):
    """Executions with one batch size, one after another."""

    batch: int = Field(description="Number of rows in an execution.")
    mean: Figure = Field(description="Mean time of an execution, in ms.")
    p50: Figure = Field(description="Median time of an execution, in ms.")
    p99: Figure = Field(description="99th percentile of the time of an execution, in ms.")
    rate: Figure = Field(description="Rows per second.")


class Alone(Part):
    """Measurement of the model without a server."""

    library: str = Field(description="Library that ran the model, and its version.")
    threads: int = Field(description="Number of threads of an execution.")
    load: Figure = Field(description="Time to load the model, in ms.")
    memory: Figure = Field(description="Memory that the process used in addition after it loaded and ran the model.")
    points: tuple[AlonePoint, ...] = Field(description="Executions, one entry per batch size.")
    server_cost: Figure = Field(
        description="Median latency of the served model minus the median time without a server, for the same number of rows, in ms."
    )
