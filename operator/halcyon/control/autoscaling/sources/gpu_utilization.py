"""GPU utilisation of a model's ready pods: from the agents, from Prometheus, or derived from the busy time of instances.

The first source with values for at least half of the ready pods is used. The other pods are assumed to have the same
mean. Depending on the source, a value is valid for 10 to 30 s.
"""

# | source     | meaning                                            | valid for                       |
# | ---------- | -------------------------------------------------- | ------------------------------- |
# | agents     | Triton's metric nv_gpu_utilization                 | `observations.MAX_AGE_S`, 10 s  |
# | prometheus | DCGM's metric, if the site has a Prometheus        | `dcgm.MAX_AGE_S`, 30 s          |
# | derived    | busy share of Triton's instances, if pods have GPUs | `busy_fraction.MAX_AGE_S`, 12 s |

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
"""Name of the agents' reports as a source of GPU utilisation."""


@immutable(frozen=True, slots=True)
class GpuUtilization:
    """GPU utilisation of the ready pods for which it is known, with its source."""

    source: str
    values: tuple[float, ...]
    """GPU utilisation of each pod for which it is known, in percent."""
    at: float
    """Monotonic time of the newest value, in seconds."""


class GpuUtilizationSources:
    """Sources of GPU utilisation for pods whose agents don't report it, with their state between two calls."""

    def __init__(self) -> None:
        """Initialize the sources without the state of any model."""
        self._busy: dict[Key, BusyMemory] = {}
        """State of the source `derived`, for models whose agents report no GPU utilisation."""

    def substitute(
        self,
        key: Key,
        spec: Spec,
        observation: Observation | None,
        ready: Collection[str],
        sampled: Callable[[str, str], Sampled | None] | None,
        *,
        instances: Callable[[str], int],
    ) -> GpuUtilization | None:
        """Return GPU utilisation from another source if the agents report it for less than half of the ready pods.

        Return None if the agents report enough values, if no other source has any, or if the pods have no GPUs.

        Args:
            key: the model.
            spec: the model's spec.
            observation: the agents' reports; None if there are none.
            ready: names of the ready pods.
            sampled: function that returns a pod's GPU utilisation from Prometheus, by namespace and name of the pod;
                None if the site has no Prometheus.
            instances: function that returns the number of instances in a ready pod, given its name. During a rollout,
                pods can have different numbers.
        """
        if observation is None or spec.runtime.gpus == 0:
            return None
        now, pods = observation.at, {pod.name: pod for pod in observation.pods}
        own = sum(name in pods and fresh(pods[name].points, now, lambda p: p.gpu) is not None for name in ready)
        if 2 * own >= len(ready):
            return None
        # Update this even if Prometheus has values: the counters need some time before they yield a value.
        busy = self._busy[key] = self._busy.get(key, BusyMemory()).with_observation(observation)
        if sampled is not None:
            samples = [s for name in ready if (s := sampled(key.namespace, name)) is not None]
            if 2 * len(samples) >= len(ready):
                return GpuUtilization(prometheus.SOURCE, tuple(s.value for s in samples), max(s.at for s in samples))
        readings = (busy.utilization(name, now=now, instances=instances(name)) for name in ready)
        values = [value for value in readings if value is not None]
        if 2 * len(values) < len(ready):
            return None
        return GpuUtilization(busy_fraction.SOURCE, tuple(v.value for v in values), max(v.at for v in values))

    def forget(self, key: Key) -> None:
        """Drop the state of a deleted model."""
        self._busy.pop(key, None)
