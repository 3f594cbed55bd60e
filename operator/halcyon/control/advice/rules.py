"""Rules for advice on a model's settings. Each has a condition, the field that it concerns, and the expected benefit.

docs/reference/advice.md is generated from the table `RULES`. Each function returns None if its rule doesn't apply.
`ease` is 1, or `_EASE` if the advice is already shown. The lower value lowers the bounds, so that a signal near a bound
doesn't make the advice appear and disappear.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from halcyon.api.spec import Spec, defaults
from halcyon.api.spec.parse import SpecError, parse
from halcyon.api.types import duration_s, quantity
from halcyon.control.advice.evidence import ModelEvidence
from halcyon.render.server_maxconn import server_connections
from halcyon.scaling.planner.capacity.queueing import Replica, ServiceLine, replicas_within

_EASE = 0.7
_MIN_GAIN = 0.2
"""Minimum benefit of a piece of advice: a share of the latency, the capacity or the replicas."""
_BUSY = 0.75
"""Minimum share of the time that an instance must spend executing to count as busy."""
_MAX_BUSY = 1.1
"""Maximum plausible busy share of an instance. A higher value means that more instances run than the spec states."""
_FULL = 0.9
"""Share of the rows in the largest batch that batches must have on average to count as full."""
_IDLE_GPU, _FULL_GPU = 0.6, 0.9
"""Two limits of GPU utilisation. Up to the first, the GPU counts as idle for much of the time. Up to the second, more
work is expected to increase the throughput."""
_MAX_REPLICAS = 1000
_BATCHES_WITHIN = 3.0
"""Latency objective to advise, in execution times of a full batch: one to wait for the running batch, one for the
request's own batch, and one for the queue."""


@dataclass(frozen=True, slots=True)
class AdviceFinding:
    """Finding of an advice rule: the advised value, the evidence for it, and the expected benefit."""

    value: str
    """Value that is advised for the rule's field."""
    evidence: str
    """Evidence for the advice in words, with numbers."""
    gain: str
    """Expected benefit in words, with numbers."""
    share: float
    """Expected benefit as a share from 0 to 1, for example of the present latency. The largest is shown first."""


@dataclass(frozen=True, slots=True)
class AdviceRule:
    """Rule for advice on one field. It has no opinion if one of the signals in `needs` is unknown."""

    name: str
    field: str
    """Field of the ModelDeployment that the advice is about."""
    when: str
    """Condition under which the rule applies, as a clause."""
    needs: str
    """Names of the fields of `ModelEvidence` that the rule needs, separated by spaces."""
    find: Callable[[ModelEvidence, float], AdviceFinding | None]
    is_number: bool = True
    """Whether the advised value is a number in the specification, rather than a string."""


def opinions(evidence: ModelEvidence, shown: frozenset[str]) -> dict[str, AdviceFinding | None]:
    """Return the finding of each rule, without the rules that have no opinion.

    `shown` contains the names of the rules whose advice is shown.
    """
    findings = {}
    for rule in RULES:
        if all(getattr(evidence, name) is not None for name in rule.needs.split()):
            finding = rule.find(evidence, _EASE if rule.name in shown else 1.0)
            if finding is not None and rule.name not in shown and not _is_valid(evidence.spec, rule, finding.value):
                finding = None
            findings[rule.name] = finding
    return findings


def _is_valid(spec: Spec, rule: AdviceRule, value: str) -> bool:
    """Return whether the spec would be accepted if the rule's field had this value."""
    document = section = spec.model_dump(mode="json", by_alias=True, exclude_none=True)
    *path, name = rule.field.split(".")[1:]
    for part in path:
        section = section.setdefault(part, {})
    section[name] = int(value) if rule.is_number else value
    try:
        parse("advice", document)
    except SpecError:
        return False
    return True


def value_of(spec: Any, field: str) -> str | None:
    """Return the value of a field in a specification as JSON; None if it isn't set.

    An example of `field` is `spec.scaling.minReplicas`.
    """
    for name in field.split(".")[1:]:
        spec = spec.get(name) if isinstance(spec, dict) else None
    return None if spec is None else str(spec)


