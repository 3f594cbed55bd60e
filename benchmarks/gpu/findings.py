"""Evaluation of a recording with the operator's own code. Pure.

Service laws are replayed with `replay`; loads are used as recorded.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.gpu.replay import READ_S, Law, Pod
from halcyon.scaling.observations import Observation, PodObservation, PodPoint
from halcyon.scaling.planner.capacity.replica_capacity import Capacity
from halcyon.signals.busy_fraction import BusyMemory
from halcyon.signals.merged_counters import MergedBatches

MAX_BATCH = 32
SHARES = (0.5, 0.05)
"""Loads of each pod, as a share of its throughput with full batches."""
COMPARED_AT_S = (0, 5, 10, 60)
"""Times at which the learnt line is compared, in seconds of load. At 0 only the warm-up has run."""
SCALED_AT_S = 60
NEW_PODS = 9
_WARM_UP, _ITERATIONS = (1, MAX_BATCH), 2
"""Batch sizes and iterations of the default `spec.model.warmup`."""
_SETTLED_S = 4.0
"""Seconds at the start of a recorded load that are ignored."""


@dataclass(frozen=True)
class Learnt:
    """Error of the planner's service line relative to the measured batch durations, in percent.

    It is positive if the planner overestimates them.
    """

    model: str
    share: float
    at_mean: Mapping[int, float | None]
    """Error at the mean batch size of the load, by seconds of load."""
    at_full: Mapping[int, float | None]
    """Error at the largest batch size, which determines the assumed capacity of a replica, by seconds of load."""
    scaled: float | None
    """Error at the largest batch size directly after nine more pods have started and run their warm-ups."""
    worst_after: float
    """Largest absolute error at the largest batch size in the minute after that."""


@dataclass(frozen=True)
class Busy:
    """GPU utilization under one load, in percent, from different sources."""

    load: str
    derived: float
    """Utilization that Halcyon derives from the batch counters."""
    nvml: float
    """Utilization reported by NVML."""
    graphics: float | None
    """Activity of the graphics engine from GPM; None if the GPU doesn't report it."""


def laws(recording: Mapping[str, Any]) -> dict[str, Law]:
    """Return the recorded service laws by model."""
    return {
        name: Law(
            {int(rows): took for rows, took in law["first_s"].items()},
            {int(rows): took for rows, took in law["seconds"].items()},
        )
        for name, law in recording["laws"].items()
    }


def learnt(model: str, law: Law, share: float, *, seed: int = 1) -> Learnt:
    """Replay a pod with a minute of load, then nine more pods and another minute, and return the planner's errors."""
    source = random.Random(seed)
    rate = share * MAX_BATCH / law.means_s[MAX_BATCH]
    merged, capacity = MergedBatches(), Capacity()
    pods: dict[str, tuple[Pod, Iterator[object]]] = {}

    def add_pods(count: int) -> None:
        for _ in range(count):
            pod = Pod(law, source).warmed(_WARM_UP, _ITERATIONS)
            pods[f"p-{len(pods)}"] = pod, pod.serve(rate, MAX_BATCH)

    def capacity_error() -> float | None:
        """Read the counters of all pods, and return the error at the largest batch size."""
        nonlocal merged, capacity
        merged = merged.with_tables({name: pod.read() for name, (pod, _) in pods.items()}, exist=pods.keys())
        capacity = capacity.with_batches({rows: (count, us / 1e6) for rows, (count, us) in merged.table.items()})
        return error(MAX_BATCH)

    def error(rows: int) -> float | None:
        return None if capacity.line is None else 100 * (capacity.line.seconds(rows) / law.means_s[rows] - 1)

    def serve() -> None:
        for _, reads in pods.values():
            next(reads)

    add_pods(1)
    at_full, at_mean = {0: capacity_error()}, {0: error(1)}
    for at_s in range(READ_S, SCALED_AT_S + 1, READ_S):
        serve()
        full = capacity_error()
        if at_s in COMPARED_AT_S:
            at_full[at_s], at_mean[at_s] = full, error(_mean_rows(pods["p-0"][0]))
    add_pods(NEW_PODS)
    scaled = capacity_error()
    after = []
    for _ in range(60 // READ_S):
        serve()
        after.append(abs(capacity_error() or 0.0))
    return Learnt(model, share, at_mean, at_full, scaled, max(after))


def _mean_rows(pod: Pod) -> int:
    counts = [(rows, count) for rows, (count, _) in pod.counters.items()]
    return round(sum(rows * count for rows, count in counts) / sum(count for _, count in counts))


def busy(recording: Mapping[str, Any]) -> list[Busy]:
    """Return the utilization under each recorded load, as Halcyon derives it and as the GPU reports it."""
    return [_busy(load) for load in recording["loads"]]


def _busy(load: Mapping[str, Any]) -> Busy:
    memory = BusyMemory()
    derived: list[float] = []
    last_read: Sequence[Sequence[int]] = load["batches"][0]
    previous = PodPoint(-1.0, executions=0.0)
    for number, (at, batches) in enumerate(zip(load["at"], load["batches"], strict=True)):
        if number % READ_S == 0:
            last_read = batches
        point = PodPoint(at, executions=float(sum(count for _, count, _ in batches)))
        sizes = tuple((rows, count, us) for rows, count, us in last_read)
        memory = memory.with_observation(
            Observation(at, (PodObservation("p-0", "ready", (previous, point), batches=sizes),))
        )
        previous = point
        value = memory.utilization("p-0", now=at, instances=load["instances"])
        if value is not None and at >= _SETTLED_S:
            derived.append(value.value)
    samples = [sample for sample in load["samples"] if _SETTLED_S <= sample["at"] <= load["at"][-1]]
    graphics = [sample["graphics"] for sample in samples if "graphics" in sample]
    return Busy(
        load["name"],
        _mean(derived),
        _mean([sample["util"] for sample in samples]),
        _mean(graphics) if graphics else None,
    )


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
