"""Section `energy`: energy, carbon and cost of an inference. An inference is one row, as in `halcyon top`. Pure."""

from __future__ import annotations

from pydantic import Field

from halcyon_measure.results.figure import Figure, Part


class Energy(Part):
    """Energy, carbon and cost of the run."""

    gpu: Figure = Field(description="Energy of the GPUs in the measured part.")
    cpu: Figure = Field(description="Energy of the CPU in the measured part.")
    idle_power: Figure = Field(description="Power of the GPUs in the ten seconds before the load.")
    per_inference: Figure = Field(description="Energy of an inference, including the idle power of the GPUs.")
    net_per_inference: Figure = Field(description="Energy of an inference without the idle power of the GPUs.")
    carbon_intensity: Figure = Field(description="Carbon dioxide of a kWh, as it was given.")
    carbon_per_inference: Figure = Field(description="Carbon dioxide of an inference.")
    price_per_hour: Figure = Field(description="Price of the measured replicas per hour, as it was given.")
    cost_per_thousand: Figure = Field(description="Price of a thousand inferences at the measured rate.")
