"""GPU utilisation of a model's ready pods: from the agents, from Prometheus, or derived from the busy time of the instances.

It comes from the first source that covers at least half of the ready pods; the other pods are assumed to match:

| source     | meaning                                            | valid for                       |
| ---------- | -------------------------------------------------- | ------------------------------- |
| agents     | Triton's own nv_gpu_utilization                    | `observations.MAX_AGE_S`, 10 s  |
| prometheus | DCGM's value, if the site has a Prometheus         | `dcgm.MAX_AGE_S`, 30 s          |
| derived    | the busy share of the instances, if pods have GPUs | `busy_fraction.MAX_AGE_S`, 12 s |
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from halcyon.api.spec import Spec
from halcyon.kube.kinds import Key
from halcyon.scaling.frozen import immutable
from halcyon.scaling.observations import Observation, fresh
from halcyon.signals import busy_fraction
from halcyon.signals.busy_fraction import BusyMemory
from halcyon.signals.prometheus import source as prometheus
from halcyon.signals.prometheus.source import Sampled

AGENTS = "agents"
"""Source of utilisation that the agents report."""


@immutable(frozen=True, slots=True)
class GpuUtilization:
    """GPU utilisation of the ready pods for which it is known."""

    source: str
    values: tuple[float, ...]
    """Percent, one value per pod."""
    at: float
    """Time of the newest value, monotonic."""


class GpuUtilizationSources:
    """The sources that substitute for missing reports of agents, and the state that they need from one call to the next."""

    def __init__(self) -> None:
        """Start with no state of any model."""
        self._busy: dict[Key, BusyMemory] = {}
        """Memory for models whose pods report no GPU utilisation."""

    def substitute(
        self,
        key: Key,
        spec: Spec,
        observation: Observation,
        ready: Collection[str],
        sampled: Callable[[str, str], Sampled | None] | None,
    ) -> GpuUtilization | None:
        """Return a substitute if the agents report too few of the `ready` pods; None if none is needed or available.

        `sampled` looks up a pod in the site's Prometheus; None if the site has none. There is no substitute for pods without GPUs: busy
        instances on CPUs are not busy GPUs.
        """
        now, seen = observation.at, {pod.name: pod for pod in observation.pods}
        own = sum(name in seen and fresh(seen[name].points, now, lambda p: p.gpu) is not None for name in ready)
        if spec.runtime.gpus == 0 or 2 * own >= len(ready):
            return None
        # Updated even if Prometheus has the value, because the counters need a while before they yield one.
        busy = self._busy[key] = self._busy.get(key, BusyMemory()).with_observation(observation)
        if sampled is not None:
            samples = [s for name in ready if (s := sampled(key.namespace, name)) is not None]
            if 2 * len(samples) >= len(ready):
                return GpuUtilization(prometheus.SOURCE, tuple(s.value for s in samples), max(s.at for s in samples))
        instances = (spec.runtime.instances_per_gpu or 1) * spec.runtime.gpus
        values = [v for name in ready if (v := busy.utilization(name, now=now, instances=instances)) is not None]
        if 2 * len(values) < len(ready):
            return None
        return GpuUtilization(busy_fraction.SOURCE, tuple(v.value for v in values), max(v.at for v in values))

    def forget(self, key: Key) -> None:
        """Drop a deleted model."""
        self._busy.pop(key, None)
