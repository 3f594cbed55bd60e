"""The rules of the verdict: what limits a run, by which figures, and what would change it.

docs/reference/verdicts.md is generated from the table `RULES`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from halcyon_measure.results.sections.verdict import LimitName

Values = Mapping[str, float]
"""Figures by name, those that were measured alone."""

FIGURES: Mapping[str, str] = {
    "client_cores": "cores that the busiest process of the client used",
    "client_limits": "1 if the client's own measurements say that it limits",
    "hooks_limit": "1 if the functions that prepare and finish were busy all the time",
    "prepare_share": "share of the latency in preparing and serialising",
    "late_ms": "99th percentile of the delay of sending",
    "transmission_share": "share of the latency in sending and receiving",
    "transmission_ms": "time in sending and receiving",
    "rest_share": "share of the latency in no measured part",
    "rest_ms": "time in no measured part",
    "balancer_unknown": "1 if no balancer's metrics could be read",
    "balancer_share": "share of the latency in the balancer",
    "balancer_ms": "time in the balancer",
    "queue_share": "share of the latency in the server's queue",
    "queue_ms": "time in the server's queue",
    "waiting_share": "share of the latency in queues, of the balancer and of the server",
    "delay_ms": "the model's longest wait for a batch",
    "fill": "mean rows of a batch over the largest",
    "busy": "share of the time in which the instances executed",
    "model_share": "share of the latency in the model",
    "cpu_share": "used share of the servers' CPU",
    "machine_cpu": "used share of the CPU of the servers' machines",
    "throttled": "share of the scheduler's periods in which the CPU limit held the servers back",
    "gpu_utilization": "mean utilisation of the GPUs",
    "gpu_at_80": "share of the time with the GPUs used 80 to 100 %",
    "gpu_memory_share": "used share of the GPUs' memory",
    "memory_failures": "share of the requests that failed for lack of GPU memory",
    "slowest_pod": "time in the model of the slowest replica over that of the others",
    "pod_share": "share of the requests that it answered",
    "rejected": "share of the requests that were rejected",
    "answered": "share of the requests that were answered",
    "failed": "share of the requests that failed",
}
"""Figures that rules use, as phrases."""


@dataclass(frozen=True)
class Bound:
    """A condition on one figure."""

    figure: str
    sign: str
    """`>=` or `<`."""
    value: float

    def holds(self, values: Values) -> bool | None:
        """Return whether it holds; None if the figure wasn't measured."""
        found = values.get(self.figure)
        if found is None:
            return None
        return found >= self.value if self.sign == ">=" else found < self.value

    def __str__(self) -> str:
        return f"`{self.figure}` {self.sign} {self.value:g}"


@dataclass(frozen=True)
class Rule:
    """One limit."""

    limit: LimitName
    bounds: tuple[Bound, ...]
    """All of them hold if it limits."""
    evidence: tuple[str, str]
    """Names of the two figures that are shown."""
    change: str
    field: str = ""
    """Field of the ModelDeployment."""
    causes: tuple[LimitName, ...] = ()
    """Limits that are only its consequences."""
    unless: tuple[Bound, ...] = ()
    """It doesn't limit if one of them holds; an unmeasured one doesn't."""

    def holds(self, values: Values) -> bool:
        """Return True if the rule applies to these figures."""
        return all(bound.holds(values) for bound in self.bounds) and not any(
            bound.holds(values) for bound in self.unless
        )


_FULL = Bound("busy", ">=", 0.85)
_GPU_FULL = Bound("gpu_at_80", ">=", 0.8)
_CPU_FULL = Bound("cpu_share", ">=", 0.9)
_NEARER = "a client nearer to the server, smaller inputs, or a binary encoding"

