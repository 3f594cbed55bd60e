"""Status of a BatchInference, computed from its Job, its pod and the progress of its runner. Pure."""

# condition   true if                                     otherwise
# Complete    the runner has written all results          false; the reason is what the batch does or waits for
# Failed      the Job has failed, or can't be created     absent
# Suspended   spec.suspend is true                        absent
# OnTime      the present rate meets the deadline         false; absent without a deadline, or while the end is unknown

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from halcyon.api.batch_inference import BatchConditionType as Type
from halcyon.api.batch_inference import BatchInferenceSpec, BatchReason
from halcyon.api.documents.batch_documents import PORT, BatchProgress
from halcyon.api.rollout_status import routed_name
from halcyon.api.stored.replicas_in_force import replicas_in_force
from halcyon.api.timestamps import epoch_seconds, rfc3339
from halcyon.batch.job import ServedModel
from halcyon.kube.event_recorder import NewEvent
from halcyon.kube.kinds import Object
from halcyon.scaling.lazy_text import rounded

_MESSAGE_LIMIT = 1024
_MAX_LEFT_S = 1e11
"""Remaining time in seconds, about 3000 years, from which no end is shown. Timestamps end in the year 9999."""
_SETTLED = frozenset({"Complete", "RolledBack"})
_ETA_STEP = 0.05
"""Share of the remaining time by which the expected end time must change to cause a status update."""


@dataclass(frozen=True)
class Obstacle:
    """Reason why no runner of a BatchInference can run now."""

    reason: str
    message: str
    is_final: bool = False
    """Whether the obstacle lasts until the user changes the BatchInference."""


def served_model(model: Object | None, name: str, namespace: str) -> ServedModel | Obstacle:
    """Return the properties of a ModelDeployment that a runner needs, or the reason why a runner can't use it."""
    if model is None:
        text = f"there is no ModelDeployment {name} in namespace {namespace}; a batch needs one in its own namespace"
        return Obstacle(BatchReason.MODEL_NOT_FOUND, text)
    spec: Mapping[str, Any] = model.get("spec") or {}
    traffic: Mapping[str, Any] = spec.get("traffic") or {}
    mode = traffic.get("mode", "Balancer")
    if mode != "Balancer":
        return Obstacle(
            BatchReason.MODEL_UNSUITABLE,
            f"spec.traffic.mode of ModelDeployment {name} is {mode}, but a batch needs balancers, which let users' "
            "requests go first; set spec.traffic.mode: Balancer",
        )
    if traffic.get("tls"):
        text = (
            f"ModelDeployment {name} sets spec.traffic.tls, which batch inference does not support; use one without it"
        )
        return Obstacle(BatchReason.MODEL_UNSUITABLE, text)
    scaling = spec.get("scaling")
    if not replicas_in_force(model) and (scaling is None or scaling.get("mode", "Active") != "Active"):
        why = "no spec.scaling" if scaling is None else f"spec.scaling.mode {scaling['mode']}"
        text = f"ModelDeployment {name} has spec.replicas 0 and {why}; run kubectl scale mdep {name} --replicas=1"
        return Obstacle(BatchReason.MODEL_STOPPED, text)
    return ServedModel(
        name=name,
        model=routed_name(model) or name,
        max_rows=(spec.get("batching") or {}).get("maxBatchSize"),
        api_keys=str((traffic.get("apiKeys") or {}).get("secretName") or ""),
        is_settled=((model.get("status") or {}).get("rollout") or {}).get("phase", "Complete") in _SETTLED,
    )


@dataclass(frozen=True)
class Observed:
    """Observed state of a BatchInference's Job, pod and runner, from which the status is computed."""

    obstacle: Obstacle | None = None
    is_failed: bool = False
    """Whether the Job has failed."""
    is_done: bool = False
    """Whether the Job has succeeded."""
    pending: str = ""
    """Reason why the runner's pod doesn't run; empty if it runs, or if no reason is known."""
    progress: BatchProgress | None = None
    """Last known progress of this runner or an earlier one; None if none is known."""


