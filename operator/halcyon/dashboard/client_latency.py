"""How long clients have waited for their answers lately: quantiles of what balancers have counted between two looks. Pure.

| a balancer                          | what it has answered in between                              |
| ----------------------------------- | ------------------------------------------------------------ |
| seen at the last look               | what its counts have grown by                                |
| seen, and a count has fallen        | all that it has counted: its HAProxy has begun anew          |
| not seen at the last look           | nothing: when it counted what it has counted isn't known     |

Not here: where answers are counted (`halcyon.balancer.config.latency_buckets`), what becomes of the quantiles (`history`).
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from halcyon.api.documents.observation_report import ReportedHistogram
from halcyon.dashboard.ports import Name
from halcyon.scaling import histogram
from halcyon.scaling.histogram import growth

SHARES = (0.5, 0.95, 0.99)
Bounds = tuple[int, ...]


class Quantiles(NamedTuple):
    """Of `SHARES`, in milliseconds; None where nobody was answered."""

    p50: float | None = None
    p95: float | None = None
    p99: float | None = None


NOBODY_ANSWERED = Quantiles()


class Answered:
    """Remembers of every model what its balancers had counted at the last look: 0.3 KiB for each."""

    def __init__(self) -> None:
        self._seen: dict[Name, dict[str, tuple[Bounds, array[int]]]] = {}

    def look(self, name: Name, told: Mapping[str, ReportedHistogram]) -> Quantiles:
        """The quantiles since the last look at this model.

        Args:
            name: of the model.
            told: what each balancer has counted, by its pod's name.
        """
        before = self._seen.get(name, {})
        now = self._seen[name] = {pod: (one.bounds_ms, array("Q", one.counts)) for pod, one in told.items()}
        grown: dict[Bounds, list[int]] = {}
        for pod, (bounds_ms, counts) in now.items():
            if pod not in before:
                continue
            bounds_before, counts_before = before[pod]
            answered = (growth(counts_before, counts) if bounds_before == bounds_ms else None) or counts
            grown[bounds_ms] = [a + b for a, b in zip(grown.get(bounds_ms, [0] * len(counts)), answered, strict=True)]
        if not grown:
            return NOBODY_ANSWERED
        # Balancers of two versions may count by different bounds, for as long as their rollout lasts.
        bounds_ms, most = max(grown.items(), key=lambda one: sum(one[1]))
        return Quantiles(*(quantile(bounds_ms, most, share) for share in SHARES))

    def lose(self, name: Name) -> None:
        """Nobody speaks for this model now: what is counted meanwhile belongs to no step."""
        self._seen.pop(name, None)

    def keep(self, names: Iterable[Name]) -> None:
        """Forget the models that are not among these."""
        for gone in self._seen.keys() - set(names):
            del self._seen[gone]


def quantile(bounds_ms: Sequence[int], counts: Sequence[int], share: float) -> float | None:
    """Milliseconds within which this share of the answers came; above the highest bound only that bound is known."""
    found = histogram.quantile(bounds_ms, counts, share)
    return None if found is None else min(found, float(bounds_ms[-1]))