RULES: tuple[Rule, ...] = (
    Rule(
        "preparing",
        (Bound("hooks_limit", ">=", 1),),
        ("prepare_share", "client_cores"),
        "more processes for the functions: --hook-processes",
        causes=("client", "nothing"),
    ),
    Rule(
        "preparing",
        (Bound("prepare_share", ">=", 0.5),),
        ("prepare_share", "model_share"),
        "a faster function that prepares, or prepared inputs",
        causes=("nothing",),
    ),
    Rule(
        "client",
        (Bound("client_limits", ">=", 1),),
        ("client_cores", "late_ms"),
        "more processes (--processes) on a machine with more free cores",
        causes=("transmission", "nothing"),
        unless=(Bound("hooks_limit", ">=", 1),),
    ),
    Rule(
        "GPU memory",
        (Bound("memory_failures", ">=", 0.001),),
        ("memory_failures", "gpu_memory_share"),
        "smaller batches, fewer instances, or a GPU with more memory",
        "spec.batching.maxBatchSize",
        causes=("refusals by configuration", "nothing"),
    ),
    Rule(
        "throttled",
        (Bound("throttled", ">=", 0.1),),
        ("throttled", "cpu_share"),
        "a higher limit of CPU",
        "spec.runtime.resources.limits.cpu",
        causes=(
            "server CPU",
            "instances busy",
            "waiting for batches",
            "balancer",
            "refusals by configuration",
            "nothing",
        ),
    ),
    Rule(
        "GPU",
        (_GPU_FULL,),
        ("gpu_at_80", "gpu_utilization"),
        "more replicas, a faster GPU, or a smaller model (lower precision)",
        "spec.scaling.maxReplicas",
        causes=("instances busy", "balancer", "refusals by configuration", "nothing"),
    ),
    Rule(
        "server CPU",
        (_CPU_FULL,),
        ("cpu_share", "busy"),
        "more CPU for the servers",
        "spec.runtime.resources.requests.cpu",
        causes=("instances busy", "balancer", "transmission", "refusals by configuration", "nothing"),
    ),
    Rule(
        "server CPU",
        # Others on the machine have the rest of it.
        (Bound("cpu_share", ">=", 0.5), Bound("machine_cpu", ">=", 0.95)),
        ("machine_cpu", "cpu_share"),
        "a machine with more free CPU for the servers",
        "spec.runtime.resources.requests.cpu",
        causes=("instances busy", "balancer", "transmission", "refusals by configuration", "nothing"),
    ),
    Rule(
        "another pod slower",
        (Bound("slowest_pod", ">=", 1.5), Bound("pod_share", ">=", 0.02)),
        ("slowest_pod", "pod_share"),
        "look at the slow pod's node: `kubectl describe pod`, its GPU, and its neighbours",
        "spec.runtime.placement",
        causes=("instances busy", "nothing"),
    ),
    Rule(
        "instances busy",
        # A single caller keeps an instance busy too, but doesn't wait for it.
        (_FULL, Bound("waiting_share", ">=", 0.15)),
        ("busy", "waiting_share"),
        "more instances or replicas; if batches are small, larger ones",
        "spec.runtime.instancesPerGPU",
        causes=("balancer", "refusals by configuration", "nothing"),
    ),
    Rule(
        "instances busy",
        (_FULL, Bound("rejected", ">=", 0.01)),
        ("busy", "rejected"),
        "more instances or replicas; if batches are small, larger ones",
        "spec.runtime.instancesPerGPU",
        causes=("balancer", "refusals by configuration", "nothing"),
    ),
    Rule(
        "instances busy",
        # The wait is where nothing was measured: in the balancer.
        (_FULL, Bound("rest_share", ">=", 0.3), Bound("balancer_unknown", ">=", 1)),
        ("busy", "rest_share"),
        "more instances or replicas; if batches are small, larger ones",
        "spec.runtime.instancesPerGPU",
        causes=("balancer", "refusals by configuration", "nothing"),
    ),
    Rule(
        "waiting for batches",
        (Bound("queue_share", ">=", 0.3), Bound("delay_ms", ">=", 0.1)),
        ("queue_ms", "delay_ms"),
        "a shorter wait for a batch",
        "spec.batching.maxQueueDelay",
        causes=("nothing",),
        unless=(_FULL,),
    ),
    Rule(
        "balancer",
        (Bound("balancer_share", ">=", 0.3),),
        ("balancer_ms", "busy"),
        "more requests at a time for each replica",
        "spec.traffic.maxConcurrency",
        causes=("nothing",),
        unless=(_FULL,),
    ),
    Rule(
        "refusals by configuration",
        (Bound("rejected", ">=", 0.01),),
        ("rejected", "busy"),
        "a longer queue, or more requests at a time for each replica",
        "spec.traffic.queueLimit",
        causes=("nothing",),
        unless=(_FULL,),
    ),
    Rule(
        "transmission",
        (Bound("transmission_share", ">=", 0.4), Bound("transmission_ms", ">=", 1)),
        ("transmission_ms", "transmission_share"),
        _NEARER,
        causes=("nothing",),
    ),
    Rule(
        "transmission",
        (Bound("rest_share", ">=", 0.5), Bound("rest_ms", ">=", 1)),
        ("rest_ms", "rest_share"),
        _NEARER,
        causes=("nothing",),
        unless=(_FULL,),
    ),
    Rule(
        "balancer",
        (Bound("rest_share", ">=", 0.5), Bound("rest_ms", ">=", 1), Bound("balancer_unknown", ">=", 1)),
        ("rest_ms", "rest_share"),
        "the metrics of the balancer (--balancer-metrics) decide",
        "spec.traffic.maxConcurrency",
        causes=("nothing",),
        unless=(_FULL,),
    ),
    Rule(
        "nothing",
        (Bound("waiting_share", "<", 0.15), Bound("answered", ">=", 0.99)),
        ("busy", "waiting_share"),
        "a higher rate or more callers: the load is too small to find a limit",
    ),
)
"""All rules. A cause stands before its consequences."""
