"""What the operator's own code makes of a recording. Pure.

Laws are played by `replay`; loads are read as they were recorded.
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
"""Load of each pod, of what one can do with full batches."""
LOOKS_S = (0, 5, 10, 60)
"""Seconds of load when the line is looked at; at 0 there was only the warm-up."""
SCALED_AT_S = 60
NEW_PODS = 9
_WARM_UP, _ITERATIONS = (1, MAX_BATCH), 2
"""As `spec.model.warmup` has them by itself."""
_SETTLED_S = 4.0
"""A recorded load counts from here."""


@dataclass(frozen=True)
class Learnt:
    """How far the planner's line is from what batches take; percent, positive where it thinks of them as slower."""

    model: str
    share: float
    at_mean: Mapping[int, float | None]
    """At the mean batch of the load, by seconds of load."""
    at_full: Mapping[int, float | None]
    """At the largest batch: what a replica is thought to do at most."""
    scaled: float | None
    """At the largest batch, just after nine more pods came from their warm-ups."""
    worst_after: float
    """The largest error at the largest batch in the minute after that, without its sign."""


@dataclass(frozen=True)
class Busy:
    """How busy a GPU was with one load; percent."""

    load: str
    derived: float
    """By Halcyon, from the counters of batches."""
    nvml: float
    """NVML's utilisation."""
    graphics: float | None
    """GPM's graphics engine; None where the GPU doesn't tell it."""


def laws(recording: Mapping[str, Any]) -> dict[str, Law]:
    """The recorded laws, by model."""
    return {
        name: Law(
            {int(rows): took for rows, took in law["first_s"].items()},
            {int(rows): took for rows, took in law["seconds"].items()},
        )
        for name, law in recording["laws"].items()
    }


def learnt(model: str, law: Law, share: float, *, seed: int = 1) -> Learnt:
    """A pod, a minute of load, nine more pods, and one more minute: what the planner thinks of a batch meanwhile."""
    source = random.Random(seed)
    rate = share * MAX_BATCH / law.means_s[MAX_BATCH]
    merged, capacity = MergedBatches(), Capacity()
    pods: dict[str, tuple[Pod, Iterator[object]]] = {}

    def more(count: int) -> None:
        for _ in range(count):
            pod = Pod(law, source).warmed(_WARM_UP, _ITERATIONS)
            pods[f"p-{len(pods)}"] = pod, pod.serve(rate, MAX_BATCH)

    def look() -> float | None:
        """The error at the largest batch."""
        nonlocal merged, capacity
        merged = merged.with_tables({name: pod.read() for name, (pod, _) in pods.items()}, exist=pods.keys())
        capacity = capacity.with_batches({rows: (count, us / 1e6) for rows, (count, us) in merged.table.items()})
        return error(MAX_BATCH)

    def error(rows: int) -> float | None:
        return None if capacity.line is None else 100 * (capacity.line.seconds(rows) / law.means_s[rows] - 1)

    def serve() -> None:
        for _, reads in pods.values():
            next(reads)

    more(1)
    at_full, at_mean = {0: look()}, {0: error(1)}
    for at_s in range(READ_S, SCALED_AT_S + 1, READ_S):
        serve()
        full = look()
        if at_s in LOOKS_S:
            at_full[at_s], at_mean[at_s] = full, error(_mean_rows(pods["p-0"][0]))
    more(NEW_PODS)
    scaled = look()
    after = []
    for _ in range(60 // READ_S):
        serve()
        after.append(abs(look() or 0.0))
    return Learnt(model, share, at_mean, at_full, scaled, max(after))


def _mean_rows(pod: Pod) -> int:
    counts = [(rows, count) for rows, (count, _) in pod.counters.items()]
    return round(sum(rows * count for rows, count in counts) / sum(count for _, count in counts))


def busy(recording: Mapping[str, Any]) -> list[Busy]:
    """Each recorded load, as Halcyon derives it and as the GPU tells it."""
    return [_busy(load) for load in recording["loads"]]


def _busy(load: Mapping[str, Any]) -> Busy:
    memory = BusyMemory()
    derived: list[float] = []
    shown: Sequence[Sequence[int]] = load["batches"][0]
    previous = PodPoint(-1.0, executions=0.0)
    for look, (at, batches) in enumerate(zip(load["at"], load["batches"], strict=True)):
        if look % READ_S == 0:
            shown = batches
        point = PodPoint(at, executions=float(sum(count for _, count, _ in batches)))
        sizes = tuple((rows, count, us) for rows, count, us in shown)
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
