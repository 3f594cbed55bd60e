"""Progress of a canary: the next step, a promotion, or an abort. Pure.

Out of scope: the slots of its pods (`slot_allocation`), and the comparison with the stable revision
(`halcyon.scaling.canary.analysis`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from halcyon.api.spec.rollout import Canary, CanaryPause, CanaryStep
from halcyon.api.timestamps import epoch_seconds, rfc3339
from halcyon.api.types import GROUP, duration_s
from halcyon.control.rollout.rollout_record import RolloutRecord
from halcyon.control.state.scope import CanaryResult

PROMOTE, ABORT = f"{GROUP}/promote", f"{GROUP}/abort"
"""Annotations of a ModelDeployment with which a user promotes or aborts a canary. The value names the revision of the
canary. Other revisions are unaffected."""
PROMOTE_STEP = f"{GROUP}/promote-step"
"""Annotation of a ModelDeployment with which a user ends one step of a canary. Its value is REVISION/STEP, where steps
are counted from 1. Other steps are unaffected."""
_EARLY_S = 60.0
"""Time by which an annotation for a canary may be older than its rollout, in seconds. It may have been applied with the
spec, and clocks differ."""
CanaryRequest = Literal["", "promote", "abort", "step"]
Outcome = Literal["goes on", "promoted", "aborted", "worse"]


@dataclass(frozen=True)
class Advance:
    """State of a canary after its current step was evaluated."""

    record: RolloutRecord
    weight: int
    """Share of the requests, in percent, that the canary receives once one of its pods is ready."""
    pods: int
    outcome: Outcome
    message: str
    """Message about the step, with the reason why the canary waits or has ended."""
    due: float | None = None
    """Time at which the pause of the step ends, in seconds since the epoch; None if no pause is in progress."""
    paused: bool = False
    """Whether the canary waits until someone resumes the rollout."""


def canary_request(annotations: Mapping[str, str], key: str, name: str, step: int = -1) -> CanaryRequest:
    """Return the action that a user has requested with an annotation for a canary's revision.

    The annotation names the revision by its key, or by the name of its ControllerRevision. `step` is the index of the
    canary's current step, from 0.
    """
    if annotations.get(ABORT) in {key, name}:
        return "abort"
    if annotations.get(PROMOTE) in {key, name}:
        return "promote"
    return "step" if annotations.get(PROMOTE_STEP) in {f"{key}/{step + 1}", f"{name}/{step + 1}"} else ""


def current_request(meta: Mapping[str, Any], record: RolloutRecord, key: str, name: str) -> tuple[CanaryRequest, str]:
    """Return the action that a user has requested for a rollout (`canary_request`), and a hint if one is ignored.

    Annotations from before the rollout belong to an earlier rollout of the same revision, and are ignored.
    """
    annotations, times = meta.get("annotations") or {}, meta.get("annotatedAt") or {}
    begin = epoch_seconds(record.began) or 0.0
    current = {n: v for n, v in annotations.items() if begin - (epoch_seconds(times.get(n)) or begin) <= _EARLY_S}
    request = canary_request(current, key, name, record.step)
    ignored = "" if request else canary_request(annotations, key, name, record.step)
    hint = f"; an annotation for this revision ({ignored}) is older than its rollout and is ignored; remove it and set it again"
    return request, hint if ignored else ""


def pod_count(count: int, weight: int) -> int:
    """Return the number of canary pods.

    It is `weight` percent of `count` pods, rounded, but at least 1. At least 1 of the `count` pods is left for the
    stable revision. If `count` is 1, the canary has 1 additional pod.
    """
    return max(1, min(count - 1, round(count * weight / 100)))


# request   result       its pods are ready   pause over   outcome
# abort     -            -                    -            rolled back
# promote   -            one is               -            promoted
# -         rollback     -                    -            rolled back
# -         -            no                   -            waits for them
# step      else         yes                  -            the next step; after the last one, promoted
# -         -            yes                  no           waits until someone resumes it, if the pause has no duration
# -         promote      yes                  yes          goes to the next step; after the last one, promoted
# -         else         yes                  yes          waits for analysis; with analysis Disabled, as for promote
def advance(
    record: RolloutRecord,
    rules: Canary,
    *,
    now: float,
    count: int,
    ready: int,
    canary_result: CanaryResult | None,
    request: CanaryRequest,
) -> Advance:
    """Return the canary's new state after evaluating its current step at the time `now`, in seconds since the epoch.

    `record` is the rollout record of the canary's revision, and `rules` the field spec.rollout.canary. `count` is the
    number of desired pods over both revisions, and `ready` that of the canary's ready pods.
    """
    step = _Step.of(record, rules.steps or DEFAULT_STEPS, count)
    end = _requested_end(step, request, ready) or _rollback(step, rules, canary_result)
    if end is not None:
        return end
    if ready < step.pods:
        return step.state("goes on", f"{step.stage}; {ready} of {step.pods} canary pods are ready")
    step = step.begun(now)
    # The annotation `PROMOTE_STEP` ends the step, no matter what the step waits for.
    wait = None if request == "step" else _wait(step, rules, now, canary_result)
    if wait is not None:
        return wait
    if step.is_last:
        return step.state("promoted", canary_result.why if canary_result else "all steps are completed")
    next_record = replace(step.record, step=step.record.step + 1, step_at="")
    # The annotation ends one step only.
    return advance(next_record, rules, now=now, count=count, ready=ready, canary_result=canary_result, request="")


@dataclass(frozen=True)
class _Step:
    """Current step of a canary."""

    record: RolloutRecord
    steps: Sequence[CanaryStep]
    """All steps of the canary."""
    pods: int
    """Number of pods of the canary in this step."""
    total_pods: int
    """Number of pods over both revisions in this step."""

    @classmethod
    def of(cls, record: RolloutRecord, steps: Sequence[CanaryStep], count: int) -> _Step:
        """Return the step of a rollout record: the last one if the spec has fewer steps than before."""
        index = min(record.step, len(steps) - 1)
        pods = pod_count(count, steps[index].weight)
        return cls(replace(record, step=index), steps, pods, max(count, pods + 1))

    @property
    def current(self) -> CanaryStep:
        """Step in the spec."""
        return self.steps[self.record.step]

    @property
    def is_last(self) -> bool:
        """Whether no step follows."""
        return self.record.step + 1 == len(self.steps)

    @property
    def stage(self) -> str:
        """Beginning of a message: the step and its share of the requests and pods."""
        return (
            f"step {self.record.step + 1} of {len(self.steps)}: {self.current.weight} % of the requests, "
            f"{self.pods} of {self.total_pods} pods"
        )

    def begun(self, now: float) -> _Step:
        """Return the step with the time at which its pods were ready first, which is `now` if it wasn't known."""
        return self if self.record.step_at else replace(self, record=replace(self.record, step_at=rfc3339(now)))

    def state(self, outcome: Outcome, message: str, due: float | None = None, *, paused: bool = False) -> Advance:
        """Return the state of the canary in this step."""
        return Advance(self.record, self.current.weight, self.pods, outcome, message, due, paused)


