"""The field `status.rollout`, and the conditions that a rollout causes, such as Reconciling and Stalled. Pure."""

from __future__ import annotations

from typing import Any

from halcyon.api.conditions import MESSAGE_LIMIT, Condition, Reason, Type
from halcyon.api.spec import defaults
from halcyon.control.desired.plan import ReconcilePlan
from halcyon.control.rollout.canary_progress import ABORT, PROMOTE, PROMOTE_STEP
from halcyon.control.rollout.rollout_plan import RolloutPhase, RolloutPlan
from halcyon.control.rollout.rollout_record import RolloutRecord, RolloutResult
from halcyon.control.state.scope import Scope
from halcyon.render import names

MAX_HISTORY = 5
"""Maximum number of rollouts in `status.rollout.history`. The history contains the last rollout of each revision."""
_MAX_NAMED = 4
"""Maximum number of differences between pod templates that a message names. Further differences are only counted."""
_RETRY_HINT = "Correct the spec, or retry by setting spec.model.revision to a new value, for example retry-1"


def make(scope: Scope, plan: ReconcilePlan) -> dict[str, Any] | None:
    """Return the value of `status.rollout`; None if no spec has ever been accepted."""
    rollout = plan.rollout
    if rollout is None:
        return None
    name, record = scope.key.name, rollout.record
    strategy = "Canary" if rollout.canary else rollout.pace.strategy
    fields: dict[str, Any] = {"phase": rollout.phase.value, "strategy": strategy}
    if rollout.canary is not None:
        fields["canary"] = {
            "step": rollout.record.step + 1,
            "weight": rollout.canary.weight,
            "pods": rollout.canary.pods,
        }
        if rollout.canary.paused:
            fields["canary"]["paused"] = True
    if rollout.phase is not RolloutPhase.COMPLETE:
        fields["message"] = explanation(name, plan, rollout)[:MESSAGE_LIMIT]
    if record.began:
        fields["startedAt"] = record.began
    if record.why_replacing and rollout.pace.strategy == "Replace":
        fields["strategyReason"] = record.why_replacing
    if record.result == RolloutResult.FAILED:
        fields["failed"] = {
            "revision": names.revision(name, rollout.requested.key),
            "reason": record.reason,
            "message": record.message,
            "finishedAt": record.ended,
        }
    if history := _history(scope, rollout):
        fields["history"] = history
    return fields


def _history(scope: Scope, rollout: RolloutPlan) -> list[dict[str, str]]:
    """Return the results of the last rollouts for `status.rollout.history`, newest first."""
    revisions = {r.key: r for r in (*scope.revisions, rollout.requested, *rollout.changed)}
    ended = [(record, key) for key, r in revisions.items() if (record := RolloutRecord.of(r)).ended]
    ended.sort(key=lambda e: (e[0].ended, revisions[e[1]].number), reverse=True)
    entries = []
    for record, key in ended[:MAX_HISTORY]:
        entry = {"revision": names.revision(scope.key.name, key), "result": record.result, "finishedAt": record.ended}
        if record.message:
            entry["message"] = f"{record.reason}: {record.message}" if record.reason else record.message
        entries.append(entry)
    return entries


def explanation(name: str, plan: ReconcilePlan, rollout: RolloutPlan) -> str:
    """Return a message about the rollout of the model `name`: its phase, the reason, and what a user can do."""
    key, failure = rollout.requested.key, rollout.failure
    why = f"{failure.reason}: {failure.message}" if failure else "The cause is unknown"
    match rollout.phase:
        case RolloutPhase.ROLLED_BACK:
            return f"revision {key} failed and was rolled back to revision {rollout.target.key}. {why}. {_RETRY_HINT}"
        case RolloutPhase.ROLLING_BACK:
            return f"revision {key} failed; rolling back to revision {rollout.target.key}. {why}. {_RETRY_HINT}"
        case RolloutPhase.FAILED:
            cause = "spec.rollout.onFailure is Stay" if rollout.good else "there is no earlier revision to roll back to"
            return f"revision {key} failed and will not be rolled back, because {cause}. {why}"
        case RolloutPhase.BLOCKED:
            cause = failure.message if failure else "the cause is unknown"
            return f"revision {key} is waiting for capacity: {cause}. {_remedy(plan, rollout)}"
        case RolloutPhase.COMPLETE:
            return f"revision {key} is served"
        case RolloutPhase.PROGRESSING:
            if rollout.canary is not None:
                detail = f"; {failure.message}" if failure else ""
                if rollout.canary.paused:
                    step = f"{key}/{rollout.record.step + 1}"
                    hint = (
                        f"To start the next step of the canary, run halcyon promote {name} --step, or set the "
                        f"annotation {PROMOTE_STEP} to {step}. The annotation {PROMOTE} promotes the canary, and the annotation {ABORT} aborts it"
                    )
                    detail += f". {hint}"
                return f"revision {key} is a canary: {rollout.canary.message}{detail}"
            if rollout.pace.strategy == "Replace" and rollout.record.why_replacing:
                text = (
                    f"revision {key} is replacing pods one at a time, deleting each old pod before its successor is ready: "
                    f"{rollout.record.why_replacing}"
                )
            else:
                text = f"revision {key} is rolling out"
            return text + (f"; {failure.message}" if failure else "")


