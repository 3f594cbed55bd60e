"""Section `batches`: executions of the model by batch size in rows. Pure."""

from __future__ import annotations

from pydantic import Field

from halcyon_measure.results.figure import Figure, Part


class BatchSize(Part):
    """Executions of batches with the same number of rows."""

    rows: int = Field(description="Rows of the batch.")
    executions: int = Field(description="Number of executions.")
    input: Figure = Field(description="Mean time to collect the inputs, in ms.")
    model: Figure = Field(description="Mean time of the model, in ms.")
    output: Figure = Field(description="Mean time to return the outputs, in ms.")


class Batches(Part):
    """Batches that the server executed in the run, from Triton's statistics."""

    sizes: tuple[BatchSize, ...] = Field(description="Executions by rows, the smallest first.")
    executions: Figure = Field(description="Executions of the run.")
    mean_rows: Figure = Field(description="Rows of an execution, on average.")
    largest: Figure = Field(description="Largest number of rows that the model's configuration allows.")
    fill: Figure = Field(description="Mean rows of an execution divided by the largest number of rows.")
    constant: Figure = Field(
        description="Part of an execution's time that does not depend on its rows: a in S(b) = a + c b, in ms."
    )
    per_row: Figure = Field(description="Time of each further row: c in S(b) = a + c b, in ms.")
    line_error: Figure = Field(description="Largest deviation of a size with 5 executions or more from the line.")
    busy: Figure = Field(description="Share of the time in which an instance of the model executed.")
    instances: Figure = Field(description="Instances of the model on the measured replicas.")
    delay: Figure | None = Field(
        default=None, description="Longest time that a batch waits for more rows, by the model's configuration, in ms."
    )
