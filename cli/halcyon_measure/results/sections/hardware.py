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
    values: tuple[float, ...] = Field(default=(), description="Samples in chronological order.")


class ReplicaUse(Part):
    """Number and times of the requests that one replica processed in the run."""

    pod: str = Field(description="Name or address of the replica.")
    requests: Figure = Field(description="Number of requests that the replica answered.")
    queue: Figure = Field(description="Mean time per request in the replica's queue, in ms.")
    model: Figure = Field(description="Mean time per request to compute the model, in ms.")
    replaced: bool = Field(
        description="True if the pod was replaced or restarted during the run. Its counts include those before the restart."
    )


class Hardware(Part):
    """Use of GPUs, CPU and memory over the measured part."""

    samples: int = Field(description="Number of samples, about one per second.")
    gpu_utilization: Series = Field(description="Mean utilisation of all GPUs, from 0 to 1.")
    gpu_at_80: Figure = Field(description="Share of the samples with a GPU utilisation of 80 to 100 %.")
    gpu_memory: Series = Field(description="Total used memory of all GPUs.")
    gpu_memory_total: Figure = Field(description="Total memory of all GPUs.")
    gpu_power: Series = Field(description="Total power of all GPUs.")
    pinned_memory: Series = Field(description="Used part of Triton's pool of pinned memory.")
    pinned_memory_total: Figure = Field(description="Size of Triton's pool of pinned memory.")
    server_cpu: Series = Field(description="CPU cores that the servers used.")
    server_cpu_limit: Figure = Field(description="CPU limit of the servers, in cores.")
    server_core_wait: Series = Field(
        description="Time in which the servers' main threads waited for a CPU core, per second of the run."
    )
    server_throttled: Figure = Field(
        description="Share of the scheduler's periods in which the CPU limit throttled the servers."
    )
    server_memory: Series = Field(description="Used memory of the servers.")
    server_memory_limit: Figure = Field(description="Memory limit of the servers.")
    server_oom_kills: Figure = Field(description="Number of server processes that were killed because memory ran out.")
    balancer_cpu: Series = Field(description="CPU cores that the balancers used.")
    machine_cpu: Series = Field(description="CPU utilisation of the machines on which the servers ran, from 0 to 1.")
    machine_memory: Series = Field(description="Used memory of the machines on which the servers ran.")
    replicas: tuple[ReplicaUse, ...] = Field(description="Replicas whose metrics could be read.")
    sampling_cpu: Figure = Field(description="CPU cores that the sampling itself used.")
    notes: tuple[str, ...] = Field(description="Notes on implausible counters and replaced pods.")