def _requested_end(step: _Step, request: CanaryRequest, ready: int) -> Advance | None:
    """Return the state of a canary that a user promotes or aborts; None if no user does.

    A canary is promoted once one of its pods is ready.
    """
    if request == "abort":
        return step.state("aborted", f"the annotation {ABORT} aborted the canary at {step.stage}")
    if request == "promote" and ready:
        return step.state("promoted", f"the annotation {PROMOTE} promoted the canary at {step.stage}")
    return None


def _rollback(step: _Step, rules: Canary, canary_result: CanaryResult | None) -> Advance | None:
    """Return the state of a canary that the analysis has found to be worse; None if it hasn't."""
    if canary_result is None or canary_result.action != "rollback" or not _is_judged(rules):
        return None
    return step.state("worse", f"{canary_result.why} ({step.stage})")


def _wait(step: _Step, rules: Canary, now: float, canary_result: CanaryResult | None) -> Advance | None:
    """Return the state of a canary that waits for a user, for the end of a pause, or for the analysis.

    Return None if the step is complete.
    """
    if step.current.pause.duration is None:
        return step.state(
            "goes on", f"{step.stage}; the canary is paused until a user resumes the rollout", paused=True
        )
    pause_end = (epoch_seconds(step.record.step_at) or now) + duration_s(step.current.pause.duration)
    if now < pause_end:
        text = f"{step.stage}; the step lasts at least until {rfc3339(pause_end)}"
        return step.state("goes on", text, pause_end)
    if not _is_judged(rules) or (canary_result is not None and canary_result.action == "promote"):
        return None
    why = canary_result.why if canary_result else "no measurements yet"
    return step.state(
        "goes on",
        f"{step.stage}; waiting for analysis: {why}. The annotation {PROMOTE} promotes the canary without analysis, and "
        f"the annotation {ABORT} aborts it",
    )


def _is_judged(rules: Canary) -> bool:
    return rules.analysis.mode == "Enabled"


DEFAULT_STEPS = tuple(
    CanaryStep(weight=weight, pause=CanaryPause(duration=duration))
    for weight, duration in ((5, "2m"), (25, "5m"), (50, "5m"))
)
"""Steps of a canary whose spec has no steps."""
