"""The change of a model's spec that starts a canary, and the change that reverts it. Pure.

A merge patch is reverted field by field: only fields that the change has set, and only while they still have its
values. Therefore a change by another user during the canary is never overwritten.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from halcyon.api.conditions import Reason
from halcyon.api.spec import defaults
from halcyon.api.spec.parse import SpecError, parse
from halcyon.api.spec.rollout import Canary, CanaryStep
from halcyon.api.types import duration_s
from halcyon.control.rollout.canary_progress import ABORT, DEFAULT_STEPS, PROMOTE, PROMOTE_STEP
from halcyon_cli.kube import fields, merge_patch

Json = Mapping[str, Any]

_ROLLOUT = "rollout"
_PARTS = ("batching", "runtime", "model", _ROLLOUT)
"""Parts of a spec that a change may contain. The autoscaler writes others, such as `replicas`, during a canary."""


@dataclass(frozen=True, kw_only=True)
class WrittenChange:
    """A change that was written to a model's spec, with the specs before and after it."""

    before: Json
    after: Json
    generation: int
    """Generation of the ModelDeployment that contains the change."""
    previous: str
    """Name of the ControllerRevision that served before the change."""

    def undo(self) -> dict[str, Any]:
        """Return the merge patch of the spec that reverts the change."""
        patch = {}
        for part in _PARTS:
            if self.after.get(part) != self.before.get(part):
                patch[part] = merge_patch.difference(self.after.get(part), self.before.get(part))
        return patch

    def rollout_undo(self) -> dict[str, Any]:
        """Return the merge patch that restores only `spec.rollout`; empty if it didn't change."""
        undo = self.undo()
        return {_ROLLOUT: undo[_ROLLOUT]} if _ROLLOUT in undo else {}

    def is_in_force(self, spec: Json) -> bool:
        """Return whether a spec still has the change's value in every field that the change has set."""
        return _has_values(self.undo(), self.after, spec)

    def is_rollout_in_force(self, spec: Json) -> bool:
        """Return whether a spec still has the change's values in the changed fields of `spec.rollout`."""
        return _has_values(self.rollout_undo(), self.after, spec)


def _has_values(changed: Json, after: Json, spec: Json) -> bool:
    for name, value in changed.items():
        changed_value, current = after.get(name), spec.get(name)
        if isinstance(value, Mapping) and isinstance(changed_value, Mapping):
            if not _has_values(value, changed_value, fields.mapping(current)):
                return False
        elif changed_value != current:
            return False
    return True


def canary_patch(spec: Json, change: Json) -> dict[str, Any]:
    """Return the merge patch of a spec that starts a canary with `change`.

    A model with the strategy Canary keeps its steps. Any other model gets this strategy, with the steps of
    `rollout.canary` if it has them.
    """
    strategy = fields.mapping(spec.get(_ROLLOUT)).get("strategy")
    return dict(change) if strategy == "Canary" else {**change, _ROLLOUT: {"strategy": "Canary"}}


def canary_annotations(*, abort: str | None = None) -> dict[str, str | None]:
    """Return the canary annotations to set: an abort of this revision only, or the removal of all of them.

    Annotations that are left from an earlier canary would end another canary of the same revision.
    """
    return {ABORT: abort, PROMOTE: None, PROMOTE_STEP: None}


def steps(spec: Json) -> tuple[CanaryStep, ...]:
    """Return the steps of a model's canaries."""
    return _canary(spec).steps or DEFAULT_STEPS


def steps_text(spec: Json) -> str:
    """Return the steps of a model's canaries in words, for example `5 % for 2m, 50 % until someone resumes the rollout`."""
    return ", ".join(
        f"{step.weight} % "
        + (f"for {step.pause.duration}" if step.pause.duration else "until someone resumes the rollout")
        for step in steps(spec)
    )


def min_duration_s(spec: Json) -> float:
    """Return the minimum duration of a model's canary in seconds. Pauses without a duration don't count."""
    return sum(duration_s(step.pause.duration) for step in steps(spec) if step.pause.duration)


def _canary(spec: Json) -> Canary:
    canary = fields.mapping(spec.get(_ROLLOUT)).get("canary")
    try:
        return Canary.model_validate(canary) if canary is not None else Canary()
    except ValueError:
        return Canary()


