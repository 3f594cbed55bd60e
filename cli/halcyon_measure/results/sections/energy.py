"""Section `energy`: energy, carbon and cost of an inference. An inference is one row, as in `halcyon top`. Pure."""

from __future__ import annotations

from pydantic import Field

from halcyon_measure.results.figure import Figure, Part


class Energy(Part):
    """Energy, carbon and cost of the run."""

    gpu: Figure = Field(description="Energy that the GPUs used in the measured part.")
    cpu: Figure = Field(description="Energy that the CPUs used in the measured part.")
    idle_power: Figure = Field(description="Power of the GPUs in the ten seconds before the load.")
    per_inference: Figure = Field(description="Energy per inference, including the idle power of the GPUs.")
    net_per_inference: Figure = Field(description="Energy per inference without the idle power of the GPUs.")
    carbon_intensity: Figure = Field(description="Configured carbon dioxide emissions per kWh.")
    carbon_per_inference: Figure = Field(description="Carbon dioxide emissions per inference.")
    price_per_hour: Figure = Field(description="Configured price of all measured replicas per hour.")
    cost_per_thousand: Figure = Field(description="Cost of 1,000 inferences at the measured rate.")
