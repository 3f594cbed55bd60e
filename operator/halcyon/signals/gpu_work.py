"""GPU utilisation and computed rows that a model's pods report, read from the observation store.

Pure. Out of scope: estimates of GPU utilisation that is not reported (`control.autoscaling.sources.gpu_utilization`),
and costs (`scaling.gpu_cost`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from halcyon.scaling.observations import MAX_AGE_S
from halcyon.signals.store_state import POD_COUNTERS, ModelSnapshot

_GPU: Final = 2
_ROWS: Final = 3 + POD_COUNTERS.index("rows")
"""Index of the column `rows` in a pod's ring buffer of samples."""


@dataclass(frozen=True, slots=True)
class Work:
    """GPU utilisation and computed rows of a model's pods, as reported within the last 10 s."""

    ready: tuple[str, ...]
    """Names of the pods that are ready in their EndpointSlice."""
    gpus: tuple[float, ...]
    """GPU utilisation in percent of each ready pod that reports it."""
    rows: dict[str, float]
    """Total rows that each pod has computed, by pod name."""


def reported_work(snapshot: ModelSnapshot) -> Work:
    """Return the newest GPU utilisation and computed rows of each pod in the snapshot of a model."""
    ready, gpus, rows = [], [], {}
    now = snapshot.at
    for name, pod in snapshot.pods.items():
        is_ready = pod.state in {"ready", "unreachable"}
        if is_ready:
            ready.append(name)
        if (ring := pod.ring) is None:
            continue
        if (computed := ring.known(_ROWS, now, MAX_AGE_S, now - MAX_AGE_S)) is not None:
            rows[name] = computed
        if is_ready and (gpu := ring.known(_GPU, now, MAX_AGE_S, now - MAX_AGE_S)) is not None:
            gpus.append(gpu)
    return Work(tuple(ready), tuple(gpus), rows)