def refusal(model: Json) -> str:
    """Return the reason why a canary can't be started now, with a remedy; empty if it can be started."""
    name = str(fields.mapping(model.get("metadata")).get("name"))
    return _spec_refusal(name, model) or _state_refusal(name, model)


def _spec_refusal(name: str, model: Json) -> str:
    spec = fields.mapping(model.get("spec"))
    scaling = fields.mapping(spec.get("scaling"))
    try:
        parsed = parse(name, spec)
    except SpecError as error:
        return f"the spec of {name} is invalid: {'; '.join(error.sentences)}"
    if fields.mapping(model.get("metadata")).get("deletionTimestamp"):
        return f"{name} is being deleted"
    if parsed.traffic.mode == "Direct":
        return (
            f"{name} has spec.traffic.mode Direct, which can't send a canary its share of the requests; set mode: Balancer, or apply "
            "the patch without --apply"
        )
    if parsed.rollout.canary is not None and parsed.rollout.canary.analysis.mode == "Disabled":
        return (
            f"spec.rollout.canary.analysis.mode of {name} is Disabled, so nothing would show whether the canary is as good; set it to "
            "Enabled, or apply the patch without --apply"
        )
    if scaling.get("mode") == "Paused":
        return f"{name} is paused (spec.scaling.mode); start it again with halcyon resume {name}"
    if defaults.bounded_replicas(parsed) == 0:
        return f"{name} is at zero replicas, and a canary is compared with pods that serve; send it requests, or halcyon scale {name} 1"
    return ""


# observed   Accepted   rollout.phase   DeploymentPaused   Ready    a canary can start
# no         -          -               -                  -        no: the operator handles a change
# yes        False      -               -                  -        no
# yes        True       not Complete    -                  -        no: a rollout is in progress, or has failed
# yes        True       Complete        yes                -        no
# yes        True       Complete        no                 False    no
# yes        True       Complete        no                 True     yes
def _state_refusal(name: str, model: Json) -> str:
    meta, status = fields.mapping(model.get("metadata")), fields.mapping(model.get("status"))
    conditions = {condition.get("type"): condition for condition in fields.mappings(status.get("conditions"))}
    rollout = fields.mapping(status.get("rollout"))
    if (fields.count(status.get("observedGeneration")) or 0) < (fields.count(meta.get("generation")) or 1):
        return f"the operator hasn't handled the last change of {name} yet; wait until halcyon status {name} -w ends"
    if conditions.get("Accepted", {}).get("status") != "True":
        return f"{name} isn't accepted: {conditions.get('Accepted', {}).get('message', 'no state yet')}; halcyon get {name} shows its state"
    phase = rollout.get("phase")
    if phase != "Complete" or rollout.get("canary"):
        step = fields.mapping(rollout.get("canary")).get("step")
        rollout_text = f"a canary at step {step}" if step else f"a rollout ({phase or 'its phase is unknown'})"
        message = fields.text(rollout.get("message"))
        return (
            f"{name} has {rollout_text} already{f': {message}' if message else ''}; wait until halcyon status {name} -w ends, or abort it: "
            f"halcyon abort {name}"
        )
    paused = conditions.get("Reconciling", {})
    if paused.get("reason") == Reason.DEPLOYMENT_PAUSED:
        return f"a Deployment of {name} is paused: {paused.get('message')}; kubectl rollout resume deployment NAME"
    if conditions.get("Ready", {}).get("status") != "True":
        return f"{name} isn't ready: {conditions.get('Ready', {}).get('message', 'no state yet')}; halcyon diagnose {name} finds the cause"
    return ""


def notes(model: Json) -> tuple[str, ...]:
    """Return sentences about figures that a model's canary can't compare, and about conditions for its progress."""
    spec, sentences = fields.mapping(model.get("spec")), list[str]()
    if fields.mapping(spec.get("traffic")).get("mode") == "Gateway":
        sentences.append("spec.traffic.mode is Gateway: the analysis compares failures and queue time, and no latency")
    if any(step.pause.duration is None for step in steps(spec)):
        name = fields.mapping(model.get("metadata")).get("name")
        sentences.append(
            f"a step of the canary has no duration; to resume the rollout, run halcyon promote {name} --step"
        )
    return tuple(sentences)