def _delay(evidence: ModelEvidence, ease: float) -> AdviceFinding | None:
    batching, line = evidence.spec.batching, _line(evidence)
    delay_s = duration_s(batching.max_queue_delay) if batching and batching.max_queue_delay else 0.0
    wait_s, rows, greedy_s = evidence.wait_s or 0.0, evidence.batch_rows or 1.0, _greedy_wait_s(evidence)
    # Waits for other reasons than the delay remain.
    saved_s, total_s = min(wait_s - greedy_s, delay_s), wait_s + line.seconds(rows)
    if (evidence.busy or 0.0) > _MAX_BUSY or saved_s < max(0.0005, _MIN_GAIN * ease * total_s):
        return None
    return AdviceFinding(
        "0us",
        f"a request waits {_ms(wait_s)} in Triton's queue, batches have {rows:.1f} rows, and instances execute "
        f"{_percent(min(evidence.busy or 0.0, 1.0))} of the time; without the delay, a request would wait {_ms(greedy_s)}",
        f"the mean time in the server falls from {_ms(total_s)} to {_ms(total_s - saved_s)}",
        saved_s / total_s,
    )


def _greedy_wait_s(evidence: ModelEvidence) -> float:
    """Return the mean time that a request would wait in Triton's queue if the queue delay were 0.

    A free instance then takes all requests that wait. The result is infinite if the instances can't keep up.
    """
    line, request_rows, count = _line(evidence), evidence.request_rows or 1.0, evidence.spec.runtime.instances
    max_rows = _max_rows(evidence.spec) or math.inf
    rows_s = (evidence.rate or 0.0) * request_rows
    free = count - rows_s * line.row_s
    if free <= 0 or (rows := max(rows_s * line.t0_s / free, request_rows)) > max_rows:
        return math.inf
    # A request waits for half of an execution if all instances are busy.
    return line.seconds(rows) / 2 * float(min(rows_s * line.seconds(rows) / (count * rows), 1.0) ** count)


def _full_batches(evidence: ModelEvidence, ease: float) -> AdviceFinding | None:
    max_rows, rows = _max_rows(evidence.spec), evidence.batch_rows or 0.0
    # A model whose largest batch has one row doesn't use batches.
    if max_rows is None or max_rows == 1 or rows < _FULL * max_rows or not _is_saturated(evidence, ease):
        return None
    return _larger(evidence, 2 * max_rows, f"batches have {rows:.1f} of at most {max_rows} rows", ease)


def _missing_size(evidence: ModelEvidence, ease: float) -> AdviceFinding | None:
    spec, rows, request_rows = evidence.spec, evidence.batch_rows or 0.0, evidence.request_rows or 1.0
    largest, is_set = evidence.largest_rows or 0, _max_rows(spec) or spec.traffic.max_concurrency
    if is_set or spec.traffic.mode != "Balancer" or rows < 2 * request_rows or not _is_saturated(evidence, ease):
        return None
    sent = server_connections(spec) * spec.traffic.balancer_replicas * request_rows / spec.runtime.instances
    # If the model's own configuration limits the batches, full batches all have the same size.
    if rows < 0.8 * ease * sent and not (rows >= 0.4 * ease * sent and largest >= 1.5 * rows):
        return None
    reason = f"the balancers send at most {sent:.0f} rows at once for each instance, and batches have {rows:.1f} rows"
    return _larger(evidence, 2 ** math.ceil(math.log2(2 * max(rows, min(largest, sent)))), reason, ease)


def _larger(evidence: ModelEvidence, value: int, reason: str, ease: float) -> AdviceFinding | None:
    """Return advice to allow batches of `value` rows; None if the benefit is too small.

    The latency objective must leave time for two such batches.
    """
    line, rows, objective_s = _line(evidence), evidence.batch_rows or 1.0, defaults.objective_s(evidence.spec)
    gain = value / line.seconds(value) * line.seconds(rows) / rows - 1
    if gain < _MIN_GAIN * ease or (objective_s is not None and 2 * line.seconds(value) > objective_s):
        return None
    return AdviceFinding(
        str(value),
        f"{reason}, and {evidence.waiting:.0f} requests wait for each replica; a batch takes {_ms(line.t0_s)} and "
        f"{_ms(line.row_s)} for each row",
        f"{_percent(gain)} more rows per second, if batches of {value} rows take as long as predicted",
        gain / (1 + gain),
    )


def _idle_gpu(evidence: ModelEvidence, ease: float) -> AdviceFinding | None:
    per_gpu = evidence.spec.runtime.instances_per_gpu or 1
    value = min(2 * per_gpu, max(int(per_gpu * _FULL_GPU / _gpu_share(evidence)), per_gpu + 1), 64)
    return None if _is_cpu_short(evidence.spec) else _more_work(evidence, ease, value, value / per_gpu)


