"""GPU utilisation per pod from a Prometheus that scrapes NVIDIA's DCGM exporter.

This module builds the query and parses its result. It prefers the profiling metric, because only this metric is correct
for a MIG slice. An implausible or old value counts as unknown, never as zero.

The age of a value is the difference between two times on Prometheus's clock, so this clock need not be correct. The
values with which DCGM marks missing data (about 9.2e18) are above the maximum and therefore count as unknown. An
exporter that repeats its last value forever can't be distinguished from a constant load. Out of scope: running the
query (`source`).
"""

# | series of a pod                                          | interpretation                                               |
# | -------------------------------------------------------- | ------------------------------------------------------------ |
# | `DCGM_FI_PROF_GR_ENGINE_ACTIVE`, 0 to 1                  | utilisation; the only metric that is correct for a MIG slice |
# | else `DCGM_FI_DEV_GPU_UTIL`, 0 to 100                    | utilisation, if the pod has no MIG slice                     |
# | several GPUs or slices                                   | mean of the known values, with the age of the oldest         |
# | label `exported_pod`                                     | the pod; `pod` is then the exporter (`honorLabels: false`)   |
# | else label `pod`                                         | the pod                                                      |
# | NaN, negative, above its maximum, older than `MAX_AGE_S` | unknown, never zero                                          |

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NewType

ACTIVE = "DCGM_FI_PROF_GR_ENGINE_ACTIVE"
UTIL = "DCGM_FI_DEV_GPU_UTIL"
MAX_AGE_S = 30.0
"""Maximum age, in seconds, at which a value of GPU utilisation is used: two scrapes of the DCGM exporter at the usual
interval of 15 s."""

PodKey = tuple[str, str]
"""Pod, as (namespace, name)."""
Metric = NewType("Metric", str)

_PERCENT = {ACTIVE: 100.0, UTIL: 1.0}
_MAX = {ACTIVE: 1.05, UTIL: 100.0}
"""Maximum plausible value of each metric. The engine activity can be slightly above 1 and then counts as 1."""
_SLICE = "GPU_I_ID"
_LABELS = ("exported_namespace", "exported_pod", "namespace", "pod", "UUID", "gpu", _SLICE, "instance", "job")
"""Labels that identify GPUs, slices and pods. The query drops the exporter's other labels to keep the result small."""
_KIND = "halcyon"
_TIME = "time of "


@dataclass(frozen=True, slots=True)
class Utilisation:
    """GPU utilisation of a pod."""

    percent: float
    """Mean utilisation of the pod's GPUs or MIG slices in percent, 0 to 100."""
    age_s: float
    """Age, in seconds, of the pod's oldest sample at the time of the query."""
    metric: Metric
    """Name of the DCGM metric that was used."""


@dataclass(frozen=True, slots=True)
class GpuSamples:
    """GPU utilisation of all pods in the result of one query."""

    pods: Mapping[PodKey, Utilisation]
    ignored: int = 0
    """Number of samples that were ignored because they are implausible or too old."""


def query(matchers: str) -> str:
    """Return the PromQL query for the GPU utilisation of all pods, and for the time of each sample.

    Args:
        matchers: label matchers as between PromQL's braces, for example `cluster="eu-1"`; empty to match all series.
    """
    parts = []
    for metric in (ACTIVE, UTIL):
        series = f"{metric}{{{matchers}}}"
        # Prometheus returns a sample for up to five minutes as if it were current, so its time is queried too.
        for kind, expression in ((metric, series), (_TIME + metric, f"timestamp({series})")):
            parts.append(f'label_replace(max by ({",".join(_LABELS)}) ({expression}), "{_KIND}", "{kind}", "", "")')
    return " or ".join(parts)


def parse(rows: Iterable[Mapping[str, Any]]) -> GpuSamples:
    """Parse the result of `query`, the rows of an instant vector.

    Raises:
        ValueError, KeyError or TypeError: the rows are not an instant vector.
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
        # The comparison is also false for NaN.
        if age_s is not None and age_s <= MAX_AGE_S and 0 <= value <= _MAX[metric]:
            samples_by_pod[pod][metric].append((min(value * _PERCENT[metric], 100.0), age_s))
        else:
            ignored += 1
    pods = {}
    for pod, by_metric in samples_by_pod.items():
        # On a GPU divided into MIG slices, DCGM_FI_DEV_GPU_UTIL is absent or 0, which would be misleading.
        metric = ACTIVE if by_metric[ACTIVE] or pod in sliced else UTIL
        if samples := by_metric[metric]:
            percent = sum(percent for percent, _ in samples) / len(samples)
            pods[pod] = Utilisation(percent, max(age_s for _, age_s in samples), Metric(metric))
    return GpuSamples(pods, ignored)


def _pod(series: tuple[str, ...]) -> PodKey | None:
    """Return the pod that uses the GPU of a series. Return None if no pod uses the GPU."""
    exported_namespace, exported_pod, namespace, pod = series[:4]
    if exported_pod:
        return (exported_namespace, exported_pod) if exported_namespace else None
    return (namespace, pod) if namespace and pod else None
