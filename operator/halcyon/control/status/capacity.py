"""Capacity of a replica in the status: the CapacityContradicted condition and the field `status.capacity`. Pure.

Out of scope: how the planner learns a capacity (`scaling.planner`), and measurements (`state.measured_capacities`).
"""

from __future__ import annotations

from typing import Any

from halcyon.api.conditions import Condition, Reason, Type
from halcyon.api.spec import Spec
from halcyon.api.timestamps import epoch_seconds, rfc3339
from halcyon.control.desired import routing
from halcyon.control.desired.plan import ReconcilePlan
from halcyon.control.objects.actuator import Actuator
from halcyon.control.state.scope import Measured, Scope
from halcyon.control.status.scaling import previous_condition, published_decision
from halcyon.scaling.lazy_text import rounded
from halcyon.scaling.planner import capacity_source
from halcyon.scaling.planner.answer_evidence import MEASURED
from halcyon.scaling.planner.capacity_source import CapacitySource
from halcyon.scaling.planner.objectives import Serving, objectives

_TEXT = 512
"""Maximum length of a string in `status.capacity`, in characters. The whole field then takes less than 2 KiB."""
_MAX_LINES = 4


# answers contradict batch statistics    pods share a limit    CapacityContradicted
# -                                      yes                   True     SharedLimit
# yes                                    no                    True     AnswersDisagree
# no                                     no                    (absent)
def contradicted(scope: Scope, plan: ReconcilePlan) -> Condition | None:
    """Return the CapacityContradicted condition; None if the condition doesn't apply."""
    kind, decision = Type.CAPACITY_CONTRADICTED, published_decision(scope)
    if plan.spec is None or plan.spec.scaling is None or plan.external_hpa is not None:
        return None
    if decision is None:
        return previous_condition(scope, kind) if scope.scaling.settling else None
    capacity = decision.capacity
    if capacity is None or capacity.contradiction is None:
        return None
    return Condition(kind, status=True, reason=Reason(capacity.contradiction), message=capacity.why)


def make(scope: Scope, plan: ReconcilePlan) -> dict[str, Any] | None:
    """Return the value of `status.capacity`; None if the capacity is neither known nor measured."""
    previous: dict[str, Any] | None = scope.status.get("capacity")
    if previous and scope.scaling.settling and plan.actuator is not Actuator.NONE:
        return previous
    measured, decision = scope.measured, published_decision(scope)
    capacity = None if decision is None else decision.capacity
    if capacity is None and plan.spec is not None:
        capacity = _measured_alone(routing.serving_spec(scope, plan.spec), measured)
    if capacity is None and not measured.ignored:
        return None
    fields: dict[str, Any] = {} if capacity is None else _figures(capacity, measured)
    if capacity is not None and capacity.rps is not None:
        document = measured.document if capacity.name == MEASURED else None
        if document is not None:
            # The schema accepts fewer forms of a time than the document.
            fields["observedAt"] = rfc3339(epoch_seconds(document.measured_at) or 0.0)
        elif decision is not None:
            fields["observedAt"] = rfc3339(decision.at)
        product = measured.served.gpu_product or (document.gpu_product if document is not None else "")
        origin = {"revision": measured.served.revision, "image": measured.served.image, "gpuProduct": product}
        fields |= {name: value for name, value in origin.items() if value}
    if measured.ignored:
        fields["ignored"] = measured.ignored[:_TEXT]
    return fields


def _measured_alone(spec: Spec, measured: Measured) -> CapacitySource | None:
    """Return the capacity that `halcyon bench` measured, for a model that has no decision yet; None if not measured."""
    line = measured.line
    if line is None or spec.scaling is None:
        return None
    aims = objectives(
        spec,
        serving=Serving(Serving.of(spec).max_batch, measured.served.instances),
        largest_seen=line.max_batch_size,
        measured_batches=line.batch_times(),
        measured_answers=line.answers(),
    )
    return capacity_source.measured(aims)


def _figures(capacity: CapacitySource, measured: Measured) -> dict[str, Any]:
    fields: dict[str, Any] = {"source": capacity.name, "why": capacity.why[:_TEXT]}
    for name, value in (("requestsPerSecond", capacity.rps), ("sustainedRequestsPerSecond", capacity.sustained_rps)):
        if value is not None:
            fields[name] = rounded(value)
    lines = []
    aims, replica = capacity.objectives, capacity.replica
    instances = measured.served.instances if aims is None else aims.instances
    if capacity.line is not None and replica is not None and aims is not None:
        lines = [_line(instances, 1000 * capacity.line.t0_s, 1000 * capacity.line.row_s, aims.max_batch)]
    elif replica is not None:
        fields["requestsAtOnce"] = replica.instances
    for line in () if measured.document is None else measured.document.lines:
        if line.instances != instances and line.at_once is None:
            lines.append(
                _line(line.instances, line.constant_milliseconds, line.per_row_milliseconds, line.max_batch_size)
            )
    if lines:
        fields["lines"] = lines[:_MAX_LINES]
    return fields


def _line(instances: int, constant_ms: float, per_row_ms: float, largest: int) -> dict[str, Any]:
    return {
        "instances": instances,
        "constantMilliseconds": rounded(constant_ms),
        "perRowMilliseconds": rounded(per_row_ms),
        "maxBatchSize": largest,
    }
