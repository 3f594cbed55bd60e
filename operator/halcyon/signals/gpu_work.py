"""What the pods of a model have told of their work: GPU utilisation and rows computed, from the picture that the hub keeps. Pure.

Not here: what stands in where they tell no utilisation (`control.sensing`), and what becomes of it (`scaling.cost`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from halcyon.scaling.observations import FRESH_S
from halcyon.signals.store_state import POD_COUNTERS, ModelSnapshot

_GPU: Final = 2
_ROWS: Final = 3 + POD_COUNTERS.index("rows")
"""Their columns in a pod's ring."""


@dataclass(frozen=True, slots=True)
class Work:
    """What was told within the last 10 s."""

    ready: tuple[str, ...]
    """Pods that should take requests."""
    gpus: tuple[float, ...]
    """Percent, of those of them that tell it."""
    rows: dict[str, float]
    """Counter by pod: rows computed."""


def told(picture: ModelSnapshot) -> Work:
    """The newest that each pod has told."""
    ready, gpus, rows = [], [], {}
    now = picture.at
    for name, pod in picture.pods.items():
        takes = pod.state in {"ready", "unreachable"}
        if takes:
            ready.append(name)
        if (ring := pod.ring) is None:
            continue
        if (computed := ring.known(_ROWS, now, FRESH_S, now - FRESH_S)) is not None:
            rows[name] = computed
        if takes and (gpu := ring.known(_GPU, now, FRESH_S, now - FRESH_S)) is not None:
            gpus.append(gpu)
    return Work(tuple(ready), tuple(gpus), rows)