def _short_cpu(evidence: ModelEvidence, ease: float) -> AdviceFinding | None:
    cores = _cores(evidence.spec) or 1.0
    value = math.ceil(2 * cores)
    return _more_work(evidence, ease, value, value / cores) if _is_cpu_short(evidence.spec) else None


def _gpu_share(evidence: ModelEvidence) -> float:
    """Return the share of the GPU that is used while all model instances execute."""
    return min(max((evidence.gpu or 0.0) / (evidence.busy or 1.0), 0.01), 1.0)


def _more_work(evidence: ModelEvidence, ease: float, value: int, factor: float) -> AdviceFinding | None:
    """Return advice to give the GPU `factor` times the work, if it is idle while instances execute.

    The advice has a benefit if instances are busy, or if several replicas run for the load.
    """
    cores, gain = _cores(evidence.spec), min(factor, _FULL_GPU / _gpu_share(evidence)) - 1
    min_replicas = _min_replicas(evidence.spec)
    has_load = (evidence.replicas or 0.0) >= max(min_replicas + 1, 2) and _BUSY / 2 <= (
        evidence.busy or 0.0
    ) <= _MAX_BUSY
    if not evidence.spec.runtime.gpus or _gpu_share(evidence) > _IDLE_GPU / ease or gain < _MIN_GAIN * ease:
        return None
    if not has_load and not _is_saturated(evidence, ease):
        return None
    return AdviceFinding(
        str(value),
        f"instances execute {_percent(min(evidence.busy or 0.0, 1.0))} of the time while the GPU is used {_percent(evidence.gpu)}, and "
        f"{evidence.waiting:.0f} requests wait for each replica; a replica has {evidence.spec.runtime.instances} of them"
        + ("" if cores is None else f" and a limit of {cores:g} CPU"),
        f"up to {_percent(gain)} more requests per second from a replica, as long as its GPU isn't saturated",
        gain / (1 + gain),
    )


def _objective(evidence: ModelEvidence, ease: float) -> AdviceFinding | None:
    objective_s, line, request_rows = defaults.objective_s(evidence.spec), _line(evidence), evidence.request_rows or 1.0
    max_requests = max(int((_max_rows(evidence.spec) or evidence.largest_rows or 1) / request_rows), 1)
    full = Replica(ServiceLine(line.t0_s, line.row_s * request_rows), max_requests, evidence.spec.runtime.instances)
    if objective_s is None or 2 * full.batch_s <= objective_s / ease:
        return None
    fits, rate = full.within(objective_s), (evidence.rate or 0.0) * (evidence.replicas or 0.0)
    unit = 10 ** max(math.floor(math.log10(_BATCHES_WITHIN * full.batch_s * 1000)) - 1, 0)
    wider_ms = math.ceil(_BATCHES_WITHIN * full.batch_s * 1000 / unit) * unit
    reason = f"a full batch takes {_ms(full.batch_s)} and may have to wait for another one; the objective is {_ms(objective_s)}"
    if fits.slack_s(objective_s) <= 0:
        reason += f", and a single request takes {_ms(fits.line.seconds(1))}"
        return AdviceFinding(
            f"{wider_ms}ms", reason, "an objective that can be met; no number of replicas meets this one", 1.0
        )
    before, after = (replicas_within(rate, full, s, most=_MAX_REPLICAS) for s in (objective_s, wider_ms / 1000))
    if before < 2 or 1 - after / before < _MIN_GAIN * ease:
        return None
    return AdviceFinding(
        f"{wider_ms}ms",
        f"{reason}, so the planner assumes batches of {fits.max_batch} requests; a maxBatchSize for this many requests "
        "would also meet the objective",
        f"{after} instead of {before} replicas for the same requests",
        1 - after / before,
    )


