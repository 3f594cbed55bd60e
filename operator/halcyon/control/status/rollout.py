"""The rollout in the status: the field `rollout`, and its share in Reconciling and Stalled. Pure."""

from __future__ import annotations

from typing import Any

from halcyon.api.conditions import MESSAGE_LIMIT, Condition, Reason, Type
from halcyon.api.spec import defaults
from halcyon.control.desired.plan import ReconcilePlan
from halcyon.control.rollout.rollout_plan import RolloutPhase, RolloutPlan
from halcyon.control.rollout.rollout_record import RolloutRecord, RolloutResult
from halcyon.control.state.scope import Scope
from halcyon.render import names

MAX_HISTORY = 5
"""Maximum number of rollouts that are shown, the last one of each revision."""
_NAMED = 4
"""Maximum number of differences of a rendering that are listed by name; the others are counted."""
_AGAIN = "Change the spec; to try the same again, give spec.model.revision another text"


def make(view: Scope, plan: ReconcilePlan) -> dict[str, Any] | None:
    """Return the field `rollout`; None if nothing was ever accepted."""
    rolled = plan.rollout
    if rolled is None:
        return None
    name, trail = view.key.name, rolled.trail
    strategy = "Canary" if rolled.canary else rolled.pace.strategy
    told: dict[str, Any] = {"phase": rolled.phase.value, "strategy": strategy}
    if rolled.canary is not None:
        told["canary"] = {"step": rolled.trail.step + 1, "weight": rolled.canary.weight, "pods": rolled.canary.pods}
    if rolled.phase is not RolloutPhase.COMPLETE:
        told["message"] = say(plan, rolled)[:MESSAGE_LIMIT]
    if trail.began:
        told["startedAt"] = trail.began
    if trail.why_replacing and rolled.pace.strategy == "Replace":
        told["strategyReason"] = trail.why_replacing
    if trail.result == RolloutResult.FAILED:
        told["failed"] = {
            "revision": names.revision(name, rolled.asked.key),
            "reason": trail.reason,
            "message": trail.message,
            "finishedAt": trail.ended,
        }
    if history := _history(view, rolled):
        told["history"] = history
    return told


def _history(view: Scope, rolled: RolloutPlan) -> list[dict[str, str]]:
    """Return the results of the last rollouts, newest first."""
    known = {r.key: r for r in (*view.revisions, rolled.asked, *rolled.changed)}
    ended = [(trail, key) for key, r in known.items() if (trail := RolloutRecord.of(r)).ended]
    ended.sort(key=lambda e: (e[0].ended, known[e[1]].number), reverse=True)
    return [
        {
            "revision": names.revision(view.key.name, key),
            "result": trail.result,
            "finishedAt": trail.ended,
            **(
                {"message": f"{trail.reason}: {trail.message}" if trail.reason else trail.message}
                if trail.message
                else {}
            ),
        }
        for trail, key in ended[:MAX_HISTORY]
    ]


def say(plan: ReconcilePlan, rolled: RolloutPlan) -> str:
    """Return a sentence or two: the state, the reason, and what to do."""
    asked, trouble = rolled.asked.key, rolled.trouble
    why = f"{trouble.reason}: {trouble.message}" if trouble else "it isn't known why"
    match rolled.phase:
        case RolloutPhase.ROLLED_BACK:
            return f"revision {asked} failed and revision {rolled.target.key} serves again. {why}. {_AGAIN}"
        case RolloutPhase.ROLLING_BACK:
            return f"revision {asked} failed and revision {rolled.target.key} comes back. {why}. {_AGAIN}"
        case RolloutPhase.FAILED:
            stays = "spec.rollout.onFailure is Stay" if rolled.good else "no other revision was ever served"
            return f"revision {asked} failed and stays: {stays}. {why}"
        case RolloutPhase.BLOCKED:
            return f"revision {asked} waits for room: {trouble.message if trouble else ''}. {_way_out(plan, rolled)}"
        case RolloutPhase.COMPLETE:
            return f"revision {asked} is served"
        case RolloutPhase.PROGRESSING:
            if rolled.canary is not None:
                room = f"; {trouble.message}" if trouble else ""
                return f"revision {asked} is a canary: {rolled.canary.say}{room}"
            if rolled.pace.strategy == "Replace" and rolled.trail.why_replacing:
                so_far = f"revision {asked} replaces pods one by one, each before its successor: {rolled.trail.why_replacing}"
            else:
                so_far = f"revision {asked} is on its way"
            return so_far + (f"; {trouble.message}" if trouble else "")


def _way_out(plan: ReconcilePlan, rolled: RolloutPlan) -> str:
    spec = plan.spec
    if spec is None or rolled.pace.strategy == "Replace":
        return "It goes on by itself where room is made; fewer replicas or another quota make some"
    count = defaults.wanted_replicas(spec)
    return (
        f"spec.rollout.strategy is {spec.rollout.strategy}: all {count} pods stay until it is ready. Make room, or write "
        "strategy: Replace"
    )


# phase                      deadline passed     Stalled
# RollingBack, RolledBack    -                   RolledBack
# Blocked                    yes                 RolloutBlocked
# Blocked                    no                  (Reconciling, RolloutBlocked)
# Failed, by Stay            -                   its own reason
# else                                           (not from here: the very first revision has nothing to roll back to)
def stalled(plan: ReconcilePlan, *, late: bool) -> Condition | None:
    """Return Stalled if the rollout is the cause, else None; `late`: whether the progress deadline has passed."""
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
    return Condition(Type.STALLED, status=True, reason=reason, message=say(plan, rolled))


def reconciling(plan: ReconcilePlan) -> Condition | None:
    """Return Reconciling if the rollout has more to report than that it is in progress, else None."""
    rolled = plan.rollout
    if rolled is None:
        return None
    if rolled.phase is RolloutPhase.BLOCKED:
        reason = Reason.ROLLOUT_BLOCKED
    elif rolled.phase is RolloutPhase.PROGRESSING and (
        rolled.canary or (rolled.good and (rolled.trouble or rolled.pace.strategy == "Replace"))
    ):
        reason = Reason.PROGRESSING
    else:
        return None
    return Condition(Type.RECONCILING, status=True, reason=reason, message=say(plan, rolled))


# Present while the requested revision is from its ControllerRevision, and this operator would render it differently.
def outdated(view: Scope, plan: ReconcilePlan) -> Condition | None:
    """Return RuntimeOutdated, or None if it is absent."""
    rolled, differs = plan.rollout, plan.outdated
    if rolled is None or not differs:
        return None
    by = f"version {rolled.asked.version}" if rolled.asked.version else "an earlier version"
    if rolled.asked.version == view.site.version:
        by = "this version with other settings"
    more = f" and {len(differs) - _NAMED} more" if len(differs) > _NAMED else ""
    text = (
        f"revision {rolled.asked.key} was rendered by {by} and serves as it is; now differs {', '.join(differs[:_NAMED])}{more}. "
        f"halcyon refresh {view.key.name} rolls the new rendering out"
    )
    return Condition(Type.RUNTIME_OUTDATED, status=True, reason=Reason.POD_TEMPLATE_OUTDATED, message=text)
