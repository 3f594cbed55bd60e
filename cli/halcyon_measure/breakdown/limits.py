"""Rules of the verdict: the limit of a run, the figures that show it, and the change that would remove it.

docs/reference/verdicts.md is generated from the table `RULES`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from halcyon_measure.results.sections.verdict import LimitName

Values = Mapping[str, float]
"""Measured figures by name. Figures that weren't measured are missing."""

FIGURES: Mapping[str, str] = {
    "client_cores": "the processes of the client used {}",
    "client_limits": "the client limits, by its own measurements: {}",
    "hooks_limit": "the functions that prepare and finish were busy all the time: {}",
    "prepare_share": "preparing and serialising took {} of the latency",
    "late_ms": "1 % of the requests were sent {} late or more",
    "transmission_share": "sending and receiving took {} of the latency",
    "transmission_ms": "sending and receiving took {}",
    "rest_share": "{} of the latency is in no measured part",
    "rest_ms": "{} are in no measured part",
    "balancer_unknown": "no balancer's metrics could be read: {}",
    "balancer_share": "the wait in the balancer took {} of the latency",
    "balancer_ms": "a request waited {} in the balancer",
    "queue_share": "the server's queue took {} of the latency",
    "queue_ms": "a request waited {} in the server's queue",
    "waiting_share": "waiting in queues took {} of the time after sending",
    "delay_ms": "the model may wait {} for a batch",
    "fill": "batches had {} of the largest batch's rows",
    "busy": "the instances executed {} of the time",
    "model_share": "the model took {} of the latency",
    "cpu_share": "the servers used {} of their CPU",
    "core_wait": "processes of the servers waited for {}",
    "machine_cpu": "the CPU of the servers' machines was used {}",
    "throttled": "the CPU limit held the servers back in {} of the scheduler's periods",
    "gpu_utilization": "the GPUs were used {} on average",
    "gpu_at_80": "the GPUs were used 80 to 100 % in {} of the time",
    "gpu_memory_share": "{} of the GPUs' memory was used",
    "memory_failures": "{} of the requests failed for lack of GPU memory",
    "slowest_pod": "the model took {} of the other replicas' time on the slowest one",
    "pod_share": "the slowest replica answered {} of the requests",
    "rejected": "{} of the requests were rejected",
    "answered": "{} of the requests were answered",
    "failed": "{} of the requests failed",
}
"""Sentences about the figures that rules use, by name. `{}` stands for the value."""


@dataclass(frozen=True)
class Bound:
    """Condition on one figure of a run: a comparison with a value."""

    figure: str
    sign: str
    """Comparison of the figure with `value`: `>=` or `<`."""
    value: float

    def holds(self, values: Values) -> bool | None:
        """Return whether the condition holds; None if the figure wasn't measured."""
        measured = values.get(self.figure)
        if measured is None:
            return None
        return measured >= self.value if self.sign == ">=" else measured < self.value

    def __str__(self) -> str:
        return f"`{self.figure}` {self.sign} {self.value:g}"


@dataclass(frozen=True)
class Rule:
    """Rule that recognises one limit from the figures of a run."""

    limit: LimitName
    bounds: tuple[Bound, ...]
    """Conditions on figures that must all hold if this is the limit."""
    evidence: tuple[str, str]
    """Names of the two figures that are shown as evidence."""
    change: str
    field: str = ""
    """Field of the ModelDeployment to change; empty if there is none."""
    causes: tuple[LimitName, ...] = ()
    """Limits that are only consequences of this limit, and therefore aren't reported with it."""
    unless: tuple[Bound, ...] = ()
    """Conditions on figures that must all not hold. A condition whose figure wasn't measured doesn't hold."""

    def holds(self, values: Values) -> bool:
        """Return True if all conditions of the rule are met by these figures."""
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
        # If all requests fail, the client's use of its CPU shows nothing about the load.
        unless=(Bound("hooks_limit", ">=", 1), Bound("answered", "<", 0.01)),
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
        (Bound("core_wait", ">=", 0.3), Bound("machine_cpu", ">=", 0.9)),
        ("core_wait", "machine_cpu"),
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
"""All rules, causes before consequences. The verdict is the first rule that applies and isn't a consequence of
another."""