def _idle_minimum(evidence: ModelEvidence, _ease: float) -> AdviceFinding | None:
    need, min_replicas = evidence.peak_replicas or 0, _min_replicas(evidence.spec)
    may_sleep = evidence.spec.traffic.mode == "Balancer" and defaults.policy(evidence.spec) == "Planner"
    # The second replica may be there for the failure of the first.
    value = max(need, min(min_replicas, 2)) if need else 1 - may_sleep
    if value >= min_replicas:
        return None
    reason = f"the busiest five minutes of the last day needed {need}, and the minimum is {min_replicas} replicas"
    return AdviceFinding(
        str(value),
        reason if need else "no request arrived in the last day",
        f"{min_replicas - value} of {min_replicas} replicas saved at low load"
        + ("" if value else "; the first request then waits for a start"),
        1 - value / min_replicas,
    )


def _short_timeout(evidence: ModelEvidence, _ease: float) -> AdviceFinding | None:
    start_s = evidence.start_s or 0.0
    if not defaults.late_starts(evidence.spec, start_s):
        return None
    reason = f"the last start of a pod took {start_s:.0f} s, and a request at zero replicas waits for a start"
    gain = "requests at zero replicas are answered, not rejected"
    return AdviceFinding(f"{math.ceil(start_s * defaults.START_MARGIN)}s", reason, gain, 1.0)


def _is_saturated(evidence: ModelEvidence, ease: float) -> bool:
    """Return whether requests wait because model instances are busy."""
    return _BUSY * ease <= (evidence.busy or 0.0) <= _MAX_BUSY and (evidence.waiting or 0.0) >= ease


def _line(evidence: ModelEvidence) -> ServiceLine:
    if evidence.line is None:
        raise ValueError("the rule lacks `line` in its needs")
    return evidence.line


def _min_replicas(spec: Spec) -> int:
    return spec.scaling.min_replicas if spec.scaling else 0


def _max_rows(spec: Spec) -> int | None:
    return spec.batching.max_batch_size if spec.batching else None


def _cores(spec: Spec) -> float | None:
    limits = spec.runtime.resources.limits
    return None if limits is None or limits.cpu is None else float(quantity(limits.cpu))


def _is_cpu_short(spec: Spec) -> bool:
    """Return whether the CPU limit is less than one CPU per model instance plus one."""
    return (cores := _cores(spec)) is not None and cores < spec.runtime.instances + 1


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:.3g} ms" if seconds < 1 else f"{seconds:.3g} s"


def _percent(share: float | None) -> str:
    return f"{100 * (share or 0.0):.0f} %"


RULES: tuple[AdviceRule, ...] = (
    AdviceRule(
        "QueueTimeoutTooShort",
        "spec.traffic.queueTimeout",
        "minReplicas is 0, and the last start of a pod took longer than a request may wait",
        "start_s",
        _short_timeout,
        is_number=False,
    ),
    AdviceRule(
        "ObjectiveBelowBatch",
        "spec.scaling.targets.latency",
        "two full batches take longer than the objective, which needs more replicas or can't be met at all",
        "line request_rows rate replicas",
        _objective,
        is_number=False,
    ),
    AdviceRule(
        "BatchSizeMissing",
        "spec.batching.maxBatchSize",
        "it is not set, Triton forms batches, and the number of requests that balancers send at once limits their size",
        "busy waiting batch_rows line request_rows largest_rows",
        _missing_size,
    ),
    AdviceRule(
        "BatchAlwaysFull",
        "spec.batching.maxBatchSize",
        "batches are full while requests wait, and larger ones would gain according to the measured batch times",
        "busy waiting batch_rows line",
        _full_batches,
    ),
    AdviceRule(
        "GPUIdle",
        "spec.runtime.instancesPerGPU",
        "while all instances execute, the GPU is used 60 % or less, and requests wait or the load needs several replicas",
        "busy waiting gpu replicas",
        _idle_gpu,
    ),
    AdviceRule(
        "CPULimited",
        "spec.runtime.resources.limits.cpu",
        "as for GPUIdle, and the limit is less than one CPU per instance plus one",
        "busy waiting gpu replicas",
        _short_cpu,
        is_number=False,
    ),
    AdviceRule(
        "DelayOnlyCosts",
        "spec.batching.maxQueueDelay",
        "requests wait because of the delay, and instances would keep up without it",
        "wait_s line rate request_rows batch_rows busy",
        _delay,
        is_number=False,
    ),
    AdviceRule(
        "MinReplicasIdle",
        "spec.scaling.minReplicas",
        "the busiest five minutes of the last day needed fewer replicas; two stay while there are requests",
        "peak_replicas",
        _idle_minimum,
    ),
)
"""All rules for advice. If two rules have the same benefit, the first of them is shown first."""
