"""GPU utilisation per pod from a Prometheus that scrapes NVIDIA's DCGM exporter: the question, and what its answer means.

| where                                           | what counts                                                          |
| ----------------------------------------------- | -------------------------------------------------------------------- |
| `DCGM_FI_PROF_GR_ENGINE_ACTIVE` of the pod      | that, 0 to 1: the only one of the two that is true of a MIG slice    |
| else `DCGM_FI_DEV_GPU_UTIL`, no slice in the pod | that, 0 to 100                                                       |
| several GPUs or slices                          | the mean of those that are known, as old as the oldest of them       |
| `exported_pod` is there                         | the pod is that: `pod` is the exporter's own (`honorLabels: false`)  |
| else `pod`                                      | the pod is that                                                      |
| NaN, below 0, above the whole, above `STALE_S`  | not known, never zero                                                |

Ages are differences of two times of Prometheus's own clock, so what that clock says doesn't matter. DCGM's blanks (about 9.2e18) are
above the whole. An exporter that repeats its last value for ever can't be told from a steady load. Not here: how it is
asked (`prometheus`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NewType

ACTIVE = "DCGM_FI_PROF_GR_ENGINE_ACTIVE"
UTIL = "DCGM_FI_DEV_GPU_UTIL"
STALE_S = 30.0
"""A value older than this is not known any more: two scrapes at the 15 s that DCGM's exporter is usually read at."""

PodKey = tuple[str, str]
"""Namespace and name of a pod."""
Metric = NewType("Metric", str)

_PERCENT = {ACTIVE: 100.0, UTIL: 1.0}
_MAX = {ACTIVE: 1.05, UTIL: 100.0}
"""A busy share measured over a moment may end a little above 1; it then counts as 1."""
_SLICE = "GPU_I_ID"
_LABELS = ("exported_namespace", "exported_pod", "namespace", "pod", "UUID", "gpu", _SLICE, "instance", "job")
"""What tells GPUs, slices and pods apart; the exporter's other labels would only make the answer longer."""
_KIND = "halcyon"
_TIME = "time of "


@dataclass(frozen=True, slots=True)
class Utilisation:
    """How busy the GPUs of a pod were."""

    percent: float
    """0 to 100, the mean of the pod's GPUs or slices."""
    age_s: float
    """Of the oldest sample in it, when Prometheus answered."""
    metric: Metric
    """DCGM's name for it."""


@dataclass(frozen=True, slots=True)
class GpuSamples:
    """What one answer says of all pods."""

    pods: Mapping[PodKey, Utilisation]
    left_out: int = 0
    """Samples that can't be true or are too old."""


def question(matchers: str) -> str:
    """One PromQL expression for all pods: each value beside the time of its sample.

    Args:
        matchers: what the series must match, as between PromQL's braces; empty for all. For example `cluster="eu-1"`.
    """
    parts = []
    for metric in (ACTIVE, UTIL):
        series = f"{metric}{{{matchers}}}"
        # Without the time of its sample, a value would seem as young as the answer, for up to five minutes.
        for kind, what in ((metric, series), (_TIME + metric, f"timestamp({series})")):
            parts.append(f'label_replace(max by ({",".join(_LABELS)}) ({what}), "{_KIND}", "{kind}", "", "")')
    return " or ".join(parts)


def answered(rows: Iterable[Mapping[str, Any]]) -> GpuSamples:
    """What the rows of an instant vector say, the answer to `question`.

    Raises:
        ValueError, KeyError or TypeError: where they are not rows of an instant vector.
    """
    values: dict[tuple[str, tuple[str, ...]], float] = {}
    times: dict[tuple[str, tuple[str, ...]], float] = {}
    for row in rows:
        labels = row["metric"]
        evaluated, number = row["value"]
        kind, series = labels[_KIND], tuple(labels.get(label, "") for label in _LABELS)
        if kind.startswith(_TIME):
            times[kind.removeprefix(_TIME), series] = max(float(evaluated) - float(number), 0.0)
        else:
            values[kind, series] = float(number)
    found: dict[PodKey, dict[str, list[tuple[float, float]]]] = defaultdict(lambda: {ACTIVE: [], UTIL: []})
    sliced = set()
    left_out = 0
    for (metric, series), value in values.items():
        pod = _pod(series)
        if pod is None:
            continue
        if series[_LABELS.index(_SLICE)]:
            sliced.add(pod)
        age_s = times.get((metric, series))
        # NaN fails the comparison too.
        if age_s is not None and age_s <= STALE_S and 0 <= value <= _MAX[metric]:
            found[pod][metric].append((min(value * _PERCENT[metric], 100.0), age_s))
        else:
            left_out += 1
    pods = {}
    for pod, by_metric in found.items():
        # DCGM's plain utilisation is absent or 0 on a GPU that is cut into slices: worse than nothing.
        metric = ACTIVE if by_metric[ACTIVE] or pod in sliced else UTIL
        if samples := by_metric[metric]:
            percent = sum(percent for percent, _ in samples) / len(samples)
            pods[pod] = Utilisation(percent, max(age_s for _, age_s in samples), Metric(metric))
    return GpuSamples(pods, left_out)


def _pod(series: tuple[str, ...]) -> PodKey | None:
    """Whose GPU it is; None where none has it."""
    exported_namespace, exported_pod, namespace, pod = series[:4]
    if exported_pod:
        return (exported_namespace, exported_pod) if exported_namespace else None
    return (namespace, pod) if namespace and pod else None
