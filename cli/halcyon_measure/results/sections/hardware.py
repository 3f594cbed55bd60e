"""Section `hardware`: use of GPUs, CPU and memory, sampled once a second during the run. Pure."""

from __future__ import annotations

from pydantic import Field

from halcyon_measure.results.figure import Figure, Part


class Series(Part):
    """Statistics of a quantity that was sampled once a second."""

    mean: Figure
    p10: Figure
    p90: Figure
    max: Figure
    values: tuple[float, ...] = Field(default=(), description="The samples in order.")


class ReplicaUse(Part):
    """Number and times of the requests that one replica processed in the run."""

    pod: str = Field(description="Name or address of the replica.")
    requests: Figure = Field(description="Requests that the replica answered.")
    queue: Figure = Field(description="Mean time of a request in the replica's queue, in ms.")
    model: Figure = Field(description="Mean time of a request in the model, in ms.")
    replaced: bool = Field(
        description="True if the pod was replaced or restarted in the run; the counts before and after it are added."
    )


class Hardware(Part):
    """Use of GPUs, CPU and memory over the measured part."""

    samples: int = Field(description="Number of samples, about one a second.")
    gpu_utilization: Series = Field(description="Mean utilisation of the GPUs, 0 to 1.")
    gpu_at_80: Figure = Field(description="Share of the samples in which the GPUs were used 80 to 100 %.")
    gpu_memory: Series = Field(description="Used memory of all GPUs.")
    gpu_memory_total: Figure = Field(description="Memory of all GPUs.")
    gpu_power: Series = Field(description="Power of all GPUs.")
    pinned_memory: Series = Field(description="Used part of Triton's pool of pinned memory.")
    pinned_memory_total: Figure = Field(description="Size of Triton's pool of pinned memory.")
    server_cpu: Series = Field(description="Cores that the servers used.")
    server_cpu_limit: Figure = Field(description="Cores that the servers may use.")
    server_core_wait: Series = Field(description="Cores that the main threads of the servers waited for.")
    server_throttled: Figure = Field(
        description="Share of the scheduler's periods in which the CPU limit held the servers back."
    )
    server_memory: Series = Field(description="Memory of the servers.")
    server_memory_limit: Figure = Field(description="Memory that the servers may use.")
    server_oom_kills: Figure = Field(description="Processes of the servers that were killed for memory.")
    balancer_cpu: Series = Field(description="Cores that the balancers used.")
    machine_cpu: Series = Field(description="Used share of the CPU of the servers' machines, 0 to 1.")
    machine_memory: Series = Field(description="Used memory of the servers' machines.")
    replicas: tuple[ReplicaUse, ...] = Field(description="The replicas whose metrics could be read.")
    sampling_cpu: Figure = Field(description="Cores that the sampling itself used.")
    notes: tuple[str, ...] = Field(description="Notes on implausible counters and on replaced pods.")
