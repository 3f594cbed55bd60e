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
_RETRY_HINT = "Correct the spec. To retry the same spec, change spec.model.revision, for example to retry-1"


def make(view: Scope, plan: ReconcilePlan) -> dict[str, Any] | None:
    """Return the value of `status.rollout`; None if no spec was ever accepted."""
    rolled = plan.rollout
    if rolled is None:
        return None
    name, record = view.key.name, rolled.record
    strategy = "Canary" if rolled.canary else rolled.pace.strategy
    written: dict[str, Any] = {"phase": rolled.phase.value, "strategy": strategy}
    if rolled.canary is not None:
        written["canary"] = {"step": rolled.record.step + 1, "weight": rolled.canary.weight, "pods": rolled.canary.pods}
        if rolled.canary.paused:
            written["canary"]["paused"] = True
    if rolled.phase is not RolloutPhase.COMPLETE:
        written["message"] = explanation(name, plan, rolled)[:MESSAGE_LIMIT]
    if record.began:
        written["startedAt"] = record.began
    if record.why_replacing and rolled.pace.strategy == "Replace":
        written["strategyReason"] = record.why_replacing
    if record.result == RolloutResult.FAILED:
        written["failed"] = {
            "revision": names.revision(name, rolled.asked.key),
            "reason": record.reason,
            "message": record.message,
            "finishedAt": record.ended,
        }
    if history := _history(view, rolled):
        written["history"] = history
    return written


def _history(view: Scope, rolled: RolloutPlan) -> list[dict[str, str]]:
    """Return the results of the last rollouts for `status.rollout.history`, newest first."""
    known = {r.key: r for r in (*view.revisions, rolled.asked, *rolled.changed)}
    ended = [(record, key) for key, r in known.items() if (record := RolloutRecord.of(r)).ended]
    ended.sort(key=lambda e: (e[0].ended, known[e[1]].number), reverse=True)
    return [
        {
            "revision": names.revision(view.key.name, key),
            "result": record.result,
            "finishedAt": record.ended,
            **(
                {"message": f"{record.reason}: {record.message}" if record.reason else record.message}
                if record.message
                else {}
            ),
        }
        for record, key in ended[:MAX_HISTORY]
    ]


def explanation(name: str, plan: ReconcilePlan, rolled: RolloutPlan) -> str:
    """Return a message about the rollout of the model `name`: its phase, the reason, and what a user can do."""
    asked, trouble = rolled.asked.key, rolled.trouble
    why = f"{trouble.reason}: {trouble.message}" if trouble else "The cause is unknown"
    match rolled.phase:
        case RolloutPhase.ROLLED_BACK:
            return f"revision {asked} failed and was rolled back to revision {rolled.target.key}. {why}. {_RETRY_HINT}"
        case RolloutPhase.ROLLING_BACK:
            return f"revision {asked} failed; rolling back to revision {rolled.target.key}. {why}. {_RETRY_HINT}"
        case RolloutPhase.FAILED:
            stays = "spec.rollout.onFailure is Stay" if rolled.good else "there is no earlier revision to roll back to"
            return f"revision {asked} failed and will not be rolled back: {stays}. {why}"
        case RolloutPhase.BLOCKED:
            lack = trouble.message if trouble else "the cause is unknown"
            return f"revision {asked} is waiting for capacity: {lack}. {_remedy(plan, rolled)}"
        case RolloutPhase.COMPLETE:
            return f"revision {asked} is served"
        case RolloutPhase.PROGRESSING:
            if rolled.canary is not None:
                room = f"; {trouble.message}" if trouble else ""
                if rolled.canary.paused:
                    step = f"{asked}/{rolled.record.step + 1}"
                    hint = (
                        f"To start the next step of the canary, run halcyon promote {name} --step, or set the "
                        f"annotation {PROMOTE_STEP} to {step}. The annotation {PROMOTE} promotes the canary, and {ABORT} aborts it"
                    )
                    room += f". {hint}"
                return f"revision {asked} is a canary: {rolled.canary.say}{room}"
            if rolled.pace.strategy == "Replace" and rolled.record.why_replacing:
                so_far = (
                    f"revision {asked} is replacing pods one at a time, deleting each old pod before its successor is ready: "
                    f"{rolled.record.why_replacing}"
                )
            else:
                so_far = f"revision {asked} is rolling out"
            return so_far + (f"; {trouble.message}" if trouble else "")