def _remedy(plan: ReconcilePlan, rollout: RolloutPlan) -> str:
    spec = plan.spec
    if spec is None or rollout.pace.strategy == "Replace":
        return (
            "The rollout continues as soon as capacity is available. "
            "Add nodes, reduce the replicas of a model, or raise the quota of the namespace"
        )
    count = defaults.bounded_replicas(spec)
    kept_pods = "the only serving pod" if count == 1 or spec.rollout.strategy == "Auto" else f"all {count} old pods"
    return (
        f"spec.rollout.strategy is {spec.rollout.strategy}, which keeps {kept_pods} until the new "
        "revision is ready. Add capacity, or set spec.rollout.strategy: Replace"
    )


# phase                      deadline passed     Stalled
# RollingBack, RolledBack    -                   RolledBack
# Blocked                    yes                 RolloutBlocked
# Blocked                    no                  (Reconciling, RolloutBlocked)
# Failed, by Stay            -                   its own reason
# else                                           (absent; without an earlier revision to roll back to, `status` decides)
def stalled(name: str, plan: ReconcilePlan, *, late: bool) -> Condition | None:
    """Return the Stalled condition of the model `name` if the rollout causes it, else None.

    `late` is true if the progress deadline has passed.
    """
    rollout = plan.rollout
    if rollout is None:
        return None
    if rollout.phase in {RolloutPhase.ROLLING_BACK, RolloutPhase.ROLLED_BACK}:
        reason = Reason.ROLLED_BACK
    elif rollout.phase is RolloutPhase.BLOCKED and late:
        reason = Reason.ROLLOUT_BLOCKED
    elif rollout.phase is RolloutPhase.FAILED and rollout.good is not None and rollout.failure is not None:
        reason = rollout.failure.reason
    else:
        return None
    return Condition(Type.STALLED, status=True, reason=reason, message=explanation(name, plan, rollout))


def reconciling(name: str, plan: ReconcilePlan) -> Condition | None:
    """Return the Reconciling condition; None if there is nothing to report except the progress of the rollout."""
    rollout = plan.rollout
    if rollout is None:
        return None
    if rollout.phase is RolloutPhase.BLOCKED:
        reason = Reason.ROLLOUT_BLOCKED
    elif rollout.phase is RolloutPhase.PROGRESSING and (
        rollout.canary or (rollout.good and (rollout.failure or rollout.pace.strategy == "Replace"))
    ):
        reason = Reason.CANARY_PAUSED if rollout.canary and rollout.canary.paused else Reason.PROGRESSING
        if rollout.failure is not None and rollout.failure.reason is Reason.DEPLOYMENT_PAUSED:
            reason = Reason.DEPLOYMENT_PAUSED
    else:
        return None
    return Condition(Type.RECONCILING, status=True, reason=reason, message=explanation(name, plan, rollout))


# Present while servers run the requested revision from its stored ControllerRevision, and this operator would render it differently.
def outdated(scope: Scope, plan: ReconcilePlan) -> Condition | None:
    """Return the RuntimeOutdated condition; None if the condition doesn't apply."""
    rollout, differs = plan.rollout, plan.outdated
    if rollout is None or not differs or rollout.target.key != rollout.requested.key:
        return None  # a refresh would try a failed revision again
    origin = f"by version {rollout.requested.version}" if rollout.requested.version else "by an earlier version"
    if rollout.requested.version == scope.site.version:
        origin = "with earlier operator settings"
    further = len(differs) - _MAX_NAMED
    fields = ", ".join(differs[:_MAX_NAMED]) + (f" and {further} more" if further > 0 else "")
    text = (
        f"the pod template of revision {rollout.requested.key} was rendered {origin} and stays in use. The current "
        f"operator would render {fields} differently. To roll out the new template, run halcyon refresh "
        f"{scope.key.name}"
    )
    return Condition(Type.RUNTIME_OUTDATED, status=True, reason=Reason.POD_TEMPLATE_OUTDATED, message=text)
