"""GPU utilisation per pod from a Prometheus that scrapes NVIDIA's DCGM exporter: the query, and the meaning of its result.

| series                                          | meaning                                                              |
| ----------------------------------------------- | -------------------------------------------------------------------- |
| `DCGM_FI_PROF_GR_ENGINE_ACTIVE` of the pod      | used, 0 to 1: the only one of the two that is right for a MIG slice  |
| else `DCGM_FI_DEV_GPU_UTIL`, no slice in the pod | used, 0 to 100                                                       |
| several GPUs or slices                          | the mean of the known ones, with the age of the oldest               |
| with `exported_pod`                             | names the pod: `pod` is the exporter's own (`honorLabels: false`)    |
| else `pod`                                      | names the pod                                                        |
| NaN, below 0, above maximum, above `MAX_AGE_S`    | not known, never zero                                                |

An age is the difference between two times of Prometheus's own clock, so that clock needn't be right. DCGM's blank values (about
9.2e18) are above the maximum. An exporter that repeats its last value forever looks like a steady load. Out of scope: running
the query (`source`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NewType

ACTIVE = "DCGM_FI_PROF_GR_ENGINE_ACTIVE"
UTIL = "DCGM_FI_DEV_GPU_UTIL"
MAX_AGE_S = 30.0
"""Maximum age of a known value: two scrapes at 15 s, the usual interval for DCGM's exporter."""

PodKey = tuple[str, str]
"""Namespace and name of a pod."""
Metric = NewType("Metric", str)

_PERCENT = {ACTIVE: 100.0, UTIL: 1.0}
_MAX = {ACTIVE: 1.05, UTIL: 100.0}
"""Maximum values. A busy share measured over a moment may be a little above 1; it then counts as 1."""
_SLICE = "GPU_I_ID"
_LABELS = ("exported_namespace", "exported_pod", "namespace", "pod", "UUID", "gpu", _SLICE, "instance", "job")
"""Labels that identify GPUs, slices and pods; the exporter's other labels would only make the result longer."""
_KIND = "halcyon"
_TIME = "time of "


@dataclass(frozen=True, slots=True)
class Utilisation:
    """GPU utilisation of a pod."""

    percent: float
    """0 to 100, the mean of the pod's GPUs or slices."""
    age_s: float
    """Age of its oldest sample when Prometheus responded."""
    metric: Metric
    """DCGM's name for it."""


@dataclass(frozen=True, slots=True)
class GpuSamples:
    """GPU utilisation of all pods in one result."""

    pods: Mapping[PodKey, Utilisation]
    ignored: int = 0
    """Number of samples that are implausible or too old."""


def query(matchers: str) -> str:
    """Return one PromQL query for all pods: each value with the time of its sample.

    Args:
        matchers: label matchers for the series, as within PromQL's braces; empty for all. For example `cluster="eu-1"`.
    """
    parts = []
    for metric in (ACTIVE, UTIL):
        series = f"{metric}{{{matchers}}}"
        # Without the time of its sample, a value would seem as young as the result, for up to five minutes.
        for kind, what in ((metric, series), (_TIME + metric, f"timestamp({series})")):
            parts.append(f'label_replace(max by ({",".join(_LABELS)}) ({what}), "{_KIND}", "{kind}", "", "")')
    return " or ".join(parts)


def parse(rows: Iterable[Mapping[str, Any]]) -> GpuSamples:
    """Parse the rows of an instant vector, the result of `query`.

    Raises:
        ValueError, KeyError or TypeError: they are not rows of an instant vector.
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
    samples_by_pod: dict[PodKey, dict[str, list[tuple[float, float]]]] = defaultdict(lambda: {ACTIVE: [], UTIL: []})
    sliced = set()
    ignored = 0
    for (metric, series), value in values.items():
        pod = _pod(series)
        if pod is None:
            continue
        if series[_LABELS.index(_SLICE)]:
            sliced.add(pod)
        age_s = times.get((metric, series))
        # NaN fails the comparison too.
        if age_s is not None and age_s <= MAX_AGE_S and 0 <= value <= _MAX[metric]:
            samples_by_pod[pod][metric].append((min(value * _PERCENT[metric], 100.0), age_s))
        else:
            ignored += 1
    pods = {}
    for pod, by_metric in samples_by_pod.items():
        # DCGM's plain utilisation is absent or 0 on a GPU divided into slices, which would be misleading.
        metric = ACTIVE if by_metric[ACTIVE] or pod in sliced else UTIL
        if samples := by_metric[metric]:
            percent = sum(percent for percent, _ in samples) / len(samples)
            pods[pod] = Utilisation(percent, max(age_s for _, age_s in samples), Metric(metric))
    return GpuSamples(pods, ignored)


def _pod(series: tuple[str, ...]) -> PodKey | None:
    """Return the pod that uses the GPU; None if it is unused."""
    exported_namespace, exported_pod, namespace, pod = series[:4]
    if exported_pod:
        return (exported_namespace, exported_pod) if exported_namespace else None
    return (namespace, pod) if namespace and pod else None