def _remedy(plan: ReconcilePlan, rolled: RolloutPlan) -> str:
    spec = plan.spec
    if spec is None or rolled.pace.strategy == "Replace":
        return (
            "The rollout continues as soon as there is capacity. "
            "Add nodes, lower the replicas of a model, or raise the quota"
        )
    count = defaults.bounded_replicas(spec)
    kept = "the only serving pod" if spec.rollout.strategy == "Auto" else f"all {count} old pods"
    return (
        f"spec.rollout.strategy is {spec.rollout.strategy}, which keeps {kept} until the new "
        "revision is ready. Add capacity, or set spec.rollout.strategy: Replace"
    )


# phase                      deadline passed     Stalled
# RollingBack, RolledBack    -                   RolledBack
# Blocked                    yes                 RolloutBlocked
# Blocked                    no                  (Reconciling, RolloutBlocked)
# Failed, by Stay            -                   its own reason
# else                                           (absent; without an earlier revision to roll back to, `status` decides)
def stalled(name: str, plan: ReconcilePlan, *, late: bool) -> Condition | None:
    """Return the condition Stalled of the model `name` if the rollout causes it, else None.

    `late` is true if the progress deadline has passed.
    """
    rolled = plan.rollout
    if rolled is None:
        return None
    if rolled.phase in {RolloutPhase.ROLLING_BACK, RolloutPhase.ROLLED_BACK}:
        reason = Reason.ROLLED_BACK
    elif rolled.phase is RolloutPhase.BLOCKED and late:
        reason = Reason.ROLLOUT_BLOCKED
    elif rolled.phase is RolloutPhase.FAILED and rolled.good is not None and rolled.trouble is not None:
        reason = rolled.trouble.reason
    else:
        return None
    return Condition(Type.STALLED, status=True, reason=reason, message=explanation(name, plan, rolled))


def reconciling(name: str, plan: ReconcilePlan) -> Condition | None:
    """Return the condition Reconciling; None if there is nothing to report except the progress of the rollout."""
    rolled = plan.rollout
    if rolled is None:
        return None
    if rolled.phase is RolloutPhase.BLOCKED:
        reason = Reason.ROLLOUT_BLOCKED
    elif rolled.phase is RolloutPhase.PROGRESSING and (
        rolled.canary or (rolled.good and (rolled.trouble or rolled.pace.strategy == "Replace"))
    ):
        reason = Reason.CANARY_PAUSED if rolled.canary and rolled.canary.paused else Reason.PROGRESSING
        if rolled.trouble is not None and rolled.trouble.reason is Reason.DEPLOYMENT_PAUSED:
            reason = Reason.DEPLOYMENT_PAUSED
    else:
        return None
    return Condition(Type.RECONCILING, status=True, reason=reason, message=explanation(name, plan, rolled))


# Present while the requested revision comes from its stored ControllerRevision, and this operator would render it differently.
def outdated(view: Scope, plan: ReconcilePlan) -> Condition | None:
    """Return the condition RuntimeOutdated; None if the condition doesn't apply."""
    rolled, differs = plan.rollout, plan.outdated
    if rolled is None or not differs:
        return None
    origin = f"by version {rolled.asked.version}" if rolled.asked.version else "by an earlier version"
    if rolled.asked.version == view.site.version:
        origin = "with former operator settings"
    rest = len(differs) - _MAX_NAMED
    changed = ", ".join(differs[:_MAX_NAMED]) + (f" and {rest} more" if rest > 0 else "")
    text = (
        f"the pod template of revision {rolled.asked.key} was rendered {origin}, and stays in use. The current "
        f"operator would render {changed} differently. To roll out the new template, run halcyon refresh "
        f"{view.key.name}"
    )
    return Condition(Type.RUNTIME_OUTDATED, status=True, reason=Reason.POD_TEMPLATE_OUTDATED, message=text)
