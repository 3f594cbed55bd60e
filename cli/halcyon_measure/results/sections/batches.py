"""Section `batches`: executions of the model by batch size in rows. Pure."""

from __future__ import annotations

from pydantic import Field

from halcyon_measure.results.figure import Figure, Part


class BatchSize(Part):
    """Executions of batches with the same number of rows."""

    rows: int = Field(description="Number of rows in the batch.")
    executions: int = Field(description="Number of executions.")
    input: Figure = Field(description="Mean time to collect the inputs, in ms.")
    model: Figure = Field(description="Mean time to compute the model, in ms.")
    output: Figure = Field(description="Mean time to return the outputs, in ms.")


class Batches(Part):
    """Batches that the server executed in the run, from Triton's statistics."""

    sizes: tuple[BatchSize, ...] = Field(description="Executions by batch size, smallest first.")
    executions: Figure = Field(description="Number of executions during the run.")
    mean_rows: Figure = Field(description="Mean number of rows per execution.")
    largest: Figure = Field(description="Maximum number of rows per execution in the model's configuration.")
    fill: Figure = Field(description="Mean number of rows per execution, divided by the maximum.")
    constant: Figure = Field(
        description="Part of an execution's time that does not depend on its rows: a in S(b) = a + c b, in ms."
    )
    per_row: Figure = Field(description="Time per row of an execution: c in S(b) = a + c b, in ms.")
    line_error: Figure = Field(
        description="Largest relative deviation from the line S(b), over batch sizes with at least 5 executions."
    )
    busy: Figure = Field(description="Share of the time in which the instances of the model were executing.")
    instances: Figure = Field(description="Number of model instances on all measured replicas.")
    delay: Figure | None = Field(
        default=None,
        description="Maximum time that a batch waits for more rows according to the model's configuration, in ms.",
    )