def make(
    before: Mapping[str, Any], spec: BatchInferenceSpec | None, observed: Observed, *, generation: int, now: float
) -> Object:
    """Return the new status of a BatchInference.

    `before` is the current status. `spec` is None if it is invalid. `now` is in seconds since the epoch.
    """
    stamp, progress = rfc3339(now), observed.progress
    is_complete = observed.is_done and not observed.is_failed
    rows = _rows(before, progress)
    old: Mapping[str, Any] = {condition.get("type"): condition for condition in before.get("conditions") or ()}
    conditions = _end_conditions(spec, observed, rows, old.get(Type.FAILED), is_complete=is_complete)
    is_running = conditions[0].reason == BatchReason.RUNNING
    end = _expected_end(before.get("eta"), progress, now) if is_running else None
    if spec is not None and spec.deadline is not None and not is_complete:
        conditions += _on_time(spec, end, progress, now)
    return {
        "observedGeneration": generation,
        **_row_counts(rows),
        **(_rate(progress, end) if is_running else {}),
        **_request_size(before, progress, is_complete=is_complete),
        **({"completionTime": before.get("completionTime") or stamp} if is_complete else {}),
        "conditions": [condition.written(old.get(condition.type), generation, stamp) for condition in conditions],
    }


def _row_counts(rows: Mapping[str, int] | None) -> Object:
    """Return the status fields with the numbers of rows; none if the numbers are unknown."""
    if rows is None:
        return {}
    return {"rows": rows, "progress": f"{rows['done'] + rows['failed']}/{rows['total']}"}


def _rate(progress: BatchProgress | None, end: float | None) -> Object:
    """Return the status fields of a running batch with its rate and its expected end; none if the rate is unknown."""
    if progress is None or progress.rows_per_s is None:
        return {}
    rate = {"rate": rounded(progress.rows_per_s)}
    return rate if end is None else {**rate, "eta": rfc3339(end)}


def _request_size(before: Mapping[str, Any], progress: BatchProgress | None, *, is_complete: bool) -> Object:
    """Return the status field with the rows per request, which a complete batch keeps; none if it is unknown."""
    size = (progress and progress.rows_per_request) or (is_complete and before.get("rowsPerRequest"))
    return {"rowsPerRequest": size} if size else {}


def events(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[NewEvent]:
    """Return the events for a status change: one if the BatchInference has completed, one if it has failed."""
    new_events = []
    for kind, type_ in ((Type.COMPLETE, "Normal"), (Type.FAILED, "Warning")):
        old, new = (
            next((c for c in status.get("conditions") or () if (c["type"], c["status"]) == (kind, "True")), None)
            for status in (before, after)
        )
        if new is not None and (old is None or old["reason"] != new["reason"]):
            new_events.append(NewEvent(type_, str(new["reason"]), str(new["message"])))
    return new_events


class _Condition(NamedTuple):
    """New condition of a BatchInference, before its times are known."""

    type: Type
    status: str
    reason: str
    message: str

    def written(self, before: Mapping[str, Any] | None, generation: int, stamp: str) -> Object:
        """Return the condition as the status has it. `before` is the condition of this type in the current status."""
        is_same = before is not None and before.get("status") == self.status
        return {
            "type": self.type.value,
            "status": self.status,
            "reason": str(self.reason),
            "message": self.message[:_MESSAGE_LIMIT],
            "observedGeneration": generation,
            "lastTransitionTime": before["lastTransitionTime"] if before is not None and is_same else stamp,
        }


def _end_conditions(
    spec: BatchInferenceSpec | None,
    observed: Observed,
    rows: Mapping[str, int] | None,
    failed: Mapping[str, Any] | None,
    *,
    is_complete: bool,
) -> list[_Condition]:
    """Return the conditions Failed, Complete and Suspended, as far as they apply. Failed is the first one.

    `failed` is the condition Failed in the current status.
    """
    complete = _complete(spec, observed, rows, is_complete=is_complete)
    if observed.is_failed or (observed.obstacle is not None and observed.obstacle.is_final):
        return [_failed(observed, failed), complete]
    if spec is not None and spec.suspend and not is_complete:
        return [complete, _Condition(Type.SUSPENDED, "True", BatchReason.SUSPENDED, "spec.suspend is true")]
    return [complete]


def _complete(
    spec: BatchInferenceSpec | None, observed: Observed, rows: Mapping[str, int] | None, *, is_complete: bool
) -> _Condition:
    progress = observed.progress
    if is_complete:
        return _Condition(Type.COMPLETE, "True", BatchReason.COMPLETED, _outcome(rows))
    reason, text = str(BatchReason.RUNNING), "the runner is processing rows"
    if observed.is_failed:
        reason, text = BatchReason.FAILED, "the batch has failed"
    elif observed.obstacle is not None:
        reason, text = observed.obstacle.reason, observed.obstacle.message
    elif spec is not None and spec.suspend:
        reason, text = BatchReason.SUSPENDED, "spec.suspend is true"
    elif observed.pending:
        reason, text = BatchReason.PENDING, observed.pending
    elif progress is None:
        # It is starting, or a NetworkPolicy denies the operator's requests.
        reason, text = BatchReason.PENDING, f"the runner has not responded yet, at port {PORT} of its pod"
    elif progress.waiting:
        reason, text = BatchReason.WAITING, progress.waiting
    return _Condition(Type.COMPLETE, "False", reason, text)


def _outcome(rows: Mapping[str, int] | None) -> str:
    """Return a sentence with the final numbers of rows, unless the runner's pod was deleted before they were read."""
    if rows is None or rows["done"] + rows["failed"] < rows["total"]:
        return "all rows were processed; failures.jsonl lists the rows without a result"
    if not rows["failed"]:
        return "all rows have a result"
    return f"all rows were processed, {rows['failed']} without a result; failures.jsonl lists them"


def _failed(observed: Observed, before: Mapping[str, Any] | None) -> _Condition:
    if observed.progress is not None and observed.progress.reason:
        return _Condition(Type.FAILED, "True", observed.progress.reason[:253], observed.progress.message)
    if observed.obstacle is not None:
        return _Condition(Type.FAILED, "True", observed.obstacle.reason, observed.obstacle.message)
    if before is not None:  # the pod with the runner's message is gone
        return _Condition(Type.FAILED, "True", str(before["reason"]), str(before["message"]))
    text = f"the runner's pod has failed too often{observed.pending and ': ' + observed.pending}"
    return _Condition(Type.FAILED, "True", BatchReason.RUNNER_FAILED, text)


def _rows(before: Mapping[str, Any], progress: BatchProgress | None) -> Mapping[str, int] | None:
    """Return the number of rows by state.

    A runner that has just started does not know yet how many rows earlier runners have processed. Until then, the
    numbers in the current status are returned.
    """
    is_starting = progress is not None and progress.waiting and not progress.done + progress.failed
    if progress is None or progress.total is None or (is_starting and "rows" in before):
        return before.get("rows")
    return {"total": progress.total, "done": progress.done, "failed": progress.failed}


def _expected_end(shown: object, progress: BatchProgress | None, now: float) -> float | None:
    """Return the time at which a running batch is expected to end; None if it is unknown or too far away to show.

    `shown` is the published estimate.
    """
    if progress is None or progress.rows_per_s is None or progress.left_s is None or progress.left_s >= _MAX_LEFT_S:
        return None
    return _steady(shown, now + progress.left_s, now)


def _steady(shown: object, end: float, now: float) -> float:
    """Return the estimated end to publish: `end`, or the published estimate `shown` if the two differ only slightly.

    A slight difference is at most `_ETA_STEP` times the remaining time. Each new estimate causes a write.
    """
    before = epoch_seconds(shown)
    return before if before is not None and abs(before - end) <= max(_ETA_STEP * (end - now), 1.0) else end


def _on_time(
    spec: BatchInferenceSpec, end: float | None, progress: BatchProgress | None, now: float
) -> list[_Condition]:
    """Return a list with the OnTime condition and the rate that meets the deadline; empty if the end is unknown."""
    deadline, until = spec.deadline, epoch_seconds(spec.deadline)
    if until is None or until <= now:
        text = f"spec.deadline is {deadline}, which has passed"
        return [_Condition(Type.ON_TIME, "False", BatchReason.DEADLINE_MISSED, text)]
    if end is None or progress is None:
        return []
    if end <= until:
        text = f"at this rate, the batch ends before {deadline}"
        return [_Condition(Type.ON_TIME, "True", BatchReason.IN_TIME, text)]
    factor, rate = (end - now) / (until - now), progress.rows_per_s or 0.0
    remaining = (progress.total or 0) - progress.done - progress.failed
    of_model = f"spec.scaling.maxReplicas of ModelDeployment {spec.model_deployment}"
    limit = of_model if spec.max_replicas is None else f"spec.maxReplicas, which is {spec.max_replicas}"
    advice = "Set spec.gentle to false, raise" if spec.gentle else "Raise"
    text = (
        f"at {rounded(rate)} rows/s, the batch ends at {rfc3339(end)}, after spec.deadline ({deadline}). The remaining "
        f"{remaining} rows need {rounded(rate * factor)} rows/s. {advice} {limit}, or set a later deadline"
    )
    return [_Condition(Type.ON_TIME, "False", BatchReason.DEADLINE_TOO_CLOSE, text)]
